# pyright: basic
"""Blocks whose threads go through groups of rows together; see engine rows.

Rows are loaded when a block comes to them, or the first warp has them brought to a ring in shared
memory ahead of it:

    wait for a stage; reduce; store; wait for each other; fill the stage again
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.hopper import mbarrier, tma
from ...codegen.hopper.pipeline import Cursor
from ...codegen.memory.row_ring import RowPart, RowRing
from ...codegen.memory.smem import byte_pointer
from ...codegen.memory.tensors import GlobalTensor
from ...codegen.state import loop
from ...codegen.stretch import stretch
from ...codegen.walk.index import Coordinate
from ...codegen.walk.loops import coordinates_of
from ...target import WARP_THREADS
from . import extremes
from .group import Group
from .region import Place
from .reread import RereadGroup
from .ring import SharedRows
from .streamed import StreamedGroup


def one_group(
    place: Place, number: Any, parity: Any, leaves: Mapping[Any, Any], sums: Sequence[Any]
) -> Sequence[Any]:
    """Goes through a group of rows; gives the sums of columns, or the extremes, with what it adds
    to them."""
    rows = place.rows
    if not rows.tiling.held:
        return StreamedGroup(place, number, parity, leaves).streamed(sums)
    if not (leaves and rows.columns):
        return Group(place, number, parity, leaves).held(sums)
    group = RereadGroup(place, number, parity, leaves)
    group.load_of_rows()
    for level_number, level in enumerate(rows.levels):
        parts, combines = group.parts(level), group.combines(level)
        found = place.totals.combine(f"level{level_number}", parts, combines, parity)
        group.keep(level, found)
    return group.finish(sums)


@dataclass
class Together:
    """The loop of a block over its groups of rows.

    place: the thread's.  number: the block's, or cluster's, among so many `clusters`.
    memory: !llvm.ptr<3>, of sums of columns, and of the ring; None: of nothing.
    """

    place: Place
    number: Any
    clusters: Any

    def __post_init__(self) -> None:
        rows, kernel, t = self.place.rows, self.place.kernel, self.place.rows.tiling
        self.rows, self.kernel, self.tiling = rows, kernel, t
        self.count = kernel.size(rows.groups)
        self.values = rows.arguments(t.memory.ring)
        bytes_ = rows.layout.dynamic_bytes
        self.memory = kernel.dynamic_shared(bytes_) if bytes_ and not t.slots else None
        self.ring = self._ring() if self.values else None

    def _ring(self) -> RowRing:
        t, elements = self.tiling, self.rows.row_elements
        part = RowPart(0, self.kernel.size(elements), t.memory.elements)
        tensors = [self.rows.region.arguments[value] for value in self.values]
        sources = [GlobalTensor(self.kernel, tensor) for tensor in tensors]
        return RowRing(
            self.kernel, sources, self.rows.row_axes, t.rows, t.stages, part, self._row_at,
            self.memory, byte_pointer(self.memory, self.rows.layout.barriers),
        )  # fmt: skip

    def _row_at(self, group: Any, row: Any) -> list[Coordinate]:
        rows, kernel = self.rows, self.kernel
        last = kernel.size(rows.kept.fragments) - 1
        fragment = ops.minimum(group * self.tiling.rows + row, last)
        return coordinates_of(len(rows.dims), rows.kept.coordinates(kernel, fragment))

    def go(self) -> list[Any]:
        """Goes through the rows; gives the sums of columns, or the extremes."""
        t, rows = self.tiling, self.rows
        self._start()

        start = SharedRows(0, Cursor(), extremes.sums_of_nothing(rows))

        @loop(self.number, self.count, self.clusters, state=start)
        def end(i: Any, now: SharedRows) -> SharedRows:
            cursor = now.here
            leaves: dict[Any, Any] = {}
            if self.ring is not None:
                self.ring.pipeline.wait_full(cursor)
                row = self.place.row
                leaves = {
                    v: self.ring.leaf(n, cursor.stage, row) for n, v in enumerate(self.values)
                }
            sums = one_group(self.place, i, now.exchange, leaves, now.sums)
            if self.ring is not None:
                tma.end_reads()
                ops.barrier()  # all have read the stage
                self._fill(cursor, i + self.clusters * t.stages)
                cursor = cursor.next(t.stages)
            return SharedRows(now.exchange ^ 1, cursor, sums)

        return end.sums

    def _start(self) -> None:
        """Makes the barriers, and has the first groups' rows loaded."""
        if self.ring is None:
            return
        with ops.if_(ops.thread_id().eq(0)):
            self.ring.pipeline.make(1, 1)
            mbarrier.make_visible()
        ops.barrier()
        for stage in range(self.tiling.stages):
            self._fill(Cursor(stage), self.number + self.clusters * stage)

    @stretch("load")
    def _fill(self, cursor: Cursor, group: Any) -> None:
        """Starts the copies of a group of rows, if there is one so far, by the first warp."""
        assert self.ring is not None
        is_warp = ops.thread_id() < WARP_THREADS
        with ops.if_(ops.both(is_warp, group < self.count)):
            self.ring.fill(cursor, group)
