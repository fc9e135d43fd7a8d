"""WgradChoice: the values of conv_wgrad_sm90's knobs, named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..knob_values import KnobValues
from ..product.choice_sm90 import Choice


@dataclass(frozen=True)
class WgradChoice(KnobValues):
    """One value of each knob.

    loop: those of the main loop, but for those that only products have.  parts: of the pixels,
    whose sums the workspace has.  any_order: whether sums of parts may be added by the blocks that
    have them.  makes: whether blocks make operands of bytes, see `wgrad_rewriting_sm90`.
    is_helped: whether a warpgroup more computes X.
    rows, columns: of dY's images of a tile, whose pixels of X come once for all taps, with their
    halo.  rows of 0: by im2col.  columns of 0: all.
    """

    loop: Choice
    parts: Annotated[int, "SPLIT_K_BUF"]
    any_order: Annotated[bool, "REDUCTION_MODE"] = False
    makes: Annotated[bool, "KERNEL_CFG", 1] = False
    is_helped: Annotated[bool, "KERNEL_CFG", 2] = False
    rows: Annotated[int, "TILE_ROWS"] = 0
    columns: Annotated[int, "TILE_COLS"] = 0

    @property
    def knobs(self) -> dict[str, int]:
        found = super().knobs
        for name in ("WARP_SPEC_CFG", "SWAP_AB"):
            del found[name]
        return found

    @property
    def adds(self) -> bool:
        """Whether blocks add sums of parts to one place."""
        return self.any_order and self.parts > 1

    @property
    def has_halo(self) -> bool:
        return self.rows > 0
