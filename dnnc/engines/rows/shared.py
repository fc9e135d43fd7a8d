# pyright: basic
"""Rows of a ring that warps share: what a warp gives of its elements, and what all make of it.

A warp knows the sum of its elements once its lanes have added it up, and goes over them again for
their squared distances from its own mean.  So those need no exchange of their own, as they would
if they were of the row's mean: whoever has all warps' parts moves them there.  Of a sum of f64 a
warp gives its mean, in f32: parts take shared memory, and distances between means are exact where
means are close.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...codegen import ops
from ...codegen.totals import moments, reduce
from ...codegen.totals.moments import Shifted
from ...codegen.totals.parts import as_floats, inverse, times, to_f32
from ...codegen.totals.totals_ahead import RowParts
from ...codegen.walk.region_walk import inputs_of
from ...mlir import arith
from ...target import REGISTERS_PER_THREAD, WARP_THREADS
from .reread import RingGroup
from .tiling import Place, Rows

_QUARTERS = 4  # of an SM, each with its registers
_OTHERS = 48  # registers beside the elements that a thread holds


def part_types(rows: Rows, level: Sequence[Any]) -> list[Any]:
    """The types of the numbers of a warp's part of a level."""
    return [t for op in level for t in [_type_given(op)] * _numbers(rows, op)]


def _type_given(op: Any) -> Any:
    return ops.f32_type() if reduce.is_wide(op) else op.results[0].type.element_type


def _numbers(rows: Rows, op: Any) -> int:
    """The numbers of a part of a reduction: squared distances need the sum of the distances too."""
    return 2 if op in rows.distances else 1


class SharedGroup(RingGroup):
    """As `RingGroup`, whose rows warps share.

    number_of_warp: among those that share a row.  launched: threads of the block.
    """

    def __init__(
        self,
        place: Place,
        number: Any,
        leaves: Mapping[Any, Any],
        number_of_warp: Any,
        launched: int,
    ):
        super().__init__(place, number, 0, leaves)
        self.number_of_warp, self.launched = number_of_warp, launched

    # ---- what a warp gives

    def part(self, level: Sequence[Any]) -> list[Any]:
        """This warp's part of a level, in all its lanes."""
        distances = self.rows.distances
        plain = [op for op in level if op not in distances]
        fragments = self.fragments()
        parts = zip(plain, self.parts(plain, fragments), self.combines(plain), strict=True)
        found = {op: [self._given(op, _of_warp(part, c))] for op, part, c in parts}
        if plain != list(level) and not self._holds_elements:
            fragments = self.fragments()
        for op in level:
            if op in distances:
                found[op] = self._distances(op, found[distances[op]][0], fragments)
        return [value for op in level for value in found[op]]

    def _given(self, op: Any, total: Any) -> Any:
        """The values that a warp gives of its total."""
        if not reduce.is_wide(op):
            return total
        count = as_floats(self._elements(self.number_of_warp), total.type)
        return as_floats(times(total, inverse(count)), ops.f32_type())

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

    def _count(self, warp: Any) -> Any:
        """Elements that a warp has of a row, i32; warp: its number."""
        t, width = self.tiling, self.width
        if t.is_whole:
            return ops.const(t.held * WARP_THREADS * width)
        warps = t.row_threads // WARP_THREADS
        block, inside = warp // warps, warp % warps
        first = block * (t.row_threads * t.held) + inside * WARP_THREADS
        left = self.kernel.size(self.rows.reduced.fragments) - first
        left = ops.maximum(left, 0)
        stride = self.place.stride
        rounds = ops.minimum(left // stride, t.held)
        last = ops.minimum(left - rounds * stride, WARP_THREADS)
        last = ops.select(rounds < t.held, last, 0)
        fragments = rounds * WARP_THREADS + last
        return ops.value_of(fragments * width)

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
        """A reduction's total of all warps.

        One of f64 is made of the first warp's mean and of the elements' distances from it, which
        are added up in f32: a conversion to f64 takes as long as eight additions.
        """
        values = parts.values(first[op])
        if not reduce.is_wide(op):
            return parts.total(values, combine)
        reference = moments.bounded(parts.value(first[op], 0))
        offs = [
            times(arith.SubFOp(mean, reference).result, self._elements(warp))
            for warp, mean in zip(parts.numbers, values, strict=True)
        ]
        distances = self.rows.distances
        behind = [other for other in level if other in distances and distances[other] == op]
        if behind:  # distances from each warp's own mean, which was rounded
            rests = parts.values(first[behind[0]])
            offs = [_add(off, _known(rest)) for off, rest in zip(offs, rests, strict=True)]
        f64 = op.results[0].type.element_type
        off, place = as_floats(parts.total(offs, _add), f64), as_floats(reference, f64)
        count = ops.value_of(self.kernel.size(self.rows.row_elements))
        whole = arith.MulFOp(place, arith.SIToFPOp(f64, count).result).result
        return _add(whole, off)

    def _elements(self, warp: Any) -> Any:
        """Elements of a row that a warp has, f32.

        The compiler does not know that another row has as many: it would hold each warp's number.
        """
        return to_f32(self._count(warp if self.tiling.is_whole else ops.opaque(ops.value_of(warp))))

    def _squares(self, op: Any, parts: RowParts, means: int, own: int, total: Any) -> Any:
        """The squared distances from the row's mean, by those from each warp's."""
        mean = moments.average(self.walk, op, total)
        values = [parts.values(i) for i in (means, own, own + 1)]
        squares = [
            moments.squares_about(mean, part, self._elements(warp))
            for warp, *part in zip(parts.numbers, *values, strict=True)
        ]
        found = parts.total(squares, _add)
        # Rounding may leave less than nothing; NaN stays.
        return arith.MaximumFOp(found, ops.zeros(found.type)).result


def _of_warp(value: Any, combine: reduce.Combine) -> Any:
    return reduce.across_lanes(reduce.lanes(value, combine), WARP_THREADS, combine)


def _known(off: Any) -> Any:
    """A sum of distances, 0 where it is no number: then the mean that they are from is infinite."""
    is_number = arith.CmpFOp(arith.CmpFPredicate.ORD, off, off).result
    return arith.SelectOp(is_number, off, ops.zeros(off.type)).result


def _add(a: Any, b: Any) -> Any:
    return arith.AddFOp(a, b).result
