# pyright: basic
"""The factor of an attention's scores that is left to their exponentials.

    exp2(log2(e) * factor * T - ...)   in place of   S = factor * T

which is right where the factor is a positive number, since T's largest is S's then.  What it is
may be known in memory only, as the descales of fp8 are: where it is none of an ordinary size,
scores are multiplied after all, and the factor is 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.walk.index import Index
from ...codegen.walk.region_walk import Walk
from ...mlir import arith, ir

_LOG2E = math.log2(math.e)
_ORDINARY = 2.0**64


@dataclass(frozen=True)
class ScoreScale:
    """value: the scores, but for masks.  inner: what they are multiples of.  factor: a number, or
    an f32 value.  numbers: those that make it.  is_odd: i1, whether scores are multiplied by these
    instead; None: never."""

    value: Any
    inner: Any
    factor: Any
    numbers: Sequence[Any] = ()
    is_odd: Any = None

    @staticmethod
    def of(value: Any, inner: Any, numbers: Sequence[Any], walk: Walk) -> ScoreScale:
        """numbers: constants and tensors of one element; see `AttentionRegion.scaling`."""
        known = [constant_of(number) for number in numbers]
        whole = math.prod(number for number in known if number is not None)
        if None not in known and 0 < whole < _ORDINARY:
            return ScoreScale(value, inner, whole)
        values = [number_value(number, walk) for number in reversed(numbers)]
        factor = values[0]
        for other in values[1:]:
            factor = arith.MulFOp(factor, other).result
        low, high = (ops.f32(bound) for bound in (1 / _ORDINARY, _ORDINARY))
        is_ordinary = ops.both(
            arith.CmpFOp(arith.CmpFPredicate.OGT, factor, low).result,
            arith.CmpFOp(arith.CmpFPredicate.OLT, factor, high).result,
        )
        chosen = arith.SelectOp(is_ordinary, factor, ops.f32(1.0)).result
        is_odd = arith.XOrIOp(is_ordinary, ops.const(1, ir.IntegerType.get_signless(1))).result
        return ScoreScale(value, inner, chosen, values, is_odd)

    def applied(self, sums: Sequence[Any], is_odd: bool | None = None) -> list[Any]:
        """T, or S where the factor is odd.  is_odd: whether it is; None: that is asked here."""
        if self.is_odd is None or is_odd is False:
            return list(sums)

        def multiplied() -> list[Any]:
            found = list(sums)
            for number in self.numbers:
                found = [arith.MulFOp(value, number).result for value in found]
            return found

        if is_odd:
            return multiplied()
        types = [value.type for value in sums]
        return ops.either(self.is_odd, types, multiplied, lambda: list(sums))


def constant_of(number: Any) -> float | None:
    """A constant's number; None: of a tensor."""
    is_constant = getattr(number, "name", "") == "arith.constant"
    return ir.FloatAttr(number.attributes["value"]).value if is_constant else None


def number_value(number: Any, walk: Walk) -> Any:
    """A constant's operation, or a tensor of one element, as an f32 value."""
    known = constant_of(number)
    if known is not None:
        return ops.f32(known)
    rank = ir.RankedTensorType(number.type).rank
    return walk.value(number, [Index.of(0)] * rank, 1)


def times_log2e(factor: Any) -> Any:
    """The factor that makes scores exponents of 2."""
    if isinstance(factor, float):
        return factor * _LOG2E
    return arith.MulFOp(factor, ops.f32(_LOG2E)).result
