"""Phases: which taps of a filter with a stride meet the same pixels, and where.

With a stride of 2 an output pixel's taps 0, 2, 4 meet pixels two apart, and the next output pixel
begins two further: of every other pixel, those of a *phase*, it is a convolution of stride 1 with
the taps 0, 2, 4 as its 0, 1, 2.  The taps 1, 3 are another, of the pixels between.  An image has
the phases of its rows with each of its columns.  Without a stride there is one, which has all taps.

Example, 3 taps, stride 2, padding 1: output pixel p meets 2p - 1, 2p, 2p + 1.  Phase 0 has the taps
0 and 2 and the odd pixels, of which the first tap of p = 0 meets number -1; phase 1 has tap 1, the
even pixels, from number 0 on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from ...codegen.hopper.im2col import Window
from ...dialect.tensor import Tensor
from ...expr import Expr, ceildiv


@dataclass(frozen=True)
class AxisPhase:
    """Along one spatial axis.

    stride: pixels of X from one of the phase to the next.  origin: the first of them.  corner:
    which of them the first tap of output pixel 0 meets, counted from there; padding lies before 0.
    first_tap, tap_step, taps: of the filter, the first one, from one to the next, how many.
    step: pixels of the phase from what a tap meets to what the next one does.
    """

    stride: int
    origin: int
    corner: int
    first_tap: int
    tap_step: int
    taps: int
    step: int

    @property
    def reach(self) -> int:
        """Pixels of the phase from the first tap to the last."""
        return (self.taps - 1) * self.step

    def extent(self, pixels: Expr) -> Expr:
        """Pixels of the phase, of so many."""
        return ceildiv(pixels - self.origin, self.stride)


def axis_phases(window: Window) -> tuple[AxisPhase, ...]:
    """Phases, told apart by what remains of a tap's place after whole strides."""
    found: dict[int, AxisPhase] = {}
    stride, dilation = window.stride, window.dilation
    tap_step = stride // gcd(stride, dilation)
    for tap in range(window.taps):
        whole, rest = divmod(tap * dilation, stride)
        if rest in found:
            found[rest] = replace(found[rest], taps=found[rest].taps + 1)
            continue
        corner, origin = divmod(window.lower + rest, stride)
        step = tap_step * dilation // stride
        found[rest] = AxisPhase(stride, origin, corner + whole, tap, tap_step, 1, step)
    return tuple(found.values())


@dataclass(frozen=True)
class Phase:
    """A phase of an image.

    first: of the image's taps, in the order of phases, its first one.
    """

    rows: AxisPhase
    columns: AxisPhase
    first: int

    @property
    def taps(self) -> int:
        return self.rows.taps * self.columns.taps

    @property
    def end(self) -> int:
        """The first tap of the next one."""
        return self.first + self.taps

    def view(self, x: Tensor) -> tuple[Tensor, Expr]:
        """(X's pixels of the phase, the element of X that is their first)."""
        if self.rows.stride == self.columns.stride == 1:
            return x, Expr.of(0)
        axes = (x.rank - 2, x.rank - 1)
        dims, strides, first = list(x.shape), list(x.layout), Expr.of(0)
        for axis, own in zip(axes, (self.rows, self.columns), strict=True):
            first = first + strides[axis] * own.origin
            dims[axis] = own.extent(dims[axis])
            strides[axis] = strides[axis] * own.stride
        return replace(x, dims=tuple(dims), strides=tuple(strides)), first


def phases_of(height: Window, width: Window) -> tuple[Phase, ...]:
    """The phases of an image of which any tap meets a pixel."""
    found, first = [], 0
    for rows in axis_phases(height):
        for columns in axis_phases(width):
            found.append(Phase(rows, columns, first))
            first = found[-1].end
    return tuple(found)
