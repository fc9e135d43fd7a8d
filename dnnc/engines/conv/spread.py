# pyright: basic
"""Spread pixels: which taps give which pixels of a gradient by the image that has a stride.

    pixel = output * stride - pre + tap * dilation

With a stride of 2, the even pixels of dX meet some of the taps, the odd ones the others: each such
*phase* is a convolution of stride 1 of dY with its own taps, whose results lie two pixels apart.
An image has the phases of its rows with each of its columns.  Some may have no taps, as all but one
of a 1x1 filter's do: their pixels are zeros.

All phases have the same number of pixels along an axis, of which the last may lie past the image:
so that pixels are counted in the same way in each of them.

Example, 3 taps, stride 2, padding 1: pixel 2i meets output i by tap 1; pixel 2i + 1 meets output i
by tap 2, and output i + 1 by tap 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from ...codegen import ops
from ...codegen.hopper.im2col import Window
from ...codegen.kernel import Kernel
from ...codegen.ops import Number
from ...codegen.walk import index as idx
from ...codegen.walk.index import Coordinate, Index
from ...expr import Expr

_T = TypeVar("_T")


@dataclass(frozen=True)
class AxisPhase:
    """A phase along one axis.

    origin: the first of its pixels.  taps: how many it meets.  first_tap, tap_step: of the filter,
    that which meets the first of the outputs, and to the next one's.  first: that output's number,
    of the first pixel.
    """

    origin: int
    taps: int
    first_tap: int
    tap_step: int
    first: int


@dataclass(frozen=True)
class AxisSpread:
    """The phases of an axis, those of most taps first.

    stride: pixels from one to the next of a phase.  step: outputs from what a tap meets to what the
    next one does.  more: pixels of a phase beyond the number of outputs.  taps: of the filter.
    """

    stride: int
    step: int
    more: int
    phases: tuple[AxisPhase, ...]
    taps: int

    @staticmethod
    def of(window: Window, pixels: Expr, outputs: Expr, *, is_flipped: bool) -> AxisSpread:
        """window, is_flipped: of the convolution.  pixels, outputs: extents of dX and dY."""
        stride, dilation = window.stride, window.dilation
        met: dict[int, list[tuple[int, int]]] = {origin: [] for origin in range(stride)}
        for tap in reversed(range(window.taps)):
            origin = (tap * dilation - window.pre) % stride
            met[origin].append((tap, (origin + window.pre - tap * dilation) // stride))
        phases = []
        for origin, taps in met.items():
            places = [window.taps - 1 - tap if is_flipped else tap for tap, _ in taps]
            first_tap = places[0] if places else 0
            tap_step = places[1] - places[0] if len(places) > 1 else 0
            first = taps[0][1] if taps else 0
            phases.append(AxisPhase(origin, len(taps), first_tap, tap_step, first))
        phases.sort(key=lambda phase: -phase.taps)
        steps = {b[1] - a[1] for taps in met.values() for a, b in itertools.pairwise(taps)}
        (step,) = steps or {1}
        more = -((window.pre + window.post - window.reach) // stride)
        if pixels.constant is not None and outputs.constant is not None:
            more = -(-pixels.constant // stride) - outputs.constant
        return AxisSpread(stride, step, more, tuple(phases), window.taps)

    @property
    def lower(self) -> int:
        """The least output that any tap of a first pixel meets."""
        return min(phase.first for phase in self.phases if phase.taps)

    @property
    def reach(self) -> int:
        """Outputs from there to the last that any does."""
        return max(self.offset(phase) + (phase.taps - 1) * self.step for phase in self._met)

    def offset(self, phase: AxisPhase) -> int:
        """Outputs from the least one to a phase's first."""
        return phase.first - self.lower if phase.taps else 0

    @property
    def _met(self) -> list[AxisPhase]:
        return [phase for phase in self.phases if phase.taps]

    @property
    def window(self) -> Window:
        """The window as im2col loads see it: all offsets from the least output on, for a phase."""
        post = self.lower + self.more + self.reach
        return Window(self.reach + 1, pre=-self.lower, post=post)

    @property
    def counts(self) -> tuple[int, ...]:
        """Taps of each phase; one, of zeros, where there are none."""
        return tuple(max(1, phase.taps) for phase in self.phases)

    # ---- of tiles that have pixels of all phases (`tiles.strips`): they begin at whole strides

    def place(self, output: int, tap: int) -> int | None:
        """See `Moves`; output: a pixel of dX."""
        phase = next(phase for phase in self.phases if phase.origin == output % self.stride)
        taps = [phase.first_tap + i * phase.tap_step for i in range(phase.taps)]
        if tap not in taps:
            return None
        return output // self.stride + self.offset(phase) + taps.index(tap) * self.step

    def origin(self, start: Number) -> Number:
        return start // self.stride + self.lower

    def lines(self, outputs: int) -> int:
        return outputs // self.stride

    def may_be_outside(self, step: int, tile: int, inputs: Expr, outputs: Expr) -> bool:
        """inputs, outputs: extents of dY, which is read, and of dX."""
        if step + self.lower < 0 or inputs.constant is None or outputs.constant is None:
            return True
        last = (outputs.constant - tile) // self.stride + self.lower + step
        return outputs.constant % tile != 0 or last >= inputs.constant

    def is_whole(self, pixels: Expr, outputs: Expr) -> bool:
        """Whether every phase has all of its pixels; outputs: extent of dY."""
        return (outputs + self.more) * self.stride == pixels


@dataclass(frozen=True)
class Spread:
    """The phases of all axes."""

    axes: tuple[AxisSpread, ...]

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Phases of each axis."""
        return tuple(len(axis.phases) for axis in self.axes)

    @property
    def phases(self) -> int:
        return math.prod(self.counts)

    @property
    def most_taps(self) -> int:
        """Taps of the phase that has most."""
        return math.prod(max(axis.counts) for axis in self.axes)

    @property
    def phase_taps(self) -> tuple[int, ...]:
        """Taps that each phase meets, in the order of their numbers."""
        taps = ([phase.taps for phase in axis.phases] for axis in self.axes)
        return tuple(map(math.prod, itertools.product(*taps)))

    @property
    def met(self) -> Spread:
        """The phases that meet a tap."""
        axes = (
            replace(axis, phases=tuple(phase for phase in axis.phases if phase.taps))
            for axis in self.axes
        )
        return Spread(tuple(axes))

    @property
    def empty(self) -> tuple[tuple[int, ...], ...]:
        """The phases that meet none, by their numbers along each axis."""
        numbers = itertools.product(*map(range, self.counts))
        pairs = zip(numbers, self.phase_taps, strict=True)
        return tuple(phase for phase, taps in pairs if not taps)

    @property
    def batch_axes(self) -> tuple[int, ...]:
        """Axes of a batch that count phases, after that of groups."""
        return tuple(1 + axis for axis in range(len(self.axes)))

    def windows(self, pixels: Sequence[Expr], counted: Sequence[Expr]) -> tuple[Window, ...] | None:
        """The windows by which im2col loads meet the pixels of a phase in tensors of dX's dims, a
        phase as the tap at its origins; None: some sizes are symbols.

        pixels: extents of dX.  counted: pixels of a phase along the same axes.
        """
        found = list[Window]()
        for axis, extent, own in zip(self.axes, pixels, counted, strict=True):
            if extent.constant is None or own.constant is None:
                return None
            past = own.constant * axis.stride - extent.constant
            found.append(Window(axis.stride, axis.stride, post=past))
        return tuple(found)

    # ---- of a tile

    def chosen(self, batch: Mapping[int, Coordinate]) -> ChosenPhase:
        """The phase of a matrix of the batch."""
        numbers = (batch[axis].index().base if axis in batch else 0 for axis in self.batch_axes)
        return ChosenPhase(self, tuple(numbers))


@dataclass(frozen=True)
class ChosenPhase:
    """numbers: of the phase along each axis, as the kernel has it."""

    spread: Spread
    numbers: tuple[Number, ...]

    def _of(self, axis: int, value: Callable[[AxisPhase], int]) -> Number:
        values = [value(phase) for phase in self.spread.axes[axis].phases]
        return selected(self.numbers[axis], values)

    @property
    def taps(self) -> Number:
        """How many taps the phase meets; one where it meets none."""
        found: Number = 1
        for axis in range(len(self.numbers)):
            found = found * self._of(axis, lambda phase: max(1, phase.taps))
        return found

    def origin(self, axis: int) -> Number:
        return self._of(axis, lambda phase: phase.origin)

    def is_empty(self) -> Any:
        """Whether it meets no tap, i1; None: every phase meets one."""
        found = None
        for axis, own in enumerate(self.spread.axes):
            if all(phase.taps for phase in own.phases):
                continue
            number = self._of(axis, lambda phase: int(not phase.taps))
            here = ops.compare("ne", number, 0)
            found = here if found is None else found | here
        return found

    def places(self, tap: Number) -> tuple[list[Number], list[Number]]:
        """(places in the filter, offsets in outputs from the least one), along each axis, of the
        tap with a number among the phase's, the last axis fastest."""
        taps, offsets = list[Number](), list[Number]()
        for axis in reversed(range(len(self.numbers))):
            spread = self.spread.axes[axis]
            inner, tap = self._divided(axis, tap)
            first = self._of(axis, lambda phase: phase.first_tap)
            step = self._of(axis, lambda phase: phase.tap_step)
            taps.insert(0, first + inner * step)
            start = self._of(axis, spread.offset)
            offsets.insert(0, start + inner * spread.step)
        return taps, offsets

    def _divided(self, axis: int, tap: Number) -> tuple[Number, Number]:
        """(place among the phase's taps of the axis, what is left for the axes before it)."""
        counts = self.spread.axes[axis].counts
        if max(counts) == 1:
            return 0, tap
        if axis == 0:
            return tap, 0
        quotients = {count: tap // count for count in dict.fromkeys(counts)}
        quotient = selected(self.numbers[axis], [quotients[count] for count in counts])
        count = selected(self.numbers[axis], list(counts))
        return tap - quotient * count, quotient


@dataclass(frozen=True, eq=False)
class SpreadPlaces:
    """Where the pixels of a phase lie in tensors of Y's dims.

    dims: of Y.  outputs: extents of dY.
    """

    kernel: Kernel
    spread: Spread
    dims: tuple[Expr, ...]
    outputs: tuple[Expr, ...]

    def is_whole(self, axis: int) -> bool:
        """Whether all phases have all of their pixels along a spatial axis."""
        return self.spread.axes[axis].is_whole(self.dims[2 + axis], self.outputs[axis])

    @property
    def are_whole(self) -> bool:
        return all(map(self.is_whole, range(len(self.outputs))))

    def place(self, phase: ChosenPhase, axis: int, number: Index) -> Index:
        """The coordinate of a phase's pixels along an axis, kept inside the image."""
        stride = self.spread.axes[axis].stride
        found = idx.add(idx.scale(number, stride), Index.of(phase.origin(axis)))
        if self.is_whole(axis):
            return found
        last = self.kernel.size(self.dims[2 + axis]) - 1
        return idx.apply(lambda place: ops.minimum(place, last), found)

    def inside(self, phase: ChosenPhase, numbers: Sequence[Number]) -> Any:
        """Whether the image has a pixel with these numbers along the spatial axes, i1; None: it
        has."""
        found = None
        for axis, number in enumerate(numbers):
            if not self.is_whole(axis):
                moved = number * self.spread.axes[axis].stride
                place = moved + phase.origin(axis)
                size = self.kernel.size(self.dims[2 + axis])
                found = ops.both(found, place < size)
        return found


def selected(number: Number, values: Sequence[Number]) -> Number:
    """The value that a number chooses."""
    found = values[-1]
    for place in reversed(range(len(values) - 1)):
        if values[place] is found or values[place] == found:
            continue
        if isinstance(number, int):
            found = values[place] if number == place else found
            continue
        found = ops.select(number <= place, values[place], found)
    return found
