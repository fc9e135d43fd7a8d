# pyright: basic
"""The turns in which tiles of keys add to a block of dQ: in the order of their keys, so that the
sum has the same bits each time.

A tile's flag is the number of steps that it has done and left behind, as they are counted for all
tiles of a head.  What it adds to a block, it adds once the tile before it has, which waited for the
one before that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.hopper import tma
from ...codegen.totals.turn_order import TurnOrder
from .bwd_schedule import GradientSchedule, KeyTile, QueryBlocks
from .bwd_tile_sm90 import CONSUMERS
from .schedule import QueryTile


@dataclass
class WriterTurns:
    """Turns of one writer of a tile; writer: its number."""

    order: TurnOrder
    schedule: GradientSchedule
    tile: KeyTile
    writer: Any
    before: QueryBlocks | None = None

    @property
    def flag(self) -> Any:
        return ops.add(ops.mul(self.tile.number, CONSUMERS), self.writer)

    def begin(self, head: QueryTile) -> None:
        """Called before the steps of a head, or of all that go together."""
        self.before = self.schedule.blocks_before(self.tile, head)

    def wait(self, block: Any, step: Any) -> None:
        """Waits until the tile before has added to a block, if it does; by one thread.  step: the
        number that its flag then is at least."""
        assert self.before is not None, "begin comes before"
        is_due = ops.both(
            ops.compare("sle", self.before.first, block), ops.less(block, self.before.end)
        )
        with ops.if_(is_due):
            self.order.wait(ops.sub(self.flag, CONSUMERS), step)

    def end(self, step: Any, is_one: Any) -> None:
        """Shows others that all steps before this number are done."""
        with ops.if_(is_one):
            tma.wait(0)
            self.order.show(self.flag, step)
