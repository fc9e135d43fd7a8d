# pyright: basic
"""Contraction: operations of a body that one multiply-add, or a conversion that others share, does.

Only where sums of products may be rounded once, as in the scores of an attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...mlir import arith, ir
from ...mlir import math as mlir_math
from .. import ops
from .math import factors_of

_TILE_PLACES = 512  # that a constant counts at most
# ((value, factor), ...) and what is added to their sum.
_Lane = tuple[tuple[tuple[Any, int], ...], int]


def contracted(op: Any, operands: Sequence[Any]) -> Any:
    """The f32 result of `op` of a body, by the fewest instructions, where sums of products may be
    rounded once, and an integer that counts places is a sum of floats; else None.

    Places: first + i becomes float(first) + i, where i is at most a tile's: what the elements of a
    tile have in common is worked out once.
    """
    if op.name == "arith.sitofp" and str(op.results[0].type) == "f32":
        return _float_places(operands[0])
    if op.name not in ("arith.addf", "arith.subf") or str(op.results[0].type) != "f32":
        return None
    x, y = operands
    if (factors := factors_of(x)) is not None:
        return _fma(*factors, y if op.name == "arith.addf" else arith.NegFOp(y).result)
    if (factors := factors_of(y)) is not None:
        a, b = factors
        return _fma(a if op.name == "arith.addf" else arith.NegFOp(a).result, b, x)
    return None


def _fma(a: Any, b: Any, c: Any) -> Any:
    return mlir_math.FmaOp(a, b, c).result


def _float_places(value: Any) -> Any:
    """f32 of a fragment of integers that are `first` and a small constant each; None: they are not.

    Large constants are added before: in integers, what cancels leaves nothing behind.
    """
    width = ops.width_of(value)
    lanes = [lane for i in range(width) if (lane := _lane(value, i)) is not None]
    if width == 1 or len(lanes) < width:
        return None
    terms = lanes[0][0]
    if not terms or any(lane[0] != terms for lane in lanes):
        return None
    added = [lane[1] for lane in lanes]
    first: Any = 0 if max(map(abs, added)) <= _TILE_PLACES else added[0]
    added = [number - first for number in added]
    for number, factor in terms:
        first = ops.add(first, ops.mul(number, factor))
    whole = ops.splat(arith.SIToFPOp(ops.f32_type(), first).result, width)
    return arith.AddFOp(whole, _constants(added)).result


def _lane(value: Any, i: int) -> _Lane | None:
    """Element i of a fragment of i32; None where other operations made it."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return None
    name, operands = owner.operation.name, owner.operands
    if name == "vector.from_elements":
        return _number_lane(operands[i])
    if name == "vector.broadcast":
        return _number_lane(operands[0])
    if name not in ("arith.addi", "arith.subi"):
        return None
    a, b = _lane(operands[0], i), _lane(operands[1], i)
    if a is None or b is None:
        return None
    sign = 1 if name == "arith.addi" else -1
    return (*a[0], *((number, sign * factor) for number, factor in b[0])), a[1] + sign * b[1]


def _number_lane(number: Any) -> _Lane:
    if (known := ops.constant_of(number)) is not None:
        return (), known
    value, factor, rest = ops.terms(number)
    return ((value, factor),), rest


def _constants(values: Sequence[int]) -> Any:
    type_ = ops.vector_type(ops.f32_type(), len(values))
    numbers = [ir.FloatAttr.get(ops.f32_type(), float(value)) for value in values]
    return arith.ConstantOp(type_, ir.DenseElementsAttr.get(numbers, type_)).result
