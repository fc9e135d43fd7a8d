# pyright: basic
"""Pipeline: a ring of stages in shared memory between producers and consumers.

    producer  wait_empty(s, p ^ 1)  expect(bytes), copies        wait_empty ...
    consumer       wait_full(s, p)  products of the stage        release(s)

Use i of the ring is stage i % stages in phase i / stages % 2 (`Cursor`).  A producer waits for
the release of the use before its own, which is the other phase; in its first round nobody has
used the stage, and waiting for the other phase of a fresh barrier returns at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import ops
from ..memory.smem import address, byte_pointer
from . import mbarrier


@dataclass(frozen=True)
class Cursor:
    """A place in a ring.  stage: from 0.  phase: 0 or 1; numbers, or i32 values."""

    stage: Any = 0
    phase: Any = 0

    @staticmethod
    def at(use: Any, stages: int) -> Cursor:
        """The place of the i-th use."""
        return Cursor(use % stages, (use // stages) & 1)

    def next(self, stages: int) -> Cursor:
        """The place of the use that follows."""
        moved = self.stage + 1
        if isinstance(moved, int) and isinstance(self.phase, int):
            return Cursor(moved % stages, self.phase ^ (moved == stages))
        wraps = ops.compare("eq", moved, stages)
        return Cursor(
            ops.select(wraps, ops.const(0), moved),
            ops.select(wraps, self.phase ^ 1, self.phase),
        )


@dataclass(frozen=True)
class Pipeline:
    """The barriers and the memory of a ring.

    data: !llvm.ptr<3> of stage 0.  stage_bytes: of one stage.
    full, empty: !llvm.ptr<3> of the first of `stages` barriers each.
    """

    data: Any
    stage_bytes: int
    stages: int
    full: Any
    empty: Any

    @staticmethod
    def barrier_bytes(stages: int) -> int:
        return 2 * stages * mbarrier.BYTES

    @staticmethod
    def of(data: Any, stage_bytes: int, stages: int, barriers: Any) -> Pipeline:
        """barriers: memory of `barrier_bytes`."""
        empty = byte_pointer(barriers, stages * mbarrier.BYTES)
        return Pipeline(data, stage_bytes, stages, barriers, empty)

    def make(self, producers: int, consumers: int) -> None:
        """Makes the barriers, by one thread.  How many arrive to fill and to empty a stage."""
        for stage in range(self.stages):
            mbarrier.make(byte_pointer(self.full, stage * mbarrier.BYTES), producers)
            mbarrier.make(byte_pointer(self.empty, stage * mbarrier.BYTES), consumers)

    def slot(self, cursor: Cursor) -> Any:
        """The memory of a stage."""
        return byte_pointer(self.data, cursor.stage * self.stage_bytes)

    def full_barrier(self, cursor: Cursor) -> Any:
        return byte_pointer(self.full, cursor.stage * mbarrier.BYTES)

    def empty_barrier(self, cursor: Cursor) -> Any:
        return byte_pointer(self.empty, cursor.stage * mbarrier.BYTES)

    def address(self, cursor: Cursor) -> Any:
        """The memory of a stage as an i32."""
        return address(self.slot(cursor))

    def expect(self, cursor: Cursor, bytes_: Any) -> None:
        """Arrives for a producer, and announces bytes that TMA brings."""
        mbarrier.expect(self.full_barrier(cursor), bytes_)

    def wait_full(self, cursor: Cursor) -> None:
        """Waits, for a consumer, until a stage may be read."""
        mbarrier.wait(self.full_barrier(cursor), cursor.phase)

    def wait_empty(self, cursor: Cursor) -> None:
        """Waits, for a producer, until a stage may be written."""
        mbarrier.wait(self.empty_barrier(cursor), cursor.phase ^ 1)

    def release(self, cursor: Cursor, lane: Any, blocks: int = 1) -> None:
        """Gives a stage back, for a consumer's warp that has read it; lane: of the thread.

        blocks: of the cluster, the first so many, whose producers write this block's stages.
        """
        barrier = self.empty_barrier(cursor)
        if blocks == 1:
            with ops.if_(lane.eq(0)):
                mbarrier.arrive(barrier)
        else:
            with ops.if_(lane < blocks):
                mbarrier.arrive_at(barrier, lane)
