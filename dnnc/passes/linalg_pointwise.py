# pyright: basic
"""Pointwise operations as linalg: a mode's arithmetic, in the compute type."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..codegen.scalars.scalar import Scalars, convert
from ..dialect.approximation import approximation, stays_float
from ..dialect.ops import Pointwise
from .linalg_lowering import Lowering

_WHOLE_F32 = 1 << 24  # integers up to it are f32 numbers


def pointwise(low: Lowering, op: Pointwise) -> None:
    """Puts the value of Y in `low`."""
    compute = op.compute_type
    reads = op.read_operands
    operands = [pair for source in reads for pair in low.operand(source, op.y)]
    is_copy = op.mode == "identity" and op.x.type == op.y.type
    scalars = Scalars(
        compute,
        approximation(op, low.fusion, low.marks.scores),
        is_division_exact=not stays_float(op.results[0], low.fusion),
    )

    def body(*given: Any) -> Any:
        rest = list(given)
        if is_copy:
            return low.scalar(op.x, rest, op.x.type)
        taken = low.operand_scalars(op, reads, rest)
        if op.mode == "gen_index":
            return _index(scalars, op)
        value = op.row.emit(scalars, *taken, **op.parameters())
        return convert(value, dtypes.i1 if op.row.result == "bool" else compute, op.y.type)

    low.values[op.y] = low.generic(op.y, op.y.type, operands, body)


def _index(scalars: Scalars, op: Pointwise) -> Any:
    """The index along an axis, in integers where the compute type would give the same."""
    most = op.y.shape[op.axis or 0].bounds()[1]
    if op.compute_type == dtypes.f32 and op.y.type == dtypes.i32 and most <= _WHOLE_F32:
        scalars = Scalars(dtypes.i32)
    made = op.row.emit(scalars, None, **op.parameters())
    return convert(made, scalars.dtype, op.y.type)
