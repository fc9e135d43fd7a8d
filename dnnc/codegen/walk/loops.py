# pyright: basic
"""Loops: some axes of an iteration, counted through in fragments by one number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...expr import Expr, ceildiv, product
from .. import ops
from ..kernel import Kernel, bits_of_count
from .index import Coordinate, Group, Index, Part


@dataclass(frozen=True)
class Loops:
    """The axes of some groups, in fragments of consecutive elements of the last group.

    dims: of the whole iteration.  groups: axes of each loop, outermost first.
    width: elements of a fragment.
    """

    dims: tuple[Expr, ...]
    groups: tuple[tuple[int, ...], ...]
    width: int = 1

    def extents(self, group: Sequence[int]) -> tuple[Expr, ...]:
        return tuple(self.dims[axis] for axis in group)

    @property
    def inner(self) -> Expr:
        """Elements of the last group."""
        return product(self.extents(self.groups[-1])) if self.groups else Expr.of(1)

    @property
    def inner_fragments(self) -> Expr:
        return ceildiv(self.inner, self.width)

    @property
    def fragments(self) -> Expr:
        outer = [extent for group in self.groups[:-1] for extent in self.extents(group)]
        return product([*outer, self.inner_fragments])

    @property
    def bits(self) -> int:
        """Bits of numbers of fragments, and of elements along the last group."""
        return max(bits_of_count(self.fragments), bits_of_count(self.inner))

    def first_of(self, block: Any, each: int) -> Any:
        """The number of the first fragment of a block; each: the fragments of one."""
        return ops.of_bits(block, self.bits) * each

    @property
    def is_whole(self) -> bool:
        """Whether the last group is a whole number of fragments, whatever the sizes."""
        return self.inner.known_divisor() % self.width == 0

    def coordinates(self, kernel: Kernel, fragment: Any) -> dict[int, Coordinate]:
        """Axis -> coordinate of a fragment's elements."""
        rest, inner = self._split(kernel, fragment)
        linear = Index(self._start(inner), 1 if self.width > 1 else 0, self.width)
        return self._placed(kernel, rest, linear, self.width)

    def element(
        self, kernel: Kernel, fragment: Any, element: Any
    ) -> tuple[dict[int, Coordinate], Any]:
        """(axis -> coordinate of one element of a fragment, its number along the last group)."""
        rest, inner = self._split(kernel, fragment)
        number = self._start(inner) + element
        return self._placed(kernel, rest, Index(number), 1), number

    def _split(self, kernel: Kernel, fragment: Any) -> tuple[Any, Any]:
        """(number of the outer groups, fragment of the last one)."""
        if len(self.groups) <= 1:
            return 0, fragment
        outer = product(self.extents([axis for group in self.groups[:-1] for axis in group]))
        rest = kernel.divide(fragment, self.inner_fragments, bits_of_count(outer))
        return rest, kernel.remainder(fragment, self.inner_fragments, rest)

    def _start(self, inner: Any) -> Any:
        """The first element of a fragment of the last group."""
        return ops.of_bits(inner, bits_of_count(self.inner)) * self.width

    def _placed(
        self, kernel: Kernel, rest: Any, linear: Index, width: int
    ) -> dict[int, Coordinate]:
        at: dict[int, Coordinate] = {}
        for position in reversed(range(len(self.groups))):
            group = self.groups[position]
            if position < len(self.groups) - 1:
                size = product(self.extents(group))
                outer = [axis for group in self.groups[:position] for axis in group]
                bits = bits_of_count(product(self.extents(outer)))
                quotient = kernel.divide(rest, size, bits) if position else 0
                linear = Index(kernel.remainder(rest, size, quotient) if position else rest)
                rest = quotient
            made = Group(kernel, self.extents(group), linear, width)
            at.update((axis, Part(made, i)) for i, axis in enumerate(group))
        return at


def coordinates_of(rank: int, *parts: Mapping[int, Coordinate]) -> list[Coordinate]:
    """One coordinate an axis; axes that no part has are at 0."""
    at: list[Coordinate] = [Index.of(0)] * rank
    for part in parts:
        for axis, coordinate in part.items():
            at[axis] = coordinate
    return at
