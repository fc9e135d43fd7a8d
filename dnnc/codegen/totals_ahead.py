# pyright: basic
"""TotalsAhead: totals of rows, which threads ask for later than they give their parts.

    each warp:  give(row 0)   give(row 1) take(row 0)   give(row 2) take(row 1)   ...

Warps that share a row, of a block or of all blocks of a cluster, leave their parts in shared
memory and arrive at a barrier; whoever takes waits for the barrier.  What a warp does between the
two hides the exchange.  Rows have slots and barriers by turns of four: a warp gives row n + 4 after
it has taken row n + 2, for which all have given row n + 2, so after they had taken row n.
Source: PTX ISA, "Parallel Synchronization and Communication: mbarrier"; "mapa".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..target import WARP_THREADS
from . import mbarrier, ops, reduce
from .kernel import Kernel
from .reduce import Combine
from .row_totals import gathered
from .smem import byte_pointer

TURNS = 4


def exchange_bytes(sizes: Sequence[int], warps: int, rows: int, blocks: int, levels: int) -> int:
    """Of shared memory.  sizes: bytes of each total.  warps: that share a row in a block."""
    return TURNS * (sum(sizes) * warps * rows * blocks + levels * mbarrier.BYTES)


@dataclass
class TotalsAhead:
    """The exchanges of one kernel, whose rows are shared by whole warps.

    threads: that share a row in a block, a multiple of a warp.  rows: side by side in a block.
    blocks: of a cluster that share a row.  lane: of those of a block that share a row.  row: of
    the block.  rank: of the block in the cluster.
    """

    kernel: Kernel
    threads: int
    rows: int
    blocks: int
    lane: Any
    row: Any
    rank: Any
    _buffers: list[list[Any]] = field(default_factory=list)
    _barriers: list[Any] = field(default_factory=list)

    @property
    def _warps(self) -> int:
        return self.threads // WARP_THREADS

    def reserve(self, levels: Sequence[Sequence[Any]]) -> None:
        """Takes the memory of each level of totals, of which the types are given."""
        parts = TURNS * self.rows * self.blocks * self._warps
        for number, types in enumerate(levels):
            self._buffers.append(
                [
                    self.kernel.shared(f"level{number}_{i}", parts * type_.width // 8)
                    for i, type_ in enumerate(types)
                ]
            )
            barriers = self.kernel.shared(f"level{number}_barriers", TURNS * mbarrier.BYTES)
            self._barriers.append(barriers)

    def make(self) -> None:
        """Makes the barriers, by one thread."""
        for barriers in self._barriers:
            for turn in range(TURNS):
                place = byte_pointer(barriers, turn * mbarrier.BYTES)
                mbarrier.make(place, self.blocks * self._warps * self.rows)

    def give(
        self, level: int, number: Any, parts: Sequence[Any], combines: Sequence[Combine]
    ) -> None:
        """This thread's parts of a row's totals; number: of the row, from 0, in the order of the
        block's."""
        turn = ops.and_(number, TURNS - 1)
        place = ops.add(self._base(turn), self._own)
        values = [reduce.lanes(part, c) for part, c in zip(parts, combines, strict=True)]
        values = [
            reduce.across_lanes(value, WARP_THREADS, c)
            for value, c in zip(values, combines, strict=True)
        ]
        barrier = byte_pointer(self._barriers[level], ops.mul(turn, mbarrier.BYTES))
        lane = ops.and_(self.lane, WARP_THREADS - 1)
        with ops.if_(ops.less(lane, self.blocks)):
            for buffer, value in zip(self._buffers[level], values, strict=True):
                own = ops.gep(buffer, place, value.type)
                there = own if self.blocks == 1 else mbarrier.remote(own, lane)
                ops.store(there, value, value.type.width // 8)
            if self.blocks == 1:
                mbarrier.arrive(barrier)
            else:
                mbarrier.publish_to(barrier, lane)

    def take(
        self, level: int, number: Any, types: Sequence[Any], combines: Sequence[Combine]
    ) -> list[Any]:
        """A row's totals, in every thread that shares it."""
        turn = ops.and_(number, TURNS - 1)
        phase = ops.and_(ops.div(number, TURNS), 1)
        barrier = byte_pointer(self._barriers[level], ops.mul(turn, mbarrier.BYTES))
        if self.blocks == 1:
            mbarrier.wait(barrier, phase)
        else:
            mbarrier.wait_for_cluster(barrier, phase)
        base, count = self._base(turn), self.blocks * self._warps
        return [
            gathered(buffer, base, count, type_, combine)
            for buffer, type_, combine in zip(self._buffers[level], types, combines, strict=True)
        ]

    @property
    def _own(self) -> Any:
        """The place of this warp among those that share a row."""
        return ops.add(ops.mul(self.rank, self._warps), ops.shr(self.lane, 5))

    def _base(self, turn: Any) -> Any:
        """The place of a row's first part."""
        row = ops.add(ops.mul(turn, self.rows), self.row)
        return ops.mul(row, self.blocks * self._warps)
