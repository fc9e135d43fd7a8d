# pyright: basic
"""A maximum, and the sum of exponentials of distances from it, in one pass over the elements.

    sum(exp(x - max(x)))

A thread adds up exp(x - m), m being the largest element so far, and scales the sum whenever m
grows.  Once the maximum of all threads is known, its sum is scaled once more.
Source: Milakov, Gimelshein, "Online normalizer calculation for softmax", 2018.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...mlir import arith
from .. import ops
from ..walk.region_walk import Walk, inputs_of
from . import reduce
from .reduce import Combine


@dataclass(frozen=True)
class SoFar:
    """most: the largest of some elements, a scalar.  total: the sum of exponentials of distances
    from it, a fragment."""

    most: Any
    total: Any


@dataclass(frozen=True)
class RunningSum:
    """The way to add up one thread's exponentials of distances from the largest element so far.

    walk: that knows how to compute `operation`, the sum.  combine: of the maximum.  width: elements
    of a fragment.
    """

    walk: Walk
    operation: Any
    combine: Combine
    width: int

    def start(self) -> SoFar:
        zeros = ops.zeros(ops.vector_type(ops.f32_type(), self.width))
        return SoFar(ops.f32(float("-inf")), zeros)

    def add(self, now: SoFar, value: Any) -> SoFar:
        return self.add_all(now, [value])

    def add_all(self, now: SoFar, values: Sequence[Any]) -> SoFar:
        """Adds several fragments at once, for the sum that more come to: see `reduce.unrolled`."""
        grown = now.most
        for value in values:
            grown = self.combine(grown, reduce.lanes(value, self.combine))
        # Distances from -inf are none: exp(-inf - 0) is nothing.
        infinite = arith.CmpFOp(arith.CmpFPredicate.OEQ, grown, ops.f32(float("-inf"))).result
        base = arith.SelectOp(infinite, ops.f32(0.0), grown).result
        scale = ops.splat(self._exp(now.most, base), self.width)
        total = arith.MulFOp(now.total, scale).result
        own = self._exp(values[0], base)
        for value in values[1:]:
            own = arith.AddFOp(own, self._exp(value, base)).result
        return SoFar(grown, arith.AddFOp(total, own).result)

    def total(self, found: SoFar) -> Any:
        """The total of the reduction that the state is of."""
        return found.most

    def part(self, found: SoFar, most: Any) -> Any:
        """The sum of distances from the maximum of all threads."""
        scale = ops.splat(self._exp(found.most, most), self.width)
        return arith.MulFOp(found.total, scale).result

    def _exp(self, value: Any, base: Any) -> Any:
        width = ops.width_of(value)
        distance = arith.SubFOp(value, ops.splat(base, width)).result
        exponential = inputs_of(self.operation)[0].owner
        return self.walk.body(exponential, [distance], (), width)
