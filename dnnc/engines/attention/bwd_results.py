# pyright: basic
"""Sums of 64 rows of dQ, dK or dV, as a warpgroup has them in registers, to the result.

They go by way of shared memory and TMA, which leaves out rows past the last one, or, of packed
rows, by copies of threads; scaled results are stored by each thread, two elements at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.attention.gradient_region import GradientRegion
from ...codegen.hopper import tma, wgmma
from ...codegen.hopper.staged_store import StagedStore
from ...codegen.kernel import Kernel
from ...codegen.scalars.scalar import element_type
from ...codegen.walk.index import Index
from ...mlir import arith
from .bwd_finish import Finish, is_moved
from .bwd_packed import PackedRows
from .bwd_schedule import GradientSchedule

TOGETHER = 4  # registers of a load or a store
PANEL_REGISTERS = 32  # of a thread


@dataclass(frozen=True)
class RowPlace:
    """The first of a warpgroup's rows of a result.  entry: of the batch."""

    entry: Any
    head: Any
    row: Any


@dataclass
class ResultRows:
    """name: dq, dk or dv."""

    kernel: Kernel
    parts: GradientRegion
    schedule: GradientSchedule
    name: str

    def __post_init__(self) -> None:
        self.is_moved = is_moved(self.parts, self.name)
        if not self.is_moved:
            return
        _, tensor = self.parts.region.outputs[self.parts.results[self.name]]
        box = tma.Box(tensor, (tensor.rank - 1, tensor.rank - 2), (64, wgmma.M))
        self.store = StagedStore(box)
        self.pair = ops.vector_type(element_type(tensor.type), 2)
        self.map_ = None
        self.packed = PackedRows.of(self.kernel, self.parts, self.name)

    @property
    def elements(self) -> int:
        t = self.schedule.tiling
        return t.width if self.name == "dv" else t.depth

    @property
    def panels(self) -> int:
        t = self.schedule.tiling
        return t.width_panels if self.name == "dv" else t.depth_panels

    @property
    def panel_bytes(self) -> int:
        """Bytes from a panel to the next in shared memory."""
        return wgmma.M * wgmma.ROW_BYTES

    @property
    def bytes(self) -> int:
        """Bytes of shared memory that panels take."""
        return self.panels * self.panel_bytes

    def registers_of(self, panel: int) -> int:
        return min(PANEL_REGISTERS, self.elements // 2 - panel * PANEL_REGISTERS)

    def describe(self) -> None:
        """Makes the tensor map that `leave` takes."""
        if self.packed is not None:
            return
        self.map_ = tma.map_argument(self.kernel, self.store.box)

    # ---- by way of shared memory

    def put(self, sums: Sequence[Any], buffer: Any, thread: Any) -> None:
        """Sums of panels to shared memory, one after the other; buffer: address of the first
        panel's rows of this warpgroup."""
        rounded = [
            [
                arith.TruncFOp(self.pair, ops.from_elements(list(sums[i + 2 * half :][:2]))).result
                for half in (0, 1)
            ]
            for i in range(0, len(sums), 4)
        ]
        for panel in range(self.panels):
            place = buffer + panel * self.panel_bytes
            self.store.put(place, thread, rounded[8 * panel : 8 * panel + 8])

    def leave(self, buffer: Any, at: RowPlace, thread: Any) -> None:
        """Copies a warpgroup's panels to the result, by all its threads, after a barrier.  TMA may
        go on reading shared memory."""
        if self.packed is not None:
            self.packed.copy(
                buffer, self.panel_bytes, wgmma.M, at.entry, at.head, at.row, thread,
                wgmma.WARPGROUP_THREADS,
            )  # fmt: skip
            return
        with ops.if_(ops.compare("eq", thread, 0)):
            self._start(buffer, at)

    def _start(self, buffer: Any, at: RowPlace) -> None:
        """Starts the copies; by one thread."""
        for panel in range(self.panels):
            corner = [Index.of(place) for place in (at.entry, at.head, at.row, 64 * panel)]
            place = buffer + panel * self.panel_bytes
            self.store.start(self.map_, place, tma.place(self.store.box, corner))
        tma.commit()

    # ---- scaled

    def store_scaled(
        self, at: RowPlace, end: Any, thread: Any, sums_of: Callable[[int], list[Any]]
    ) -> None:
        """Stores sums, scaled.  end: rows that there are; None: all of these are there.  sums_of:
        gives those of a panel."""
        finish = Finish(self.kernel, self.parts, self.name)
        down, right = wgmma.AccumulatorLayout.origin(thread)
        first = at.row + down
        for panel in range(self.panels):
            sums = sums_of(panel)
            for place in range(0, len(sums), 2):
                j, half = divmod(place // 2, 2)
                row = first + 8 * half
                column = right + (64 * panel + 8 * j)
                there = [
                    Index.of(at.entry), Index.of(at.head), Index.of(row), Index(column, 1, 2)
                ]  # fmt: skip
                inside = None if end is None else ops.less(row, end)
                finish.store(ops.from_elements(sums[place : place + 2]), there, inside)
        finish.meet(thread)
