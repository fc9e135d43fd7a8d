# pyright: basic
"""Small groups of channels of a convolution that conv_sm80 works on side by side.

A tile of 64 columns has the results of several groups.  A stage has each group's own pixels and
taps, one group behind the other in a row, and columns of a group are multiplied with its part of
the rows alone, so that nothing of one group reaches another:

    A   [pixels, group 0: taps and channels | 1 | ... | 7]      B   [64 results, taps and channels]
    Y   [pixels, group 0: 8 results         | 1 | ... | 7]

An instruction's k counts through taps and the channels of each: of groups of 8 channels it has two
taps.  Pixels come as they lie in memory, the channels of all the groups of a tile.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ...codegen.ampere import mma
from ...dialect.tensor import Tensor
from ..product.choice_sm80 import Sm80Choice
from .pattern import ConvShape
from .tiles_sm80 import PixelTile, Tap, gather_bytes

_COLUMNS = 64  # of a tile; a stage of more would have little of each group
_COPY_BYTES = 16


def shape_of_choice(shape: ConvShape, x: Tensor | None, choice: Sm80Choice) -> ConvShape:
    """A convolution as a choice of knobs takes it; x: X, None if it is computed."""
    together = _together(shape, x) if choice.tile_n == _COLUMNS else 1
    return replace(shape, beside=together)


def _together(shape: ConvShape, x: Tensor | None) -> int:
    """Groups of a tile; 1: they have tiles of their own."""
    results = shape.k_group
    if shape.is_transposed:  # rows of W are not those of all groups
        return 1
    if x is None or results >= _COLUMNS or results % mma.N or _COLUMNS % results:
        return 1
    together = _COLUMNS // results
    # Copies are of one group each.
    is_copied = gather_bytes(x, shape) == _COPY_BYTES
    return together if is_copied and shape.groups % together == 0 else 1


@dataclass
class BesidePixels(PixelTile):
    """X of groups side by side; `tile_k` is of all of them.

    group_k: of a group.  channels: input channels of one.
    """

    group_k: int = field(kw_only=True)
    channels: int = field(kw_only=True)

    def _is_there(self, k: Any) -> Any:
        is_whole = self.depth.size % self.group_k == 0
        return None if is_whole else k < self.depth.size

    def _shared_tap(self, first_k: Any, inner: Any) -> Tap:
        """inner: also says the group, the same one of all fragments of a thread."""
        group = inner // self.group_k
        tap = self._tap_of(first_k + inner % self.group_k)
        return replace(tap, channel=tap.channel + group * self.channels)
