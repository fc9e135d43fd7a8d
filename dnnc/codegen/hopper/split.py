# pyright: basic
"""SplitSum: the sums of blocks of a cluster that share a tile's k, through shared memory.

    each block:       wait until its buffer is free; write its accumulators; tell all blocks
    block r of some:  wait for all blocks; add slice r of all buffers, in the order of the blocks;
                      tell all blocks that their buffers are free

The order is fixed, so the result is the same in every run.  Source: PTX ISA, "Cluster of
Cooperative Thread Arrays"; "mapa".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...mlir import arith, ir, nvvm
from .. import ops
from ..memory.smem import byte_pointer
from . import mbarrier, tma, wgmma

_SUMS_BARRIER = 7  # named barrier of the consumers; see `epilogue_sm90`
_GROUP = 4  # registers that lie together: 16 bytes of a thread


@dataclass(frozen=True)
class SplitSum:
    """The buffers and barriers.

    blocks: of the cluster.  slices: how many of them add, each some columns.  threads: of a
    block's consumers.  buffer: !llvm.ptr<3>.  barriers: of two mbarriers.  is_shared: whether the
    buffer is the memory of operands: consumers meet before they write it, and who loads the next
    tile's waits until it is free.
    """

    blocks: int
    slices: int
    threads: int
    buffer: Any
    barriers: Any
    is_shared: bool = False

    @staticmethod
    def bytes(rows: int, columns: int) -> int:
        """The bytes of a buffer for a tile."""
        return rows * columns * 4

    @staticmethod
    def barrier_bytes() -> int:
        return 2 * mbarrier.BYTES

    @property
    def _free(self) -> Any:
        return byte_pointer(self.barriers, mbarrier.BYTES)

    def make(self) -> None:
        """Makes the barriers, by one thread: every warp of every block arrives."""
        for barrier in (self.barriers, self._free):
            mbarrier.make(barrier, self.blocks * self.threads // 32)

    def exchange(self, sums: Sequence[Any], thread: Any, phase: Any) -> None:
        """Shows this block's accumulators to the cluster, and waits for those of all blocks.

        thread: among the consumers.  phase: of the tile, 0 and 1 alternately.
        """
        self.wait_free(phase)
        if self.is_shared:  # products of other warps may still read the operands
            nvvm.barrier(
                barrier_id=ops.const(_SUMS_BARRIER), number_of_threads=ops.const(self.threads)
            )
        place = thread * (4 * _GROUP)
        for accumulator in sums:
            registers = wgmma.unpacked(accumulator)
            for first in range(0, len(registers), _GROUP):
                group = ops.from_elements(registers[first : first + _GROUP])
                ops.store(byte_pointer(self.buffer, place), group, 4 * _GROUP)
                place = place + self._row_bytes
        self._arrive(self.barriers, thread)
        mbarrier.wait_for_cluster(self.barriers, phase)

    def total(self, like: Sequence[Any], columns: int, thread: Any, rank: Any) -> list[list[Any]]:
        """[accumulator][register] of the sums of this block's slice, of so many columns.

        like: the accumulators.
        """
        found: list[list[Any]] = []
        groups = columns // 8
        row = 0
        for accumulator in like:
            registers = wgmma.unpacked(accumulator)
            type_ = ops.vector_type(registers[0].type, _GROUP)
            add = arith.AddFOp if isinstance(registers[0].type, ir.FloatType) else arith.AddIOp
            own: list[Any] = []
            for group in range(groups):
                number = rank * groups + (row + group)
                place = number * self._row_bytes + thread * (4 * _GROUP)
                pointer = byte_pointer(self.buffer, place)
                total = None
                for block in range(self.blocks):
                    there = mbarrier.remote(pointer, block)
                    part = ops.load(there, type_, 4 * _GROUP)
                    total = part if total is None else add(total, part).result
                own += ops.elements(total)
            found.append(own)
            row += len(registers) // _GROUP
        return found

    def free(self, thread: Any) -> None:
        """Tells all blocks that this one has read their buffers."""
        if self.is_shared:  # copies write there next
            tma.end_reads(of_cluster=True)
        self._arrive(self._free, thread)

    def wait_free(self, phase: Any) -> None:
        """Waits until all blocks have read this one's buffer of the tile before; phase: of the
        tile."""
        mbarrier.wait_for_cluster(self._free, phase ^ 1)

    @property
    def _row_bytes(self) -> int:
        """The bytes of one group of registers of all threads."""
        return self.threads * 4 * _GROUP

    def _arrive(self, barrier: Any, thread: Any) -> None:
        """A warp arrives at a barrier of every block."""
        nvvm.bar_warp_sync(ops.const(-1))
        lane = thread & 31
        with ops.if_(lane < self.blocks):
            mbarrier.publish_to(barrier, lane)
