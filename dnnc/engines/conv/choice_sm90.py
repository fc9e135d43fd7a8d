"""ConvChoice: the values of conv_sm90's knobs, named, and what follows from them alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..knob_values import KnobValues
from ..product.choice_sm90 import Choice


@dataclass(frozen=True)
class ConvChoice(KnobValues):
    """One value of each knob.

    loop: of those that the main loop has of products too.  rows, columns: of Y's images of a tile,
    whose pixels come once for all taps, with their halo.  rows of 0: by im2col.  columns of 0: all.
    """

    loop: Choice
    rows: Annotated[int, "TILE_ROWS"] = 0
    columns: Annotated[int, "TILE_COLS"] = 0

    @property
    def has_halo(self) -> bool:
        return self.rows > 0

    @property
    def channels(self) -> int:
        """Output channels of a tile."""
        return self.loop.tile_n
