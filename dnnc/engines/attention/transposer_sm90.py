# pyright: basic
"""Warps of sdpa_fwd_sm90's producer that transpose values of 8 bits, stage by stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.hopper import mbarrier, tma
from ...codegen.hopper.pipeline import Cursor, Pipeline
from ...codegen.state import chosen, loop
from ...codegen.stretch import stretch
from ...mlir import nvvm
from ...target import WARP_THREADS
from .schedule import KeyBlocks, QueryTile, Schedule
from .tile_sm90 import TRANSPOSERS, SdpaTiling


@dataclass(frozen=True)
class ValueTransposer:
    """raw: the ring that TMA fills.  transposed: the one that products read.
    warp: of the block; those from 1 on transpose.  blocks: of a tile's keys that are multiplied.

    Both rings have as many stages, and a stage of one goes to the same of the other.
    """

    tiling: SdpaTiling
    schedule: Schedule
    raw: Pipeline
    transposed: Pipeline
    warp: Any
    blocks: Callable[[QueryTile], KeyBlocks]

    def tile(self, tile: QueryTile, now: Cursor) -> Cursor:
        """Transposes the values of a tile's blocks of keys."""
        blocks = self.blocks(tile)
        count = blocks.end - blocks.first
        if blocks.is_empty is not None:
            count = ops.select(blocks.is_empty, 0, count)

        @loop(0, count, state=now)
        def end(i: Any, here: Cursor) -> Cursor:
            if not self.schedule.is_sparse:
                return self._block(here)
            is_seen = self.schedule.sees(tile, blocks.end - 1 - i)
            return chosen(is_seen, here, lambda: self._block(here), lambda: here)

        return end

    @stretch("transform operand")
    def _block(self, cursor: Cursor) -> Cursor:
        lane = ops.thread_id() & (WARP_THREADS - 1)
        self.raw.wait_full(cursor)
        self.transposed.wait_empty(cursor)
        source, target = self.raw.address(cursor), self.transposed.address(cursor)
        self.tiling.transposed.run(source, target, self.warp - 1, TRANSPOSERS, lane)
        tma.show_writes()
        nvvm.bar_warp_sync(ops.const(-1))
        with ops.if_(lane.eq(0)):
            mbarrier.arrive(self.raw.empty_barrier(cursor))
            mbarrier.arrive(self.transposed.full_barrier(cursor))
        nvvm.bar_warp_sync(ops.const(-1))
        return cursor.next(self.tiling.stages)
