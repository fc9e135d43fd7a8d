# pyright: basic
"""AddOrder: tiles of keys add to a block of dQ in the order of their keys, or, where they rise, the
other way round, so that the sum has the same bits each time.

A tile's flag is the number of steps that it and all tiles before it have left behind, as they are
counted for all tiles of a head: what it adds to a block, it adds once the flag of the tile before
says so.  A flag is shown once the step's buffer is free for the next one: what it waits for, the
addition's end and fences, takes longer than a step's products, and would hold them up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.hopper import tma
from ...codegen.totals.global_flags import GlobalFlags
from .bwd_schedule import GradientSchedule, KeyTile

FAR = (1 << 31) - 1  # more than any step's number


@dataclass(frozen=True)
class AddState:
    """State that a writer carries between steps.  seen: the flag of the tile before, when it was
    last looked at.  done: the last step's number."""

    seen: Any = 0
    done: Any = 0


@dataclass
class AddOrder:
    """The order of one writer of a tile among those of other tiles; writer: its number."""

    flags: GlobalFlags
    schedule: GradientSchedule
    tile: KeyTile
    writer: Any

    @property
    def writers(self) -> int:
        return self.schedule.tiling.writers

    @property
    def flag(self) -> Any:
        number = self.tile.number
        if self.schedule.tile_heads > 1:  # it would take registers around the loop over heads
            number = ops.opaque(ops.value_of(number))
        return number * self.writers + self.writer

    def wait(self, step: Any, seen: Any) -> Any:
        """Waits until the tile before has left all steps up to this number behind; by one thread.

        seen: what its flag was when it was last looked at; given is what it is now.
        """
        tile, s = self.tile, self.schedule
        is_next, before = ops.compare("ne", tile.key, 0), self.flag - self.writers
        if tile.rises is not None:  # the tile before is that of the next keys
            end = s.kernel.size((s.columns - 1) * s.tiling.keys)
            is_next = ops.compare("ne", tile.key, ops.select(tile.rises, end, 0))
            before = ops.select(tile.rises, self.flag + self.writers, before)
        (now,) = ops.either(
            ops.both(is_next, seen < step), [ops.i32_type()],
            lambda: [self.flags.wait(before, step)],
            lambda: [seen],
        )  # fmt: skip
        return now

    def end(self, seen: Any) -> None:
        """Waits for the tiles before, then shows that this one's steps are done; by one thread."""
        self.wait(FAR, seen)
        self.show(FAR)

    def show(self, step: Any) -> None:
        """Shows others that all steps before this number are done; by one thread."""
        tma.wait(0)
        self.flags.show(self.flag, step)
