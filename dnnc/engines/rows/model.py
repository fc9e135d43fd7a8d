"""Predicts a kernel of engine rows: blocks that load, wait for each other, and store.

A block is at its rows for `_block_ns`; while some of an SM's blocks wait, others move
bytes.  The numbers are fitted to some 800 configurations of norms, their gradients and softmax
of 8192 rows of 1024 to 65536 elements, timed on an H100 (`sweep-rows*.json`), but for
_STAGING_NS, which few rows show (`variants-rows-small-h100.json`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...codegen.hopper.cluster import residents
from ...target import Target
from ..engine import Prediction
from ..surface import LAUNCH_SECONDS

_START_SECONDS = 0.6e-6  # of a kernel: as models of other engines have it
_LOAD_NS = 500.0  # from the first load of a pass to its data
_STAGING_NS = 300.0  # more, of a block's first row through shared memory
_CLUSTER_NS = 600.0  # that each further block of a cluster adds to an exchange
_ELEMENT_NS, _STAGED_ELEMENT_NS = 8.8, 22.0  # of work on each that a thread holds
# Of an SM, on each element that comes through a warp's own ring, for each of its bytes.
_RING_BYTE_NS = 0.0246
_SLOT_ELEMENT_NS = 0.023  # of a block, on each of a row in shared memory, for each level
_BLOCK_RATE = 72.0  # bytes a nanosecond that one block loads or stores
_L1_RATE = 110.0  # of what is read again
_SLOT_RATE = 200.0  # of what shared memory has
_L1_BYTES = 96 << 10  # of the rows of several blocks that are found there again; of one's:
_L1_BYTES_ALONE = 160 << 10
_AGAIN = 1.035  # that rows which are read again take longer, beside all else
_SHARPNESS = 6.0  # of the change from waiting to the memory's rate
_RING_SHARE = 0.995  # of the time, where warps go through rings of their own, but of clusters
_RING_OF_SUMS_SHARE = 0.955  # of those with sums of columns
_RINGS_TOGETHER_SHARE = 1.05  # of those, where several warps of a block have rows of their own
_CLUSTERS_TOGETHER = 0.015  # more, of rings of clusters: of each further block of an SM
_RING_BYTES = 180 << 10  # of all rings, beside which a row's scale is not found in the first cache
_FULL_RING_SHARE = 1.075
_FEW_ROUNDS = 8  # of clusters, in whose last one some SMs have nothing to do
_LINE = 64  # bytes of neighbours that are loaded together at full rate


@dataclass(frozen=True)
class RowsWork:
    """The work of a kernel.

    rows, row: how many, and elements of one.  moved: bytes read and written once.  read: bytes
    of whole inputs.  levels: of reductions; passes: over a row, for them.  columns: sums of them.
    has_extremes: whether a row ends with what all rows have in common, an amax, which its block
    combines once more.
    """

    rows: int
    row: int
    moved: float
    read: float
    levels: int
    passes: int
    columns: int
    has_extremes: bool = False


@dataclass(frozen=True)
class RowsBlock:
    """The way in which a block does it.

    threads: of a block; row_threads: that share a row.  width: rows side by side in a thread.
    held: elements of a thread, 0: rows are read again.  blocks: of a cluster.  resident: blocks of
    an SM that go through the rows, or 0.  ahead: rows that are on their way to shared memory beside
    those worked on, 0: none comes there.  config: KERNEL_CFG.  registers: of a thread.
    slot_bytes: shared memory of a block for rows that are read again.
    """

    threads: int
    row_threads: int
    width: int
    held: int
    blocks: int
    resident: int
    ahead: int
    config: int
    registers: int
    slot_bytes: int = 0


@dataclass(frozen=True)
class RowsModel:
    """A kernel."""

    work: RowsWork
    block: RowsBlock

    @property
    def rows_of_block(self) -> int:
        return self.block.threads // self.block.row_threads * self.block.width

    @property
    def groups(self) -> int:
        return -(-self.work.rows // self.rows_of_block)

    def predict(self, target: Target) -> Prediction:
        together = self._resident(target)
        block_ns, bytes_ = self._block_ns(target, together), self._block_bytes()
        most = self.groups * self.block.blocks / target.sm_count
        waiting = min(together, most) * bytes_ / block_ns
        memory = 0.9 * target.dram_gbs / target.sm_count
        rate = (waiting**-_SHARPNESS + memory**-_SHARPNESS) ** (-1 / _SHARPNESS)
        moved = self.work.moved + self._read_again(together)
        seconds = moved / (rate * target.sm_count * 1e9) * self._rounds(target, together)
        if not self.block.held and not self.block.slot_bytes:
            seconds *= _AGAIN
        seconds *= self._ring_share(together)
        seconds += _START_SECONDS + 0.5e-9 * block_ns + self._columns_seconds(target, together)
        bound = "memory" if waiting > memory else "latency"
        return Prediction(LAUNCH_SECONDS + seconds, bound)

    def _ring_share(self, together: float) -> float:
        """Share that rows take which come through shared memory, of what they would otherwise."""
        if self.block.config == 2:
            if self.block.blocks > 1:
                return 1 + _CLUSTERS_TOGETHER * (self.block.resident - 1)
            if self.block.threads > self.block.row_threads:
                return _RING_SHARE * _RINGS_TOGETHER_SHARE
            return _RING_OF_SUMS_SHARE if self.work.columns else _RING_SHARE
        read = self.work.read / max(1, self.work.rows) * self.rows_of_block / self.block.blocks
        is_full = self.block.ahead and together * (self.block.ahead + 1) * read > _RING_BYTES
        return _FULL_RING_SHARE if is_full else 1.0

    def _resident(self, target: Target) -> float:
        """Blocks of an SM at the same time."""
        threads = min(
            target.limits.threads_sm, target.limits.registers_sm // max(32, self.block.registers)
        )
        most = max(1, min(target.limits.blocks_sm, threads // self.block.threads))
        if self.block.slot_bytes:
            most = max(1, min(most, target.limits.smem_sm_bytes // (self.block.slot_bytes + 2048)))
        return min(most, self.block.resident) if self.block.resident else most

    def _block_bytes(self) -> float:
        """That a block moves for the rows it works on together."""
        return self.work.moved / max(1, self.work.rows) * self.rows_of_block / self.block.blocks

    def _block_ns(self, target: Target, together: float) -> float:
        bytes_ = self._block_bytes()
        share = self.work.read / max(1.0, self.work.moved)
        exchange = 550 + 600 * self.block.threads / 1024
        if self.block.row_threads <= 32 and self.block.width == 1:
            exchange = 650.0  # by shuffles
        if self.block.config != 2:  # whose totals are asked for a row later
            exchange += _CLUSTER_NS * (self.block.blocks - 1)
        last = exchange if self.work.has_extremes else 0.0
        slow = 1.0
        if self.block.width > 1:
            slow = max(1.0, _LINE / (self.rows_of_block * 2))
        if self.block.config == 2 or self.block.ahead:
            alone = _LOAD_NS + _STAGING_NS + exchange * self.work.passes + bytes_ / _BLOCK_RATE
            rounds = max(1.0, self.groups * self.block.blocks / (together * target.sm_count))
            behind = self._behind_ns(exchange, together)
            return behind + max(0.0, alone - behind) / rounds
        if self.block.held:
            work = _ELEMENT_NS * self.block.held
            waits = _LOAD_NS + exchange * self.work.passes + last
            return waits + work + slow * bytes_ / _BLOCK_RATE
        rate = _SLOT_RATE if self.block.slot_bytes else _L1_RATE
        again = bytes_ * share * self.work.passes / rate
        passes = (_LOAD_NS + 300) * (self.work.passes + 1) + last
        if self.block.slot_bytes:
            passes += _SLOT_ELEMENT_NS * self.work.row / self.block.blocks * self.work.levels
        passes += _CLUSTER_NS * (self.block.blocks - 1) * self.work.passes
        elements = self.work.row / (self.block.row_threads * self.block.blocks)
        return max(passes, 12.0 * elements) + again + slow * bytes_ / _BLOCK_RATE

    def _behind_ns(self, exchange: float, together: float) -> float:
        """Nanoseconds of rows that come to shared memory while a block is at others."""
        bytes_ = self._block_bytes()
        if self.block.config == 2:
            return 350 + 0.3 * exchange * self.work.passes + _RING_BYTE_NS * bytes_ * together
        waits = (350 if self.block.ahead > 1 else 400) + 0.6 * exchange * self.work.passes
        return waits + _STAGED_ELEMENT_NS * self.block.held + bytes_ / _BLOCK_RATE

    def _read_again(self, together: float) -> float:
        """Bytes that leave the first cache before they are read again."""
        if self.block.held or self.block.ahead:
            return 0.0
        if self.block.slot_bytes:
            # What shared memory has is worked on while as much is read again.
            row = self.work.read / max(1, self.work.rows) * self.rows_of_block / self.block.blocks
            left = max(0.0, 1 - 2 * self.block.slot_bytes / max(1.0, row))
            return left * self.work.passes * self.work.read
        rows = together * self._block_bytes() * self.work.read / max(1.0, self.work.moved)
        kept = _L1_BYTES if together > 1 else _L1_BYTES_ALONE
        return max(0.0, 1 - kept / max(1.0, rows)) * self.work.passes * self.work.read

    def _rounds(self, target: Target, together: float) -> float:
        """Blocks that go through the rows wait for those that have one more; so do clusters that
        have a few, one after the other."""
        clusters = together * residents(target.sm_count, self.block.blocks)
        is_few = self.block.blocks > 1 and self.groups < _FEW_ROUNDS * clusters
        if not (self.block.resident or is_few):
            return 1.0
        return math.ceil(self.groups / clusters) * clusters / max(self.groups, clusters)

    def _columns_seconds(self, target: Target, together: float) -> float:
        """Seconds of the kernel that adds up what the blocks leave."""
        if not self.work.columns:
            return 0.0
        rows = min(self.groups, together * residents(target.sm_count, self.block.blocks))
        partial = rows * self.work.row * 4.0 * self.work.columns
        return LAUNCH_SECONDS + 1.0e-6 + 2 * partial / 3.0e12
