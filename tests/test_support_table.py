"""docs/support.md is current, complete and true: rows, links, and what they claim of engines."""

import ast
import importlib.util
import inspect
import re
import sys
from pathlib import Path

import pytest

from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.dialect.ops import OPS
from dnnc.dialect.ops.reduction import REDUCTION_MODES
from dnnc.dialect.pointwise_modes import MODES
from dnnc.engines import ENGINES
from dnnc.frontends.methods import methods
from dnnc.target import TARGETS, of
from tests.dialect.examples import EXAMPLES
from tests.engines import test_assembly

ROOT = Path(__file__).parent.parent


def loaded(path):
    """A Python file that is in no package, as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


support = loaded(ROOT / "docs" / "generate_support.py")
from support_table import (  # noqa: E402
    answers,
    engines_part,
    graphs,
    linked_tests,
    modes_part,
    operations_part,
    types_part,
)

TEXT = support.TABLE.read_text()


# ---- reading it


def cells(line):
    return [c.strip().replace(r"\|", "|") for c in re.split(r"(?<!\\)\|", line)[1:-1]]


def rows(heading, text=TEXT):
    """The table under a heading: first cell without its quotes -> column -> cell."""
    section = re.split(rf"^#+ {heading}$", text, flags=re.MULTILINE)[1]
    section = re.split(r"^#+ ", section, flags=re.MULTILINE)[0]
    header, _, *lines = (cells(line) for line in section.splitlines() if line.startswith("|"))
    return [dict(zip(header, line, strict=True)) for line in lines]


def names(heading):
    """The first cells of the table under a heading."""
    return [next(iter(row.values())).strip("`") for row in rows(heading)]


def row_of(heading, name):
    (found,) = (row for row in rows(heading) if next(iter(row.values())) == f"`{name}`")
    return found


def engines_in(cell):
    """The engines that a cell names -> the targets that it names of each."""
    if cell == "none":
        return {}
    everywhere = ", ".join(target.name for target in TARGETS)
    found = re.findall(r"(\w+)(?: \(([^)]+)\))?", cell)
    return {name: set((targets or everywhere).split(", ")) for name, targets in found}


def takers(graphs):
    """The engines that have no reason against one of the graphs -> for which targets."""
    found = {
        engine.name: {
            t.name for t in TARGETS if any(not engine.supports(graph, t) for graph in graphs)
        }
        for engine in ENGINES
    }
    return {name: targets for name, targets in found.items() if targets}


# ---- current


@pytest.fixture(scope="module")
def made():
    return support.text()


def test_the_table_is_current(made):
    assert made == TEXT, "run python docs/generate_support.py"


def test_a_table_that_is_not_current_is_noticed(made, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(support, "text", lambda: made)
    path = tmp_path / "support.md"
    assert support.main(["--check"], path) == 1
    path.write_text(made.replace("`matmul_sm80`", "`matmul_sm75`"))
    assert support.main(["--check"], path) == 1
    assert "support.md is not current" in capsys.readouterr().err
    assert support.main([], path) == 0
    assert path.read_text() == made
    assert support.main(["--check"], path) == 0


# ---- complete


@pytest.mark.parametrize(
    ("heading", "wanted"),
    [
        ("Engines", [engine.name for engine in ENGINES]),
        ("Architectures", [target.name for target in TARGETS]),
        ("Operations", [op.op_name for op in OPS]),
        ("Pointwise modes", [mode.name for mode in MODES]),
        ("Reduction modes", [mode.name for mode in REDUCTION_MODES]),
        ("Data types", [dtype.name for dtype in dtypes.ALL]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_everything_has_a_row(heading, wanted):
    assert names(heading) == wanted


def test_every_knob_has_a_row():
    found = {(row["engine"].strip("`"), row["knob"].strip("`")) for row in rows("Knobs")}
    without = {"peers"}
    assert {engine for engine, _ in found} == {engine.name for engine in ENGINES} - without
    for engine in ENGINES:
        for graph in engines_part.samples(engine):
            known = {(engine.name, knob.name) for knob in engine.knobs(graph, of("sm_90"))}
            assert known <= found


def test_every_method_has_a_place():
    found = [
        name
        for heading in ("Operations", "Pointwise modes")
        for row in rows(heading)
        for name in re.findall(r"`(\w+)`", row["pygraph"])
    ]
    assert sorted(found) == sorted(methods())


def test_every_row_of_tests_is_one_of_the_table():
    wanted = [f"engine {engine.name}" for engine in ENGINES]
    wanted += [f"operation {op.op_name}" for op in OPS]
    assert [
        key for key in linked_tests.TESTS if key.startswith(("engine ", "operation "))
    ] == wanted
    assert all(linked_tests.TESTS.values())


# ---- links


def functions(path):
    """The functions of a Python file, those of `from x import *` among them."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom) and any(name.name == "*" for name in node.names):
            found |= functions(ROOT / f"{node.module.replace('.', '/')}.py")
    return found


def broken_links(text):
    """The links to the repository whose file, or the test function in it, is not there."""
    broken = []
    for label, target in re.findall(r"\[([^]]+)\]\(\.\./([^)]+)\)", text):
        path = ROOT / target
        is_there = path.is_file()
        if is_there and not label.endswith(path.name):
            is_there = label.startswith("test_") and label in functions(path)
        if not is_there:
            broken.append((label, target))
    return broken


def test_every_link_leads_to_a_test():
    assert TEXT.count("](../tests/") > 60
    assert not broken_links(TEXT)


@pytest.mark.parametrize(
    "link",
    [
        "[engines/test_none.py](../tests/engines/test_none.py)",
        "[test_none](../tests/engines/elementwise/test_pointwise.py)",
        "[test_mode](../tests/gpu/elementwise/test_reduction.py)",
        "[check](../tests/support/checked.py)",
    ],
)
def test_a_link_to_no_test_is_noticed(link):
    assert broken_links(link)


def test_functions_of_the_tests_on_a_device_are_those_of_the_engines():
    assert not broken_links("[test_modes](../tests/gpu/elementwise/test_reduction.py)")


# ---- true: engines and architectures


def verified():
    """(engine, target, kind) of every claim about an architecture."""
    for row in rows("Architectures"):
        target = row["architecture"].strip("`")
        for engine in ENGINES:
            for kind in row[f"`{engine.name}`"].split(", "):
                yield engine, target, kind


def test_every_claim_about_an_architecture_has_a_test():
    for engine, target, kind in verified():
        tests = [t for t in linked_tests.TESTS[f"engine {engine.name}"] if target in t.targets]
        kinds = {test.kind for test in tests}
        is_without = kind in ("untested", "refused") and not kinds
        assert kind in kinds or is_without, (engine.name, target, kind)


def test_only_hopper_has_been_run_on():
    assert {target for _, target, kind in verified() if kind == "run"} == {"sm_90", "sm_90a"}


def source_of(test):
    """Markers of a test or of its whole file; tests on a device are those of the engines."""
    if not test.function:
        name = test.path.removeprefix("tests/gpu/")
        places = (
            ROOT / test.path,
            ROOT / "tests" / "engines" / name,
            ROOT / "tests/choosing" / name,
        )
        return "".join(place.read_text() for place in places if place.exists())
    module = importlib.import_module(test.path.removesuffix(".py").replace("/", "."))
    return inspect.getsource(getattr(module, test.function))


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_what_is_assembled_and_interpreted_is_said_in_the_tests(engine):
    assembled = {case[0] for case in test_assembly.CASES.values()}
    for test in linked_tests.TESTS[f"engine {engine.name}"]:
        if test.kind == "assembled":
            is_a_case = "CASES" in source_of(test) and engine.name in assembled
            assert is_a_case or f'"{engine.name}"' in source_of(test)
            assert set(test.targets) <= {target.name for target in TARGETS}
        if test.target:
            assert f'"{test.target}"' in source_of(test)


# Engines for some architectures only.
TARGETS_OF = {
    name: {"sm_90a"}
    for name in (
        "matmul_sm90",
        "conv_product_sm90",
        "conv_sm90",
        "conv_stem_sm90",
        "conv_wgrad_sm90",
        "sdpa_bwd_sm90",
        "sdpa_fwd_sm90",
    )
}


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_no_engine_is_refused_or_untested_on_a_common_target(engine):
    taken = TARGETS_OF.get(engine.name, {target.name for target in TARGETS})
    for _, target, kind in (claim for claim in verified() if claim[0] is engine):
        assert (kind == "refused") == (target not in taken)
        assert kind != "untested" or of(target).arch_specific


# ---- true: operations, modes, types


def test_every_example_is_asked_in_every_context():
    for op in OPS:
        assert len(graphs.graphs_of_operation(op.op_name)) == 3 * len(EXAMPLES[op.op_name])
    for mode in MODES:
        assert len(modes_part.graphs_of_mode(mode)) == 4


@pytest.mark.parametrize("name", [op.op_name for op in OPS])
def test_the_engines_of_an_operation_take_an_example(name):
    row = row_of("Operations", name)
    whole, taking = row["engines"], takers(graphs.graphs_of_operation(name))
    if whole.startswith("several kernels: "):
        assert not taking
        parts = whole.removeprefix("several kernels: ").split(", ")
        assert tuple(parts) == answers.engines_of_parts(name)
    else:
        assert engines_in(whole) == taking
    assert (row["status"] == operations_part.NO_ENGINE) == (row["engines"] == "none")


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_the_engines_of_a_mode_take_it(mode):
    found = engines_in(row_of("Pointwise modes", mode.name)["engines"])
    assert found == takers(modes_part.graphs_of_mode(mode))


@pytest.mark.parametrize("mode", REDUCTION_MODES, ids=lambda mode: mode.name)
def test_the_engines_of_a_reduction_mode_take_it(mode):
    found = engines_in(row_of("Reduction modes", mode.name)["engines"])
    assert found == takers(modes_part.graphs_of_reduction_mode(mode))


RUN = [row["operation"].strip("`") for row in rows("Operations") if row["status"] == "run"]


def test_every_operation_has_an_engine():
    assert [op.op_name for op in OPS] == RUN


@pytest.mark.parametrize("name", RUN)
def test_operations_that_run_have_examples_that_run(name):
    """The tests on a device run every example of operations that have an engine: as one kernel,
    where an engine takes the operation whole."""
    is_whole = not row_of("Operations", name)["engines"].startswith("several kernels")
    configs = (
        heuristics.best_config(build().graph.finalize(), of("sm_90a")) for build in EXAMPLES[name]
    )
    assert any(len(config.choices) == 1 for config in configs) == is_whole


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_the_engines_of_a_data_type_take_it(dtype):
    row = row_of("Data types", dtype.name)
    for column, examples in (
        ("input", types_part.casts(dtype, dtypes.f32)),
        ("output", types_part.casts(dtypes.f32, dtype)),
    ):
        cell = row[column]
        named = {e.name for e in ENGINES} if cell == "all" else set(cell.split(", "))
        assert named == takers(examples).keys()
    for engine, computes in re.findall(r"(\w+) in ([^;]+)", row["matmul operands"]):
        for compute in computes.split(", "):
            (graph,) = types_part.products(dtype, (dtypes.of(compute),))
            assert engine in takers([graph])


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_fp8_alone_needs_some_architectures(dtype):
    is_fp8 = dtype.is_float and dtype.bits == 8
    fitting = [target.name for target in TARGETS if target.has_fp8_convert]
    assert "sm_80" not in fitting
    assert "sm_89" in fitting
    wanted = ", ".join(fitting) if is_fp8 else "all"
    assert row_of("Data types", dtype.name)["architectures"] == wanted


def test_fp8_is_refused_elsewhere_by_its_clause_alone():
    for graph in types_part.casts(dtypes.f8e4m3, dtypes.f32):
        for choice in heuristics.choices(graph, of("sm_90")):
            reasons = choice.engine.supports(graph, of("sm_86"))
            assert [reason.clause for reason in reasons] == ["fp8"]
