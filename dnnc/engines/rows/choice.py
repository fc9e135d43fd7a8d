"""RowsChoice: the values of the knobs of engine rows, named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..knob_values import KnobValues


@dataclass(frozen=True)
class RowsChoice(KnobValues):
    """One value of each knob.

    threads: that share a row, of a block.  rows: of a block; 0: as many as fill it.  held: elements
    of a row that a thread holds; 0: each pass reads the row again.  blocks: of a cluster that
    share a row.  resident: blocks of an SM that go through the rows; 0: a block for some rows.
    stages: of rows in shared memory; 1: a row that is read again stays there.  config: 2 where
    warps go through rings on their own.
    """

    threads: Annotated[int, "TILE_COLS"]
    rows: Annotated[int, "TILE_ROWS"]
    held: Annotated[int, "ARRAY_SIZE_PER_THREAD"]
    blocks: Annotated[int, "TILE_CGA"]
    resident: Annotated[int, "CTA_COUNT"]
    stages: Annotated[int, "STAGES"]
    config: Annotated[int, "KERNEL_CFG"]

    @property
    def has_own_rings(self) -> bool:
        """Whether warps go through rings on their own."""
        return self.config == 2
