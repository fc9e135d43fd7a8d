"""ConvChoice: the values of conv_sm90's knobs, named, and what follows from them alone."""

from __future__ import annotations

from dataclasses import dataclass

from ..engine import Knobs
from ..product.choice_sm90 import Choice


@dataclass(frozen=True)
class ConvChoice:
    """One value of each knob.

    loop: of those that the main loop has of products too.  rows, columns: of Y's images of a tile,
    whose pixels come once for all taps, with their halo.  rows of 0: by im2col.  columns of 0: all.
    """

    loop: Choice
    rows: int = 0
    columns: int = 0

    @staticmethod
    def of(knobs: Knobs) -> ConvChoice:
        """knobs: of pixels with a halo they may lack the roles, and TILE_COLS of whole rows."""
        whole = {"WARP_SPEC_CFG": 1, "TILE_COLS": 0, **knobs}
        return ConvChoice(Choice.of(whole), whole["TILE_ROWS"], whole["TILE_COLS"])

    @property
    def knobs(self) -> dict[str, int]:
        """The knobs that `of` takes."""
        return {**self.loop.knobs, "TILE_ROWS": self.rows, "TILE_COLS": self.columns}

    @property
    def has_halo(self) -> bool:
        return self.rows > 0

    @property
    def channels(self) -> int:
        """Output channels of a tile."""
        return self.loop.tile_n
