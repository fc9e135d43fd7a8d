# pyright: basic
"""Coordinates of a fragment's elements.

A fragment is `width` elements that one thread works on together.  Along each logical axis of a
tensor its elements have coordinates: all the same (`step` 0), base + step * i, or anything
(`lanes`).  Keeping the three apart is what turns accesses into broadcasts, vector accesses and
gathers.  `Group` is several axes counted through by one number, taken apart only where needed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...expr import Expr, product
from .. import ops
from ..kernel import Kernel, bits_of_count
from ..ops import Number


@dataclass(frozen=True, eq=False)
class Index:
    """Coordinates along one axis, or offsets in memory.

    base: of element 0, an int or an i32 (offsets: i64) value.  step: from an element to the next,
    an int or a value.  divisor: a number known to divide base (0: base is 0).
    lanes: one number an element, in place of base and step.
    """

    base: Number = 0
    step: Number = 0
    divisor: int = 1
    lanes: tuple[Number, ...] | None = None

    @staticmethod
    def of(number: Number) -> Index:
        """An index of one coordinate for every element."""
        return Index(number, divisor=number) if isinstance(number, int) else Index(number)

    @property
    def is_uniform(self) -> bool:
        return self.lanes is None and isinstance(self.step, int) and self.step == 0

    @property
    def is_consecutive(self) -> bool:
        return self.lanes is None and isinstance(self.step, int) and self.step == 1

    @property
    def key(self) -> Any:
        """Equal for indices that are known to be equal."""
        return (_key(self.base), _key(self.step), self.lanes and tuple(map(_key, self.lanes)))

    def index(self) -> Index:
        return self

    def element(self, i: int) -> Number:
        """The coordinate of element i."""
        if self.lanes is not None:
            return self.lanes[i]
        return ops.add(self.base, ops.mul(self.step, i))

    def at(self, i: int) -> Index:
        """The coordinate of element i, as an index of one element."""
        return self if self.is_uniform else Index.of(self.element(i))

    def numbers(self, width: int) -> Any:
        """The coordinates as an i32 fragment, a scalar if they are all the same; a size that has
        no 31 bits is an i64."""
        if self.is_uniform:
            return ops.value_of(self.base)
        if self.lanes is not None:
            return ops.from_elements([ops.value_of(lane) for lane in self.lanes])
        return ops.iota(self.base, self.step, width)


def _key(number: Number) -> Any:
    return number if isinstance(number, int) else hash(number)


def add(a: Index, b: Index) -> Index:
    if a.lanes is None and b.lanes is None:
        return Index(
            ops.add(a.base, b.base), ops.add(a.step, b.step), math.gcd(a.divisor, b.divisor)
        )
    return _lanewise(ops.add, a, b)


def sub(a: Index, b: Index) -> Index:
    if a.lanes is None and b.lanes is None:
        return Index(
            ops.sub(a.base, b.base), ops.sub(a.step, b.step), math.gcd(a.divisor, b.divisor)
        )
    return _lanewise(ops.sub, a, b)


def scale(a: Index, factor: Number, divisor: int = 1) -> Index:
    """a * factor; divisor: a number known to divide factor."""
    divisor = abs(factor) if isinstance(factor, int) else divisor
    if a.lanes is None:
        return Index(ops.mul(a.base, factor), ops.mul(a.step, factor), a.divisor * divisor)
    return Index(lanes=tuple(ops.mul(lane, factor) for lane in a.lanes))


def apply(function: Callable[..., Number], *operands: Index) -> Index:
    """Any function of numbers, element by element."""
    if all(operand.is_uniform for operand in operands):
        return Index.of(function(*(operand.base for operand in operands)))
    return _lanewise(function, *operands)


def _lanewise(function: Callable[..., Number], *operands: Index) -> Index:
    width = next((len(o.lanes) for o in operands if o.lanes is not None), 0)
    if not width:
        raise AssertionError("the width of a fragment is not known; use `spread` first")
    rows = zip(*([o.element(i) for i in range(width)] for o in operands), strict=True)
    return Index(lanes=tuple(function(*row) for row in rows))


def spread(a: Index, width: int) -> Index:
    """The coordinates as lanes, so that any function can be applied."""
    if a.lanes is not None or a.is_uniform:
        return a
    return Index(lanes=tuple(a.element(i) for i in range(width)))


@dataclass(eq=False)
class Group:
    """Axes counted through together: linear = (i0 * n1 + i1) * n2 + i2, the last one fastest.

    extents: their sizes.  linear: the fragment's numbers.  width: its elements.
    """

    kernel: Kernel
    extents: tuple[Expr, ...]
    linear: Index
    width: int
    _parts: dict[int, tuple[Index, Any]] = field(default_factory=dict)

    @property
    def size(self) -> Expr:
        return product(self.extents)

    def part(self, position: int) -> Index:
        """The coordinates along one of its axes, worked out once where they can be used again."""
        known = self._parts.get(position)
        if known is None or not ops.is_visible(known[1]):
            known = self._taken_apart(position), ops.current_block()
            self._parts[position] = known
        return known[0]

    def _taken_apart(self, position: int) -> Index:
        if len(self.extents) == 1:
            return _narrowed(self.linear)
        if self.linear.is_uniform:
            return self._of_number(self.linear.base, position)
        # Consecutive elements stay in one row of the last axis if rows are whole fragments.
        last = self.extents[-1].known_divisor()
        aligned = self.linear.is_consecutive and last % self.width == 0
        if aligned and self.linear.divisor % self.width == 0:
            start = self._of_number(self.linear.base, position)
            if position == len(self.extents) - 1:
                return Index(start.base, 1, math.gcd(last, self.linear.divisor))
            return start
        lanes = [self._of_number(self.linear.element(i), position).base for i in range(self.width)]
        return Index(lanes=tuple(lanes))

    def _of_number(self, number: Number, position: int) -> Index:
        inner = product(self.extents[position + 1 :])
        bits = bits_of_count(product(self.extents[: position + 1])) if position else 32
        quotient = self.kernel.divide(number, inner, bits)
        if not position:
            return Index.of(quotient)
        return Index.of(self.kernel.remainder(quotient, self.extents[position]))


@dataclass(frozen=True, eq=False)
class Part:
    """One axis of a group: a coordinate that is only worked out when it is needed alone."""

    group: Group
    position: int

    @property
    def is_uniform(self) -> bool:
        return self.group.linear.is_uniform

    @property
    def key(self) -> Any:
        return (id(self.group), self.position)

    def index(self) -> Index:
        return self.group.part(self.position)

    def at(self, i: int) -> Index:
        return self.index().at(i)


Coordinate = Index | Part


def offset(
    kernel: Kernel,
    at: Sequence[Coordinate],
    dims: Sequence[Expr],
    strides: Sequence[Expr],
    *,
    bits: int,
) -> Index:
    """Where the elements of a tensor at some coordinates lie, in elements from its first.

    Axes of one group whose strides nest (stride[i] == stride[i+1] * dim[i+1]) are addressed by
    the group's number at once.  bits: of the offsets, 32 or 64.
    """
    total = Index(0, 0, 0)
    done: set[int] = set()
    for axis, coordinate in enumerate(at):
        if axis in done or dims[axis].constant == 1:
            continue
        run = _nested_run(axis, at, dims, strides)
        if run:
            done.update(run)
            assert isinstance(coordinate, Part)
            term, stride = coordinate.group.linear, strides[run[-1]]
        else:
            term, stride = coordinate.index(), strides[axis]
        total = add(total, _scaled(kernel, term, stride, bits))
    return total


def _nested_run(
    axis: int, at: Sequence[Coordinate], dims: Sequence[Expr], strides: Sequence[Expr]
) -> list[int] | None:
    """The tensor's axes, in the group's order, if all of the group's are there and nest."""
    coordinate = at[axis]
    if not isinstance(coordinate, Part):
        return None
    group = coordinate.group
    where = {c.position: i for i, c in enumerate(at) if isinstance(c, Part) and c.group is group}
    if len(where) != len(group.extents) or len(at) < len(where):
        return None
    run = [where[position] for position in range(len(group.extents))]
    if any(dims[i] != extent for i, extent in zip(run, group.extents, strict=True)):
        return None
    nests = all(
        strides[outer] == strides[inner] * dims[inner] for outer, inner in itertools.pairwise(run)
    )
    return run if nests else None


def _scaled(kernel: Kernel, term: Index, stride: Expr, bits: int) -> Index:
    if bits == 64:
        term = _widened(term)
    return scale(term, kernel.size(stride, bits), abs(stride.known_divisor()))


def _narrowed(term: Index) -> Index:
    """Coordinates along one axis, whose size has 31 bits."""
    if term.lanes is not None:
        return Index(lanes=tuple(map(ops.to_i32, term.lanes)))
    return Index(ops.to_i32(term.base), ops.to_i32(term.step), term.divisor)


def _widened(term: Index) -> Index:
    if term.lanes is not None:
        return Index(lanes=tuple(ops.to_i64(lane) for lane in term.lanes))
    return Index(ops.to_i64(term.base), ops.to_i64(term.step), term.divisor)
