# pyright: basic
"""Matrix products as linalg."""

from __future__ import annotations

from typing import Any

from ..codegen.scalars.scalar import Scalars, accumulation_type, convert
from ..dialect.ops import Matmul
from ..dialect.tensor import Tensor
from ..dtypes import DType
from ..errors import DnncError, Status
from ..mlir import ir
from .linalg_anchor import call_anchor, cast_from
from .linalg_lowering import Lowering


def matmul(low: Lowering, op: Matmul) -> None:
    """Puts the value of C in `low`."""
    if op.groups():  # of a text: `fuse` writes what it stands for
        raise DnncError(
            Status.NOT_SUPPORTED_GRAPH_PATTERN,
            f"batch dims of which one divides the other, in axes {list(op.groups())}",
            "a product of split batch dims, between reshapes",
            op.label,
        )
    sums = accumulation_type(op.compute_type)
    result = call_anchor(low, op, sums, _matmul_body)
    low.values[op.c] = cast_from(low, result, op.c, sums, op.compute_type)


def _matmul_body(low: Lowering, op: Matmul, sums: DType, a: Any, b: Any) -> Any:
    rank = op.c.rank + 1
    dims = [ir.AffineExpr.get_dim(axis) for axis in range(rank)]
    *batch, m, n, k = dims
    zero = ir.AffineExpr.get_constant(0)

    def batches(source: Tensor) -> list[Any]:
        return [
            zero if source.shape[axis].constant == 1 and op.c.shape[axis].constant != 1 else dim
            for axis, dim in enumerate(batch)
        ]

    scalars = Scalars(sums)

    def body(x: Any, y: Any, total: Any) -> Any:
        return scalars.fma(convert(x, op.a.type, sums), convert(y, op.b.type, sums), total)

    return low.generic(
        op.c,
        sums,
        [
            (a, ir.AffineMap.get(rank, 0, [*batches(op.a), m, k])),
            (b, ir.AffineMap.get(rank, 0, [*batches(op.b), k, n])),
        ],
        body,
        init=low.filled(op.c, sums, 0),
        output_map=ir.AffineMap.get(rank, 0, [*batch, m, n]),
        iterators=["parallel"] * (rank - 1) + ["reduction"],
    )
