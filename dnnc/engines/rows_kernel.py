# pyright: basic
"""The kernels of engine rows; see the engine for the whole.

    for each group of rows of a block:
        for each level of reductions: load (once, where rows are held), combine
        store what comes after the last
    where columns are summed too: store the block's sums, which a second kernel adds up

A level is the reductions that need those of the levels before, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..codegen import cluster, ops
from ..codegen.fragments import kept_bytes
from ..codegen.kernel import Kernel
from ..codegen.output import Output
from ..codegen.region import Region
from ..expr import Expr, minimum
from ..mlir import nvvm
from . import rows_ring
from .rows_columns import ColumnSums, is_early
from .rows_group import Group
from .rows_ring import RingKernel
from .rows_streamed import StreamedGroup
from .rows_tiling import Place, Rows, RowsTiling


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
            if self.sums and is_early(self.output):
                nvvm.griddepcontrol(nvvm.GridDepActionKind.launch_dependents)
            self._emit_rows(kernel)
        self.output.launch(kernel, (self._grid * t.cluster, 1, 1))
        if self.sums:
            self.sums.emit()

    @cached_property
    def _has_ring(self) -> bool:
        return bool(self.tiling.stages and self.tiling.held and rows_ring.staged(self.rows))

    @property
    def _threads(self) -> int:
        t = self.tiling
        fills = self._has_ring and rows_ring.is_shared(t.row_threads, t.cluster)
        return t.threads + (rows_ring.PRODUCER_THREADS if fills else 0)

    @cached_property
    def _grid(self) -> Expr:
        """Blocks, or clusters of them."""
        t = self.tiling
        if not t.blocks:
            return self.rows.groups
        return minimum(
            self.rows.groups, t.blocks * cluster.at_once(self.output.target.sm_count, t.cluster)
        )

    def _emit_rows(self, kernel: Kernel) -> None:
        t = self.tiling
        rank = nvvm.read_ptx_sreg_cluster_ctarank() if t.cluster > 1 else 0
        place = Place.of(kernel, self.rows, rank)
        number = ops.div(ops.block_id(), t.cluster)
        if self._has_ring:
            self._emit_ring(kernel, place, number)
            return
        if t.slots:
            tensors = [tensor for _, tensor in self.rows.again]
            bytes_ = kept_bytes(tensors, t.vector_elems, t.slots, t.threads)
            place.memory = kernel.dynamic_shared(bytes_)
        if t.cluster > 1:
            cluster.arrive()
        if t.blocks:
            sums = self._emit_groups(place, number)
            if self.sums:
                memory = kernel.dynamic_shared(self.sums.bytes) if self.sums.bytes else None
                self.sums.store(place, sums, number, memory, ops.barrier)
        else:
            self._emit_group(place, number, 0, [])
        if t.cluster > 1:
            cluster.wait()  # no block ends while others write to it

    def _emit_ring(self, kernel: Kernel, place: Place, number: Any) -> None:
        ring = RingKernel(place, number, self._clusters, self.sums.bytes if self.sums else 0)

        def finish(sums: Sequence[Any], barrier: Callable[[], None]) -> None:
            if self.sums:
                self.sums.store(place, sums, number, ring.memory, barrier)

        ring.emit(finish)
        if self.tiling.cluster > 1:
            cluster.arrive()
            cluster.wait()  # no block ends while others write to it

    @property
    def _clusters(self) -> Any:
        return ops.div(nvvm.read_ptx_sreg_nctaid_x(), self.tiling.cluster)

    def _emit_groups(self, place: Place, number: Any) -> list[Any]:
        """One group after the other; gives the sums of columns."""
        t, rows = self.tiling, self.rows

        def group(i: Any, carried: Sequence[Any]) -> Sequence[Any]:
            turn, *sums = carried
            return [ops.xor(turn, 1), *self._emit_group(place, i, turn, sums)]

        zeros = [v for op in rows.columns for v in [rows.zero(op)] * t.held]
        count, start = place.kernel.size(rows.groups), [ops.const(0), *zeros]
        return ops.for_(number, count, self._clusters, start, group)[1:]

    def _emit_group(self, place: Place, number: Any, turn: Any, sums: Sequence[Any]) -> list[Any]:
        if self.tiling.held:
            return Group(place, number, turn, {}).held(sums)
        return StreamedGroup(place, number, turn, {}).streamed()
