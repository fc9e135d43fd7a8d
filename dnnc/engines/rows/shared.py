# pyright: basic
"""Rows of a ring that warps share: what a warp gives of its elements, and what all make of it.

A warp knows the sum of its elements once its lanes have added it up, and goes over them again for
their squared distances from its own mean.  So those need no exchange of their own, as they would
if they were of the row's mean: whoever has all warps' parts moves them there.  Of a sum of f64 a
warp gives its mean, in f32: parts take shared memory, and distances between means are exact where
means are close.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...codegen import ops
from ...codegen.scalars.math import rcp
from ...codegen.totals import moments, reduce
from ...codegen.totals.moments import Shifted
from ...codegen.totals.parts import as_floats, inverse, times, to_f32
from ...codegen.totals.totals_ahead import RowParts, TotalsAhead
from ...codegen.walk.region_walk import inputs_of
from ...mlir import arith, ir
from ...mlir import math as mlir_math
from ...target import REGISTERS_PER_THREAD, WARP_THREADS
from .region import Place, Rows
from .reread import RingGroup
from .same_pass import F32_DIGITS

_QUARTERS = 4  # of an SM, each with its registers
_OTHERS = 48  # registers beside the elements that a thread holds


def part_types(rows: Rows, level: Sequence[Any]) -> list[Any]:
    """The types of the numbers of a warp's part of a level."""
    return [t for op in level for t in [_type_given(op)] * _numbers(rows, op)]


def _type_given(op: Any) -> Any:
    return ops.f32_type() if reduce.is_wide(op) else op.results[0].type.element_type


def _numbers(rows: Rows, op: Any) -> int:
    """The numbers of a part of a reduction."""
    return len(rows.tiling.parts_of(rows.totals[op]))


def elements_of_warp(place: Place, warp: Any) -> Any:
    """Elements that a warp has of a row that is not shared evenly, f32; warp: its number."""
    t, rows = place.rows.tiling, place.rows
    warps = t.row_threads // WARP_THREADS
    block, inside = warp // warps, warp % warps
    first = block * (t.row_threads * t.held) + inside * WARP_THREADS
    left = place.kernel.size(rows.reduced.fragments) - first
    left = ops.maximum(left, 0)
    rounds = ops.minimum(left // place.stride, t.held)
    last = ops.minimum(left - rounds * place.stride, WARP_THREADS)
    last = ops.select(rounds < t.held, last, 0)
    return to_f32((rounds * WARP_THREADS + last) * t.vector_elems)


class SharedGroup(RingGroup):
    """A group of rows in a ring, each shared by several warps.

    ahead: the exchange.  launched: threads of the block.
    """

    def __init__(
        self,
        place: Place,
        number: Any,
        leaves: Mapping[Any, Any],
        ahead: TotalsAhead,
        launched: int,
    ):
        super().__init__(place, number, 0, leaves)
        self.ahead, self.number_of_warp, self.launched = ahead, ahead.own, launched

    # ---- what a warp gives

    def part(self, level: Sequence[Any]) -> list[Any]:
        """This warp's part of a level, in all its lanes."""
        distances = self.rows.distances
        plain = [op for op in level if op not in distances]
        fragments = self.fragments()
        parts = zip(plain, self.parts(plain, fragments), self.combines(plain), strict=True)
        found = {op: [self._given(op, part, c)] for op, part, c in parts}
        if plain != list(level) and not self._holds_elements:
            fragments = self.fragments()
        for op in level:
            if op in distances:
                found[op] = self._distances(op, found[distances[op]][0], fragments)
        return [value for op in level for value in found[op]]

    def total_of_short(self, op: Any, sums: Sequence[Any], combine: reduce.Combine) -> Any:
        """In f32 where that has the sum of a thread's elements, if they are alike."""
        elements = self.tiling.held * self.width
        digits = self.rows.totals[op].digits + (elements - 1).bit_length()
        if digits <= F32_DIGITS:
            return reduce.together(combine, sums)
        return super().total_of_short(op, sums, combine)

    def _given(self, op: Any, total: Any, combine: reduce.Combine) -> Any:
        """The value that a warp gives, by each thread's total: its own total, or its mean."""
        total = reduce.lanes(total, combine)
        f32 = ops.f32_type()
        if not reduce.is_wide(op):
            return _of_warp(total, combine)
        if total.type == f32:
            return self._mean(total)
        total = _of_warp(total, combine)
        count = as_floats(self._elements(self.number_of_warp), total.type)
        return as_floats(times(total, inverse(count)), f32)

    def _mean(self, total: Any) -> Any:
        """The mean of a warp's elements, by each thread's total in f32: what these are off by from
        the first thread's mean is added up."""
        t = self.tiling
        if t.is_whole:
            own, of_warp = t.held * self.width, t.held * self.width * WARP_THREADS
            less = ops.f32(-own)
        else:
            own, of_warp = self._own_elements(), self._elements(self.number_of_warp)
            less = arith.NegFOp(own).result
        place = reduce.from_lane(moments.bounded(times(total, _reciprocal(own))), 0)
        off = _of_warp(mlir_math.FmaOp(less, place, total).result, _add)
        return _off_by(place, off, of_warp)

    def _distances(self, op: Any, mean: Any, fragments: Sequence[Any]) -> list[Any]:
        """[sum of x - s, sum of (x - s)^2] of this warp, s being the mean of its elements."""
        shift = ops.splat(mean, self.width)
        shifted, value = Shifted(shift, is_fused=True), inputs_of(self.rows.distances[op])[0]
        sums = shifted.start()
        for at, is_inside, walk in fragments:
            x = walk.value(value, at, self.width)
            if is_inside is not None:
                x = arith.SelectOp(is_inside, x, shift).result
            sums = shifted.add(sums, x)
        return [_of_warp(each, _add) for each in (sums.distances, sums.squares)]

    @property
    def _holds_elements(self) -> bool:
        """Whether a thread's registers hold its elements from one pass of a level to the next."""
        t, target = self.tiling, self.kernel.target
        quarter = _QUARTERS * WARP_THREADS
        threads = -(-self.launched // quarter) * quarter * max(1, t.blocks)
        most = min(target.limits.registers_sm // threads, REGISTERS_PER_THREAD)
        return not self.rows.columns and t.held * self.width + _OTHERS <= most

    def _own_elements(self) -> Any:
        """Elements that this thread has of a row that is not shared evenly, f32."""
        t, place = self.tiling, self.place
        left = self.kernel.size(self.rows.reduced.fragments) - place.first
        fragments = ops.minimum((ops.maximum(left, 0) + (place.stride - 1)) // place.stride, t.held)
        return to_f32(fragments * self.width)

    # ---- what all make of it

    def totals(self, level: Sequence[Any], parts: RowParts) -> list[Any]:
        """A level's totals of a row, in every thread that shares it."""
        numbers = [_numbers(self.rows, op) for op in level]
        first = {op: sum(numbers[:i]) for i, op in enumerate(level)}
        found = {
            op: self._total(op, combine, parts, first, level)
            for op, combine in zip(level, self.combines(level), strict=True)
            if op not in self.rows.distances
        }
        for op in level:
            if op in self.rows.distances:
                of = self.rows.distances[op]
                found[op] = self._squares(op, parts, first[of], first[op], found[of])
        return [found[op] for op in level]

    def _total(
        self,
        op: Any,
        combine: reduce.Combine,
        parts: RowParts,
        first: Mapping[Any, int],
        level: Sequence[Any],
    ) -> Any:
        """A reduction's total of all warps; the mean, where nothing else is made of it.

        That is the first warp's, and what the elements are off from it by, which is added up in
        f32: a conversion to f64 takes as long as eight additions.
        """
        values = parts.values(first[op])
        if not reduce.is_wide(op):
            return parts.total(values, combine)
        place = moments.bounded(parts.value(first[op], 0))
        offs = [arith.SubFOp(mean, place).result for mean in values]
        distances, is_mean = self.rows.distances, op in self.rows.means
        behind = [other for other in level if other in distances and distances[other] == op]
        if is_mean and self.tiling.is_whole and not behind:
            return _off_by(place, parts.total(offs, _add), parts.count)
        weights = [self._elements(warp) for warp in parts.numbers]
        offs = [times(*each) for each in zip(offs, weights, strict=True)]
        if behind:  # distances from each warp's own mean, which was rounded
            rests = parts.values(first[behind[0]])
            offs = [_add(off, _known(rest)) for off, rest in zip(offs, rests, strict=True)]
        off, count = parts.total(offs, _add), ops.value_of(self.kernel.size(self.rows.row_elements))
        if is_mean:
            return _off_by(place, off, to_f32(count))
        f64 = op.results[0].type.element_type
        whole = times(as_floats(place, f64), arith.SIToFPOp(f64, count).result)
        return _add(whole, as_floats(off, f64))

    def keep(self, level: Sequence[Any], totals: Iterable[Any]) -> None:
        for op, total in zip(level, totals, strict=True):
            self.leaves[self.rows.means.get(op, op.results[0])] = reduce.Total(total)

    def _elements(self, warp: Any) -> Any:
        """Elements of a row that a warp has, f32."""
        t = self.tiling
        if t.is_whole:
            return to_f32(ops.const(t.held * WARP_THREADS * self.width))
        return self.ahead.count_of(warp)

    def _squares(self, op: Any, parts: RowParts, means: int, own: int, total: Any) -> Any:
        """The squared distances from the row's mean, by those from each warp's."""
        of = self.rows.distances[op]
        mean = total if of in self.rows.means else moments.average(self.walk, of, total)
        values = [parts.values(i) for i in (means, own, own + 1)]
        squares = [
            moments.squares_about(mean, part, self._elements(warp))
            for warp, *part in zip(parts.numbers, *values, strict=True)
        ]
        found = parts.total(squares, _add)
        # Rounding may leave less than nothing; NaN stays.
        return arith.MaximumFOp(found, ops.zeros(found.type)).result


def _off_by(place: Any, off: Any, count: Any) -> Any:
    """A mean, by what so many are off from a place together: of that little is lost."""
    return _add(place, times(off, _reciprocal(count)))


def _reciprocal(count: Any) -> Any:
    """About 1 / count, f32; a finite number where that is 0.  count: f32, or a number."""
    if isinstance(count, int):
        return ops.f32(1 / count)
    one = arith.ConstantOp(count.type, ir.FloatAttr.get(count.type, 1.0)).result
    least = arith.MaximumFOp(count, one).result
    return rcp(least)


def _of_warp(value: Any, combine: reduce.Combine) -> Any:
    return reduce.across_lanes(reduce.lanes(value, combine), WARP_THREADS, combine)


def _known(off: Any) -> Any:
    """A sum of distances, 0 where it is no number: then the mean that they are from is infinite."""
    is_number = arith.CmpFOp(arith.CmpFPredicate.ORD, off, off).result
    return arith.SelectOp(is_number, off, ops.zeros(off.type)).result


def _add(a: Any, b: Any) -> Any:
    return arith.AddFOp(a, b).result
