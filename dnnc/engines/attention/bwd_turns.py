# pyright: basic
"""The turns in which tiles of keys add to a block of dQ: in the order of their keys, so that the
sum has the same bits each time.

A tile's flag is the number of steps that it has done and left behind, as they are counted for all
tiles of a head.  What it adds to a block, it adds once the tile before it has, which waited for the
one before that.  A step is shown to be done a step later, so that no writer waits for its own
additions to end.
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

FAR = (1 << 31) - 1  # more than any step's number
SHOWN_EVERY = 2  # steps
DELAY = 0


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

    def wait(self, block: Any, step: Any, seen: Any) -> Any:
        """Waits until the tile before has added to a block, if it does; by one thread.

        step: the number that its flag then is at least.  seen: what the flag was when it was last
        looked at; given is what it is now.
        """
        assert self.before is not None, "begin comes before"
        is_due = ops.both(
            ops.compare("sle", self.before.first, block), ops.less(block, self.before.end)
        )
        is_due = ops.both(is_due, ops.less(seen, step))
        (now,) = ops.either(
            is_due, [ops.i32_type()],
            lambda: [self.order.wait(ops.sub(self.flag, CONSUMERS), step)],
            lambda: [seen],
        )  # fmt: skip
        return now

    def show_some(self, done: list[Any]) -> None:
        """Shows steps that are done, every few of them; by one thread."""
        if SHOWN_EVERY == 1:
            self.show(done[DELAY], DELAY)
            return
        with ops.if_(ops.compare("eq", ops.and_(done[0], SHOWN_EVERY - 1), 0)):
            self.show(done[DELAY], DELAY)

    def show(self, step: Any, pending: int) -> None:
        """Shows others that all steps before this number are done; by one thread.  pending: groups
        of additions that are of later steps."""
        tma.wait(pending)
        self.order.show(self.flag, step)
