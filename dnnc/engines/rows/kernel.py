# pyright: basic
"""The kernels of engine rows; see the engine for the whole.

    for each group of rows of a block:
        for each level of reductions: load (once, where rows are held), combine
        store what comes after the last
    where columns are summed too: store the block's sums, which a second kernel adds up
    where extremes of all rows are found too: one atomic operation of the block for each

A level is the reductions that need those of the levels before, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...codegen import ops
from ...codegen.hopper import cluster
from ...codegen.kernel import Kernel
from ...codegen.output import Output
from ...codegen.region import Region
from ...expr import Expr, minimum
from ...mlir import nvvm
from . import extremes
from . import ring as rows_ring
from .columns import ColumnSums
from .records import RowsTiling
from .region import Place, Rows
from .ring import RingKernel
from .together import Together, one_group


@dataclass
class RowsEmitter:
    """The kernels of one fusion."""

    region: Region
    tiling: RowsTiling
    output: Output

    def __post_init__(self) -> None:
        self.rows = Rows(self.region, self.tiling)
        has_sums = bool(self.rows.columns)
        self.sums = ColumnSums(self.rows, self.output, self._grid) if has_sums else None

    def emit(self) -> None:
        t = self.tiling
        kernel = self.output.kernel("", self._threads)
        kernel.cluster = t.cluster
        kernel.min_blocks = t.blocks
        with kernel.body():
            if self.sums and t.is_early:
                nvvm.griddepcontrol(nvvm.GridDepActionKind.launch_dependents)
            self._emit_rows(kernel)
        extremes.preset(self.rows, self.output)
        self.output.launch(kernel, (self._grid * t.cluster, 1, 1))
        if self.sums:
            self.sums.emit()

    @property
    def _threads(self) -> int:
        t = self.tiling
        fills = t.meets_ahead
        return t.threads + (rows_ring.PRODUCER_THREADS if fills else 0)

    @cached_property
    def _grid(self) -> Expr:
        """Blocks, or clusters of them."""
        t = self.tiling
        if not t.blocks:
            return self.rows.groups
        most = t.blocks * cluster.residents(self.output.target.sm_count, t.cluster)
        return minimum(self.rows.groups, most)

    def _emit_rows(self, kernel: Kernel) -> None:
        t = self.tiling
        rank = cluster.Cluster(t.cluster, 1).rank()
        place = Place.of(kernel, self.rows, rank)
        number = ops.block_id() // t.cluster
        if t.has_own_rings:
            self._emit_rings(place, number)
            return
        if t.slots:
            place.memory = kernel.dynamic_shared(self.rows.layout.dynamic_bytes)
        if t.cluster > 1:
            cluster.arrive()
        if t.blocks:
            loop = Together(place, number, self._clusters)
            self._finish(place, loop.go(), number, loop.memory, ops.barrier)
        else:
            sums = one_group(place, number, 0, {}, extremes.sums_of_nothing(self.rows))
            self._finish(place, sums, number, None, ops.barrier)
        if t.cluster > 1:
            cluster.wait()  # no block ends while others write to it

    def _emit_rings(self, place: Place, number: Any) -> None:
        ring = RingKernel(place, number, self._clusters)

        def finish(sums: Sequence[Any], barrier: Callable[[], None]) -> None:
            self._finish(place, sums, number, ring.memory, barrier)

        ring.emit(finish)
        if self.tiling.cluster > 1:
            cluster.arrive()
            cluster.wait()  # no block ends while others write to it

    def _finish(
        self,
        place: Place,
        sums: Sequence[Any],
        number: Any,
        memory: Any,
        barrier: Callable[[], None],
    ) -> None:
        """Leaves what the block has found: sums of columns, or extremes."""
        if self.sums:
            self.sums.store(place, sums, number, memory, barrier)
        elif self.rows.extremes:
            extremes.store(place, sums, barrier)

    @property
    def _clusters(self) -> Any:
        return ops.block_count() // self.tiling.cluster
