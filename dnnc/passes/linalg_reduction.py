# pyright: basic
"""Reductions as linalg: a map (where the mode has one), an associative combination, a finish."""

from __future__ import annotations

import math
from typing import Any

from ..codegen.scalar import Scalars, convert
from ..dialect import structure
from ..dialect.ops import Reduction
from ..dialect.ops.reduction import ReductionMode
from ..dtypes import DType
from ..expr import Expr, product
from ..mlir import arith, ir
from .linalg_lowering import Lowering


def reduction(low: Lowering, op: Reduction) -> None:
    """Puts the value of Y in `low`."""
    compute, row = op.compute_type, op.row
    scalars = Scalars(compute)
    mapped = low.values.get(op.x)
    if mapped is None or row.before or op.x.type != compute:
        mapped = low.generic(
            op.x,
            compute,
            low.operand(op.x, op.x),
            lambda *given: _before(scalars, row.before, low.scalar(op.x, list(given), compute)),
        )
    axes = (op.x.rank - 1,) if op in low.of_rows else op.axes
    combined = _combined(low, op, scalars, mapped, axes) if axes else mapped
    has_other_strides = combined.type != low.type_of(op.y, compute)  # where nothing is reduced
    if row.after or op.y.type != compute or has_other_strides:
        count = structure.emit_size(_count(op), low.symbols) if row.after else None
        combined = low.generic(
            op.y,
            op.y.type,
            [(combined, ir.AffineMap.get_identity(op.y.rank))],
            lambda total: convert(_after(scalars, row.after, total, count), compute, op.y.type),
        )
    low.values[op.y] = combined


def _combined(
    low: Lowering, op: Reduction, scalars: Scalars, mapped: Any, axes: tuple[int, ...]
) -> Any:
    """The mapped elements combined along the reduced axes."""
    compute, row = op.compute_type, op.row
    zero = ir.AffineExpr.get_constant(0)
    output_map = ir.AffineMap.get(
        op.x.rank, 0,
        [zero if axis in axes else ir.AffineExpr.get_dim(axis) for axis in range(op.x.rank)],
    )  # fmt: skip
    return low.generic(
        op.y,
        compute,
        [(mapped, ir.AffineMap.get_identity(op.x.rank))],
        lambda x, total: getattr(scalars, row.combine)(total, x),
        init=low.filled(op.y, compute, _identity_of(row, compute)),
        output_map=output_map,
        iterators=["reduction" if axis in axes else "parallel" for axis in range(op.x.rank)],
    )


def _identity_of(row: ReductionMode, dtype: DType) -> float | int:
    """The value that a combination leaves anything else unchanged with."""
    combine = row.combine
    if row.name == "amax" and dtype.is_float:
        return 0.0
    if combine in ("add", "mul"):
        return 0 if combine == "add" else 1
    if dtype.is_float:
        return math.inf if combine == "min" else -math.inf
    return (1 << 31) - 1 if combine == "min" else -(1 << 31)


def _count(op: Reduction) -> Expr:
    return product(op.x.shape[axis] for axis in op.axes)


def _before(scalars: Scalars, step: str, x: Any) -> Any:
    if step == "abs":
        return scalars.abs(x)
    if step == "square":
        return scalars.mul(x, x)
    if step == "zero_to_one":
        return scalars.select(scalars.eq(x, scalars.const(0)), scalars.const(1), x)
    return x


def _after(scalars: Scalars, step: str, total: Any, count: Any) -> Any:
    if step == "sqrt":
        return scalars.sqrt(total)
    if step == "divide_by_count":
        number = arith.IndexCastOp(ir.IntegerType.get_signless(64), count).result
        return scalars.div(total, arith.SIToFPOp(scalars.type, number).result)
    return total
