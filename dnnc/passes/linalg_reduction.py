# pyright: basic
"""Reductions as linalg: a map (where the mode has one), an associative combination, a finish.

Of averages that are summed in DOUBLE the combination takes elements of f32 and gives f64:

    %sum = linalg.generic ... ins(%x) outs(%zero) { arith.extf; arith.addf }
    %y = linalg.generic ... ins(%sum) { 1 / count; arith.mulf; arith.truncf }
"""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..codegen.scalars.scalar import Scalars, convert
from ..dialect import structure
from ..dialect.averages import total_type
from ..dialect.ops import Reduction
from ..dialect.ops.reduction import ReductionMode
from ..dtypes import DType
from ..expr import Expr, product
from ..mlir import arith, ir
from .linalg_lowering import Lowering


def reduction(low: Lowering, op: Reduction) -> None:
    """Puts the value of Y in `low`."""
    compute, row = op.compute_type, op.row
    total = total_type(low.fusion, op)
    scalars = Scalars(compute)
    mapped = low.values.get(op.x)
    if mapped is None or row.before or op.x.type != compute:
        mapped = low.generic(
            op.x,
            compute,
            low.operand(op.x, op.x),
            lambda *given: _before(scalars, row.before, low.scalar(op.x, list(given), compute)),
        )
    axes = (op.x.rank - 1,) if op in low.marks.row_reductions else op.axes
    combined = _combined(low, op, total, mapped, axes) if axes else mapped
    has_other_strides = combined.type != low.type_of(op.y, total)  # where nothing is reduced
    if row.after or op.y.type != compute or has_other_strides:
        count = structure.emit_size(_count(op), low.symbols) if row.after else None

        def finish(value: Any) -> Any:
            if total != compute:
                found = convert(_average(Scalars(total), value, count), total, compute)
            else:
                found = _after(scalars, row.after, value, count)
            return convert(found, compute, op.y.type)

        whole = [(combined, ir.AffineMap.get_identity(op.y.rank))]
        combined = low.generic(op.y, op.y.type, whole, finish)
    low.values[op.y] = combined


def _combined(
    low: Lowering, op: Reduction, total: DType, mapped: Any, axes: tuple[int, ...]
) -> Any:
    """The mapped elements combined along the reduced axes, in a type of totals."""
    compute, row, scalars = op.compute_type, op.row, Scalars(total)
    zero = ir.AffineExpr.get_constant(0)
    output_map = ir.AffineMap.get(
        op.x.rank, 0,
        [zero if axis in axes else ir.AffineExpr.get_dim(axis) for axis in range(op.x.rank)],
    )  # fmt: skip
    return low.generic(
        op.y,
        total,
        [(mapped, ir.AffineMap.get_identity(op.x.rank))],
        lambda x, so_far: getattr(scalars, row.combine)(so_far, convert(x, compute, total)),
        init=low.filled(op.y, total, _identity_of(row, compute)),
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


def _average(scalars: Scalars, total: Any, count: Any) -> Any:
    """A total of f64 by its count: rounded several times, of which f32 shows nothing.

    1 / count is made of that of f32, by a step of Newton's method: a division of f64 takes long.
    """
    whole = arith.IndexCastOp(ir.IntegerType.get_signless(64), count).result
    single = Scalars(dtypes.f32)
    near = single.div(single.const(1.0), arith.SIToFPOp(single.type, whole).result)
    near = convert(near, dtypes.f32, dtypes.f64)
    number = arith.SIToFPOp(scalars.type, whole).result
    less = scalars.sub(scalars.const(1.0), scalars.mul(number, near))
    return scalars.mul(total, scalars.add(near, scalars.mul(near, less)))


def _after(scalars: Scalars, step: str, total: Any, count: Any) -> Any:
    if step == "sqrt":
        return scalars.sqrt(total)
    if step == "divide_by_count":
        number = arith.IndexCastOp(ir.IntegerType.get_signless(64), count).result
        return scalars.div(total, arith.SIToFPOp(scalars.type, number).result)
    return total
