# pyright: basic
"""Reductions at the exit of a product on Hopper's main loop: their elements lie in several tiles.

Each warp combines what it has of its tile in a fixed order and writes partial results to the
workspace; a second kernel combines those, in order, and does what follows.  Where there may be
many, a kernel between the two combines runs of them.  The result is the same in every run.

    kept axes   rows:     a partial per row, of each warpgroup's columns of a tile
                columns:  a partial per column, of each warp's rows of a tile
                neither:  a partial of each warp of each tile

Rows and columns are those of the instruction; `MatrixSpace.axes` says what they are in the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from ..mlir import arith
from .matrices_sm90 import Matrices, SpaceAxes
from .tile_sm90 import Tiling

_WARPS = 4  # of a warpgroup
_THREADS = 256  # of the kernels that combine partials
_COLUMNS = 32  # of elements that a block of them has, where there are several
_MOST_PARTS = 512  # partials of an element that one kernel combines
_RUN = 16  # partials of a thread of the kernel between


@dataclass
class Exit:
    """One reduction at the exit.

    operation: the reducing generic.  name: of its partials' buffer, without the kernel's.
    kept: loops over its result's elements.  parts: partials of each.
    """

    operation: Any
    name: str
    kept: Loops
    parts: Expr
    keeps_row: bool
    keeps_column: bool

    @property
    def element(self) -> Any:
        return ops.element_of(self.operation.results[0].type.element_type)

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return self.element.width // 8

    @property
    def elements(self) -> Expr:
        return self.kept.fragments

    @property
    def loops(self) -> Any:
        """Equal for exits that one kernel can finish."""
        return self.kept.groups, str(self.elements), str(self.parts)


class Exits:
    """The reductions at the exit of one kernel; none: everything here does nothing."""

    def __init__(self, kernel: Kernel, region: Region, tiling: Tiling, matrices: Matrices):
        self.kernel, self.region, self.tiling = kernel, region, tiling
        operations = exit_reductions(region, tiling.outputs)
        axes = matrices.space.axes
        assert axes or not operations, "reductions of a product that has no exits"
        self.matrices, self.axes = matrices, axes or SpaceAxes((), (), {})
        self.exits = [self._exit(i, op) for i, op in enumerate(operations)]
        self.totals: dict[Any, Any] = {}
        self.columns: dict[Any, list[Any]] = {}

    def _exit(self, i: int, operation: Any) -> Exit:
        dims = self.region.dims_of(inputs_of(operation)[0])
        reduced = set(reduced_axes(operation))
        kept = tuple((a,) for a, n in enumerate(dims) if a not in reduced and n.constant != 1)
        keeps_row = _keeps(self.axes.rows, dims, reduced)
        keeps_column = _keeps(self.axes.columns, dims, reduced)
        batch = self.matrices.batch
        parts = product(batch.dims[axis] for axis in self._batch(reduced, kept=False))
        if not keeps_column:
            parts = parts * self._column_parts
        if not keeps_row:
            parts = parts * self._row_parts * _WARPS
        return Exit(operation, f"partial{i}", Loops(dims, kept), parts, keeps_row, keeps_column)

    def _batch(self, reduced: set[int], *, kept: bool) -> Iterator[int]:
        """The loops over matrices whose axes are kept, or are reduced."""
        for (loop,) in self.matrices.batch.groups:
            if (self.axes.batch[loop] not in reduced) == kept:
                yield loop

    @property
    def _row_parts(self) -> Expr:
        """Warpgroups' parts along the rows of a matrix, with those past its end."""
        t = self.tiling
        return ceildiv(self.matrices.sizes[0], t.rows) * (t.rows // t.part[0])

    @property
    def _column_parts(self) -> Expr:
        t = self.tiling
        return ceildiv(self.matrices.sizes[1], t.columns) * (t.columns // t.own_columns)

    # ---- in the first kernel

    def add(self, tile: Any, fragment: Any) -> None:
        """Adds a fragment to the running totals of its thread."""
        for i, found in enumerate(self.exits):
            self._add(tile, fragment, i, found)

    def _add(self, tile: Any, fragment: Any, i: int, found: Exit) -> None:
        value = tile.value(inputs_of(found.operation)[0], fragment)
        rows, columns = not found.keeps_row, not found.keeps_column
        value = tile.inside(found.operation, value, fragment, rows=rows, columns=columns)
        row = (fragment.block, fragment.half) if found.keeps_row else None
        column = fragment.register - 2 * fragment.half if found.keeps_column else None
        combine = reduce.combiner(tile.walk, found.operation)
        if not found.keeps_column:  # a register less than pairs would take
            value = reduce.lanes(value, combine)
        entry = self.totals.get((i, row, column))
        if entry is not None:
            value, fragment = combine(entry[0], value), entry[1]
        self.totals[i, row, column] = (value, fragment)

    def fold(self, tile: Any, first: int) -> None:
        """After a chunk of columns, from one of the tile's on: its rows' totals of each column.

        They are spread over the lanes, so that few registers hold them until the tile is done.
        """
        for i, found in enumerate(self.exits):
            if found.keeps_row or not found.keeps_column:
                continue
            keys = [key for key in self.totals if key[0] == i]
            combine = reduce.combiner(tile.walk, found.operation)
            pieces = [self.totals.pop(key)[0] for key in keys]
            per_pair = 2 // self.tiling.pair
            pairs = [ops.concat(pieces[j : j + per_pair]) for j in range(0, len(pieces), per_pair)]
            key, made = (i, first, len(pairs)), _spread(pairs, tile.epilogue.lane, combine)
            if key in self.columns:  # of the rows above
                made = [combine(a, b) for a, b in zip(self.columns[key], made, strict=True)]
            self.columns[key] = made

    def finish(self, tile: Any, own: Any, thread: Any) -> None:
        """Combines the lanes' totals of a tile and writes them."""
        lane, warp = ops.and_(thread, 31), ops.shr(thread, 5)
        for (i, first, count), pairs in self.columns.items():
            self._write_columns(self.exits[i], tile, first, count, pairs, lane, warp)
        for (i, _, _), (total, fragment) in self.totals.items():
            found = self.exits[i]
            combine = reduce.combiner(tile.walk, found.operation)
            if not found.keeps_column:
                total = reduce.across_lanes(total, 4, combine)
            if not found.keeps_row:
                total = reduce.across_lanes(total, 8, combine, step=4)
            self._write(found, tile, fragment, total, lane, warp)
        self.totals, self.columns = {}, {}

    def _write_columns(
        self,
        found: Exit,
        tile: Any,
        first: int,
        count: int,
        pairs: Sequence[Any],
        lane: Any,
        warp: Any,
    ) -> None:
        """Some blocks of columns, which `_spread` has spread over the lanes."""
        step, own, is_writer = _places(count, lane)
        is_writer = ops.both(is_writer, self._is_there(found, tile))
        base, width = self._first_of_part(found, tile, warp), self.tiling.pair
        right = ops.add(ops.add(tile.first_column, first), ops.mul(ops.and_(lane, 3), 2))
        for number, pair in enumerate(pairs):
            block = ops.add(own, number * step)
            column = ops.add(right, ops.mul(block, 8))
            for i in range(0, 2, width):
                at = ops.add(column, i)
                with ops.if_(ops.both(is_writer, tile.is_column(at))):
                    self._store(found, tile, base, ops.part(pair, i, width), None, at)

    def _write(
        self, found: Exit, tile: Any, fragment: Any, total: Any, lane: Any, warp: Any
    ) -> None:
        is_writer = self._is_there(found, tile)
        if not found.keeps_column:
            is_writer = ops.both(is_writer, ops.compare("eq", ops.and_(lane, 3), 0))
        if not found.keeps_row:
            is_writer = ops.both(is_writer, ops.less(lane, 4))
        if found.keeps_row:
            is_writer = ops.both(is_writer, fragment.row.inside)
        if found.keeps_column:
            is_writer = ops.both(is_writer, fragment.column.inside)
        base = self._first_of_part(found, tile, warp)
        with ops.if_(is_writer):
            for i, value in enumerate(ops.elements(total)):
                column = ops.add(fragment.column.kept, i)
                self._store(found, tile, base, value, fragment.row.kept, column)

    def _store(self, found: Exit, tile: Any, base: Any, value: Any, row: Any, column: Any) -> None:
        place = ops.add(base, self._number(found, tile, row, column))
        buffer = self.kernel.workspace(f"{self.kernel.name}.{found.name}")
        pointer = ops.gep(buffer, place, found.element)
        ops.store(pointer, value, found.size * ops.width_of(value))

    def _is_there(self, found: Exit, tile: Any) -> Any:
        """Whether a block's tile begins inside along what is reduced: one of a cluster may lie past
        the end, where there are no partials of it.  None: it does."""
        t, is_there = self.tiling, None
        rows, columns = self.matrices.sizes
        if not found.keeps_row and t.cluster[0] > 1:
            tiles = self.kernel.size(ceildiv(rows, t.rows))
            is_there = ops.less(ops.div(tile.first_row, t.rows), tiles)
        if not found.keeps_column and t.cluster[1] > 1:
            tiles = self.kernel.size(ceildiv(columns, t.columns))
            is_inside = ops.less(ops.div(tile.first_column, t.columns), tiles)
            is_there = ops.both(is_there, is_inside)
        return is_there

    def _number(self, found: Exit, tile: Any, row: Any, column: Any) -> Any:
        """The place of an element among those of the result, row-major."""
        kernel, reduced = self.kernel, set(reduced_axes(found.operation))
        number: Any = 0
        for loop in self._batch(reduced, kept=True):
            number = ops.mul(number, kernel.size(self.matrices.batch.dims[loop]))
            number = ops.add(number, tile.batch[loop].index().base)
        sides = ((self.axes.rows, row, 0), (self.axes.columns, column, 1))
        keeps = (found.keeps_row, found.keeps_column)
        kept = [side for side, keep in zip(sides, keeps, strict=True) if keep]
        for _, inner, side in sorted(kept, key=lambda side: side[0]):
            number = ops.mul(number, kernel.size(self.matrices.sizes[side]))
            number = ops.add(number, inner)
        return number

    def _first_of_part(self, found: Exit, tile: Any, warp: Any) -> Any:
        """Where the partials that a warp writes begin."""
        t, kernel, reduced = self.tiling, self.kernel, set(reduced_axes(found.operation))
        part: Any = 0
        for loop in self._batch(reduced, kept=False):
            part = ops.mul(part, kernel.size(self.matrices.batch.dims[loop]))
            part = ops.add(part, tile.batch[loop].index().base)
        if not found.keeps_column:
            part = ops.mul(part, kernel.size(self._column_parts))
            part = ops.add(part, ops.div(tile.first_column, t.own_columns))
        if not found.keeps_row:
            part = ops.mul(part, kernel.size(self._row_parts))
            part = ops.add(part, ops.div(tile.first_row, t.part[0]))
            part = ops.add(ops.mul(part, _WARPS), warp)
        return ops.mul(part, kernel.size(found.elements))

    # ---- the kernels that follow

    def emit_second(self, output: Output) -> None:
        """Combines the partials of each reduction and stores what follows from them."""
        groups: dict[Any, list[Exit]] = {}
        for found in self.exits:
            output.workspace(found.name, found.parts * found.elements * found.size)
            groups.setdefault(found.loops, []).append(found)
        for i, group in enumerate(groups.values()):
            self._emit_second(output, i, group)

    def _emit_second(self, output: Output, number: int, group: Sequence[Exit]) -> None:
        first = group[0]
        rows = _THREADS // _COLUMNS if first.kept.groups else _THREADS
        blocks = ceildiv(first.elements, _THREADS // rows)
        names, parts = [found.name for found in group], first.parts
        if parts.bounds()[1] > _MOST_PARTS:
            run, sources = rows * _RUN, names
            names, runs = [f"folded{name}" for name in names], ceildiv(parts, run)
            for found, name in zip(group, names, strict=True):
                output.workspace(name, runs * found.elements * found.size)
            kernel = output.kernel(f"fold{number}", _THREADS)
            with kernel.body():
                _Combining(self, kernel, group, sources, parts, rows, run).fold(names)
            output.launch(kernel, (blocks, runs, 1))
            parts = runs
        kernel = output.kernel(f"exit{number}", _THREADS)
        with kernel.body():
            _Combining(self, kernel, group, names, parts, rows, 0).store()
        output.launch(kernel, (blocks, 1, 1))


class _Combining:
    """A kernel that combines partials: a column of threads those of an element, in order.

    sources: buffers of each reduction's, by name.  parts: partials of an element.
    run: those that a block has, by its place along y; 0: all.
    """

    def __init__(
        self, exits: Exits, kernel: Kernel, group: Sequence[Exit], sources: Sequence[str],
        parts: Expr, rows: int, run: int,
    ):  # fmt: skip
        self.exits, self.kernel, self.group, self.rows = exits, kernel, group, rows
        columns = _THREADS // rows
        thread = ops.thread_id()
        column, self.row = ops.rem(thread, columns), ops.div(thread, columns)
        number = ops.add(ops.mul(ops.block_id(), columns), column)
        self.count = kernel.size(group[0].elements)
        self.kept = ops.minimum(number, ops.sub(self.count, 1))
        self.is_writer = ops.both(ops.less(number, self.count), ops.compare("eq", self.row, 0))
        self.leaves: dict[Any, Any] = exits.region.leaves(kernel)
        walk = Walk(kernel, self.leaves, exits.region.symbols)
        combines = [reduce.combiner(walk, found.operation) for found in group]
        start = [reduce.identity(found.operation, 1) for found in group]
        first, end = self.row, kernel.size(parts)
        if run:
            begin = ops.mul(ops.block_id("y"), run)
            first, end = ops.add(begin, self.row), ops.minimum(ops.add(begin, run), end)
        buffers = [self._buffer(name) for name in sources]

        def load(part: Any) -> list[Any]:
            place = ops.add(ops.mul(part, self.count), self.kept)
            return [
                ops.load(ops.gep(buffer, place, found.element), found.element, found.size)
                for buffer, found in zip(buffers, group, strict=True)
            ]

        totals = reduce.accumulate(combines, start, load, first, end, rows)
        self.totals = [
            reduce.across_rows(kernel, f"rows{i}", total, column, self.row, rows, combine)
            for i, (total, combine) in enumerate(zip(totals, combines, strict=True))
        ]

    def _buffer(self, name: str) -> Any:
        return self.kernel.workspace(f"{self.exits.kernel.name}.{name}")

    def fold(self, names: Sequence[str]) -> None:
        """Writes the totals of the block's run."""
        place = ops.add(ops.mul(ops.block_id("y"), self.count), self.kept)
        with ops.if_(self.is_writer):
            for found, name, total in zip(self.group, names, self.totals, strict=True):
                ops.store(ops.gep(self._buffer(name), place, found.element), total, found.size)

    def store(self) -> None:
        """Stores what follows from the totals."""
        region, kept = self.exits.region, self.group[0].kept
        made = {
            found.operation.results[0]: reduce.Total(total)
            for found, total in zip(self.group, self.totals, strict=True)
        }
        with ops.if_(self.is_writer):
            after = Walk(self.kernel, {**self.leaves, **made}, region.symbols)
            at: list[Coordinate] = coordinates_of(
                len(kept.dims), kept.coordinates(self.kernel, self.kept)
            )
            for value, target in region.targets(self.kernel):
                if any(_follows(region, value, total) for total in made):
                    target.store(at, after.value(value, at, 1))


# ---- pairs of columns over the lanes of a warp, which have eight rows of each


def _spread(pairs: Sequence[Any], lane: Any, combine: reduce.Combine) -> list[Any]:
    """Pairs combined over the lanes 4, 8 and 16 apart; each lane is left with some of them.

    Lanes that exchange keep every other pair each, while their number is even.
    """
    for distance in _distances():
        if len(pairs) % 2:
            pairs = [combine(pair, _from_lane(pair, distance)) for pair in pairs]
            continue
        is_upper = ops.compare("ne", ops.and_(lane, distance), 0)
        both = list(zip(pairs[::2], pairs[1::2], strict=True))
        kept = [_chosen(is_upper, odd, even) for even, odd in both]
        sent = [_chosen(is_upper, even, odd) for even, odd in both]
        pairs = [
            combine(own, _from_lane(other, distance)) for own, other in zip(kept, sent, strict=True)
        ]
    return list(pairs)


def _places(count: int, lane: Any) -> tuple[int, Any, Any]:
    """(from one of a lane's pairs to the next, its first one, whether it writes), after `_spread`
    of so many."""
    step, own, is_writer = 1, 0, None
    for distance in _distances():
        bit = ops.compare("ne", ops.and_(lane, distance), 0)
        if count % 2:
            is_lower = ops.compare("eq", ops.and_(lane, distance), 0)
            is_writer = ops.both(is_writer, is_lower)
            continue
        own = ops.add(own, ops.select(bit, step, 0))
        step, count = 2 * step, count // 2
    return step, own, is_writer


def _distances() -> tuple[int, ...]:
    return 16, 8, 4


def _from_lane(pair: Any, distance: int) -> Any:
    return ops.from_elements([reduce.shuffle_xor(e, distance) for e in ops.elements(pair)])


def _chosen(condition: Any, a: Any, b: Any) -> Any:
    return arith.SelectOp(condition, a, b).result


# ---- what leads where


def _keeps(axes: Sequence[int], dims: Sequence[Expr], reduced: set[int]) -> bool:
    """Whether a reduction keeps what counts through some axes."""
    found = {axis in reduced for axis in axes if dims[axis].constant != 1}
    assert len(found) < 2, "a reduction of some of the axes that are counted through together"
    return found != {True}


def _follows(region: Region, value: Any, total: Any) -> bool:
    """Whether a value depends on a reduction's result."""
    whole = tuple(("loop", axis) for axis in range(len(region.dims_of(value))))
    found = region.accesses(value, whole, stop=lambda v: v == total)
    return any(leaf == total for leaf, _ in found)


def exit_reductions(region: Region, outputs: Sequence[str]) -> list[Any]:
    """The reductions that outputs of path "exit" depend on."""
    wanted = [
        value for (value, _), path in zip(region.outputs, outputs, strict=True) if path == "exit"
    ]
    return [
        operation
        for operation in region.generics()
        if is_reduction(operation)
        and any(_follows(region, value, operation.results[0]) for value in wanted)
    ]
