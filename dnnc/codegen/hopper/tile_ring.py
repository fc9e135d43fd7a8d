# pyright: basic
"""TileRing: tiles that one thread of a block takes, for all of its roles to read.

    the taking thread   takes the next number of a counter that all blocks share, writes it to the
                        ring, and goes to the tile that it took before
    other roles         read their next number from the ring when they are done with a tile

The first tile of a block is its own number.  The counter is in the workspace and begins at 0.
In place of a number a slot may have words that say where its tile is, which the taking thread
looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...mlir import llvm, nvvm
from .. import ops
from ..memory.smem import byte_pointer
from . import mbarrier
from .pipeline import Cursor, Pipeline

SLOTS = 4
_WORD_BYTES = 4
_SLOT_BYTES = 4 * _WORD_BYTES


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
        number = self.taken()
        return number, self.put(cursor, [number])

    def taken(self) -> Any:
        """The next number, by the taking thread, which others don't know yet."""
        place = llvm.PtrToIntOp(ops.i64_type(), self.counter).result
        text = "atom.relaxed.gpu.global.add.u32 $0, [$1], $2;"
        taken = llvm.inline_asm(
            ops.i32_type(), [place, ops.const(1)], text, "=r,l,r", has_side_effects=True
        )
        return self.blocks + taken

    def put(self, cursor: Cursor, words: Sequence[Any]) -> Cursor:
        """Writes up to four words for all to read; gives the next place."""
        self.ring.wait_empty(cursor)
        for number, word in enumerate(words):
            place = byte_pointer(self.ring.slot(cursor), number * _WORD_BYTES)
            ops.store(place, word, _WORD_BYTES)
        mbarrier.arrive(self.ring.full_barrier(cursor))
        return cursor.next(SLOTS)

    def read(self, cursor: Cursor, *, is_warp: bool) -> tuple[Any, Cursor]:
        """(the next number, the next place), by a whole warp or by one thread."""
        (number,), here = self.read_words(cursor, 1, is_warp=is_warp)
        return number, here

    def read_words(self, cursor: Cursor, count: int, *, is_warp: bool) -> tuple[list[Any], Cursor]:
        """(the words of the next slot, the next place), by a whole warp or by one thread."""
        self.ring.wait_full(cursor)
        slot = self.ring.slot(cursor)
        words = [
            ops.load(byte_pointer(slot, number * _WORD_BYTES), ops.i32_type(), _WORD_BYTES)
            for number in range(count)
        ]
        if is_warp:
            nvvm.bar_warp_sync(ops.const(-1))
            self.ring.release(cursor, ops.thread_id() & 31)
        else:
            mbarrier.arrive(self.ring.empty_barrier(cursor))
        return words, cursor.next(SLOTS)
