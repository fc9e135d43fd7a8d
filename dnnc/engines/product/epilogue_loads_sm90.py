# pyright: basic
"""Where the epilogues of a warpgroup find what they read beside the product.

    stages   in the ring of the operands, whose uses after a tile's last step of k bring it:
             ... step n-1 | buffers 0, 1, .. of every warpgroup | buffers p, .. | the next tile
    ring     in a ring of the warpgroup's own, which a warp of the producer fills beside

A buffer has the chunks of all staged loads, of 64 rows.  Stages cost no shared memory, and are
loaded as far ahead as the operands are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ...codegen import ops
from ...codegen.hopper import tma
from ...codegen.hopper.pipeline import Cursor, Pipeline
from ...mlir import nvvm
from .tile_sm90 import Tiling


class Loads(Protocol):
    """The buffers of a warpgroup, one after the other; number: of a tile's, from 0."""

    def wait(self, number: int, cursor: Cursor) -> None:
        """Waits until a buffer is there."""
        ...

    def address(self, number: int, cursor: Cursor) -> Any:
        """Where it lies, as an i32."""
        ...

    def done(self, number: int, cursor: Cursor, lane: Any) -> Cursor:
        """Release a buffer that a warp, as each does, has read; returns the next one's place."""
        ...


@dataclass(frozen=True)
class RingLoads:
    """In a ring of the warpgroup's own."""

    ring: Pipeline

    def wait(self, number: int, cursor: Cursor) -> None:
        self.ring.wait_full(cursor)

    def address(self, number: int, cursor: Cursor) -> Any:
        return self.ring.address(cursor)

    def done(self, number: int, cursor: Cursor, lane: Any) -> Cursor:
        tma.end_reads()
        nvvm.bar_warp_sync(ops.const(-1))
        self.ring.release(cursor, lane)
        return cursor.next(self.ring.stages)


@dataclass(frozen=True)
class StageLoads:
    """In the stages of the operands.

    own: the warpgroup's number among those that share a tile.  blocks: of the cluster, whose
    producers write this block's stages.
    """

    stages: Pipeline
    tiling: Tiling
    own: Any
    blocks: int

    def wait(self, number: int, cursor: Cursor) -> None:
        if number % self.tiling.shared.loads_per_stage == 0:
            self.stages.wait_full(cursor)

    def address(self, number: int, cursor: Cursor) -> Any:
        t = self.tiling
        own = self.own * (t.shared.loads_per_stage * t.shared.load_bytes)
        before = number % t.shared.loads_per_stage * t.shared.load_bytes
        return self.stages.address(cursor) + (own + before)

    def done(self, number: int, cursor: Cursor, lane: Any) -> Cursor:
        t = self.tiling
        if (number + 1) % t.shared.loads_per_stage and number + 1 < t.shared.buffer_uses:
            return cursor
        tma.end_reads()
        nvvm.bar_warp_sync(ops.const(-1))
        self.stages.release(cursor, lane, self.blocks)
        return cursor.next(self.stages.stages)
