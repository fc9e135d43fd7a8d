# pyright: basic
"""Quantities that threads and blocks make parts of: totals of one value, and moments.

A part of moments is [count, place, rest, squared distances from place + rest], the mean of its
elements being place + rest: what rounding took off the mean would be in every distance of other
parts from it.  Parts are combined about a common reference, the place of one of them: then counts,
distances and squares simply add up.  In a block a place is one of the elements that threads take
distances from, which are rarely outliers (see `moments`); of a block's part it is the mean itself,
so that the squares of many blocks lose little.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ...mlir import arith, ir, math
from .. import ops
from ..scalars.math import rcp
from .reduce import Combine

Part = Sequence[Any]

# Of the values that a part has beside its count.
MOMENTS_BITS = (32, 32, 32)
AVERAGE_BITS = (32,)
_FAR = 2.0**90  # of a place: sums of distances from nearer ones stay what they are


def found_bits(bits: Sequence[int]) -> tuple[int, ...]:
    """Bits of the final values of a quantity, by the bits of its parts' values: for moments the
    mean and the squares."""
    return tuple(bits[::2])


class Quantity(Protocol):
    """types_left: of the values that warps and blocks leave to others.  types_found: of what is
    wanted in the end.  combines: of the values of an opened part.  nothing: the opened part of no
    elements, scalars.  is_relative: whether parts are opened about a reference."""

    is_relative: bool

    @property
    def types_left(self) -> Sequence[Any]: ...

    @property
    def types_found(self) -> Sequence[Any]: ...

    @property
    def of_entries(self) -> Quantity:
        """The quantity where a thread has parts of one entry, and can afford more for each."""
        ...

    @property
    def combines(self) -> Sequence[Combine]: ...

    @property
    def nothing(self) -> Sequence[Any]: ...

    def reference(self, part: Part) -> Part:
        """The reference that other parts are opened about, if any."""
        ...

    def opened(self, part: Part, reference: Part) -> Part: ...

    def closed(self, opened: Part, reference: Part) -> Part: ...

    def left(self, part: Part) -> Part:
        """The values of a part that have to be written down where its count is known."""
        ...

    def read(self, values: Part, count: Any) -> Part:
        """The part of what `left` gave; count: of its elements, i32."""
        ...

    def found(self, part: Part) -> Part:
        """The wanted values of the part of all elements."""
        ...


class Plain:
    """A total of one value."""

    is_relative = False

    def __init__(self, combine: Combine, nothing: Any):
        self.types_left = self.types_found = [nothing.type]
        self.combines = [combine]
        self.nothing = [nothing]

    @property
    def of_entries(self) -> Plain:
        return self

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

    def found(self, part: Part) -> Part:
        return part


class Moments:
    """[count, place, rest, squared distances], f32; opened [count, sum of distances, of squares].

    element: of what is opened.  In f64 nothing is lost, wherever the reference lies.
    """

    is_relative = True

    def __init__(self, element: Any = None) -> None:
        f32 = ops.f32_type()
        self.element = element or f32
        self.types_left, self.types_found = [f32] * 3, [f32] * 2
        self.combines = [_add] * 3
        self.nothing = [ops.zeros(self.element)] * 3

    @property
    def of_entries(self) -> Moments:
        return Moments(ir.F64Type.get())

    def reference(self, part: Part) -> Part:
        return [bounded(part[1])]

    def opened(self, part: Part, reference: Part) -> Part:
        count, place, rest, squares = (as_floats(value, self.element) for value in part)
        apart = arith.SubFOp(place, as_floats(reference[0], self.element)).result
        off = _add(apart, rest)
        # In this order: the count is 0 of a part without elements, whose mean says nothing.
        weighted = times(off, count)
        return [count, weighted, _add(squares, arith.MulFOp(weighted, off).result)]

    def closed(self, opened: Part, reference: Part) -> Part:
        count, weighted, squares = opened
        off = times(weighted, inverse(count))
        less = arith.SubFOp(squares, arith.MulFOp(weighted, off).result).result
        # Rounding may leave less than nothing; NaN stays.
        least = arith.MaximumFOp(less, ops.zeros(less.type)).result
        if self.element == ops.f32_type():
            return [count, reference[0], off, least]
        f32 = ops.f32_type()
        mean = _add(as_floats(reference[0], self.element), off)
        place = as_floats(mean, f32)
        rest = as_floats(arith.SubFOp(mean, as_floats(place, self.element)).result, f32)
        is_number = arith.CmpFOp(arith.CmpFPredicate.ORD, rest, rest).result  # the mean is finite
        rest = arith.SelectOp(is_number, rest, ops.zeros(f32)).result
        return [as_floats(count, f32), place, rest, as_floats(least, f32)]

    def left(self, part: Part) -> Part:
        return part[1:]

    def read(self, values: Part, count: Any) -> Part:
        return [to_f32(count), *values]

    def found(self, part: Part) -> Part:
        """The mean and the squared distances from it."""
        return [_add(part[1], part[2]), part[3]]


class Average:
    """[count, place, rest], f32, of a mean of place + rest; opened [count, sum of distances].

    Warps and blocks leave [count, mean].  Distances are from the place of one of the parts.
    """

    is_relative = True

    def __init__(self) -> None:
        f32 = ops.f32_type()
        self.types_left, self.types_found = [f32], [f32]
        self.combines = [_add] * 2
        self.nothing = [ops.zeros(f32)] * 2

    @property
    def of_entries(self) -> Average:
        return self

    def reference(self, part: Part) -> Part:
        return [bounded(part[1])]

    def opened(self, part: Part, reference: Part) -> Part:
        count, place, *rest = part
        off = arith.SubFOp(place, reference[0]).result
        return [count, times(_add(off, *rest) if rest else off, count)]

    def closed(self, opened: Part, reference: Part) -> Part:
        count, weighted = opened
        # What the reciprocal is off by is a share of what is added, of which little is lost.
        one = arith.ConstantOp(count.type, ir.FloatAttr.get(count.type, 1.0)).result
        return [count, reference[0], times(weighted, rcp(arith.MaximumFOp(count, one).result))]

    def left(self, part: Part) -> Part:
        """The mean, rounded."""
        return [_add(*part[1:])]

    def read(self, values: Part, count: Any) -> Part:
        return [to_f32(count), *values]

    def found(self, part: Part) -> Part:
        return self.left(part)


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


def bounded(place: Any) -> Any:
    """A fragment of f32 that distances may be taken from: 0 where it is infinite, or so far out
    that distances from it might be."""
    far = arith.ConstantOp(ops.f32_type(), ir.FloatAttr.get(ops.f32_type(), _FAR)).result
    far = ops.splat(far, ops.width_of(place))
    is_near = arith.CmpFOp(arith.CmpFPredicate.OLT, math.AbsFOp(place).result, far).result
    return arith.SelectOp(is_near, place, ops.zeros(place.type)).result


def as_floats(value: Any, element: Any) -> Any:
    """A fragment in f32 or f64."""
    own = ops.element_of(value.type)
    if own == element:
        return value
    make = arith.ExtFOp if element.width > own.width else arith.TruncFOp
    return make(ops.vector_type(element, ops.width_of(value)), value).result


def inverse(count: Any) -> Any:
    """1 / count, a finite number where that is 0; in f64 by a step of Newton's method from an
    approximation, since a division may be a call, around which registers are spilled."""
    f32, element = ops.f32_type(), count.type
    one = arith.ConstantOp(f32, ir.FloatAttr.get(f32, 1.0)).result
    least = arith.MaximumFOp(as_floats(count, f32), one).result
    if element == f32:
        return arith.DivFOp(one, least).result
    near = as_floats(rcp(least), element)
    less = arith.SubFOp(as_floats(one, element), arith.MulFOp(count, near).result).result
    return _add(near, arith.MulFOp(near, less).result)
