# pyright: basic
"""prepare-fusions: gives each fusion the operations that its engine computes.

Precondition: fusions.  Postcondition: the function of each has `dnn.prepared`, and with an engine
`dnn.tile`, the tiling that the engine decides of the fusion and its knobs (`Engine.tile_of`).
Rewrite patterns give it the form that its engine computes, in this order:

- those of every fusion: views at its borders are strides (`dialect/fusion_borders.py`);
- the engine's own (`Engine.patterns`): casts of a convolution's operands, finer axes, images as
  products.

    "dnn.conv_fprop"(%x, %w) {role = "anchor"} : (tensor<...xf16>, tensor<...xi8>) -> ...
->  %0 = "dnn.pointwise"(%w) {mode = "identity", role = "g1b"} : (tensor<...xi8>) -> tensor<...xf16>
    "dnn.conv_fprop"(%x, %0) {role = "anchor"} : (tensor<...xf16>, tensor<...xf16>) -> ...

Operations of a pattern that the engine knows by name get `parts`; those on an attention's scores
`is_score`, reductions of rows of one element, too, `reduces_rows`, those that kernels compute by
formulas of their own `is_fixed` (`Engine.marks`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..choosing import explicit
from ..dialect import dnn, structure
from ..dialect.fusion import Fusion
from ..dialect.fusion_borders import BORDER_VIEWS
from ..dialect.rewriting import rewrite, rewrite_fusion
from ..engines import Marks, engine_named
from ..engines.plain_data import plain
from ..errors import DnncError, Status
from ..mlir import ir
from .fuse import target_of
from .pass_base import Pass


@dataclass(frozen=True)
class PrepareFusions(Pass):
    """The pass; see the file's docstring."""

    name: ClassVar[str] = "prepare-fusions"
    takes: ClassVar[str] = "fused"
    makes: ClassVar[str] = "fused"

    def run(self, module: Any) -> None:
        for function in list(structure.fusion_functions(module)):
            if structure.PREPARED not in function.operation.attributes:
                _prepare(function, target_of(module))


def _prepare(function: Any, target: Any) -> None:
    has_engine = "dnn.engine" in function.operation.attributes
    made = _for_engine(function, target) if has_engine else rewrite(function, BORDER_VIEWS)
    made.attributes[structure.PREPARED] = ir.UnitAttr.get()


def _for_engine(function: Any, target: Any) -> Any:
    fusion = structure.read_fusion(function)
    name, knobs = structure.engine_of(function)  # of a text they may be anything
    engine = engine_named(name)
    explicit.verify_choice(engine, fusion, knobs, target)
    tile = engine.tile_of(fusion, knobs, target)
    patterns = (*BORDER_VIEWS, *engine.patterns)
    function, fusion = rewrite_fusion(function, patterns, fusion.in_graph)
    _write(function, fusion, engine.marks(fusion))
    function.attributes["dnn.tile"] = structure.to_attribute(plain(tile))
    return function


def _write(function: Any, fusion: Fusion, marks: Marks) -> None:
    """Writes what operations are to the engine."""
    operations = dict(zip(fusion.ops, structure.operations_of(function), strict=True))
    names: dict[Any, list[str]] = {}
    for name, ops in marks.parts.items():
        for op in ops:
            names.setdefault(op, []).append(name)
    for op, found in names.items():
        operations[op].attributes[dnn.PARTS] = structure.to_attribute(found)
    for op in marks.scores:
        operations[op].attributes[dnn.IS_SCORE] = ir.UnitAttr.get()
    for op in marks.row_reductions:
        operations[op].attributes[dnn.REDUCES_ROWS] = ir.UnitAttr.get()
    for op in marks.fixed:
        operations[op].attributes[dnn.IS_FIXED] = ir.UnitAttr.get()


def read_prepared(function: Any) -> tuple[Fusion, Marks]:
    """The fusion of a function, and what its operations are to its engine, as they stand there.

    One that is not prepared is BAD_PARAM.
    """
    if structure.PREPARED not in function.operation.attributes:
        what = f"@{function.name.value} has no {structure.PREPARED}"
        raise DnncError(Status.BAD_PARAM, what, "prepare-fusions first")
    fusion = structure.read_as_written(function)
    parts: dict[str, list[Any]] = {}
    scores, rows, fixed = [], [], []
    for op, operation in zip(fusion.ops, structure.operations_of(function), strict=True):
        for name in dnn.read_parts(operation):
            parts.setdefault(name, []).append(op)
        if dnn.IS_SCORE in operation.attributes:
            scores.append(op)
        if dnn.REDUCES_ROWS in operation.attributes:
            rows.append(op)
        if dnn.IS_FIXED in operation.attributes:
            fixed.append(op)
    return fusion, Marks(frozenset(scores), frozenset(rows), parts, frozenset(fixed))
