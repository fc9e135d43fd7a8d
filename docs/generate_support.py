"""Writes docs/support.md: what dnnc supports, asked of the engines and the operations.

    python docs/generate_support.py            rewrites it
    python docs/generate_support.py --check    exits 1 if it is not current

A cell is what `supports` and `candidates` of the engines, or `verify` of an operation, say of
small graphs.  Typed is only which tests belong to which row: TESTS.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

# This checkout's dnnc, and its tests, whose example graphs are used.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dnnc import dtypes
from dnnc.dialect.fusion import Fusion, partition
from dnnc.dialect.op import Op
from dnnc.dialect.ops import OPS, Pointwise
from dnnc.dialect.ops.reduction import INDEXED_MODES, REDUCTION_MODES, ReductionMode
from dnnc.dialect.pointwise_modes import MODES, Mode
from dnnc.dtypes import DType
from dnnc.engines import ENGINES, heuristics
from dnnc.engines.engine import Engine
from dnnc.errors import DnncError
from dnnc.frontends.methods import methods
from dnnc.target import TARGETS, Target
from tests.attention_graphs import Pattern
from tests.dialect.examples import (
    EXAMPLES,
    finish,
    new_graph,
    pointwise_of,
    reduction_of,
)
from tests.support.machine import INTERPRETER

TABLE = Path(__file__).resolve().parent / "support.md"

# Of the device that tests/gpu have run on, Hopper, where a test names none.  Code of sm_90a has run
# there too: that of tests which name it.
RUN_TARGET = "sm_90"
HOPPER = "sm_90a"

NO_ENGINE = "graph only: no engine"

Build = Callable[[], Any]  # makes a pygraph


# ---- the tests of each row


@dataclass(frozen=True)
class LinkedTest:
    """A test file, or a function of it.

    target: of the code that is run, interpreted or assembled ("" = the usual one, or every one
    that the test is parametrized by).
    """

    path: str
    function: str = ""
    target: str = ""

    @property
    def kind(self) -> str:
        """What it does: run, interpreted, assembled, refused; graph where no engine has a part."""
        name = f"{self.path}::{self.function}"
        return next((kind for start, kind in _KINDS if name.startswith(start)), "graph")

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets whose code it looks at."""
        if self.kind not in ("run", "interpreted", "assembled"):
            return ()
        if self.target:
            return (self.target,)
        if self.kind == "assembled":
            return parametrized(self.path, self.function, "target")
        return (RUN_TARGET if self.kind == "run" else INTERPRETER.target,)

    @property
    def link(self) -> str:
        """It as a Markdown link from the folder of the table."""
        return f"[{self.function or self.path.removeprefix('tests/')}](../{self.path})"


_REDUCTION = "tests/engines/test_reduction.py"
_ASSEMBLY = "tests/engines/test_assembly.py"
_FP8 = "test_fp8_below_sm_89_is_refused_with_the_targets_that_have_it"
_REFUSED = "tests/test_support_table.py"

# The first that a test's name starts with.
_KINDS = (
    ("tests/gpu/", "run"),
    (f"{_ASSEMBLY}::{_FP8}", "refused"),
    (_ASSEMBLY, "assembled"),
    ("tests/engines/", "interpreted"),
    ("tests/test_random_graphs.py", "interpreted"),
    (_REFUSED, "refused"),
)


def parametrized(path: str, function: str, name: str) -> tuple[Any, ...]:
    """The values that a test function is given for a parameter."""
    module = import_module(path.removesuffix(".py").replace("/", "."))
    marks = getattr(module, function).pytestmark
    return tuple(next(m.args[1] for m in marks if m.args and m.args[0] == name))


def _both(path: str, *functions: str, target: str = "") -> tuple[LinkedTest, ...]:
    """Test functions that run on a device and in the interpreter; none: the whole file."""
    return tuple(
        LinkedTest(f"tests/{folder}/{path}", function, target)
        for folder in ("gpu", "engines")
        for function in functions or ("",)
    )


# What every engine has.
_RANDOM = "test_graphs_of_a_support_surface_compute_what_the_reference_computes"
_RANDOM_SM90 = "test_graphs_of_matmul_sm90_compute_what_the_reference_computes"
_COMMON = (
    LinkedTest("tests/gpu/test_random_graphs.py", _RANDOM),
    LinkedTest("tests/test_random_graphs.py", _RANDOM),
    LinkedTest(_ASSEMBLY, "test_every_engine_on_every_architecture"),
)
_VIEWS = (
    *_both("test_pointwise.py", "test_views_in_a_chain"),
    *_both("test_matmul_sm80.py", "test_transposed_and_sliced_operands"),
)
_NORMS = (
    *_both("test_pointwise.py", "test_examples_of_every_operation"),
    LinkedTest("tests/dialect/test_norm_references.py"),
)

TESTS: dict[str, tuple[LinkedTest, ...]] = {
    "engine pointwise": (
        *_both("test_pointwise.py"),
        LinkedTest("tests/gpu/test_large.py", "test_pointwise_beyond_two_to_the_31_elements"),
        LinkedTest("tests/engines/test_pointwise.py", "test_types_in_and_out", "sm_90"),
        *_COMMON,
    ),
    "engine transpose": (
        *_both("test_transpose.py", target=RUN_TARGET),
        LinkedTest(_ASSEMBLY, "test_every_engine_on_every_architecture"),
    ),
    "engine reduction": (
        *_both("test_reduction.py"),
        LinkedTest("tests/gpu/test_large.py", "test_reductions"),
        LinkedTest("tests/engines/test_mutation.py", "test_each_wait_is_needed"),
        *_COMMON,
    ),
    "engine rows": (
        *_both("test_rows.py", target=HOPPER),
        LinkedTest(_ASSEMBLY, "test_every_engine_on_every_architecture"),
        LinkedTest(_ASSEMBLY, "test_no_rows_are_spilled", "sm_90a"),
        LinkedTest("tests/engines/test_mutation.py", "test_each_wait_of_rows_is_needed", "sm_90a"),
        *_COMMON,
    ),
    "engine grid": (
        *_both("test_grid.py", target=HOPPER),
        LinkedTest(_ASSEMBLY, "test_every_engine_on_every_architecture"),
    ),
    "engine sdpa_fwd_sm90": (
        *_both("test_sdpa_fwd_sm90.py", target=HOPPER),
        LinkedTest(
            "tests/engines/test_sdpa_fwd_sm90.py", "test_best_choices_spill_nothing", HOPPER
        ),
    ),
    "engine matmul_sm90": (
        *_both("test_matmul_sm90.py", target=HOPPER),
        *_both("test_booleans_sm90.py", target=HOPPER),
        *_both("test_fragments_sm90.py", target=HOPPER),
        *_both("test_grouped_sm90.py", target=HOPPER),
        *_both("test_schedules_sm90.py", target=HOPPER),
        *_both("test_wide_rows_sm90.py", target=HOPPER),
        *_both("test_variants.py", target=HOPPER),
        LinkedTest("tests/engines/test_mutation.py", "test_each_wait_of_hopper_is_needed", HOPPER),
        LinkedTest("tests/gpu/test_random_graphs.py", _RANDOM_SM90, HOPPER),
        LinkedTest("tests/test_random_graphs.py", _RANDOM_SM90, HOPPER),
        LinkedTest(_ASSEMBLY, "test_matmul_sm90_fits_its_registers", HOPPER),
    ),
    "engine matmul_sm80": (
        *_both("test_matmul_sm80.py"),
        LinkedTest("tests/gpu/test_large.py", "test_every_tile_at_sizes_that_fill_the_device"),
        LinkedTest("tests/engines/test_mutation.py", "test_each_wait_is_needed"),
        *_COMMON,
    ),
    "engine conv_sm90": (
        *_both("test_conv_sm90.py", target=HOPPER),
        *_both("test_conv_swapped_sm90.py", target=HOPPER),
        *_both("test_conv_halo_sm90.py", target=HOPPER),
        LinkedTest(_ASSEMBLY, "test_conv_sm90_fits_its_registers", HOPPER),
    ),
    "engine conv_stem_sm90": (
        *_both("test_conv_stem_sm90.py", target=HOPPER),
        LinkedTest(_ASSEMBLY, "test_first_layers_fit_their_registers", HOPPER),
    ),
    "engine conv_sm80": (
        *_both("test_conv_sm80.py"),
        LinkedTest("tests/gpu/test_large_conv_sm80.py"),
        LinkedTest("tests/engines/test_mutation.py", "test_each_wait_is_needed"),
        LinkedTest(_ASSEMBLY, "test_conv_sm80_on_every_architecture"),
        LinkedTest(_ASSEMBLY, "test_no_gather_spills", "sm_80"),
    ),
    "engine conv_depthwise": (
        *_both("test_conv_depthwise.py"),
        LinkedTest("tests/gpu/test_large_conv_depthwise.py"),
        LinkedTest("tests/engines/test_conv_depthwise.py", "test_fp8", "sm_90"),
        LinkedTest("tests/engines/test_mutation.py", "test_each_wait_is_needed"),
        LinkedTest(_ASSEMBLY, "test_every_engine_on_every_architecture"),
    ),
    "engine resample": (
        *_both("test_resample.py"),
        LinkedTest("tests/engines/test_resample.py", "test_other_types", "sm_90"),
        LinkedTest(_ASSEMBLY, "test_every_engine_on_every_architecture"),
    ),
    "engine peers": (
        *_both("test_peers.py"),
        LinkedTest(_ASSEMBLY, "test_every_engine_on_every_architecture"),
    ),
    "engine fallback": (
        *_both("test_reduction.py", "test_fallback_takes_mixed_types_and_any_strides"),
        LinkedTest(_REDUCTION, "test_fallback_multiplies_every_type", "sm_90"),
        *_both("test_conv.py"),
        *_COMMON,
    ),
    "operation matmul": (
        *_both("test_matmul_sm80.py"),
        *_both("test_matmul_sm90.py", target=HOPPER),
        LinkedTest("tests/gpu/test_large.py", "test_ffn_by_the_engine_that_is_chosen"),
    ),
    "operation moe_grouped_matmul": (
        *_both("test_grouped_matmul.py"),
        *_both("test_grouped_sm90.py", target=HOPPER),
    ),
    "operation pointwise": _both("test_pointwise.py"),
    "operation reduction": (*_both("test_reduction.py"), *_both("test_reduction_index.py")),
    "operation transpose": _VIEWS,
    "operation slice": _VIEWS,
    "operation reshape": _both(
        "test_pointwise.py", "test_views_in_a_chain", "test_reshape_of_symbols_divides_by_sizes"
    ),
    "operation concatenate": _both("test_pointwise.py", "test_concatenate_of_different_sizes"),
    "operation conv_fprop": (
        *_both("test_conv.py"),
        *_both("test_conv_sm80.py"),
        *_both("test_conv_sm90.py", target=HOPPER),
        *_both("test_conv_depthwise.py"),
    ),
    "operation resample": (
        *_both("test_resample.py"),
        LinkedTest("tests/dialect/test_resample.py"),
    ),
    "operation resample_backward": (
        *_both("test_resample.py"),
        LinkedTest("tests/dialect/test_resample.py"),
    ),
    "operation rng": (*_both("test_rng.py"), LinkedTest("tests/dialect/test_rng.py")),
    "operation layernorm": _NORMS,
    "operation rmsnorm": _NORMS,
    "operation adalayernorm": _NORMS,
    "operation instancenorm": _NORMS,
    "operation batchnorm": (*_NORMS, *_both("test_peers.py")),
    "operation batchnorm_inference": _NORMS,
    "operation layernorm_backward": _NORMS,
    "operation rmsnorm_backward": _NORMS,
    "operation adalayernorm_backward": _NORMS,
    "operation instancenorm_backward": _NORMS,
    "operation batchnorm_backward": (*_NORMS, *_both("test_peers.py")),
    "operation genstats": _NORMS,
    "operation bn_finalize": _NORMS,
    "operation dbn_weight": _NORMS,
    "operation peer_reduction": _both("test_peers.py"),
    "operation softmax": _NORMS,
    "operation softmax_backward": _NORMS,
    "operation sdpa": (
        *_both("test_attention.py", target=HOPPER),
        LinkedTest("tests/dialect/test_attention.py"),
    ),
    "operation paged_cache_load": (
        *_both("test_attention.py", "test_a_paged_cache"),
        LinkedTest("tests/dialect/test_attention.py"),
    ),
    "operation ragged_load": _both("test_attention.py", "test_packed_sequences"),
    "operation ragged_store": _both("test_attention.py", "test_packed_sequences"),
    "operations that an engine takes": (
        *_both("test_pointwise.py", "test_examples_of_every_operation"),
        LinkedTest("tests/dialect/test_linalg_cpu.py", "test_examples"),
    ),
    "all operations": tuple(
        LinkedTest("tests/dialect/test_ops.py", function)
        for function in (
            "test_each_constraint_rejects",
            "test_json_round_trip",
            "test_mlir_round_trip",
            "test_reference_gives_the_inferred_dims_and_types",
        )
    ),
    "pointwise modes": (
        *_both(
            "test_pointwise.py",
            "test_examples_of_every_operation",
            "test_float_modes_on_16_bit_types",
        ),
        LinkedTest("tests/dialect/test_linalg_cpu.py", "test_special_values"),
    ),
    "reduction modes": (
        *_both("test_reduction.py", "test_modes", "test_integers"),
        *_both("test_reduction_index.py"),
    ),
    "data types": (
        *_both("test_pointwise.py", "test_types_in_and_out"),
        *_both("test_reduction.py", "test_fallback_multiplies_every_type"),
        *_both("test_matmul_sm80.py", "test_types_and_operand_layouts"),
        *_both("test_matmul_sm90.py", "test_types_and_operand_layouts", target=HOPPER),
        LinkedTest(_ASSEMBLY, _FP8),
        LinkedTest("tests/dialect/test_linalg_cpu.py", "test_conversions"),
    ),
}  # fmt: skip


def links(*keys: str) -> str:
    """The tests of rows, by kind."""
    groups: dict[str, list[str]] = {}
    for test in (test for key in keys for test in TESTS[key]):
        groups.setdefault(test.kind, []).append(test.link)
    return "; ".join(f"{kind}: {', '.join(found)}" for kind, found in groups.items())


# ---- small graphs


def fusion_of(build: Build, io: DType = dtypes.f32, compute: DType | None = None) -> Fusion | None:
    """A graph as one fusion; None if an operation's constraints do not hold.

    io: the type of tensors that set none.  compute: of every operation, None: as built.
    """
    g = build()
    g.graph.io_type = g.graph.intermediate_type = io
    for op in g.graph.ops:
        if compute is not None and hasattr(op, "compute_type"):
            op.compute_type = compute
    try:
        g.validate()
    except DnncError:
        return None
    graph = g.graph.finalize()
    (whole,) = partition(graph, [graph.live_ops])
    return whole


def summed(build: Build) -> Build:
    """The graph with its first output summed along the last axis."""

    def make() -> Any:
        g, y = _reopened(build)
        total = g.reduction(y, "add", compute_data_type=dtypes.f32)
        return finish(g, total.set_dim([*y.get_dim()[:-1], 1]))

    return make


def multiplied(build: Build) -> Build:
    """The graph with its first output, as f32, as operand A of a matrix product."""

    def make() -> Any:
        g, y = _reopened(build)
        w = g.tensor([*[1] * (len(y.get_dim()) - 2), y.get_dim()[-1], 8], data_type=dtypes.f32)
        a = g.identity(y, compute_data_type=dtypes.f32).set_data_type(dtypes.f32)
        return finish(g, g.matmul(a, w, compute_data_type=dtypes.f32))

    return make


def _reopened(build: Build) -> tuple[Any, Any]:
    """A new graph and its first output, which is virtual now."""
    g = build()
    y = g.graph.outputs[0]
    return g, y.set_output(False)


def after_a_product(mode: Mode) -> Build:
    """A matrix product and the mode on its result."""

    def make() -> Any:
        g = new_graph()
        c = g.matmul(g.tensor([2, 4, 6]), g.tensor([2, 6, 6]))
        others = [g.tensor([2, 4, 6]) for _ in range(mode.arity - 1)]
        axis = [1] if "axis" in mode.parameters else []
        y = getattr(g, mode.methods[0][0])(c, *others, *axis)
        return finish(g, g.identity(y))

    return make


def contexts(build: Build) -> tuple[Build, ...]:
    """An example alone, and before what engines grow around."""
    return build, summed(build), multiplied(build)


def fusions(builds: Iterable[Build]) -> tuple[Fusion, ...]:
    """The valid ones of the graphs."""
    made = (fusion_of(build) for build in builds)
    return tuple(fusion for fusion in made if fusion is not None)


@cache
def graphs_of_operation(name: str) -> tuple[Fusion, ...]:
    """The example graphs of an operation, in every context."""
    return fusions(made for build in EXAMPLES[name] for made in contexts(build))


# ---- what the engines say


def takes(engine: Engine, fusion: Fusion, target: Target) -> bool:
    """Whether the engine has no reason against the graph, and knobs to look at."""
    return not engine.supports(fusion, target) and bool(engine.candidates(fusion, target))


@cache
def targets_of(engine: Engine, graphs: tuple[Fusion, ...]) -> tuple[Target, ...]:
    """The targets for which the engine takes one of the graphs."""
    return tuple(t for t in TARGETS if any(takes(engine, fusion, t) for fusion in graphs))


def engines_of(graphs: tuple[Fusion, ...]) -> tuple[Engine, ...]:
    """The engines that take one of the graphs for some target."""
    return tuple(engine for engine in ENGINES if targets_of(engine, graphs))


def engines_text(graphs: tuple[Fusion, ...]) -> str:
    """The engines that take one of the graphs, each with its targets unless it is all."""
    cells: list[str] = []
    for engine in ENGINES:
        fitting = targets_of(engine, graphs)
        if fitting:
            some = "" if fitting == TARGETS else f" ({', '.join(map(str, fitting))})"
            cells.append(engine.name + some)
    return ", ".join(cells) or "none"


@cache
def engines_of_parts(name: str) -> tuple[str, ...]:
    """The engines of an operation's examples that are split, where no engine takes them whole."""
    found: dict[str, None] = {}
    for build in EXAMPLES[name]:
        with contextlib.suppress(DnncError):
            config = heuristics.best_config(build().graph.finalize(), TARGETS[0])
            found |= dict.fromkeys(choice.engine.name for choice in config.choices)
    return tuple(found)


def runs(name: str) -> bool:
    """Whether an operation has an engine, or several for its parts."""
    return bool(engines_of(graphs_of_operation(name)) or engines_of_parts(name))


def engines_of_operation(name: str) -> str:
    """Those that take an example whole, or else those of its parts."""
    graphs = graphs_of_operation(name)
    if engines_of(graphs) or not engines_of_parts(name):
        return engines_text(graphs)
    return f"several kernels: {', '.join(engines_of_parts(name))}"


# ---- Markdown


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(map(_cell, line)) + " |\n" for line in lines)


def _cell(value: object) -> str:
    return str(value).replace("|", r"\|")


def _types(types: Iterable[DType]) -> str:
    """f32, f16: each once; all where it is every one."""
    found = tuple(dict.fromkeys(types))
    return "all" if found == dtypes.ALL else ", ".join(map(str, found)) or "none"


def _numbers(values: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(values)))


# ---- engines


def status_on(engine: Engine, target: Target) -> str:
    """How the engine's code for a target is verified."""
    if target not in targets_of(engine, samples(engine)):
        return "refused"
    kinds = {t.kind for t in TESTS[f"engine {engine.name}"] if target.name in t.targets}
    ladder = ("run", "interpreted", "assembled")
    return ", ".join(kind for kind in ladder if kind in kinds) or "untested"


@cache
def samples(engine: Engine) -> tuple[Fusion, ...]:
    """Graphs of every data type that the engine takes for some target; norms, also of several
    devices."""
    made = [f for t in dtypes.ALL for f in (*casts(t, dtypes.f32), *products(t))]
    made += fusions(EXAMPLES["conv_fprop"])
    made += [f for t in dtypes.ALL for f in convolutions(t)]
    made += fusions(EXAMPLES["peer_reduction"])
    made += fusions(EXAMPLES["batchnorm"])
    made += [attention(name) for name in ("HALF", "BFLOAT16")]
    return tuple(fusion for fusion in made if targets_of(engine, (fusion,)))


def _knob_rows(engine: Engine) -> Iterator[Sequence[object]]:
    """A row a knob; where its values depend on the type of the operands, that is said."""
    found: dict[tuple[str, str], dict[tuple[int, ...], list[DType]]] = {}
    everywhere = {_operand_type(fusion) for fusion in samples(engine)}
    for fusion in samples(engine):
        for knob in engine.knobs(fusion, TARGETS[-1]):
            types = found.setdefault((knob.name, knob.doc), {}).setdefault(knob.values, [])
            types.append(_operand_type(fusion))
    for (name, doc), values in found.items():
        cells = (
            _numbers(numbers) + ("" if set(types) == everywhere else f" ({_types(types)})")
            for numbers, types in values.items()
        )
        yield f"`{engine.name}`", f"`{name}`", "; ".join(cells), doc


def _operand_type(fusion: Fusion) -> DType:
    """The type of the anchor's operands, without one that of the first operation's."""
    return (fusion.anchor or fusion.ops[0]).operands[0].type


def _engine_row(engine: Engine) -> Sequence[object]:
    support = "; ".join(engine.support)
    return f"`{engine.name}`", engine.index, support, links(f"engine {engine.name}")


def _architecture_row(target: Target) -> Sequence[object]:
    return f"`{target}`", target.part, *(status_on(engine, target) for engine in ENGINES)


_ENGINES = """\
## Engines

The index is that of plan names and of `create_execution_plan`. Where several engines take a graph,
the shortest predicted time comes first; what rounds operands to fewer bits (`TF32=1`) comes last.
"""

_KNOBS = """\
### Knobs

Heuristics choose the values. Values that are set by hand have to be legal together, for the graph
and the target; the engine says what is not.
"""


def _engines_part() -> Iterator[str]:
    yield _ENGINES
    yield table(("engine", "index", "takes", "tests"), map(_engine_row, ENGINES))
    yield _KNOBS
    rows = (row for engine in ENGINES for row in _knob_rows(engine))
    yield table(("engine", "knob", "values", "what it is"), rows)
    yield "### Architectures\n"
    names = (f"`{engine.name}`" for engine in ENGINES)
    yield table(("architecture", "such as", *names), map(_architecture_row, TARGETS))


# ---- operations


def status_of(name: str) -> str:
    """How far an operation gets."""
    if not runs(name):
        return NO_ENGINE
    kinds = {test.kind for key in _test_keys(name) for test in TESTS[key]}
    ladder = {"run": "run", "interpreted": "interpreted", "assembled": "assembled only"}
    return next(status for kind, status in ladder.items() if kind in kinds)


def _test_keys(name: str) -> tuple[str, ...]:
    """The rows of TESTS that are about an operation."""
    own = f"operation {name}"
    if not runs(name):
        return own, "all operations"
    return own, "operations that an engine takes", "all operations"


def _io_types(name: str) -> tuple[DType, ...]:
    """The types that all tensors of an example may have at once.

    Where engines take the operation, they have to take that.
    """
    has_engine = bool(engines_of(graphs_of_operation(name)))

    def fits(io: DType) -> bool:
        made = (fusion_of(build, io) for build in EXAMPLES[name])
        return any(f is not None and (not has_engine or engines_of((f,))) for f in made)

    return tuple(filter(fits, dtypes.ALL))


def _compute_types(builds: Iterable[Build]) -> tuple[DType, ...]:
    """The compute types that one of the graphs may have, on float or on integer tensors."""
    graphs = tuple(builds)
    return tuple(
        compute
        for compute in dtypes.COMPUTE
        if any(fusion_of(b, io, compute) for b in graphs for io in (dtypes.f32, dtypes.i32))
    )


@cache
def compute_types_of_operation(kind: type[Op]) -> tuple[DType, ...]:
    if all(field.name != "compute_type" for field in kind.fields):
        return ()
    return _compute_types(EXAMPLES[kind.op_name])


def _operation_row(kind: type[Op]) -> Sequence[object]:
    name = kind.op_name
    method = "[a method a mode](#pointwise-modes)" if kind is Pointwise else f"`{name}`"
    return (
        f"`{name}`",
        f"`CUDNN_BACKEND_{kind.backend}_DESCRIPTOR`" if kind.backend else "none",
        method,
        _types(_io_types(name)),
        _types(compute_types_of_operation(kind)),
        engines_of_operation(name),
        status_of(name),
        links(f"operation {name}"),
    )


_OPERATIONS = """\
## Operations

An engine takes an operation if it takes an example of it: alone, with the result summed along an
axis, or with the result as operand of a matrix product. Where none takes an example whole, it runs
as several kernels, whose engines are named. Data types are those that all tensors of
an example may have at once; most operations mix types too.

Every operation has more tests than its own:

- all operations: {all}
- operations that an engine takes: {taken}
"""


def _operations_part() -> Iterator[str]:
    yield _OPERATIONS.format(
        all=links("all operations"), taken=links("operations that an engine takes")
    )
    yield table(
        ("operation", "cuDNN", "pygraph", "data types", "compute types", "engines", "status",
         "tests"),
        map(_operation_row, OPS),
    )  # fmt: skip


# ---- modes

_ARGUMENTS = {"axis": 0, "negative_slope": 0.5}


@cache
def methods_of_modes() -> dict[str, tuple[str, ...]]:
    """Mode -> the pygraph methods that make it, found by calling them."""
    found: dict[str, tuple[str, ...]] = {}
    others = {kind.op_name for kind in OPS}
    for name, method in methods().items():
        if name in others:
            continue
        g = new_graph()
        required = [
            p.name
            for p in inspect.signature(method).parameters.values()
            if p.default is inspect.Parameter.empty and p.name != "self"
        ]
        getattr(g, name)(*(_ARGUMENTS.get(p) or g.tensor([4, 4]) for p in required))
        mode = g.graph.ops[-1].mode
        found[mode] = (*found.get(mode, ()), name)
    return found


@cache
def graphs_of_mode(mode: Mode) -> tuple[Fusion, ...]:
    """The mode alone, before a sum, before a product and after a product."""
    build = pointwise_of(mode, *mode.methods[0])
    return fusions((*contexts(build), after_a_product(mode)))


@cache
def graphs_of_reduction_mode(mode: ReductionMode) -> tuple[Fusion, ...]:
    return fusions([reduction_of(mode.name)])


def _mode_row(mode: Mode) -> Sequence[object]:
    return (
        f"`{mode.name}`",
        f"`{mode.cudnn}`",
        ", ".join(f"`{name}`" for name in methods_of_modes()[mode.name]),
        f"`{mode.formula}`",
        _types(_compute_types([pointwise_of(mode, *mode.methods[0])])),
        engines_text(graphs_of_mode(mode)),
    )


def _reduction_mode_row(mode: ReductionMode) -> Sequence[object]:
    return (
        f"`{mode.name}`",
        f"`CUDNN_REDUCE_TENSOR_{mode.name.upper()}`",
        f"`{mode.formula}`",
        _types(_compute_types([reduction_of(mode.name)])),
        "yes" if mode.name in INDEXED_MODES else "no",
        engines_text(graphs_of_reduction_mode(mode)),
    )


_POINTWISE_MODES = """\
## Pointwise modes

x, b and t are the operands in their order; backward modes take dy and x. An engine takes a mode if
it takes it alone, before a sum, before a matrix product or after one; `fallback` takes graphs with
a sum or a product only.

Tests: {tests}
"""

_REDUCTION_MODES = """\
## Reduction modes

The sum, or what stands for it, goes over the axes where the result has one element. Index: whether
`generate_index=True` gives a second result, the places of the first elements that equal the first
([rule](numerics.md#the-table)); `rows` and `grid` take it as one kernel, `matmul_sm90` after a
product with rows of up to 768 elements.

Tests: {tests}
"""


def _modes_part() -> Iterator[str]:
    yield _POINTWISE_MODES.format(tests=links("pointwise modes"))
    header = ("mode", "cuDNN", "pygraph", "formula", "compute types", "engines")
    yield table(header, map(_mode_row, MODES))
    yield _REDUCTION_MODES.format(tests=links("reduction modes"))
    header = ("mode", "cuDNN", "formula", "compute types", "index", "engines")
    yield table(header, map(_reduction_mode_row, REDUCTION_MODES))


# ---- data types


@cache
def casts(source: DType, result: DType) -> tuple[Fusion, ...]:
    """From a type to a type: a cast, a transposed one, a sum, a cast before a product, averages."""

    def cast() -> Any:
        g = new_graph()
        y = g.identity(g.tensor([8, 8], data_type=source))
        return finish(g, y.set_data_type(result))

    def transposed() -> Any:
        g = new_graph()
        y = g.identity(g.tensor([8, 8], [1, 8], data_type=source)).set_stride([8, 1])
        return finish(g, y.set_data_type(result))

    def total() -> Any:
        g = new_graph()
        y = g.reduction(g.tensor([8, 8], data_type=source), "add").set_dim([8, 1])
        return finish(g, y.set_data_type(result))

    def product() -> Any:
        g = new_graph()
        a = g.identity(g.tensor([8, 8], data_type=source))
        return finish(g, g.matmul(a, g.tensor([8, 8])).set_data_type(result))

    def pooled() -> Any:
        g = new_graph()
        x = g.tensor([1, 8, 8], data_type=source)
        y, _ = g.resample(x, "AVGPOOL_INCLUDE_PADDING", [0], [0], [2], [2])
        return finish(g, y.set_data_type(result))

    return fusions((cast, transposed, total, product, pooled))


@cache
def convolutions(io: DType) -> tuple[Fusion, ...]:
    """The example convolutions of a type; of an integer one with integer sums."""
    compute = dtypes.i32 if io.is_integer else dtypes.f32
    made = (fusion_of(build, io, compute) for build in EXAMPLES["conv_fprop"])
    return tuple(fusion for fusion in made if fusion is not None)


def attention(dtype: str) -> Fusion:
    """A small attention."""
    graph = Pattern(dtype=dtype).g.graph.finalize()
    return partition(graph, [graph.live_ops])[0]


def products(operand: DType, computes: Sequence[DType] = dtypes.COMPUTE) -> tuple[Fusion, ...]:
    """A matrix product of two operands of a type, for each compute type that it may have."""

    def product() -> Any:
        g = new_graph()
        a, b = (g.tensor([8, 8], data_type=operand) for _ in range(2))
        return finish(g, g.matmul(a, b))

    made = (fusion_of(product, compute=compute) for compute in computes)
    return tuple(fusion for fusion in made if fusion is not None)


def _names(engines: Sequence[Engine]) -> str:
    return "all" if engines == ENGINES else ", ".join(engine.name for engine in engines)


def _operand_text(dtype: DType) -> str:
    """The engines that multiply two matrices of a type, with their compute types."""
    cells: list[str] = []
    for engine in ENGINES:
        types = [c for c in dtypes.COMPUTE if targets_of(engine, products(dtype, (c,)))]
        if types:
            cells.append(f"{engine.name} in {_types(types)}")
    return "; ".join(cells)


def type_targets(dtype: DType) -> tuple[Target, ...]:
    """The targets for which an engine takes the type."""
    found = (*casts(dtype, dtypes.f32), *casts(dtypes.f32, dtype), *products(dtype))
    fitting = {target for engine in ENGINES for target in targets_of(engine, found)}
    return tuple(target for target in TARGETS if target in fitting)


def _type_row(dtype: DType) -> Sequence[object]:
    targets = type_targets(dtype)
    computing = [op.op_name for op in OPS if dtype in compute_types_of_operation(op)]
    return (
        f"`{dtype.name}`",
        f"`CUDNN_DATA_{dtype.cudnn}`",
        "a bit, eight a byte" if dtype.bits == 1 else f"{dtype.bits} bits",
        ", ".join(computing) or "none",
        _names(engines_of(casts(dtype, dtypes.f32))),
        _names(engines_of(casts(dtypes.f32, dtype))),
        _operand_text(dtype),
        "all" if targets == TARGETS else ", ".join(map(str, targets)),
    )


_DATA_TYPES = """\
## Data types

Storage: of an element. Compute: the operations that may have it as compute type. Input and output:
the engines that read a tensor of the type, and that write one. Matmul operands: the engines that
multiply two matrices of the type with no cast before, and the compute types in which they do.

{compute_only}

Tests: {tests}
"""


def _compute_only() -> str:
    """Which types no tensor may have, and the operations that compute in them."""
    rows = (row for row in dtypes.COMPUTE if not row.has_storage)
    return "\n".join(
        f"`{row.name}` (`CUDNN_DATA_{row.cudnn}`) is a compute type only, of"
        f" {', '.join(op.op_name for op in OPS if row in compute_types_of_operation(op))}."
        for row in rows
    )


def _types_part() -> Iterator[str]:
    yield _DATA_TYPES.format(compute_only=_compute_only(), tests=links("data types"))
    yield table(
        ("type", "cuDNN", "storage", "compute", "input", "output", "matmul operands",
         "architectures"),
        map(_type_row, dtypes.ALL),
    )  # fmt: skip


# ---- the file

_HEAD = f"""\
# What dnnc supports

`python docs/generate_support.py` writes this file: it asks the engines and the operations of the
code about small graphs. For any other graph, `dnnc engines GRAPH` says which engines take it, and
which clause of the others refuses it.

- **run**: tests run the kernels on a device of the architecture, which so far is Hopper: code of
  `{RUN_TARGET}`, and of `{HOPPER}` for engines that need it.
- **interpreted**: tests run the final PTX in the interpreter, on a machine without a GPU.
- **assembled**: tests assemble the final PTX for the architecture, and look at registers, shared
  memory and spills.
- **untested**: the engine takes graphs for the architecture, and no test looks at the code.
- **refused**: the engine takes no graph for the architecture.
- **{NO_ENGINE}**: the graph can be built, verified, stored, and run by the NumPy
  reference; every engine refuses it, and says which clause does.
- Tests called **graph** need no engine; tests called **refused** are of what is turned down.
"""


def text() -> str:
    """The whole file."""
    parts = (_engines_part(), _operations_part(), _modes_part(), _types_part())
    return "\n".join([_HEAD, *(piece for part in parts for piece in part)])


def main(arguments: Sequence[str], path: Path = TABLE) -> int:
    """Writes the file, or with --check says whether it is current; gives the exit status."""
    made = text()
    if "--check" not in arguments:
        path.write_text(made)
        return 0
    if path.exists() and path.read_text() == made:
        return 0
    print(f"{path.name} is not current; run python docs/generate_support.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
