# pyright: basic
"""Grouped matrix products as linalg: each row is multiplied by its expert's matrix."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..codegen.scalars.scalar import Scalars, accumulation_type, convert, element_type
from ..dialect.ops import MoeGroupedMatmul
from ..dtypes import DType
from ..mlir import arith, ir, linalg, tensor
from .linalg_anchor import call_anchor, cast_from
from .linalg_index import SizeValues, index_of
from .linalg_lowering import Lowering


def moe_grouped_matmul(low: Lowering, op: MoeGroupedMatmul) -> None:
    """Puts the value of the output in `low`."""
    sums = accumulation_type(op.compute_type)
    result = call_anchor(low, op, sums, _moe_grouped_matmul_body)
    low.values[op.output] = cast_from(low, result, op.output, sums, op.compute_type)


def _moe_grouped_matmul_body(
    low: Lowering, op: MoeGroupedMatmul, sums: DType, token: Any, weight: Any, first: Any
) -> Any:
    """Sums over experts too, keeping what a row's own expert adds.

    No index depends on data, so that coordinates stay what a walk can follow.
    """
    ends = _ends_of_experts(low, op, first)
    one, row, n, expert, k = (ir.AffineExpr.get_dim(axis) for axis in range(5))
    zero = ir.AffineExpr.get_constant(0)
    scalars = Scalars(sums)

    def body(x: Any, y: Any, start: Any, end: Any, total: Any) -> Any:
        at = arith.IndexCastOp(start.type, linalg.IndexOp(1).result).result
        is_after = arith.CmpIOp(arith.CmpIPredicate.sge, at, start).result
        is_before = arith.CmpIOp(arith.CmpIPredicate.slt, at, end).result
        is_own = arith.AndIOp(is_after, is_before).result
        x, y = convert(x, op.token.type, sums), convert(y, op.weight.type, sums)
        return arith.SelectOp(is_own, scalars.fma(x, y, total), total).result

    return low.generic(
        op.output,
        sums,
        [
            (token, ir.AffineMap.get(5, 0, [one, row, k])),
            (weight, ir.AffineMap.get(5, 0, [expert, k, n])),
            (first, ir.AffineMap.get(5, 0, [expert, zero, zero])),
            (ends, ir.AffineMap.get(5, 0, [expert, zero, zero])),
        ],
        body,
        init=low.filled(op.output, sums, 0),
        output_map=ir.AffineMap.get(5, 0, [one, row, n]),
        iterators=["parallel"] * 3 + ["reduction"] * 2,
    )


def _ends_of_experts(low: Lowering, op: MoeGroupedMatmul, first: Any) -> Any:
    """The row after each expert's last: the next expert's first, or the number of rows."""
    rows = op.token.shape[1]
    sizes = SizeValues(low, [[rows, op.experts]])
    type_ = element_type(dtypes.i32)

    def body() -> Any:
        after = arith.AddIOp(linalg.IndexOp(0).result, index_of(1)).result
        inside = arith.MinSIOp(after, sizes.index(op.experts - 1)).result
        zero = index_of(0)
        start = tensor.ExtractOp(first, [inside, zero, zero]).result
        is_inside = arith.CmpIOp(arith.CmpIPredicate.ult, after, sizes.index(op.experts)).result
        count = arith.IndexCastOp(type_, sizes.index(rows)).result
        return arith.SelectOp(is_inside, start, count).result

    return low.generic(op.first_token_offset, dtypes.i32, [], body)
