# pyright: basic
"""Mean and squared distances from it, in one pass over the elements.

    variance = avg((x - avg(x))^2)

A thread adds up x - s and (x - s)^2 of its elements, s being one of its first, and corrects the
squares by what the sums say about s; threads' parts are merged with their counts.  Since s is one
of n elements of a thread, a sum of squares loses a factor of about n of f32's accuracy where s lies
far outside of the others.  Of a fragment of one row, or of several fragments, s is the middle one
of three elements, so that a single such one is not it (`start_of`).  `Distances` adds up x - s
alone, for a mean; the mean of equal elements is that number.  Source: Chan, Golub, LeVeque,
"Algorithms for computing the sample variance", 1983.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...mlir import arith, llvm
from ...mlir import math as mlir_math
from .. import ops
from ..walk.region_walk import Walk
from .parts import Moments, as_floats, bounded, combined, inverse, times, to_f32
from .reduce import ThreadTotal

MIDDLE_OF = 3  # elements


def mean_of(total: Any) -> Any:
    """The mean that is made of a sum of f64, and nothing else."""
    (use,) = total.results[0].uses
    return use.owner.results[0]


# ---- one thread's part


@dataclass(frozen=True)
class Sums:
    """Sums of distances from one number, and of their squares: fragments of f32."""

    distances: Any
    squares: Any


@dataclass(frozen=True)
class Shifted:
    """The way to add up distances of some elements from one of them.

    shift: one of the first elements.  The sums start at 0.  is_fused: squares are added with one
    rounding.
    """

    shift: Any
    is_fused: bool = False

    def start(self) -> Sums:
        zeros = ops.zeros(self.shift.type)
        return Sums(zeros, zeros)

    def add(self, sums: Sums, value: Any) -> Sums:
        off = arith.SubFOp(value, self.shift).result
        if self.is_fused:
            added = arith.AddFOp(sums.distances, off).result
            return Sums(added, mlir_math.FmaOp(off, off, sums.squares).result)
        square = arith.MulFOp(off, off).result
        added = arith.AddFOp(sums.distances, off).result
        return Sums(added, arith.AddFOp(sums.squares, square).result)

    def part(self, sums: Sums, count: Any) -> list[Any]:
        """[count, place, rest, squared distances from place + rest]; count: of elements, i32."""
        off, number = sums.distances, to_f32(count)
        average = arith.MulFOp(off, ops.splat(inverse(number), ops.width_of(off))).result
        about_mean = arith.SubFOp(sums.squares, arith.MulFOp(off, average).result).result
        none = ops.zeros(off.type)
        is_some = arith.CmpFOp(arith.CmpFPredicate.OGT, number, ops.zeros(number.type)).result
        # Rounding may leave less than nothing; NaN stays.
        about_mean = arith.MaximumFOp(about_mean, none).result
        found = (self.shift, average, about_mean)
        return [number, *(arith.SelectOp(is_some, value, none).result for value in found)]


@dataclass(frozen=True)
class SumsOfMany:
    """Sums of many elements.

    total: of the elements.  shifted: of distances.  lost: what rounding took off their squares.
    """

    total: Any
    shifted: Sums
    lost: Any


@dataclass(frozen=True)
class SumWithMoments:
    """The way to add up many elements, and distances from one of them: they keep what rounding
    takes off the sum of squares.

    Elements of f32 far from 0 lie on a lattice.  Rounding moves their squares in one direction
    when they come to a large sum: a thousand squares lost 30 units in the last place.
    sum: of elements.
    Source: Kahan, "Further remarks on reducing truncation errors", 1965.
    """

    sum: ThreadTotal
    shifted: Shifted

    def start(self) -> SumsOfMany:
        zeros = ops.zeros(self.shifted.shift.type)
        return SumsOfMany(self.sum.start(), self.shifted.start(), zeros)

    def add(self, sums: SumsOfMany, value: Any) -> SumsOfMany:
        total = self.sum.add(sums.total, value)
        return SumsOfMany(total, self.shifted.add(sums.shifted, value), sums.lost)

    def add_all(self, sums: SumsOfMany, values: Sequence[Any]) -> SumsOfMany:
        """Adds values to each other first, then to the sums of more: see `reduce.unrolled`."""
        total, own = sums.total, self.shifted.start()
        if self.sum.is_short:
            total = self.sum.add_all(total, values)
        else:
            for value in values:
                total = self.sum.add(total, value)
        for value in values:
            own = self.shifted.add(own, value)
        old = sums.shifted
        off = arith.AddFOp(old.distances, own.distances).result
        squares = arith.AddFOp(old.squares, own.squares).result
        added = arith.SubFOp(squares, old.squares).result
        missed = arith.SubFOp(own.squares, added).result
        return SumsOfMany(total, Sums(off, squares), arith.AddFOp(sums.lost, missed).result)

    def total(self, sums: SumsOfMany) -> Any:
        return sums.total

    def part(self, sums: SumsOfMany, count: Any) -> list[Any]:
        """[count, place, rest, squared distances], as `Shifted.part` gives them."""
        lost = sums.lost
        # An infinite sum has lost no number.
        is_number = arith.CmpFOp(arith.CmpFPredicate.ORD, lost, lost).result
        lost = arith.SelectOp(is_number, lost, ops.zeros(lost.type)).result
        squares = arith.AddFOp(sums.shifted.squares, lost).result
        return self.shifted.part(replace(sums.shifted, squares=squares), count)


@dataclass(frozen=True)
class Distances:
    """The sum of some elements' distances from one of them, of which a thread knows but the upper
    half: fragments of f32.

    That takes half the registers.  What it is off by is in every distance, so that the mean is
    right.  words: of the upper halves.
    """

    words: Sequence[Any]
    width: int

    @staticmethod
    def from_(start: Any) -> Distances:
        halves = ops.elements(llvm.BitcastOp(_i32(ops.width_of(start)), start).result)
        odd = [ops.and_(value, -(1 << 16)) for value in halves[1::2]]
        even = [ops.shr(value, 16) for value in halves[::2]]
        words = [ops.or_(*pair) for pair in zip(even, odd, strict=False)]
        return Distances(words or even, ops.width_of(start))

    def start(self) -> Any:
        return ops.zeros(ops.vector_type(ops.f32_type(), self.width))

    def place(self) -> Any:
        """The place that distances are from."""
        found = []
        for word in self.words:
            # Else the compiler keeps the halves, each in a register.
            known = ops.opaque(word)
            found += [ops.shl(known, 16), ops.and_(known, -(1 << 16))]
        whole = ops.from_elements(found[: self.width])
        return llvm.BitcastOp(ops.vector_type(ops.f32_type(), self.width), whole).result

    def add(self, total: Any, value: Any) -> Any:
        off = arith.SubFOp(value, self.place()).result
        return arith.AddFOp(total, off).result

    def part(self, total: Any, count: Any) -> list[Any]:
        """[count, place, rest]; count: of elements, i32."""
        number = to_f32(count)
        return [number, self.place(), times(total, inverse(number))]


def _i32(width: int) -> Any:
    return ops.vector_type(ops.i32_type(), width)


def part_of_total(total: Any, count: Any) -> list[Any]:
    """[count, place, rest], by a total of f64; count: of elements, i32."""
    f32, number = ops.f32_type(), to_f32(count)
    mean = times(total, inverse(as_floats(number, ops.element_of(total.type))))
    place = as_floats(mean, f32)
    apart = arith.SubFOp(mean, as_floats(place, ops.element_of(total.type))).result
    return [number, place, as_floats(apart, f32)]


def start_of(fragments: Sequence[Any], *, is_row: bool) -> Any:
    """The values that distances of a thread's elements are taken from, by its first fragments:
    for a row the middle one of three elements, else lane by lane the middle one of three
    fragments; the first where there are fewer."""
    first = fragments[0]
    some = list(fragments)
    if is_row:
        some = [ops.extract(first, i) for i in range(min(ops.width_of(first), MIDDLE_OF))]
    if len(some) < MIDDLE_OF:
        return bounded(first)
    a, b, c = some
    low, high = arith.MinimumFOp(a, b).result, arith.MaximumFOp(a, b).result
    middle = arith.MaximumFOp(low, arith.MinimumFOp(high, c).result).result
    return ops.splat(bounded(middle), ops.width_of(first))


def folded(part: Sequence[Any]) -> list[Any]:
    """A part of scalars, of the elements of all lanes; each lane has the part's count."""
    count, *lanes = part
    quantity = Moments()
    total: Sequence[Any] = []
    reference = quantity.reference([count, *(ops.extract(value, 0) for value in lanes)])
    for lane in zip(*map(ops.elements, lanes), strict=True):
        opened = quantity.opened([count, *lane], reference)
        total = combined(quantity, total, opened) if total else opened
    return list(quantity.closed(total, reference))


# ---- parts about numbers of their own, [s, sum of x - s, sum of (x - s)^2]


def average(walk: Walk, sum_: Any, total: Any) -> Any:
    """The mean that squared distances are about, by the total of the elements, whose sum a
    reduction is: computed as the graph does, since what it is off by, squared, is in every
    distance."""
    return walk.body(mean_of(sum_).owner, [total], (), ops.width_of(total))


def squares_about(mean: Any, part: Sequence[Any], count: Any) -> Any:
    """A part's squared distances from another mean; count: of its elements, f32.

    s is about the part's mean, and the sum of x - s says how far: so only the other mean's own
    error counts, as if its elements had been gone through again.
    """
    place, off, squares = part
    moved = arith.SubFOp(place, mean).result
    linear = arith.AddFOp(times(moved, count), arith.AddFOp(off, off).result).result
    return mlir_math.FmaOp(moved, linear, squares).result
