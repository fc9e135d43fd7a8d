# pyright: basic
"""TotalsAhead: totals of rows, which threads ask for later than they give their parts.

    each warp:  give(row 0)   give(row 1) take(row 0)   give(row 2) take(row 1)   ...

Warps that share a row leave their parts in shared memory and arrive at a barrier; whoever takes
waits for the barrier.  What a warp does between the two hides the exchange.

Warps of a cluster send their parts to every block, asynchronously, and one thread of each block
tells its barrier how many bytes to expect.  An arrival that releases to the cluster would wait
until all that the warp has stored is seen there, the row before too.

Four rows have slots and barriers at a time: a warp gives row n + 4 after it has taken row n + 2,
for which all have given row n + 2, so after they had taken row n.
Source: PTX ISA, "Parallel Synchronization and Communication: mbarrier"; "st.async"; "mapa".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...target import WARP_THREADS
from .. import ops
from ..hopper import mbarrier
from ..kernel import Kernel
from ..memory.smem import byte_pointer
from .reduce import Combine
from .row_totals import of_lanes, part_at, parts_of_lane

SLOTS = 4


_COUNT_BYTES = 4


def part_bytes(warps: int, rows: int, bits: int) -> int:
    """Shared memory of a number of the parts of so many warps, which share each row."""
    return SLOTS * rows * warps * bits // 8


def count_bytes(warps: int) -> int:
    """Shared memory of how many elements each part is of."""
    return _COUNT_BYTES * warps


BARRIER_BYTES = SLOTS * mbarrier.BYTES  # of a level


@dataclass(frozen=True)
class RowParts:
    """All warps' parts of a row, in shared memory.

    buffers, types: of each number that a part has.  base: the place of the first.  numbers: of the
    parts that this thread looks at; lanes: that share them all.
    """

    buffers: Sequence[Any]
    types: Sequence[Any]
    base: Any
    numbers: Sequence[Any]
    lanes: int

    @property
    def count(self) -> int:
        """How many parts there are."""
        return len(self.numbers) * self.lanes

    def values(self, i: int) -> list[Any]:
        """A number of the parts that this thread looks at."""
        return [self.value(i, n) for n in self.numbers]

    def value(self, i: int, number: Any) -> Any:
        """A number of one part."""
        return part_at(self.buffers[i], self.base + number, self.types[i])

    def total(self, values: Sequence[Any], combine: Combine) -> Any:
        """The total of all parts, in every thread."""
        return of_lanes(values, self.lanes, combine)


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
    _types: list[Sequence[Any]] = field(default_factory=list)
    _barriers: list[Any] = field(default_factory=list)
    _counts: Any = None

    @property
    def _warps(self) -> int:
        return self.threads // WARP_THREADS

    def reserve(self, levels: Sequence[Sequence[Any]]) -> None:
        """Takes the memory of each level's parts, of whose numbers the types are given."""
        for number, types in enumerate(levels):
            self._types.append(types)
            self._buffers.append(
                [
                    self.kernel.shared(
                        f"level{number}_{i}", part_bytes(self._parts, self.rows, type_.width)
                    )
                    for i, type_ in enumerate(types)
                ]
            )
            barriers = self.kernel.shared(f"level{number}_barriers", BARRIER_BYTES)
            self._barriers.append(barriers)

    def count_parts(self, count: Callable[[Any], Any]) -> None:
        """Writes how many elements each part is of: count(number of a warp), f32."""
        self._counts = self.kernel.shared("counts", count_bytes(self._parts))
        thread = ops.thread_id()
        with ops.if_(ops.less(thread, self._parts)):
            ops.store(ops.gep(self._counts, thread, ops.f32_type()), count(thread), _COUNT_BYTES)

    def count_of(self, warp: Any) -> Any:
        """A warp's number, as `count_parts` has written it."""
        return part_at(self._counts, warp, ops.f32_type())

    def make(self) -> None:
        """Makes the barriers, by one thread."""
        arrivals = self._warps * self.rows if self.blocks == 1 else 1
        for barriers in self._barriers:
            for slot in range(SLOTS):
                mbarrier.make(byte_pointer(barriers, slot * mbarrier.BYTES), arrivals)

    def give(self, level: int, number: Any, part: Sequence[Any]) -> None:
        """A warp's part of a row, which all its lanes have; number: of the row, from 0, in the
        order of the block's."""
        slot = number & (SLOTS - 1)
        place = self._base(slot) + self.own
        barrier = self._barrier(level, slot)
        lane = self.lane & (WARP_THREADS - 1)
        if self.blocks > 1:
            self._expect(level, barrier)
        with ops.if_(lane < self.blocks):
            for buffer, value in zip(self._buffers[level], part, strict=True):
                own = ops.gep(buffer, place, value.type)
                if self.blocks == 1:
                    ops.store(own, value, value.type.width // 8)
                else:
                    mbarrier.send(value, own, barrier, lane)
            if self.blocks == 1:
                mbarrier.arrive(barrier)

    def _expect(self, level: int, barrier: Any) -> None:
        """Has a barrier wait for the parts of all warps of the cluster, by one thread."""
        bytes_ = sum(type_.width // 8 for type_ in self._types[level])
        with ops.if_(ops.thread_id().eq(0)):
            mbarrier.expect(barrier, bytes_ * self._parts * self.rows)

    def take(self, level: int, number: Any) -> RowParts:
        """A row's parts, once all are there."""
        slot = number & (SLOTS - 1)
        phase = (number // SLOTS) & 1
        mbarrier.wait(self._barrier(level, slot), phase)
        return RowParts(
            self._buffers[level], self._types[level], self._base(slot), *parts_of_lane(self._parts)
        )

    @property
    def _parts(self) -> int:
        """Warps that share a row."""
        return self.blocks * self._warps

    @property
    def own(self) -> Any:
        """The number of this warp among those that share a row."""
        return self.rank * self._warps + (self.lane >> 5)

    def _barrier(self, level: int, slot: Any) -> Any:
        return byte_pointer(self._barriers[level], slot * mbarrier.BYTES)

    def _base(self, slot: Any) -> Any:
        """The place of a row's first part."""
        row = slot * self.rows + self.row
        return row * self._parts
