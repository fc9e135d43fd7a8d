# pyright: basic
"""Sums of columns beside rows: what each block leaves of them, and the kernel that adds it up.

The second kernel may start before the first ends (`is_early`): its blocks are there, and wait, when
the last sums are written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...codegen import ops
from ...codegen.kernel import Kernel
from ...codegen.memory.smem import byte_pointer
from ...codegen.output import Output
from ...codegen.stretch import stretch
from ...codegen.totals import reduce
from ...codegen.walk.loops import coordinates_of
from ...codegen.walk.region_walk import Walk
from ...expr import Expr, ceildiv
from ...mlir import nvvm
from .region import Place, Rows
from .shared_layout import COLUMN_THREADS


class ColumnSums:
    """grid: blocks of the first kernel, or clusters, each of which leaves its sums."""

    def __init__(self, rows: Rows, output: Output, grid: Expr):
        self.rows, self.output, self.grid = rows, output, grid
        self.elements = [ops.element_of(op.results[0].type.element_type) for op in rows.columns]
        self.names = [
            output.workspace(f"column{i}", rows.row_elements * grid * (element.width // 8))
            for i, element in enumerate(self.elements)
        ]

    # ---- the first kernel

    @stretch("sum of parts")
    def store(
        self,
        place: Place,
        sums: Sequence[Any],
        number: Any,
        memory: Any,
        barrier: Callable[[], None],
    ) -> None:
        """Leaves a block's sums.

        number: of the block or cluster.  memory: !llvm.ptr<3> of `SharedLayout.sums_bytes`, which
        has other uses until here.  barrier: of the threads that have sums.
        """
        t = self.rows.tiling
        base = number * place.kernel.size(self.rows.row_elements)
        if t.rows > 1:
            barrier()
            self._share(sums, place, memory)
            barrier()
        for i, name in enumerate(self.names):
            own = sums[i * t.held : (i + 1) * t.held]
            if t.rows > 1:
                self._store_shared(place, i, memory, base)
            else:
                self._store_own(place, name, own, base)

    def _store_own(self, place: Place, name: str, sums: Sequence[Any], base: Any) -> None:
        width = self.rows.tiling.vector_elems
        for fragment, value in zip(place.fragments, sums, strict=True):
            element = ops.element_of(value.type)
            at = base + fragment * width
            with ops.if_(place.inside(fragment)):
                pointer = ops.gep(place.kernel.workspace(name), at, element)
                ops.store(pointer, value, min(16, element.width // 8 * width))

    def _share(self, sums: Sequence[Any], place: Place, memory: Any) -> None:
        """Writes the sums of each of the block's rows to shared memory."""
        t = self.rows.tiling
        for i, element in enumerate(self.elements):
            row = place.row * self.rows.tiling.block_elements
            for u, value in enumerate(sums[i * t.held : (i + 1) * t.held]):
                inside = (place.lane + u * t.row_threads) * t.vector_elems
                pointer = ops.gep(self._area(memory, i), row + inside, element)
                ops.store(pointer, value, min(16, element.width // 8 * t.vector_elems))

    def _area(self, memory: Any, i: int) -> Any:
        return byte_pointer(memory, self.rows.layout.sums_before(i))

    def _store_shared(self, place: Place, i: int, memory: Any, base: Any) -> None:
        """Adds up the block's rows, whose columns all threads share."""
        t, kernel, width = self.rows.tiling, place.kernel, self.rows.narrow.width
        element, op = self.elements[i], self.rows.columns[i]
        combine = reduce.combiner(Walk(kernel, {}, self.rows.region.symbols), op)
        bytes_, area = element.width // 8 * width, self._area(memory, i)
        type_, of_block = ops.vector_type(element, width), self.rows.tiling.block_elements
        for step in range(-(-of_block // (width * t.threads))):
            at = (ops.thread_id() + step * t.threads) * width
            column = self._column(place, at)
            is_some = column < kernel.size(self.rows.row_elements)
            with ops.if_(ops.both(at < of_block, is_some)):
                total = None
                for row in range(t.rows):
                    pointer = ops.gep(area, at + row * of_block, element)
                    value = ops.load(pointer, type_, min(16, bytes_))
                    total = value if total is None else combine(total, value)
                pointer = ops.gep(kernel.workspace(self.names[i]), base + column, element)
                ops.store(pointer, total, min(16, bytes_))

    def _column(self, place: Place, at: Any) -> Any:
        """The element of the row that is the block's n-th."""
        t = self.rows.tiling
        if t.has_parts or t.cluster == 1:
            return place.rank * self.rows.tiling.block_elements + at
        run = t.row_threads * t.vector_elems
        before = at // run * (t.cluster - 1) + place.rank
        return before * run + at

    # ---- the second kernel

    def emit(self) -> None:
        kernel = self.output.kernel("columns", COLUMN_THREADS)
        kernel.min_blocks = 1  # else the assembler aims at five, for some sizes, and spills
        with kernel.body():
            self._emit_columns(kernel)
        blocks = ceildiv(self.rows.narrow.fragments, self.rows.tiling.totals.side)
        self.output.launch(kernel, (blocks, 1, 1), programmatic=self.rows.tiling.is_early)

    @stretch("sum of parts")
    def _emit_columns(self, kernel: Kernel) -> None:
        """Adds up what the blocks left, and stores what comes after."""
        rows, side, width = self.rows, self.rows.tiling.totals.side, self.rows.narrow.width
        thread = ops.thread_id()
        column, row = thread & (side - 1), thread >> (side.bit_length() - 1)
        fragment = ops.block_id() * side + column
        count = kernel.size(rows.narrow.fragments)
        clamped = ops.minimum(fragment, count - 1)
        elements = kernel.size(rows.row_elements)
        leaves: dict[Any, Any] = rows.region.leaves(kernel)
        walk = Walk(kernel, leaves, rows.region.symbols)
        combines = [reduce.combiner(walk, op) for op in rows.columns]

        def load(i: Any) -> list[Any]:
            place = i * elements + clamped * width
            found = []
            for name, element in zip(self.names, self.elements, strict=True):
                # The first kernel may still write it when this one starts.
                memory = kernel.workspace(name, is_exclusive=not self.rows.tiling.is_early)
                type_ = ops.vector_type(element, width)
                pointer = ops.gep(memory, place, element)
                found.append(ops.load(pointer, type_, min(16, element.width // 8 * width)))
            return found

        if self.rows.tiling.is_early:
            nvvm.griddepcontrol(nvvm.GridDepActionKind.wait)
        start = [reduce.identity(op, width) for op in rows.columns]
        step = COLUMN_THREADS // side
        totals = reduce.accumulate(combines, start, load, row, kernel.size(self.grid), step)
        totals = [
            reduce.across_block(kernel, f"columns{i}", total, side, combine)
            for i, (total, combine) in enumerate(zip(totals, combines, strict=True))
        ]
        with ops.if_(ops.both(fragment < count, thread < side)):
            for op, total in zip(rows.columns, totals, strict=True):
                leaves[op.results[0]] = reduce.Total(total)
            after = Walk(kernel, leaves, rows.region.symbols)
            at = coordinates_of(len(rows.dims), rows.narrow.coordinates(kernel, fragment))
            for value, target in rows.region.targets(kernel):
                if rows.is_of_columns(value):
                    target.store(at, after.value(value, at, width))
