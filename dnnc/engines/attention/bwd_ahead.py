# pyright: basic
"""Ahead: fills sums of dQ with zeros for later tiles while the tiles before them multiply.

A unit is a head of keys, or a part of the query heads that share it: its tiles add to the same sums
of dQ, which lie together.  The kernel before the main one fills the first units with zeros.  An
idle warp of each tile fills a share of a later unit.  A tile whose own unit is not filled takes the
shares that no tile has taken, then waits for the other shares, whose blocks are running: it never
waits for a block that has not started, in whatever order the device starts them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.hopper import tma
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.state import each, repeat
from ...codegen.totals.global_flags import GlobalFlags
from ...expr import Expr, ceildiv, minimum
from ...mlir import nvvm
from ...target import WARP_THREADS
from .bwd_schedule import GradientSchedule, KeyTile

_FILLED = -1  # in place of a unit that nobody has to fill
WAVES = 2  # of tiles, by which units are filled ahead of the tile that needs them
# With more, zeros are under 1% of the work, and what the warp does moves registers of the consumers
# about: at 16384 keys a gradient took up to 2% longer, on an H200.
_MOST_KEYS = 4096
_VECTOR_BYTES = 16  # that a lane stores at once
_TOGETHER = 8  # stores of a round
_ROUND_BYTES = _TOGETHER * WARP_THREADS * _VECTOR_BYTES


@dataclass
class Ahead:
    """sums: the workspace buffer of dQ.  words: the workspace buffer of a `GlobalFlags`, all 0 at
    first, with two flags for each unit: how many of its shares are taken, and, after those of all
    units, how many are filled."""

    kernel: Kernel
    schedule: GradientSchedule
    sums: str
    words: str

    @staticmethod
    def is_needed(schedule: GradientSchedule, sm_count: int) -> bool:
        """Whether keys are few, but at least one, so that there are tiles, and there may be units
        that the kernel before does not fill.  Of packed sequences it fills what has queries."""
        if schedule.leaves_out_ends:
            return False
        least, most = schedule.keys.bounds()
        is_short = least > 0 and most <= _MOST_KEYS
        return is_short and (schedule.units - _first(schedule, sm_count)).bounds()[1] > 0

    @staticmethod
    def bytes(schedule: GradientSchedule) -> Expr:
        """Bytes of the numbers."""
        return GlobalFlags.bytes(schedule.units * 2)

    @property
    def first(self) -> Expr:
        """The first unit that is filled ahead."""
        return _first(self.schedule, self.kernel.target.sm_count)

    @property
    def first_block(self) -> Expr:
        """The number of the first block of queries that is filled ahead."""
        return self.first * self.schedule.unit_blocks

    # ---- by a whole warp of the main kernel

    def work(self, number: Any, tile: KeyTile, begin: Callable[[], None]) -> None:
        """Calls `begin` once the sums of a tile's unit are filled, and fills a share of a later
        unit.

        number: of the tile, in the order in which tiles come.  All is one loop: beside a second
        one the assembler spills registers of the consumers.
        """
        kernel, s = self.kernel, self.schedule
        first, columns = kernel.size(self.first), kernel.size(s.columns)
        own = s.unit_of(tile)
        own = ops.select(ops.compare("sge", own, first), own, _FILLED)
        later = kernel.divide(number, s.columns) + first

        def lacking() -> Sequence[Any]:
            is_short = ops.compare("slt", self.flags.look(self._done(own)), columns)
            return [ops.select(is_short, own, later)]

        is_ahead = ops.compare("sge", own, 0)
        (start,) = ops.either(is_ahead, [ops.i32_type()], lacking, lambda: [later])

        @repeat(lambda unit: ops.compare("sge", unit, 0), state=start)
        def _(unit: Any) -> Any:
            with ops.if_(unit.eq(later)):
                with ops.if_(is_ahead):
                    self.flags.wait(self._done(own), columns)
                begin()
            share = self._share(unit)
            others = ops.select(ops.compare("slt", share, columns), own, later)
            return ops.select(unit.eq(own), others, _FILLED)

    def _share(self, unit: Any) -> Any:
        """Takes and fills a share of a unit; gives its number, past the last where all are taken
        or there is no such unit."""
        columns = self.kernel.size(self.schedule.columns)
        is_there = ops.compare("slt", unit, self.kernel.size(self.schedule.units))
        (share,) = ops.either(
            is_there, [ops.i32_type()], lambda: [self._take(unit)], lambda: [ops.value_of(columns)]
        )
        return share

    def _take(self, unit: Any) -> Any:
        """Takes and fills a share of a unit; gives its number, which may be past the last."""
        lane = ops.opaque(ops.thread_id()) & (WARP_THREADS - 1)
        (taken,) = ops.either(
            lane.eq(0), [ops.i32_type()],
            lambda: [self.flags.next_of(unit)], lambda: [ops.const(0)],
        )  # fmt: skip
        share = ops.from_lane(taken, 0)
        with ops.if_(ops.compare("slt", share, self.kernel.size(self.schedule.columns))):
            self._fill(unit, share, lane)
            tma.show_to_bulk()
            nvvm.bar_warp_sync(ops.const(-1))
            with ops.if_(lane.eq(0)):
                self.flags.add(self._done(unit))
        return share

    def _fill(self, unit: Any, share: Any, lane: Any) -> None:
        kernel, s = self.kernel, self.schedule
        blocks = s.unit_blocks
        own = ceildiv(blocks, s.columns)
        start = ops.minimum(share * kernel.size(own), kernel.size(blocks))
        end = ops.minimum(start + kernel.size(own), kernel.size(blocks))
        number = ops.to_i64(unit * kernel.size(blocks) + start)
        bytes_ = s.tiling.dq_bytes
        assert bytes_ % _ROUND_BYTES == 0, "blocks of whole rounds"
        sums = kernel.workspace(self.sums, is_exclusive=False)
        first = smem.byte_pointer(sums, number * bytes_ + ops.to_i64(lane * _VECTOR_BYTES))
        zeros = ops.zeros(ops.vector_type(ops.f32_type(), _VECTOR_BYTES // 4))

        @each(0, (end - start) * (bytes_ // _ROUND_BYTES))
        def _(i: Any) -> None:
            place = smem.byte_pointer(first, ops.to_i64(i) * _ROUND_BYTES)
            for at in range(0, _ROUND_BYTES, WARP_THREADS * _VECTOR_BYTES):
                ops.store(smem.byte_pointer(place, at), zeros, _VECTOR_BYTES)

    @property
    def flags(self) -> GlobalFlags:
        return GlobalFlags(self.kernel.workspace(self.words, is_exclusive=False))

    def _done(self, unit: Any) -> Any:
        """The flag of how many shares of a unit are filled."""
        return unit + self.kernel.size(self.schedule.units)


def _first(schedule: GradientSchedule, sm_count: int) -> Expr:
    together = schedule.units_together + ceildiv(WAVES * sm_count, schedule.columns)
    return minimum(schedule.units, together)
