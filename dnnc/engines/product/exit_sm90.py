# pyright: basic
"""Reductions at the exit of a product on Hopper's main loop: their elements lie in several tiles.

Each warp combines what it has of its tile in a fixed order and writes partials (`exits`).

    kept axes   rows:     a partial per row, of each warpgroup's columns of a tile
                columns:  a partial per column, of each warp's rows of a tile
                neither:  a partial of each warp of each tile

Rows and columns are those of the instruction; `MatrixSpace.axes` says what they are in the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...codegen import ops
from ...codegen.kernel import Kernel
from ...codegen.region import Region
from ...codegen.totals import reduce
from ...codegen.walk.region_walk import inputs_of, reduced_axes
from ...expr import Expr, ceildiv
from ...mlir import arith
from .exits import Exit, PartialExits, SpaceAxes, exit_reductions
from .matrices_sm90 import Matrices
from .tile_sm90 import Tiling

_WARPS = 4  # of a warpgroup


class Exits(PartialExits):
    """The reductions at the exit of one kernel; none: everything here does nothing."""

    def __init__(self, kernel: Kernel, region: Region, tiling: Tiling, matrices: Matrices):
        operations = exit_reductions(region, tiling.epilogue.outputs)
        axes = matrices.space.axes
        assert axes or not operations, "reductions of a product that has no exits"
        self.tiling, self.matrices = tiling, matrices
        super().__init__(
            kernel, region, operations, axes or SpaceAxes((), (), {}), matrices.sizes,
            matrices.batch, (self._row_parts * _WARPS, self._column_parts),
        )  # fmt: skip
        self.totals: dict[Any, Any] = {}
        self.columns: dict[Any, list[Any]] = {}

    @property
    def _row_parts(self) -> Expr:
        """Warpgroups' parts along the rows of a matrix, with those past its end."""
        t = self.tiling
        return ceildiv(self.matrices.sizes[0], t.block.rows) * (t.block.rows // t.block.part[0])

    @property
    def _column_parts(self) -> Expr:
        t = self.tiling
        return ceildiv(self.matrices.sizes[1], t.block.columns) * (
            t.block.columns // t.shared.own_columns
        )

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
        value = reduce.taken(found.operation, value, is_row=columns)
        combine = reduce.combiner(tile.walk, found.operation)
        if not found.keeps_column:  # a register less than pairs would take
            value = reduce.lanes(value, combine)
        entry = self.totals.get((i, row, column))
        if entry is not None:
            value, fragment = combine(entry[0], value), entry[1]
        self.totals[i, row, column] = (value, fragment)

    def fold(self, tile: Any, first: int) -> None:
        """Total each column of a chunk over the tile's rows; first: the chunk's first column.

        Totals are spread over the lanes, so that few registers hold them until the tile is done.
        """
        for i, found in enumerate(self.exits):
            if found.keeps_row or not found.keeps_column:
                continue
            keys = [key for key in self.totals if key[0] == i]
            combine = reduce.combiner(tile.walk, found.operation)
            pieces = [self.totals.pop(key)[0] for key in keys]
            per_pair = 2 // self.tiling.epilogue.pair
            pairs = [ops.concat(pieces[j : j + per_pair]) for j in range(0, len(pieces), per_pair)]
            key, made = (i, first, len(pairs)), _spread(pairs, tile.epilogue.lane, combine)
            if key in self.columns:  # of the rows above
                made = [combine(a, b) for a, b in zip(self.columns[key], made, strict=True)]
            self.columns[key] = made

    def finish(self, tile: Any, thread: Any) -> None:
        """Combines the lanes' totals of a tile and writes them."""
        lane, warp = thread & 31, thread >> 5
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
        part, width = self._part(found, tile, warp), self.tiling.epilogue.pair
        right = tile.first_column + first + (lane & 3) * 2
        for number, pair in enumerate(pairs):
            block = own + number * step
            column = right + block * 8
            for i in range(0, 2, width):
                at = column + i
                with ops.if_(ops.both(is_writer, tile.is_column(at))):
                    self._store(found, tile, part, ops.part(pair, i, width), None, at)

    def _write(
        self, found: Exit, tile: Any, fragment: Any, total: Any, lane: Any, warp: Any
    ) -> None:
        is_writer = self._is_there(found, tile)
        if not found.keeps_column:
            is_writer = ops.both(is_writer, (lane & 3).eq(0))
        if not found.keeps_row:
            is_writer = ops.both(is_writer, lane < 4)
        if found.keeps_row:
            is_writer = ops.both(is_writer, fragment.row.inside)
        if found.keeps_column:
            is_writer = ops.both(is_writer, fragment.column.inside)
        part = self._part(found, tile, warp)
        with ops.if_(is_writer):
            for i, value in enumerate(ops.elements(total)):
                column = fragment.column.kept + i
                self._store(found, tile, part, value, fragment.row.kept, column)

    def _store(self, found: Exit, tile: Any, part: Any, value: Any, row: Any, column: Any) -> None:
        number = self.number(found, tile.batch, row, column)
        place = found.join(part, self.kernel.size(found.elements), number)
        pointer = ops.gep(self.buffer(found), place, found.element)
        ops.store(pointer, value, found.size * ops.width_of(value))

    def _is_there(self, found: Exit, tile: Any) -> Any:
        """Whether a block's tile begins inside along what is reduced: one of a cluster may lie past
        the end, where there are no partials of it.  None: it does."""
        t, is_there = self.tiling, None
        rows, columns = self.matrices.sizes
        if not found.keeps_row and t.grid.cluster[0] > 1:
            tiles = self.kernel.size(ceildiv(rows, t.block.rows))
            is_there = tile.first_row // t.block.rows < tiles
        if not found.keeps_column and t.grid.cluster[1] > 1:
            tiles = self.kernel.size(ceildiv(columns, t.block.columns))
            is_inside = tile.first_column // t.block.columns < tiles
            is_there = ops.both(is_there, is_inside)
        return is_there

    def _part(self, found: Exit, tile: Any, warp: Any) -> Any:
        """The number of the part that a warp writes partials of."""
        t, kernel, reduced = self.tiling, self.kernel, set(reduced_axes(found.operation))
        part: Any = 0
        for loop in self._loops(reduced, kept=False):
            part = part * kernel.size(self.matrices.batch.dims[loop])
            part = part + tile.batch[loop].index().base
        if not found.keeps_column:
            part = part * kernel.size(self._column_parts)
            part = part + tile.first_column // t.shared.own_columns
        if not found.keeps_row:
            part = part * kernel.size(self._row_parts)
            part = part + tile.first_row // t.block.part[0]
            part = part * _WARPS + warp
        return part


# ---- pairs of columns over the lanes of a warp, which have eight rows of each


def _spread(pairs: Sequence[Any], lane: Any, combine: reduce.Combine) -> list[Any]:
    """Pairs combined over the lanes 4, 8 and 16 apart; each lane is left with some of them.

    Lanes that exchange keep every other pair each, while their number is even.
    """
    for distance in _distances():
        if len(pairs) % 2:
            pairs = [combine(pair, _from_lane(pair, distance)) for pair in pairs]
            continue
        is_upper = (lane & distance).ne(0)
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
        bit = (lane & distance).ne(0)
        if count % 2:
            is_lower = (lane & distance).eq(0)
            is_writer = ops.both(is_writer, is_lower)
            continue
        own = own + ops.select(bit, step, 0)
        step, count = 2 * step, count // 2
    return step, own, is_writer


def _distances() -> tuple[int, ...]:
    return 16, 8, 4


def _from_lane(pair: Any, distance: int) -> Any:
    return ops.from_elements([reduce.shuffle_xor(e, distance) for e in ops.elements(pair)])


def _chosen(condition: Any, a: Any, b: Any) -> Any:
    return arith.SelectOp(condition, a, b).result
