# pyright: basic
"""Mean and squared distances from it, in one pass over the elements.

    variance = avg((x - avg(x))^2)

`squared_distances` finds the reductions of a region that are sums of such squares.  A thread adds
up x - s and (x - s)^2 of its elements, s being one of its first, and corrects the squares by what
the sums say about s; threads' parts are merged with their counts.  Since s is one of n elements
of a thread, a sum of squares loses a factor of about n of f32's accuracy where s lies far outside
of the others.  Of a fragment of one row s is the middle one of three elements, so that a single
such one is not it (`start_of`).  Source: Chan, Golub, LeVeque, "Algorithms for computing the
sample variance", 1983.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..dialect import structure
from ..expr import Expr, product
from ..mlir import arith, ir
from ..mlir import math as mlir_math
from . import ops
from .matching import body_of, is_plain, is_sum, operand_of, pointwise, source_of
from .parts import Moments, combined, exact_sum, inverse, times, to_f32
from .region import Region
from .walk import inputs_of, is_reduction, reduced_axes

_MIDDLE_OF = 3  # elements


def squared_distances(region: Region) -> dict[Any, Any]:
    """Sum of (x - avg(x))^2 -> the sum of x; both are reducing generics of f32."""
    sums = [op for op in region.generics() if is_reduction(op) and is_sum(op)]
    found = {op: _sum_behind(region, op) for op in sums}
    return {op: of for op, of in found.items() if of is not None and of in sums}


def _sum_behind(region: Region, operation: Any) -> Any:
    """The sum of x, where an operation sums (x - avg(x))^2; else None."""
    square = pointwise(inputs_of(operation)[0])
    body = body_of(square) if square else []
    if [op.name for op in body] != ["arith.mulf"] or not is_plain(square):
        return None
    factors = [operand_of(square, value) for value in body[0].operands]
    if any(factor is None for factor in factors) or factors[0] != factors[1]:
        return None
    centred = pointwise(factors[0])
    body = body_of(centred) if centred else []
    names = [op.name for op in body]
    if not names or names[-1] != "arith.subf" or set(names[:-1]) - {"arith.extf"}:
        return None
    x, mean = (operand_of(centred, value) for value in body[-1].operands)
    if x is None or mean is None or not is_plain(centred, x):
        return None
    total = _averaged(region, mean)
    if total is None or reduced_axes(total) != reduced_axes(operation):
        return None
    return total if source_of(inputs_of(total)[0]) == source_of(x) else None


def _averaged(region: Region, value: Any) -> Any:
    """The sum that a value is, divided by the number of elements; else None."""
    value = source_of(value)
    divided = pointwise(value)
    body = body_of(divided) if divided else []
    if [op.name for op in body] != ["arith.index_cast", "arith.sitofp", "arith.divf"]:
        return None
    total = operand_of(divided, body[-1].operands[0])
    if total is None or body[-1].operands[1] != body[1].results[0]:
        return None
    total = total.owner
    if isinstance(total, ir.Block) or total.name != "linalg.generic" or not is_reduction(total):
        return None
    dims = region.dims_of(inputs_of(total)[0])
    count = _number(region, body[0].operands[0])
    return total if count == product(dims[axis] for axis in reduced_axes(total)) else None


def _number(region: Region, value: Any) -> Expr | None:
    op = value.owner
    if op.name == "arith.constant":
        return Expr.of(ir.IntegerAttr(op.attributes["value"]).value)
    return structure.read_size(op, region.symbols) if op.name == "dnn.size" else None


# ---- one thread's part


@dataclass(frozen=True)
class Shifted:
    """Sums over some elements, of distances from one of them: fragments of f32.

    shift: one of the first elements.  The sums start at 0.  is_fused: squares are added with one
    rounding.
    """

    shift: Any
    is_fused: bool = False

    def start(self) -> list[Any]:
        return [ops.zeros(self.shift.type)] * 2

    def add(self, sums: Sequence[Any], value: Any) -> list[Any]:
        off = arith.SubFOp(value, self.shift).result
        if self.is_fused:
            return [arith.AddFOp(sums[0], off).result, mlir_math.FmaOp(off, off, sums[1]).result]
        square = arith.MulFOp(off, off).result
        return [arith.AddFOp(sums[0], off).result, arith.AddFOp(sums[1], square).result]

    def add_all(self, sums: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        """With sums of their own, which then come to those of more: see `reduce.unrolled`."""
        own = self.add(self.start(), values[0])
        for value in values[1:]:
            own = self.add(own, value)
        return [arith.AddFOp(a, b).result for a, b in zip(sums, own, strict=True)]

    def part(self, sums: Sequence[Any], count: Any) -> list[Any]:
        """[count, mean, rest, squared distances from mean + rest]; count: of elements, i32."""
        off, squares = sums
        number = to_f32(count)
        average = arith.MulFOp(off, ops.splat(inverse(number), ops.width_of(off))).result
        mean, rest = exact_sum(self.shift, average)
        about_mean = arith.SubFOp(squares, arith.MulFOp(off, average).result).result
        none = ops.zeros(off.type)
        is_some = arith.CmpFOp(arith.CmpFPredicate.OGT, number, ops.zeros(number.type)).result
        mean, rest = (arith.SelectOp(is_some, value, none).result for value in (mean, rest))
        # Rounding may leave less than nothing; NaN stays.
        about_mean = arith.MaximumFOp(about_mean, none).result
        return [number, mean, rest, arith.SelectOp(is_some, about_mean, none).result]


@dataclass(frozen=True)
class SumWithMoments:
    """[sum of elements, what rounding took off it, and what `shifted` adds up].

    Fragments that come together are added to each other first; of the sum so far and theirs nothing
    is lost, wherever the shift lies.
    """

    shifted: Shifted

    def start(self) -> list[Any]:
        return [ops.zeros(self.shifted.shift.type)] * 2 + self.shifted.start()

    def add(self, state: Sequence[Any], value: Any) -> list[Any]:
        return self._added(state, value, self.shifted.add(state[2:], value))

    def add_all(self, state: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        own = list(values)
        while len(own) > 1:  # neighbours first: equal ones add up exactly
            pairs = [arith.AddFOp(*own[i : i + 2]).result for i in range(0, len(own) - 1, 2)]
            own = pairs + own[len(own) - len(own) % 2 :]
        return self._added(state, own[0], self.shifted.add_all(state[2:], values))

    def _added(self, state: Sequence[Any], value: Any, moments: list[Any]) -> list[Any]:
        total, rest = exact_sum(state[0], value)
        return [total, arith.AddFOp(state[1], rest).result, *moments]

    def total(self, state: Sequence[Any]) -> Any:
        """The sum; as it is added up, where that is infinite and the rest of it is no number."""
        whole = arith.AddFOp(state[0], state[1]).result
        is_number = arith.CmpFOp(arith.CmpFPredicate.ORD, state[1], state[1]).result
        return arith.SelectOp(is_number, whole, state[0]).result


def start_of(fragment: Any, *, is_row: bool) -> Any:
    """What distances of a thread's elements are taken from, by its first fragment; is_row: whether
    that is of one row, else each element is of its own."""
    width = ops.width_of(fragment)
    if not is_row or width < _MIDDLE_OF:
        return fragment
    a, b, c = (ops.extract(fragment, i) for i in range(_MIDDLE_OF))
    low, high = arith.MinimumFOp(a, b).result, arith.MaximumFOp(a, b).result
    middle = arith.MaximumFOp(low, arith.MinimumFOp(high, c).result).result
    return ops.splat(middle, width)


def folded(part: Sequence[Any]) -> list[Any]:
    """A part of scalars, of the elements of all lanes; each lane has the part's count."""
    count, *lanes = part
    quantity = Moments()
    total: Sequence[Any] = []
    reference = [ops.extract(lanes[0], 0)]
    for lane in zip(*map(ops.elements, lanes), strict=True):
        opened = quantity.opened([count, *lane], reference)
        total = combined(quantity, total, opened) if total else opened
    return list(quantity.closed(total, reference))


# ---- parts about their own means, [sum of x, sum of x - s, sum of (x - s)^2]


def shift_of(total: Any, count: Any) -> Any:
    """The s of a part: about the mean of its elements.  Whoever computes it gets the same bits."""
    return times(total, inverse(to_f32(count)))


def squares_about(mean: Any, part: Sequence[Any], count: Any) -> Any:
    """A part's squared distances from another mean.

    s is no further from the part's mean than rounding put it, and the sum of x - s says how far:
    so only the other mean's own error counts, as if its elements had been gone through again.
    """
    total, off, squares = part
    moved = arith.SubFOp(shift_of(total, count), mean).result
    linear = arith.AddFOp(times(moved, to_f32(count)), arith.AddFOp(off, off).result).result
    return mlir_math.FmaOp(moved, linear, squares).result
