"""SharedLayout: where everything of a block of engine rows lies in shared memory.

static    each level: parts of its totals, barriers   how many elements parts are of   extremes
dynamic   ring | vectors of all rows | barriers;  sums of columns lie over the first two
          or fragments that stay, slot by slot
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ...codegen.hopper.pipeline import Pipeline
from ...codegen.memory.row_ring import ring_bytes
from ...codegen.totals.row_totals import bytes_across, bytes_along
from ...codegen.totals.totals_ahead import BARRIER_BYTES, count_bytes, part_bytes
from ...codegen.walk.fragments import kept_bytes
from ...target import WARP_THREADS
from .records import COLUMN_WIDTH, RowsTiling

EXTREME_BYTES = 4  # of an element
COLUMN_THREADS = 256  # of the kernel that adds up columns
# Of its shared memory, for each byte of a sum: a fragment of each lane of each warp, at most.
COLUMNS_BYTES = COLUMN_THREADS * COLUMN_WIDTH
_ALIGNMENT = 16  # bytes of a static buffer
_LINE_BYTES = 128


@dataclass(frozen=True)
class SharedLayout:
    """See the file's docstring."""

    tile: RowsTiling

    @cached_property
    def bytes(self) -> int:
        """Bytes of a block of the rows' kernel."""
        return self.static_bytes + self.dynamic_bytes

    @property
    def assembled_bytes(self) -> int:
        """Bytes of such a block that ptxas makes of them: static buffers that a cluster's blocks
        reach fill whole lines."""
        line = _LINE_BYTES if self.tile.cluster > 1 else 1
        return -(-self.static_bytes // line) * line + self.dynamic_bytes

    @property
    def columns_bytes(self) -> int:
        """Bytes of a block of the kernel that adds up columns."""
        t = self.tile
        values = COLUMN_THREADS // WARP_THREADS * t.totals.side * t.narrow
        return sum(_aligned(values * bits // 8) for bits in t.totals.columns)

    @cached_property
    def static_bytes(self) -> int:
        """Bytes of what totals are exchanged through, and of a block's extremes."""
        t = self.tile
        buffers = [self._exchanged(bits) for total in t.totals.rows for bits in t.parts_of(total)]
        if t.meets_ahead:
            buffers += [BARRIER_BYTES] * t.totals.levels
            buffers += [count_bytes(t.warps_of_row)] * t.totals.counts
        warps = t.threads // WARP_THREADS
        buffers += [warps * EXTREME_BYTES] * t.totals.extremes
        return sum(map(_aligned, buffers))

    def _exchanged(self, bits: int) -> int:
        t = self.tile
        if t.along != "row":
            return bytes_across(t.row_threads, t.rows, t.vector_elems, bits)
        if t.meets_ahead:
            return part_bytes(t.warps_of_row, t.rows, bits)
        return bytes_along(t.row_threads, t.rows, t.cluster, bits)

    # ---- dynamic

    @cached_property
    def dynamic_bytes(self) -> int:
        if self.tile.slots:
            return self.slot_bytes
        if not self.tile.has_ring:
            return self.sums_bytes
        rows, stages = self.tile.rows, self.tile.stages
        barriers = rows * Pipeline.barrier_bytes(stages) + Pipeline.barrier_bytes(1)
        return self.barriers + barriers

    @property
    def slot_bytes(self) -> int:
        """Bytes of the fragments that stay."""
        t = self.tile
        bits = [load.bits for load in t.memory.again]
        return kept_bytes(bits, t.vector_elems, t.slots, t.threads)

    @property
    def unit_bytes(self) -> int:
        """Bytes of the ring of a unit: of a block, or of a warp that has its own."""
        t, memory = self.tile, self.tile.memory
        bits = [load.bits for load in memory.ring]
        return ring_bytes(bits, memory.elements, t.rows // t.units, t.stages)

    @property
    def vectors(self) -> int:
        """The offset of what is the same in all rows."""
        return self.tile.units * self.unit_bytes

    @property
    def barriers(self) -> int:
        """The offset of the barriers."""
        memory = self.tile.memory
        bits = [load.bits for load in memory.vectors]
        data = self.vectors + ring_bytes(bits, memory.elements, 1, 1)
        return max(data, self.sums_bytes)

    @property
    def sums_bytes(self) -> int:
        """Bytes in which the rows of a block are added up, when all are done."""
        return self.sums_before(len(self.tile.totals.columns))

    def sums_before(self, count: int) -> int:
        """Bytes of the first so many sums of columns: the offset of the next one."""
        t = self.tile
        if t.rows == 1:
            return 0
        return sum(_aligned(t.rows * t.block_elements * b // 8) for b in t.totals.columns[:count])


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
