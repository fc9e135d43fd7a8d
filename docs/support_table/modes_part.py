"""The part about pointwise and reduction modes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from functools import cache

from dnnc.dialect.fusion import Fusion
from dnnc.dialect.ops import OPS
from dnnc.dialect.ops.reduction import INDEXED_MODES, REDUCTION_MODES, ReductionMode
from dnnc.dialect.pointwise_modes import MODES, Mode
from dnnc.frontends.methods import methods
from tests.dialect.example_parts import new_graph
from tests.dialect.examples import pointwise_of, reduction_of

from .answers import engines_text
from .graphs import after_a_product, contexts, fusions
from .linked_tests import links
from .markdown import table, types_text
from .operations_part import compute_types_of

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
        types_text(compute_types_of([pointwise_of(mode, *mode.methods[0])])),
        engines_text(graphs_of_mode(mode)),
    )


def _reduction_mode_row(mode: ReductionMode) -> Sequence[object]:
    return (
        f"`{mode.name}`",
        f"`CUDNN_REDUCE_TENSOR_{mode.name.upper()}`",
        f"`{mode.formula}`",
        types_text(compute_types_of([reduction_of(mode.name)])),
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


def modes_part() -> Iterator[str]:
    yield _POINTWISE_MODES.format(tests=links("pointwise modes"))
    header = ("mode", "cuDNN", "pygraph", "formula", "compute types", "engines")
    yield table(header, map(_mode_row, MODES))
    yield _REDUCTION_MODES.format(tests=links("reduction modes"))
    header = ("mode", "cuDNN", "formula", "compute types", "index", "engines")
    yield table(header, map(_reduction_mode_row, REDUCTION_MODES))
