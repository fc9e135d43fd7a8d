# pyright: basic
"""Which taps of a filter lie on padding, of a pixel of the output: a bit for each place.

Along each axis with padding a tap has as many places as the filter has taps there; a pixel's bits
say which of them lie outside the image.  A tap's bits are those of its own places, so that one test
says whether it lies on padding.

Example, 3x3 with padding on all sides: bits 0 to 2 are the filter's rows, 3 to 5 its columns; an
image's upper left corner has bits 0 and 3, and the tap (0, 2) asks for bits 0 and 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import ops
from ..hopper.im2col import Window

MOST_BITS = 32
WORD_BYTES = 4


@dataclass(frozen=True)
class PaddingBits:
    """first: spatial axis with padding -> the bit of its first tap."""

    windows: tuple[Window, ...]
    first: Mapping[int, int]

    @staticmethod
    def of(windows: Sequence[Window]) -> PaddingBits:
        found, count = dict[int, int](), 0
        for axis, window in enumerate(windows):
            if window.pre or window.post:
                found[axis] = count
                count += window.taps
        return PaddingBits(tuple(windows), found)

    @property
    def count(self) -> int:
        """At most MOST_BITS fit a word."""
        return sum(self.windows[axis].taps for axis in self.first)

    def of_pixel(self, starts: Sequence[Any], extents: Sequence[Any]) -> Any:
        """starts: where the filter's first tap lies, of each axis; extents: of the image."""
        outside: Any = ops.const(0)
        for axis, first in self.first.items():
            window = self.windows[axis]
            for tap in range(window.taps):
                place = starts[axis] + tap * window.dilation
                bit = ops.select(ops.compare("ult", place, extents[axis]), 0, _bit(first + tap))
                outside = outside | bit
        return outside

    def of_tap(self, tap: Sequence[Any]) -> Any:
        """tap: its place in the filter, of each axis, as the image has them."""
        bits: Any = ops.const(0)
        for axis, first in self.first.items():
            bits = bits | (ops.const(_bit(first)) << ops.value_of(tap[axis]))
        return bits


def _bit(place: int) -> int:
    """The word, as a signed number, that has one bit set."""
    return (1 << place) - (1 << 32 if place == MOST_BITS - 1 else 0)
