# pyright: basic
"""Blocks that go through rows which come to a ring in shared memory; see engine rows.

Warps go on their own; `rows.together` has blocks whose threads wait for each other.  A warp that
has rows of its own has a ring of its own:

    wait for a stage; reduce; store; fill the stage again

Where warps share rows, one more warp fills the ring, and those that work do the first pass over a
row before the last one over the row before it, so that the exchange of totals takes no time:

    wait for a stage; reduce; give      take the totals of the row before; store; release its stage

Passes take their fragments from shared memory, one after the other: sums of columns have the
registers.  What all rows share, a norm's scale, is in shared memory from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...codegen import ops
from ...codegen.hopper import cluster, mbarrier, tma
from ...codegen.hopper.pipeline import Cursor, Pipeline
from ...codegen.memory.row_ring import RowPart, RowRing
from ...codegen.memory.smem import byte_pointer
from ...codegen.memory.tensors import GlobalTensor
from ...codegen.state import loop
from ...codegen.stretch import stretch
from ...codegen.totals.totals_ahead import TotalsAhead
from ...codegen.walk.index import Coordinate
from ...codegen.walk.loops import coordinates_of
from ...dialect.tensor import Tensor
from ...expr import ceildiv
from ...mlir import nvvm
from ...target import WARP_THREADS
from . import extremes
from .region import Place
from .reread import RingGroup
from .shared import SharedGroup, elements_of_warp, part_types

PRODUCER_THREADS = WARP_THREADS
_WORKERS = 1  # named barrier of those that work on rows; 0 is the block's


@dataclass(frozen=True)
class OwnRows:
    """The state of a warp with rows of its own.  here: its stage.  sums: of columns, or
    extremes."""

    here: Cursor
    sums: Sequence[Any]


@dataclass(frozen=True)
class SharedRows:
    """The state of threads that share rows.  exchange: of totals, its parity, or its number
    where totals are exchanged a row ahead.  here: the stage, if there is a ring.  sums: of
    columns, or extremes."""

    exchange: Any
    here: Cursor
    sums: Sequence[Any]


@dataclass
class RingKernel:
    """One kernel whose rows come through a ring.

    place: the thread's.  number: the block's, or cluster's, among so many `clusters`.
    """

    place: Place
    number: Any
    clusters: Any

    def __post_init__(self) -> None:
        rows, kernel, t = self.place.rows, self.place.kernel, self.place.rows.tiling
        self.kernel, self.rows, self.tiling = kernel, rows, t
        self.is_shared = t.meets_ahead
        self.values, self.vectors = map(rows.arguments, (t.memory.ring, t.memory.vectors))
        self.part = self._part()
        self.units = t.units
        unit = 0 if self.is_shared else ops.thread_id() >> 5
        self.place = replace(self.place, warp=None if self.is_shared else unit)
        self.group_rows = self.place.group_rows
        self.count = kernel.size(ceildiv(rows.kept.fragments, self.group_rows))
        whole, vectors = self._tensors(self.values), self._tensors(self.vectors)
        layout = rows.layout
        self.memory = kernel.dynamic_shared(layout.dynamic_bytes)
        barriers = byte_pointer(self.memory, layout.barriers)
        barrier_bytes = Pipeline.barrier_bytes(t.stages)
        self.ring = self._ring(
            whole, self.group_rows, t.stages, byte_pointer(self.memory, unit * layout.unit_bytes),
            byte_pointer(barriers, unit * barrier_bytes),
        )  # fmt: skip
        self.ring_of_vectors = self._ring(
            vectors, 1, 1, byte_pointer(self.memory, layout.vectors),
            byte_pointer(barriers, self.units * barrier_bytes),
        )  # fmt: skip
        self.ahead = TotalsAhead(
            kernel, t.row_threads, t.rows, t.cluster, self.place.lane, self.place.row,
            self.place.rank,
        )  # fmt: skip

    def _tensors(self, values: Sequence[Any]) -> list[Tensor]:
        return [self.rows.region.arguments[value] for value in values]

    def _part(self) -> RowPart:
        """The elements of each row that this block works on."""
        t, row = self.tiling, self.rows.row_elements
        most = t.memory.elements
        if t.cluster == 1:
            return RowPart(0, self.kernel.size(row), most)
        first = self.place.rank * most
        left = self.kernel.size(row) - first
        return RowPart(first, ops.minimum(left, most), most)

    def _ring(
        self, tensors: Sequence[Tensor], rows: int, stages: int, memory: Any, barriers: Any
    ) -> RowRing:
        sources = [GlobalTensor(self.kernel, tensor) for tensor in tensors]
        return RowRing(
            self.kernel, sources, self.rows.row_axes, rows, stages, self.part, self._row_at, memory,
            barriers,
        )  # fmt: skip

    def _row_at(self, group: Any, row: Any) -> list[Coordinate]:
        """The first element of this block's part of a row of this unit."""
        rows, kernel = self.rows, self.kernel
        last = kernel.size(rows.kept.fragments) - 1
        fragment = group * self.group_rows + row
        kept = rows.kept.coordinates(kernel, ops.minimum(fragment, last))
        if self.tiling.cluster == 1:
            return coordinates_of(len(rows.dims), kept)
        first = self.part.first // rows.reduced.width
        return self.place.at(kept, first)

    # ---- the whole

    def emit(self, finish: Callable[[Sequence[Any], Callable[[], None]], None]) -> None:
        """finish(sums of columns or extremes, barrier of those that have them), by the threads
        that work."""
        self._make()
        if not self.is_shared:
            finish(self._own_rows(), ops.barrier)
            return
        is_worker = ops.thread_id() < self.tiling.threads
        ops.if_else(is_worker, lambda: finish(self._shared_rows(), self._barrier), self._produce)

    def _barrier(self) -> None:
        threads = ops.const(self.tiling.threads)
        nvvm.barrier(barrier_id=ops.const(_WORKERS), number_of_threads=threads)

    @stretch("set up")
    def _make(self) -> None:
        """Makes all barriers."""
        thread, warps = ops.thread_id(), self.tiling.threads // WARP_THREADS
        lane = thread & (WARP_THREADS - 1)
        if self.is_shared:
            self.ahead.reserve([part_types(self.rows, level) for level in self.rows.levels])
            if self.tiling.totals.counts:
                self.ahead.count_parts(lambda warp: elements_of_warp(self.place, warp))
        is_first = ops.compare("eq", thread, 0)
        with ops.if_(is_first if self.is_shared else lane.eq(0)):
            self.ring.pipeline.make(1, warps)
            if self.is_shared:
                self.ahead.make()
            if self.vectors:
                with ops.if_(is_first):
                    self.ring_of_vectors.pipeline.make(1, 1)
            mbarrier.make_visible()
        if self.tiling.cluster > 1:
            cluster.arrive()
            cluster.wait()
        else:
            ops.barrier()

    def _group(self, number: Any, stage: Any) -> RingGroup:
        return RingGroup(self.place, number, 0, self._leaves(stage))

    def _leaves(self, stage: Any) -> dict[Any, Any]:
        """The leaves of the arguments that are in shared memory."""
        row = self.place.group_row
        leaves = {v: self.ring.leaf(n, stage, row) for n, v in enumerate(self.values)}
        return leaves | {v: self.ring_of_vectors.leaf(n, 0, 0) for n, v in enumerate(self.vectors)}

    # ---- warps with rows of their own

    def _own_rows(self) -> list[Any]:
        t, units = self.tiling, self.clusters * self.units
        first = self.number * self.units + self.place.warp
        if self.vectors:
            with ops.if_(ops.compare("eq", self.place.warp, 0)):
                self.ring_of_vectors.fill(Cursor(), 0)

        def fill(cursor: Cursor, group: Any) -> None:
            with ops.if_(group < self.count):
                self.ring.fill(cursor, group)

        for stage in range(t.stages):
            fill(Cursor(stage), first + units * stage)
        self._wait_for_vectors()

        @loop(
            first, self.count, units, state=OwnRows(Cursor(), extremes.sums_of_nothing(self.rows))
        )
        def end(i: Any, now: OwnRows) -> OwnRows:
            cursor = now.here
            self.ring.pipeline.wait_full(cursor)
            group = self._group(i, cursor.stage)
            group.load_of_rows()
            for number, level in enumerate(self.rows.levels):
                parts, combines = group.parts(level), group.combines(level)
                found = self.place.totals.combine(f"level{number}", parts, combines, 0)
                group.keep(level, found)
                # The assembler may not take the next pass's fragments from this one.
                nvvm.bar_warp_sync(ops.const(-1))
            sums = group.finish(now.sums)
            tma.end_reads()
            nvvm.bar_warp_sync(ops.const(-1))  # all lanes have read the stage
            fill(cursor, i + units * t.stages)
            return OwnRows(cursor.next(t.stages), sums)

        return end.sums

    def _wait_for_vectors(self) -> None:
        if self.vectors:
            self.ring_of_vectors.pipeline.wait_full(Cursor())

    # ---- warps that share rows

    @stretch("load")
    def _produce(self) -> None:
        """Fill stages as they are released; one warp does.

        Numbers of rows it does not bring: whether it loaded them ahead or had them copied, the
        gradient of a layer norm took 12 to 18% longer in rings of three stages.
        """
        if self.vectors:
            self.ring_of_vectors.fill(Cursor(), 0)

        @loop(self.number, self.count, self.clusters, state=Cursor())
        def _(i: Any, here: Cursor) -> Cursor:
            self.ring.pipeline.wait_empty(here)
            self.ring.fill(here, i)
            return here.next(self.tiling.stages)

    def _shared_rows(self) -> list[Any]:
        t, levels, clusters = self.tiling, self.rows.levels, self.clusters
        self._wait_for_vectors()
        self._give(self.number, Cursor(), 0)

        start = SharedRows(0, Cursor(), extremes.sums_of_nothing(self.rows))

        @loop(self.number, self.count, clusters, state=start)
        def end(i: Any, now: SharedRows) -> SharedRows:
            exchange, cursor = now.exchange, now.here
            after, following = i + clusters, cursor.next(t.stages)
            with ops.if_(after < self.count):
                self._give(after, following, exchange + 1)
            group = self._shared_group(i, cursor.stage)
            group.load_of_rows()
            for number, level in enumerate(levels):
                if number:
                    self.ahead.give(number, exchange, group.part(level))
                group.keep(level, group.totals(level, self.ahead.take(number, exchange)))
            sums = group.finish(now.sums)
            tma.end_reads()
            nvvm.bar_warp_sync(ops.const(-1))  # all lanes have read the stage
            self.ring.pipeline.release(cursor, ops.thread_id() & (WARP_THREADS - 1))
            return SharedRows(exchange + 1, following, sums)

        return end.sums

    def _give(self, number: Any, cursor: Cursor, exchange: Any) -> None:
        """The first pass over a group's rows."""
        self.ring.pipeline.wait_full(cursor)
        group = self._shared_group(number, cursor.stage)
        group.load_of_rows()
        self.ahead.give(0, exchange, group.part(self.rows.levels[0]))

    def _shared_group(self, number: Any, stage: Any) -> SharedGroup:
        return SharedGroup(self.place, number, self._leaves(stage), self.ahead, self.kernel.threads)
