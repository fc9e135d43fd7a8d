# pyright: basic
"""What threads and blocks make parts of: totals of one value, and moments.

A part of moments is [count, mean, rest, squared distances from mean + rest]: what rounding took off
the mean would be in every distance of other parts from it.  Parts are combined about a common
reference, the mean of one of them: then counts, distances and squares simply add up.  That mean is
one of n, so the squares lose a factor n of accuracy at most (see `moments`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..mlir import arith, ir
from . import ops
from .reduce import Combine

Part = Sequence[Any]

MOMENTS_BITS = (32, 32, 32, 32)  # of a part's values


class Quantity(Protocol):
    """types: of a part's values.  combines: of those of an opened part.  nothing: the opened part
    of no elements, scalars.  types_left: of the values that a block leaves to others."""

    @property
    def types(self) -> Sequence[Any]: ...

    @property
    def types_left(self) -> Sequence[Any]: ...

    @property
    def combines(self) -> Sequence[Combine]: ...

    @property
    def nothing(self) -> Sequence[Any]: ...

    def is_count(self, number: int) -> bool:
        """Whether a value is the same for all elements of a fragment."""
        ...

    def reference(self, part: Part) -> Part:
        """What others are to be opened about, if anything."""
        ...

    def opened(self, part: Part, reference: Part) -> Part: ...

    def closed(self, opened: Part, reference: Part) -> Part: ...

    def left(self, part: Part) -> Part:
        """What of a part has to be written down where its count is known."""
        ...

    def read(self, values: Part, count: Any) -> Part:
        """The part of what `left` gave; count: of its elements, i32."""
        ...


class Plain:
    """A total of one value."""

    def __init__(self, combine: Combine, nothing: Any):
        self.types = self.types_left = [nothing.type]
        self.combines = [combine]
        self.nothing = [nothing]

    def is_count(self, number: int) -> bool:
        return False

    def reference(self, part: Part) -> Part:
        return []

    def opened(self, part: Part, reference: Part) -> Part:
        return part

    def closed(self, opened: Part, reference: Part) -> Part:
        return opened

    def left(self, part: Part) -> Part:
        return part

    def read(self, values: Part, count: Any) -> Part:
        return values


class Moments:
    """[count, mean, rest, squared distances], f32; opened [count, sum of distances, of squares]."""

    def __init__(self) -> None:
        f32 = ops.f32_type()
        self.types, self.types_left = [f32] * 4, [f32] * 3
        self.combines = [_add] * 3
        self.nothing = [ops.zeros(f32)] * 3

    def is_count(self, number: int) -> bool:
        return number == 0

    def reference(self, part: Part) -> Part:
        return [part[1]]

    def opened(self, part: Part, reference: Part) -> Part:
        count, mean, rest, squares = part
        off = _add(arith.SubFOp(mean, reference[0]).result, rest)
        # In this order: the count is 0 of a part without elements, whose mean says nothing.
        weighted = times(off, count)
        return [count, weighted, _add(squares, arith.MulFOp(weighted, off).result)]

    def closed(self, opened: Part, reference: Part) -> Part:
        count, weighted, squares = opened
        off = times(weighted, inverse(count))
        less = arith.SubFOp(squares, arith.MulFOp(weighted, off).result).result
        # Rounding may leave less than nothing; NaN stays.
        least = arith.MaximumFOp(less, ops.zeros(less.type)).result
        return [count, *exact_sum(reference[0], off), least]

    def left(self, part: Part) -> Part:
        return part[1:]

    def read(self, values: Part, count: Any) -> Part:
        return [to_f32(count), *values]


def exact_sum(a: Any, b: Any) -> list[Any]:
    """[the sum, what rounding took off it].  Source: Knuth, "The Art of Computer Programming",
    volume 2, 4.2.2."""
    total = _add(a, b)
    of_a = arith.SubFOp(total, b).result
    of_b = arith.SubFOp(total, of_a).result
    return [total, _add(arith.SubFOp(a, of_a).result, arith.SubFOp(b, of_b).result)]


def combined(quantity: Quantity, a: Part, b: Part) -> list[Any]:
    """The opened part of two."""
    return [c(x, y) for c, x, y in zip(quantity.combines, a, b, strict=True)]


def _add(a: Any, b: Any) -> Any:
    return arith.AddFOp(a, b).result


def times(value: Any, factor: Any) -> Any:
    """A fragment times a scalar, or one of its kind."""
    return arith.MulFOp(value, ops.splat(factor, ops.width_of(value))).result


def to_f32(count: Any) -> Any:
    return arith.SIToFPOp(ops.f32_type(), ops.value_of(count)).result


def inverse(count: Any) -> Any:
    """1 / count, 1 where that is 0."""
    one = arith.ConstantOp(count.type, ir.FloatAttr.get(count.type, 1.0)).result
    return arith.DivFOp(one, arith.MaximumFOp(count, one).result).result
