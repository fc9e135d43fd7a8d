# pyright: basic
"""The softmax of rows that come block by block, on accumulators of warpgroup products.

A thread has two rows of a block [64, n], 8 apart (`wgmma.AccumulatorLayout`); four lanes share a
row.  Of each row it keeps a reference, near the largest score so far, and its own part of the sum
of exponentials of distances from that; what was added before a reference grew is scaled.
Source: Milakov, Gimelshein, "Online normalizer calculation for softmax", 2018.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...mlir import arith, llvm
from ...mlir import math as mlir_math
from .. import ops
from ..state import chosen
from ..stretch import stretch
from ..totals.reduce import shuffle_xor
from ..totals.votes import is_any_above
from ..value import wrapped

HALVES = (0, 1)  # a thread's upper and lower row
_QUAD = 4  # lanes that share a row
_EXPONENT = 0x7F800000  # of an f32
_FAR = 2.0**28  # exponents from where on neighbouring ones are 32 apart and more
STEEP = 2.0**12  # a factor from where on ordinary scores are as far
_BITS_OF_EXPONENT = 23  # below it


@dataclass(frozen=True)
class Rows:
    """State of a thread's two rows.

    reference: in units of the scores, -inf before the first.  total: the lane's part of the sum.
    largest: of the lane's scores, where they are tracked; (): not.  is_low: i1, whether a reference
    of the warp's rows is negative; None: that is not asked for.
    """

    reference: Sequence[Any]
    total: Sequence[Any]
    largest: Sequence[Any] = ()
    is_low: Any = None


@dataclass(frozen=True)
class _Moved:
    """A thread's two rows about the references of a step.  scale: of what was summed before."""

    reference: Sequence[Any]
    total: Sequence[Any]
    scale: Sequence[Any]
    is_low: Any = None


@dataclass(frozen=True)
class Step:
    """A block's softmax.  exponentials: as the accumulators lie.  rows: after it.  scale: of what
    was summed before, of each row.  grows: i1, whether any row of the warp has one that is not 1;
    None: it may."""

    exponentials: list[Any]
    rows: Rows
    scale: Sequence[Any]
    grows: Any = None


@dataclass(frozen=True)
class OnlineSoftmax:
    """factor: exp2(factor * score) is the exponential; a number above 0, or an f32 value.

    rescale: by how much, in powers of two, a row has to grow for its reference to move; 0: by
    anything.  Sums stay below 2 ** rescale times what they would be.  may_be_far: whether scores
    may be finite and beyond what products give, as where a mask adds the least number.  lift:
    exponentials, and their sums until they are `finished`, are 2 ** lift times what they are; so
    2 ** (lift + rescale) at most.  tracks: whether the largest score of a row is asked for, which
    may be above its reference.  by_bits: whether scores are compared as integers, three at a time,
    where no reference is negative: bits of positive numbers have their order, and a negative score
    never moves such a reference.
    """

    factor: Any
    rescale: int = 0
    may_be_far: bool = False
    lift: int = 0
    tracks: bool = False
    by_bits: bool = False

    @stretch("softmax")
    def first(self, scores: Sequence[Any], *, is_masked: bool) -> Step:
        """State after the first block; is_masked: whether a row may have no score above -inf."""
        lanes = self._lane_maximum(scores)
        most = [_over_quad(own, _max) for own in lanes]
        exponentials = self._exponentials(scores, self._base(most, is_masked))
        totals = [_Chains.of(exponentials, half, None).whole for half in HALVES]
        largest = lanes if self.tracks else []
        return Step(exponentials, Rows(most, totals, largest, self._is_low(most)), ())

    @stretch("softmax")
    def next(
        self,
        scores: Sequence[Any],
        rows: Rows,
        *,
        is_masked: bool,
        pin: Callable[[Any], None] | None = None,
        pinned: int = 0,
    ) -> Step:
        """pin(value): has a value computed no later than here; of the sums of the first
        `pinned` eighths of the exponentials."""
        lanes = self._lane_maximum(scores, rows.is_low)
        # Only a step whose maximum outgrows the reference, a few of each row, goes through the
        # exchange between lanes and the scaling of sums.
        grows = self._any_grows(lanes, rows.reference) if self.rescale else None
        moved = chosen(
            grows, _Moved(rows.reference, rows.total, rows.total, rows.is_low),
            lambda: self._moved(lanes, rows, is_masked), lambda: _kept(rows),
        )  # fmt: skip
        exponentials = self._exponentials(scores, self._base(moved.reference, is_masked))
        first = len(exponentials) // 4 * pinned // 8 if pin is not None else 0
        chains = [_Chains.of(exponentials, half, moved.total[half], first) for half in HALVES]
        if pin is not None and first:
            pin(_add(*(chain.part for chain in chains)))
        largest = (
            [_max(*pair) for pair in zip(rows.largest, lanes, strict=True)] if self.tracks else ()
        )
        totals = [chain.whole for chain in chains]
        rows = Rows(moved.reference, totals, largest, moved.is_low)
        return Step(exponentials, rows, moved.scale, grows)

    def _moved(self, lanes: Sequence[Any], rows: Rows, is_masked: bool) -> _Moved:
        """References moved to the largest scores, with sums scaled to them, and the scales."""
        pairs = zip(lanes, rows.reference, strict=True)
        most = [_over_quad(_max(own, old), _max) for own, old in pairs]
        scale = self.shares(rows.reference, self._base(most, is_masked))
        totals = [_mul(total, s) for total, s in zip(rows.total, scale, strict=True)]
        return _Moved(most, totals, scale, self._is_low(most))

    def fixed(self, scores: Sequence[Any], rows: Rows, scale: Sequence[Any]) -> list[Any]:
        """Exponentials of rows whose maximum is known, times a factor of each row."""
        return scaled(self._exponentials(scores, self._base(rows.reference, True)), scale)

    def finished(self, rows: Rows) -> list[Any]:
        """The whole sums, of all lanes of a row."""
        totals = [_over_quad(total, _add) for total in rows.total]
        if not self.lift:
            return totals
        return [_mul(total, ops.f32(2.0**-self.lift)) for total in totals]

    def largest(self, rows: Rows, half: int) -> Any:
        """The largest score of a row; -inf where it had none."""
        return _over_quad(rows.largest[half], _max) if rows.largest else rows.reference[half]

    def largest_exponential(self, rows: Rows, half: int) -> Any:
        """The exponential of a row's largest score; None: it is 1."""
        if not rows.largest:
            return None
        (found,) = self.shares([self.largest(rows, half)], [self.relative_to(rows, half)])
        return found

    def relative_to(self, rows: Rows, half: int) -> Any:
        """The reference of a row's sum, in units of the scores: 0 where it had no score."""
        return self._base([rows.reference[half]], True)[0]

    def shares(self, old: Sequence[Any], base: Sequence[Any]) -> list[Any]:
        """Factors of sums relative to some references, where others replace these.

        Exponentials are relative to rounded products, whose difference this takes: 1 where nothing
        moves, where the exact distance from a rounded product would not be, block after block.
        """
        factors = self._factors(base)
        pairs = zip(_shifts(base, factors), _shifts(old, factors), strict=True)
        return [_ex2(arith.SubFOp(new, before).result) for new, before in pairs]

    # ---- parts

    def _lane_maximum(self, scores: Sequence[Any], is_low: Any = None) -> list[Any]:
        """The largest score that the lane has of each row; two chains a row.

        is_low: see `Rows`; where it is not, 0 stands for negative ones.
        """

        def largest() -> list[Any]:
            return [
                _max(*(_chain(_of_row(scores, half)[i::2], _max) for i in (0, 1)))
                for half in HALVES
            ]

        if is_low is None:
            return largest()
        zeros = [ops.f32(0.0) for _ in HALVES]
        return chosen(
            is_low, zeros, largest, lambda: [_largest_bits(_of_row(scores, h)) for h in HALVES]
        )

    def _is_low(self, reference: Sequence[Any]) -> Any:
        """Whether a reference of the warp's rows is negative, i1; None: nobody asks."""
        if not self.by_bits:
            return None
        below = [arith.NegFOp(r).result for r in reference]
        return is_any_above(arith.MaxNumFOp(*below).result, 0.0)

    def _base(self, most: Sequence[Any], is_masked: bool) -> list[Any]:
        """Value that is subtracted: no difference of infinities, where a row has no score yet."""
        if not is_masked:
            return list(most)
        low, zero = ops.f32(-math.inf), ops.f32(0.0)
        is_empty = [arith.CmpFOp(arith.CmpFPredicate.OEQ, m, low).result for m in most]
        return [
            arith.SelectOp(empty, zero, m).result for empty, m in zip(is_empty, most, strict=True)
        ]

    def _any_grows(self, lanes: Sequence[Any], old: Sequence[Any]) -> Any:
        """Whether a row of the warp outgrows its reference.

        Growth is the exponent that the largest score would have if the reference stayed, computed
        as exponentials compute theirs, so that none that stays is above `rescale`.
        """
        factors = self._factors(old)
        shifts = _shifts(old, factors)
        grown = [_distance(m, s, f) for m, s, f in zip(lanes, shifts, factors, strict=True)]
        # A row without scores, whose growth is no number, does not hide the other's.
        return is_any_above(arith.MaxNumFOp(*grown).result, self.rescale)

    def _factors(self, base: Sequence[Any]) -> list[Any]:
        """Factors of the distances of each row.

        The product of a far base would be rounded by more than the exponentials' range, and that
        of a score, inside a multiply-add, would not.  Scores there are equal or so far from each
        other that a power of two, by which both products are exact, does as well.
        """
        factor = _of(self.factor)
        if not self._may_be_far:
            return [factor for _ in base]
        limit, found = ops.f32(_FAR), []
        for b in base:
            power = self._power(b)
            exponent = _mul(mlir_math.AbsFOp(b).result, power)
            is_far = arith.CmpFOp(arith.CmpFPredicate.OGT, exponent, limit)
            found.append(arith.SelectOp(is_far.result, power, factor).result)
        return found

    @property
    def _may_be_far(self) -> bool:
        return self.may_be_far or (isinstance(self.factor, float) and self.factor >= STEEP)

    def _power(self, base: Any) -> Any:
        """The power of two up to the factor, or where its product by a base would be none, less."""
        if isinstance(self.factor, float) and self.factor < 2:
            return ops.f32(2.0 ** math.floor(math.log2(self.factor)))
        own, other = (
            wrapped(llvm.BitcastOp(ops.i32_type(), value)) & _EXPONENT
            for value in (_of(self.factor), base)
        )
        # Exponents are 127 more than they are: their sum may be 126 + 2 * 127, which 32 bits hold
        # halved.
        room = (380 << _BITS_OF_EXPONENT - 1) - other // 2
        room = ops.minimum(room, 254 << _BITS_OF_EXPONENT - 1) * 2
        return llvm.BitcastOp(ops.f32_type(), ops.minimum(own, room)).result

    def _exponentials(self, scores: Sequence[Any], base: Sequence[Any]) -> list[Any]:
        factors = self._factors(base)
        shifts = _shifts(base, factors)
        # Beside a far base the lift would be rounded away.
        if self.lift and not self._may_be_far:
            shifts = [_add(shift, ops.f32(float(self.lift))) for shift in shifts]
        found = list[Any]()
        for i, score in enumerate(scores):
            found.append(_ex2(_distance(score, shifts[i // 2 % 2], factors[i // 2 % 2])))
        if self.lift and self._may_be_far:
            return [_mul(value, ops.f32(2.0**self.lift)) for value in found]
        return found


@dataclass(frozen=True)
class _Chains:
    """The sum of a row's exponentials.  part: of the first columns, and of what was before."""

    whole: Any
    part: Any

    @staticmethod
    def of(exponentials: Sequence[Any], half: int, before: Any, first: int = 0) -> _Chains:
        """In two chains, the first of which begins with `before`; first: columns of `part`, in
        eights."""
        own = _of_row(exponentials, half)
        chains = [own[0::2], own[1::2]]
        if before is not None:
            chains[0] = [before, *chains[0]]
        parts = list[Any]()
        for number, chain in enumerate(chains):
            found, more = chain[0], first + (1 if number == 0 and before is not None else 0)
            parts.append(found)
            for place, value in enumerate(chain[1:], 2):
                found = _add(found, value)
                parts[number] = found if place <= more else parts[number]
            chains[number] = [found]
        return _Chains(_add(chains[0][0], chains[1][0]), _add(*parts))


def _kept(rows: Rows) -> _Moved:
    """References and sums as they are, and scales of 1."""
    return _Moved(rows.reference, rows.total, [ops.f32(1.0) for _ in HALVES], rows.is_low)


def scaled(sums: Sequence[Any], scale: Sequence[Any]) -> list[Any]:
    """Accumulators times a factor of each row."""
    return [_mul(value, scale[i // 2 % 2]) for i, value in enumerate(sums)]


def plus(sums: Sequence[Any], added: Sequence[Any]) -> list[Any]:
    """Accumulators and a number of each row."""
    return [_add(value, added[i // 2 % 2]) for i, value in enumerate(sums)]


def _shifts(base: Sequence[Any], factors: Sequence[Any]) -> list[Any]:
    """The values that products of scores by factors are added to."""
    return [arith.NegFOp(_mul(b, factor)).result for b, factor in zip(base, factors, strict=True)]


def _distance(score: Any, shift: Any, factor: Any) -> Any:
    """factor * (score - base), rounded once."""
    return mlir_math.FmaOp(score, factor, shift).result


def _of_row(values: Sequence[Any], half: int) -> list[Any]:
    return [value for i, value in enumerate(values) if i // 2 % 2 == half]


def _chain(values: Sequence[Any], combine: Callable[[Any, Any], Any]) -> Any:
    found = values[0]
    for value in values[1:]:
        found = combine(found, value)
    return found


def _largest_bits(values: Sequence[Any]) -> Any:
    """The largest of some f32, or 0 where all are negative, by their bits; two chains.

    Two maxima of integers in a row are one instruction of sm_90, and none is of floats.
    """
    bits = [llvm.BitcastOp(ops.i32_type(), value).result for value in values]
    found = list[Any]()
    for i in (0, 1):
        chain = bits[i::2]
        largest = chain[0]
        for bit in chain[1:]:
            largest = arith.MaxSIOp(largest, bit).result
        found.append(largest)
    whole = arith.MaxSIOp(arith.MaxSIOp(*found).result, ops.const(0)).result
    return llvm.BitcastOp(ops.f32_type(), whole).result


def _over_quad(value: Any, combine: Callable[[Any, Any], Any]) -> Any:
    distance = 1
    while distance < _QUAD:
        value = combine(value, shuffle_xor(value, distance))
        distance *= 2
    return value


def _of(factor: Any) -> Any:
    """A number as a value."""
    return ops.f32(factor) if isinstance(factor, float) else factor


def _add(a: Any, b: Any) -> Any:
    return arith.AddFOp(a, b).result


def _mul(a: Any, b: Any) -> Any:
    return arith.MulFOp(a, b).result


def _max(a: Any, b: Any) -> Any:
    """NaN if one is: `max.NaN` is as fast as `max`."""
    return arith.MaximumFOp(a, b).result


def _ex2(x: Any) -> Any:
    return llvm.call_intrinsic(ops.f32_type(), "llvm.nvvm.ex2.approx.ftz.f", [x], [], [])
