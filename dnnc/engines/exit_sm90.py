# pyright: basic
"""Reductions at the exit of matmul_sm90 whose elements lie in several tiles.

Each warp combines what it has of its tile in a fixed order and writes partial results to the
workspace; a second kernel combines those, in order, and does what follows.  The result is the
same in every run.

    kept axes   rows:     a partial per row, of each tile along the columns
                columns:  a partial per column, of each warp along the rows
                neither:  a partial of each warp of each tile
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..codegen import ops, reduce
from ..codegen.index import Coordinate
from ..codegen.kernel import Kernel
from ..codegen.loops import Loops, coordinates_of
from ..codegen.output import Output
from ..codegen.region import Region
from ..codegen.walk import Walk, inputs_of, is_reduction, reduced_axes
from ..expr import Expr, ceildiv, product
from .tile_sm90 import Tiling

_WARPS = 4  # of a warpgroup
_THREADS = 256  # of the second kernel


@dataclass
class Exit:
    """One reduction at the exit.

    operation: the reducing generic.  workspace: the full name of its partials.
    kept: loops over its result's elements.  parts: partials of each.
    """

    operation: Any
    workspace: str
    kept: Loops
    parts: Expr
    keeps_row: bool
    keeps_column: bool

    @property
    def element(self) -> Any:
        return ops.element_of(self.operation.results[0].type.element_type)

    @property
    def elements(self) -> Expr:
        return self.kept.fragments


class Exits:
    """The reductions at the exit of one kernel; none: everything here does nothing."""

    def __init__(
        self,
        kernel: Kernel,
        region: Region,
        tiling: Tiling,
        row_axis: int,
        column_axis: int,
        operations: Sequence[Any],
    ):
        self.kernel, self.region, self.tiling = kernel, region, tiling
        self.row_axis, self.column_axis = row_axis, column_axis
        self.exits = [self._exit(i, op) for i, op in enumerate(operations)]
        self.totals: dict[Any, Any] = {}

    @staticmethod
    def of(kernel: Kernel, region: Region, tiling: Tiling, axes: tuple[int, int] | None) -> Exits:
        """axes: of the product's dims along the rows and columns; None: there are no exits."""
        operations = exit_reductions(region, tiling.outputs)
        assert axes or not operations, "reductions of a product whose rows are several axes"
        return Exits(kernel, region, tiling, *(axes or (0, 0)), operations)

    def _exit(self, i: int, operation: Any) -> Exit:
        t = self.tiling
        dims = self.region.dims_of(inputs_of(operation)[0])
        reduced = set(reduced_axes(operation))
        kept = tuple((a,) for a, n in enumerate(dims) if a not in reduced and n.constant != 1)
        keeps_row, keeps_column = self.row_axis not in reduced, self.column_axis not in reduced
        parts = product(dims[axis] for axis in reduced if axis < len(dims) - 2)
        if not keeps_column:
            parts = parts * ceildiv(dims[self.column_axis], t.columns)
        if not keeps_row:
            parts = parts * ceildiv(dims[self.row_axis], t.rows) * (t.consumers * _WARPS)
        name = f"{self.kernel.name}.partial{i}"
        return Exit(operation, name, Loops(dims, kept), parts, keeps_row, keeps_column)

    # ---- in the first kernel

    def add(self, tile: Any, fragment: Any) -> None:
        """Adds a fragment to the running totals of its thread."""
        for i, found in enumerate(self.exits):
            value = tile.value(inputs_of(found.operation)[0], fragment)
            value = tile.inside(found.operation, value, fragment, rows=True)
            key = (
                i,
                id(fragment.row) if found.keeps_row else None,
                id(fragment.column) if found.keeps_column else None,
            )
            entry = self.totals.get(key)
            if entry is None:
                self.totals[key] = (value, fragment)
            else:
                combine = reduce.combiner(tile.walk, found.operation)
                self.totals[key] = (combine(entry[0], value), entry[1])

    def finish(self, tile: Any, own: Any, thread: Any) -> None:
        """Combines the warps' totals of a tile and writes them."""
        for (i, _, _), (total, fragment) in self.totals.items():
            found = self.exits[i]
            combine = reduce.combiner(tile.walk, found.operation)
            if not found.keeps_column:
                total = reduce.lanes(total, combine)
                total = reduce.across_lanes(total, 4, combine)
            if not found.keeps_row:
                total = reduce.across_lanes(total, 8, combine, step=4)
            self._write(found, tile, fragment, total, own, thread)
        self.totals = {}

    def _write(
        self, found: Exit, tile: Any, fragment: Any, total: Any, own: Any, thread: Any
    ) -> None:
        lane = ops.and_(thread, 31)
        is_writer = None
        if not found.keeps_column:
            is_writer = ops.compare("eq", ops.and_(lane, 3), 0)
        if not found.keeps_row:
            is_writer = ops.both(is_writer, ops.less(lane, 4))
        if found.keeps_row:
            is_writer = ops.both(is_writer, fragment.row.inside)
        elif self.tiling.cluster[0] > 1:
            is_writer = ops.both(is_writer, self._is_there(tile.first_row, self.row_axis, found))
        if found.keeps_column:
            is_writer = ops.both(is_writer, fragment.column.inside)
        elif self.tiling.cluster[1] > 1:
            column = tile.first_column
            is_writer = ops.both(is_writer, self._is_there(column, self.column_axis, found))
        at = tile.at(fragment)
        part = self._part(found, tile, fragment, at, own, thread)
        base = ops.mul(part, self.kernel.size(found.elements))
        size = found.element.width // 8
        with ops.if_(is_writer):
            for lane_value, i in zip(ops.elements(total), range(ops.width_of(total)), strict=True):
                place = ops.add(base, self._kept_number(found, at, i))
                pointer = ops.gep(self.kernel.workspace(found.workspace), place, found.element)
                ops.store(pointer, lane_value, size)

    def _is_there(self, first: Any, axis: int, found: Exit) -> Any:
        """Whether a block's tile begins inside: one of a cluster may lie past the end."""
        side = self.tiling.rows if axis == self.row_axis else self.tiling.columns
        tiles = ceildiv(found.kept.dims[axis], side)
        return ops.less(ops.div(first, side), self.kernel.size(tiles))

    def _kept_number(self, found: Exit, at: Sequence[Coordinate], i: int) -> Any:
        """The place of an element among those of the result, row-major."""
        number: Any = 0
        for (axis,) in found.kept.groups:
            number = ops.mul(number, self.kernel.size(found.kept.dims[axis]))
            number = ops.add(number, at[axis].index().element(i))
        return number

    def _part(
        self, found: Exit, tile: Any, fragment: Any, at: Sequence[Coordinate], own: Any, thread: Any
    ) -> Any:
        """Which of its partials a warp writes."""
        t, kernel = self.tiling, self.kernel
        dims = found.kept.dims
        part: Any = 0
        for axis in sorted(reduced_axes(found.operation)):
            if axis < len(dims) - 2 and dims[axis].constant != 1:
                part = ops.mul(part, kernel.size(dims[axis]))
                part = ops.add(part, at[axis].index().base)
        if not found.keeps_column:
            part = ops.mul(part, kernel.size(ceildiv(dims[self.column_axis], t.columns)))
            part = ops.add(part, ops.div(tile.first_column, t.columns))
        if not found.keeps_row:
            part = ops.mul(part, kernel.size(ceildiv(dims[self.row_axis], t.rows)))
            part = ops.add(part, ops.div(tile.first_row, t.rows))
            part = ops.add(ops.mul(part, t.consumers), own)
            part = ops.add(ops.mul(part, _WARPS), ops.shr(thread, 5))
        return part

    # ---- the second kernel

    def emit_second(self, output: Output) -> None:
        """Combines the partials of each reduction and stores what follows from it."""
        for i, found in enumerate(self.exits):
            size = found.element.width // 8
            output.workspace(f"partial{i}", found.parts * found.elements * size)
            kernel = output.kernel(f"exit{i}", _THREADS)
            rows = 8 if found.kept.groups else _THREADS
            with kernel.body():
                self._combine(kernel, found, rows)
            output.launch(kernel, (ceildiv(found.elements, _THREADS // rows), 1, 1))

    def _combine(self, kernel: Kernel, found: Exit, rows: int) -> None:
        columns = _THREADS // rows
        thread = ops.thread_id()
        column, row = ops.rem(thread, columns), ops.div(thread, columns)
        number = ops.add(ops.mul(ops.block_id(), columns), column)
        count = kernel.size(found.elements)
        kept = ops.minimum(number, ops.sub(count, 1))
        leaves = self.region.leaves(kernel)
        walk = Walk(kernel, leaves, self.region.symbols)
        combine = reduce.combiner(walk, found.operation)
        element = found.element
        base = kernel.workspace(found.workspace)

        def one(part: Any, carried: Sequence[Any]) -> Sequence[Any]:
            place = ops.add(ops.mul(part, count), kept)
            loaded = ops.load(ops.gep(base, place, element), element, element.width // 8)
            return [combine(carried[0], loaded)]

        start = [reduce.identity(found.operation, 1)]
        (total,) = ops.for_(row, kernel.size(found.parts), rows, start, one)
        total = reduce.across_rows(kernel, "rows", total, column, row, rows, combine)
        is_writer = ops.both(ops.less(number, count), ops.compare("eq", row, 0))
        with ops.if_(is_writer):
            after = Walk(
                kernel,
                {**leaves, found.operation.results[0]: reduce.Total(total)},
                self.region.symbols,
            )
            at = coordinates_of(len(found.kept.dims), found.kept.coordinates(kernel, kept))
            for value, target in self.region.targets(kernel):
                if self._follows(value, found.operation):
                    target.store(at, after.value(value, at, 1))

    def _follows(self, value: Any, operation: Any) -> bool:
        """Whether a value depends on a reduction."""
        total = operation.results[0]
        whole = tuple(("loop", axis) for axis in range(len(self.region.dims_of(value))))
        found = self.region.accesses(value, whole, stop=lambda v: v == total)
        return any(leaf == total for leaf, _ in found)


def exit_reductions(region: Region, outputs: Sequence[str]) -> list[Any]:
    """The reductions that outputs of path "exit" depend on."""
    wanted = [
        value for (value, _), path in zip(region.outputs, outputs, strict=True) if path == "exit"
    ]
    found = []
    for operation in region.generics():
        if not is_reduction(operation):
            continue
        total = operation.results[0]
        for value in wanted:
            whole = tuple(("loop", axis) for axis in range(len(region.dims_of(value))))
            reached = region.accesses(value, whole, stop=lambda v, total=total: v == total)
            if any(leaf == total for leaf, _ in reached):
                found.append(operation)
                break
    return found
