# pyright: basic
"""Tiles of a convolution's output along its spatial axes, and the pixels of X that they meet.

A strip is some outputs along each axis.  Strips are counted through, the last axis fastest; the
last of an axis may end past the output.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...expr import Expr, ceildiv
from .. import ops
from ..kernel import Kernel
from ..ops import Number
from ..walk.index import Index
from ..walk.region_walk import Walk
from .pixels import Place


class Moves(Protocol):
    """How a filter lies on what is read of it, along an axis: a `Window`, or a gradient's phases.

    taps: of the filter.
    """

    @property
    def taps(self) -> int: ...

    def place(self, output: int, tap: int) -> int | None:
        """Pixels from the first one that a tile meets to what a tap of an output does; None: that
        meets nothing."""
        ...

    def origin(self, start: Number) -> Number:
        """The first pixel that a tile meets which begins at an output."""
        ...

    def lines(self, outputs: int) -> int:
        """Pixels from what an output meets to what one so many further does."""
        ...

    def may_be_outside(self, step: int, tile: int, inputs: Expr, outputs: Expr) -> bool:
        """Whether a pixel so many from a tile's first one may lie outside; inputs, outputs: the
        extents of what is read and of the result."""
        ...


def met(tile: int, moves: Moves) -> dict[int, list[tuple[int, int]]]:
    """Pixels that the outputs of a tile meet along one axis, from the first on.

    Pixel -> (output of the tile, tap) of all that meet it.

    Example, two outputs of three taps: {0: [(0, 0)], 1: [(0, 1), (1, 0)], 2: [(0, 2), (1, 1)],
    3: [(1, 2)]}.
    """
    found: dict[int, list[tuple[int, int]]] = {}
    for output, tap in itertools.product(range(tile), range(moves.taps)):
        if (place := moves.place(output, tap)) is not None:
            found.setdefault(place, []).append((output, tap))
    return dict(sorted(found.items()))


@dataclass(frozen=True, eq=False)
class Strips:
    """windows, tiles, inputs, outputs: of each axis, the filter's, outputs of a strip, and the
    extents of X and of Y."""

    kernel: Kernel
    windows: Sequence[Moves]
    tiles: Sequence[int]
    inputs: Sequence[Expr]
    outputs: Sequence[Expr]

    @property
    def counts(self) -> tuple[Expr, ...]:
        """Along each axis."""
        return tuple(ceildiv(n, tile) for n, tile in zip(self.outputs, self.tiles, strict=True))

    def starts(self, number: Any) -> tuple[Any, tuple[Number, ...]]:
        """(what is left, the first output along each axis) of a strip's number."""
        found: list[Number] = []
        for extent, tile in zip(reversed(self.counts), reversed(self.tiles), strict=True):
            rest = self.kernel.divide(number, extent) if extent.constant != 1 else number
            inner = self.kernel.remainder(number, extent, rest)
            found.insert(0, inner * tile)
            number = rest
        return number, tuple(found)

    def origin(self, starts: Sequence[Number], axis: int) -> Number:
        """The pixel of X that the first tap of a strip's first output lies on."""
        return self.windows[axis].origin(starts[axis])

    def place(self, starts: Sequence[Number], axis: int, step: int) -> Place:
        """`step` pixels from there."""
        window, tile = self.windows[axis], self.tiles[axis]
        inputs, outputs = self.inputs[axis], self.outputs[axis]
        may_be_outside = window.may_be_outside(step, tile, inputs, outputs)
        number = self.origin(starts, axis) + step
        return Place.of(self.kernel, number, inputs, may_be_outside=may_be_outside)

    def outputs_along(self, starts: Sequence[Number], axis: int) -> list[tuple[Index, Any]]:
        """(coordinate inside the output, whether the output has it) of a strip's on an axis."""
        extent, tile = self.outputs[axis], self.tiles[axis]
        found = []
        for step in range(tile):
            number = starts[axis] + step
            if extent.known_divisor() % tile == 0:
                found.append((Index.of(number), None))
                continue
            last = self.kernel.size(extent - 1)
            found.append((Index.of(ops.minimum(number, last)), number <= last))
        return found


@dataclass
class Lines:
    """The lines of X that a strip meets, in order: (first taps' steps along the axes before the
    last, fragments).

    every: the steps of all lines.  bring: loads one.  ready: the first of them, which are loaded;
    as many stay ahead.
    """

    every: Sequence[tuple[int, ...]]
    bring: Callable[[Sequence[int]], list[Any]]
    ready: list[list[Any]]

    @staticmethod
    def along(
        meetings: Sequence[Mapping[int, Any]],
        bring: Callable[[Sequence[int]], list[Any]],
        ahead: Callable[[int], int],
    ) -> Lines:
        """meetings: of the axes before the last, see `met`.  ahead: how many of so many lines are
        loaded before the first is used."""
        every = list(itertools.product(*meetings))
        return Lines(every, bring, [bring(steps) for steps in every[: ahead(len(every))]])

    def __iter__(self) -> Iterator[tuple[tuple[int, ...], list[Any]]]:
        ahead = len(self.ready)
        for i, steps in enumerate(self.every):
            if i + ahead < len(self.every):
                self.ready.append(self.bring(self.every[i + ahead]))
            yield steps, self.ready.pop(0)


def finish(
    walk: Walk,
    call: Any,
    targets: Sequence[tuple[Any, Any]],
    made: Iterable[tuple[Sequence[Index], Sequence[Any], Any]],
) -> None:
    """Computes what follows the convolution of all pixels, then stores what the output has.

    call: the convolution.  made: (coordinates, conditions under which the output has them, None
    being none, the fragment of the convolution) of each pixel.
    """
    ready = []
    for at, conditions, fragment in made:
        width = ops.width_of(fragment)
        walk.know(call, at, width, fragment)
        values = [walk.value(value, at, width) for value, _ in targets]
        inside = functools.reduce(ops.both, conditions, None)
        if inside is not None:
            values = [ops.computed_here(value) for value in values]
        ready.append((at, inside, values))
    for at, inside, values in ready:
        for (_, target), value in zip(targets, values, strict=True):
            target.store(at, value, inside)


def linear(place: Sequence[int], extents: Sequence[int]) -> int:
    """The number of a place, the last axis fastest."""
    number = 0
    for at, extent in zip(place, extents, strict=True):
        number = number * extent + at
    return number
