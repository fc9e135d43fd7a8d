"""docs/convolution.md: what its tables say of each restriction of the guide is what compiles."""

import re
from pathlib import Path

import pytest

from dnnc.choosing import heuristics
from dnnc.errors import DnncError
from dnnc.target import of

from .convolution_rows import ROWS

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "convolution.md").read_text()
TARGETS = {"sm_90a": 3, "sm_90": 4}  # target -> its column
OTHERS = ("sm_80", "sm_120")

# Rows that are no graphs, and the test of what they say.
ELSEWHERE = {
    "alpha": ("tests/backend/test_use_cases.py", "test_alpha_scales_the_result"),
    "beta": (
        "tests/backend/test_use_cases.py",
        "test_beta_adds_what_y_held",
    ),
    "signals": ("tests/backend/test_foreign.py", '"SIGNAL": signal'),
}


def lines():
    """The cells of each row of the tables of restrictions."""
    section = PAGE.split("## What cuDNN's guide restricts")[1].split("\n## ")[0]
    found = [
        [c.strip() for c in line.split("|")[1:-1]]
        for line in section.splitlines()
        if line.startswith("|")
    ]
    return [cells for cells in found if cells[0] != "row" and set(cells[0]) != {"-"}]


def compiled(g, target):
    """A cell's text: the engines of the first configuration's kernels, or the status."""
    graph = g.graph.finalize()
    for mode in ("A", "FALLBACK"):
        try:
            found = heuristics.best_config(graph, of(target), [mode])
        except DnncError as error:
            said = error.status.name
            continue
        return ", ".join(f"`{choice.engine.name}`" for choice in found.choices)
    return said


def test_every_row_is_a_graph_or_tested_elsewhere():
    names = [cells[0] for cells in lines()]
    assert len(set(names)) == len(names)
    assert set(names) == ROWS.keys() | ELSEWHERE.keys()
    for path, name in ELSEWHERE.values():
        assert name in (ROOT / path).read_text()
    assert all(all(cells[1:3]) for cells in lines())


@pytest.mark.parametrize("target", TARGETS)
def test_what_the_tables_say_is_what_compiles(target):
    said = {cells[0]: cells[TARGETS[target]] for cells in lines() if cells[0] in ROWS}
    assert {name: compiled(build(), target) for name, build in ROWS.items()} == said


@pytest.mark.slow
@pytest.mark.parametrize("target", OTHERS)
def test_other_targets_have_the_same_engines_for_the_convolution(target):
    """Only fp8 differs, below sm_89."""
    said = {cells[0]: cells[TARGETS["sm_90"]] for cells in lines() if cells[0] in ROWS}
    for name, build in ROWS.items():
        found = compiled(build(), target)
        needs_fp8 = any(t.type.is_fp8 for t in build().graph.finalize().tensors)
        if needs_fp8 and not of(target).has_fp8_convert:
            assert found == "NOT_SUPPORTED_ARCH_MISMATCH", name
        else:
            assert re.findall(r"conv_\w+", found) == re.findall(r"conv_\w+", said[name]), name


def test_engines_of_the_tables_are_those_that_there_are():
    sections = (PAGE.split(f"## {name}\n")[1] for name in ("Which engine takes what", "Gradients"))
    tables = "\n".join(section.split("\n## ")[0] for section in sections)
    from dnnc.engines import ENGINES

    names = set(re.findall(r"^\| `(\w+)` \|", tables, re.MULTILINE))
    assert names == {e.name for e in ENGINES if e.name.startswith("conv_")} | {"fallback"}
