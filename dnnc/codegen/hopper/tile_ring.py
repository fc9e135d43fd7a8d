# pyright: basic
"""TileRing: numbers of tiles that one thread of a block takes, for all of its roles to read.

    the taking thread   takes the next number of a counter that all blocks share, writes it to the
                        ring, and goes to the tile that it took before
    other roles         read their next number from the ring when they are done with a tile

The first tile of a block is its own number.  The counter is in the workspace and begins at 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...mlir import llvm, nvvm
from .. import ops
from . import mbarrier
from .pipeline import Cursor, Pipeline

SLOTS = 4
_SLOT_BYTES = 16


@dataclass(frozen=True)
class TileRing:
    """ring: of SLOTS slots.  counter: !llvm.ptr<1> of an i32.  blocks: of the grid."""

    ring: Pipeline
    counter: Any
    blocks: Any

    @staticmethod
    def bytes() -> int:
        return SLOTS * _SLOT_BYTES

    @staticmethod
    def barrier_bytes() -> int:
        return Pipeline.barrier_bytes(SLOTS)

    @staticmethod
    def of(data: Any, barriers: Any, counter: Any, blocks: Any) -> TileRing:
        return TileRing(Pipeline.of(data, _SLOT_BYTES, SLOTS, barriers), counter, blocks)

    def make(self, readers: int) -> None:
        """Makes the barriers, by one thread; readers: arrivals that free a slot."""
        self.ring.make(1, readers)

    def take(self, cursor: Cursor) -> tuple[Any, Cursor]:
        """(the next number, the next place), by the taking thread."""
        place = llvm.PtrToIntOp(ops.i64_type(), self.counter).result
        text = "atom.relaxed.gpu.global.add.u32 $0, [$1], $2;"
        taken = llvm.inline_asm(
            ops.i32_type(), [place, ops.const(1)], text, "=r,l,r", has_side_effects=True
        )
        number = self.blocks + taken
        self.ring.wait_empty(cursor)
        ops.store(self.ring.slot(cursor), number, 4)
        mbarrier.arrive(self.ring.full_barrier(cursor))
        return number, cursor.next(SLOTS)

    def read(self, cursor: Cursor, *, is_warp: bool) -> tuple[Any, Cursor]:
        """(the next number, the next place), by a whole warp or by one thread."""
        self.ring.wait_full(cursor)
        number = ops.load(self.ring.slot(cursor), ops.i32_type(), 4)
        if is_warp:
            nvvm.bar_warp_sync(ops.const(-1))
            self.ring.release(cursor, ops.thread_id() & 31)
        else:
            mbarrier.arrive(self.ring.empty_barrier(cursor))
        return number, cursor.next(SLOTS)
