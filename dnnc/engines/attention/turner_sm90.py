# pyright: basic
"""Warps of sdpa_fwd_sm90's producer that turn values of 8 bits, stage by stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.hopper import mbarrier, tma
from ...codegen.hopper.pipeline import Cursor, Pipeline
from ...mlir import nvvm
from ...target import WARP_THREADS
from .schedule import QueryTile, Schedule
from .tile_sm90 import TURNERS, SdpaTiling


@dataclass(frozen=True)
class ValueTurner:
    """raw: the ring that TMA fills.  turned: the one that products read.
    warp: of the block; those from 1 on turn.

    Both rings have as many stages, and a stage of one goes to the same of the other.
    """

    tiling: SdpaTiling
    schedule: Schedule
    raw: Pipeline
    turned: Pipeline
    warp: Any

    @property
    def start(self) -> list[Any]:
        """The values that `tile` is first given."""
        return Cursor().values

    def tile(self, tile: QueryTile, carried: Sequence[Any]) -> Sequence[Any]:
        """Turns the values of a tile's blocks of keys."""
        blocks = self.schedule.blocks(tile, tile.row, self.tiling.queries)
        blocks = self.schedule.seen(tile, blocks)
        count = ops.sub(blocks.end, blocks.first)
        if blocks.is_empty is not None:
            count = ops.select(blocks.is_empty, 0, count)

        def step(i: Any, carried: Sequence[Any]) -> Sequence[Any]:
            if not self.schedule.is_sparse:
                return self._block(carried)
            is_seen = self.schedule.sees(tile, ops.sub(ops.sub(blocks.end, 1), i))
            types = [value.type for value in carried]
            return ops.either(is_seen, types, lambda: self._block(carried), lambda: list(carried))

        return ops.for_(0, count, 1, list(carried), step)

    def _block(self, carried: Sequence[Any]) -> Sequence[Any]:
        cursor = Cursor(*carried)
        lane = ops.and_(ops.thread_id(), WARP_THREADS - 1)
        self.raw.wait_full(cursor)
        self.turned.wait_empty(cursor)
        source, target = self.raw.address(cursor), self.turned.address(cursor)
        self.tiling.turned.run(source, target, ops.sub(self.warp, 1), TURNERS, lane)
        tma.show_writes()
        nvvm.bar_warp_sync(ops.const(-1))
        with ops.if_(ops.compare("eq", lane, 0)):
            mbarrier.arrive(self.raw.empty_barrier(cursor))
            mbarrier.arrive(self.turned.full_barrier(cursor))
        nvvm.bar_warp_sync(ops.const(-1))
        return cursor.next(self.tiling.stages).values
