# pyright: basic
"""Patches: some places of an iteration that one thread works on, as large along each axis as said.

Windows of neighbouring places overlap.  What a thread reads for one of them it has for the
others, if the coordinates of all are worked out from the same number: p * size + i, where the
size and i are known, so that the assembler finds equal addresses and conditions that always hold.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...expr import Expr, ceildiv
from .. import ops
from ..kernel import Kernel
from .index import Coordinate, Index
from .loops import Loops, coordinates_of


@dataclass(frozen=True)
class Patches:
    """dims: of the whole iteration.  groups: its loops, an axis of a patch in none with others.
    width: elements of a fragment.  sizes: axis -> places of a patch along it."""

    dims: tuple[Expr, ...]
    groups: tuple[tuple[int, ...], ...]
    width: int
    sizes: Mapping[int, int]

    def __post_init__(self) -> None:
        assert not self.groups or self.groups[-1][-1] not in self.sizes, "fragments lie along it"

    @property
    def loops(self) -> Loops:
        """Over fragments of patches: `dims` are counted in patches."""
        dims = tuple(ceildiv(n, self.sizes.get(axis, 1)) for axis, n in enumerate(self.dims))
        return Loops(dims, self.groups, self.width)

    @property
    def places(self) -> list[tuple[int, ...]]:
        """The places of a patch, a number for each axis of `sizes`."""
        return list(itertools.product(*(range(size) for size in self.sizes.values())))

    @property
    def is_whole(self) -> bool:
        """Whether no patch reaches past the end, whatever the sizes."""
        return all(self.dims[axis].known_divisor() % size == 0 for axis, size in self.sizes.items())

    def emit(
        self,
        kernel: Kernel,
        fragment: Any,
        work: Callable[[Sequence[tuple[list[Coordinate], Any]]], None],
    ) -> None:
        """Goes over the places of a patch.

        work: of (coordinates, whether the place is there, None: it is) of some places, once in
        each block that it is called for: all places together where the patch lies inside.
        """
        at = coordinates_of(len(self.dims), self.loops.coordinates(kernel, fragment))
        first = {axis: at[axis].index().base * size for axis, size in self.sizes.items()}

        def whole() -> None:
            work([(self._at(at, first, place), None) for place in self.places])

        if self.is_whole:
            whole()
            return

        def at_the_end() -> None:
            for place in self.places:
                work([self._kept_inside(kernel, at, first, place)])

        ops.if_else(self._is_inside(kernel, first), whole, at_the_end)

    def _at(
        self, at: Sequence[Coordinate], first: Mapping[int, Any], place: Sequence[int]
    ) -> list[Coordinate]:
        found = list(at)
        for (axis, start), i in zip(first.items(), place, strict=True):
            found[axis] = Index.of(start + i)
        return found

    def _kept_inside(
        self, kernel: Kernel, at: Sequence[Coordinate], first: Mapping[int, Any],
        place: Sequence[int],
    ) -> tuple[list[Coordinate], Any]:  # fmt: skip
        """A place of the last patch, which is read as the last one where it is past the end."""
        found, inside = list(at), None
        for (axis, start), i in zip(first.items(), place, strict=True):
            number, end = start + i, kernel.size(self.dims[axis])
            found[axis] = Index.of(ops.minimum(number, end - 1))
            is_there = number < end
            inside = is_there if inside is None else inside & is_there
        return found, inside

    def _is_inside(self, kernel: Kernel, first: Mapping[int, Any]) -> Any:
        """Whether all of the patch is."""
        inside = None
        for axis, start in first.items():
            end = kernel.size(self.dims[axis])
            fits = start + self.sizes[axis] <= end
            inside = fits if inside is None else inside & fits
        return inside


def apart(groups: Sequence[Sequence[int]], axes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The groups of loops with some axes in none with others."""
    found: list[list[int]] = []
    for group in groups:
        is_open = False
        for axis in group:
            if is_open and axis not in axes:
                found[-1].append(axis)
            else:
                found.append([axis])
            is_open = axis not in axes
    return tuple(map(tuple, found))
