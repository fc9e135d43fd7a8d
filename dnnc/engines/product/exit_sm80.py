# pyright: basic
"""Reductions at the exit of a product with `mma.sync`: a partial of each tile.

When the product's tile lies in shared memory, the block goes through it once more: threads side by
side have neighbours of what is kept (columns, rows, or nothing), the others a share of what is
reduced, whose totals they add up in their order.  Where both rows and columns are kept, as of a sum
over matrices, each element is a partial.  `exits` says how partials are combined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...codegen import ops
from ...codegen.kernel import Kernel
from ...codegen.region import Region
from ...codegen.state import each, loop
from ...codegen.totals import reduce
from ...codegen.walk.index import Coordinate
from ...codegen.walk.loops import Loops
from ...codegen.walk.region_walk import Walk, inputs_of
from ...expr import Expr, ceildiv
from .exits import Exit, PartialExits, SpaceAxes

Batch = Mapping[int, Coordinate]
# (the walk of g2 at a row and a column of the tile, their coordinates).
At = Callable[[Any, Any], tuple[Walk, Sequence[Coordinate]]]
# Whether a row of the tile, before the matrix' end, is of the product, i1; None: it is.
IsThere = Callable[[Any], Any]


class TileExits(PartialExits):
    """tile: rows and columns of a block's tile; the rest as of `PartialExits`."""

    def __init__(
        self, kernel: Kernel, region: Region, operations: Sequence[Any], axes: SpaceAxes,
        sizes: Sequence[Expr], batch: Loops, tile: Sequence[int],
    ):  # fmt: skip
        parts = [ceildiv(size, side) for size, side in zip(sizes, tile, strict=True)]
        super().__init__(kernel, region, operations, axes, sizes, batch, parts)
        self.tile = tile
        assert max(tile) <= kernel.threads, "a thread for each row, or column, of a tile"

    def write(self, at: At, batch: Batch, first: Sequence[Any], is_there: IsThere) -> None:
        """The partials of a tile, by all threads of a block; first: its row and column.

        is_there: of rows that are reduced; the others all are.
        """
        groups: dict[tuple[bool, bool], list[Exit]] = {}
        for found in self.exits:
            groups.setdefault((found.keeps_row, found.keeps_column), []).append(found)
        for (keeps_row, keeps_column), group in groups.items():
            if keeps_row and keeps_column:  # matrices are reduced alone
                self._write_elements(group, at, batch, first)
            else:
                self._write(group, at, batch, first, is_there)

    def _write_elements(
        self, group: Sequence[Exit], at: At, batch: Batch, first: Sequence[Any]
    ) -> None:
        """Every element of the tile is a partial of its own."""
        size = self.tile[0] * self.tile[1]

        @each(ops.thread_id(), size, self.kernel.threads)
        def _(number: Any) -> None:
            row, column = number // self.tile[1], number % self.tile[1]
            places = [n + inner for n, inner in zip(first, (row, column), strict=True)]
            pairs = zip(places, self.sizes, strict=True)
            insides = [place < self.kernel.size(extent) for place, extent in pairs]
            with ops.if_(ops.both(*insides)):
                here, coordinates = at(row, column)
                for found in group:
                    value = here.value(inputs_of(found.operation)[0], coordinates, 1)
                    value = reduce.taken(found.operation, value, is_row=False)
                    self._store(found, batch, (0, 0), places, value)

    def _write(
        self, group: Sequence[Exit], at: At, batch: Batch, first: Sequence[Any], is_there: IsThere
    ) -> None:
        kept = self._kept_side(group[0])
        columns = 1 if kept is None else self.tile[kept]
        rows = self.kernel.threads // columns
        place, own = ops.thread_id() % columns, ops.thread_id() // columns
        walk, _ = at(0, 0)
        combines = [reduce.combiner(walk, found.operation) for found in group]
        start = [reduce.identity(found.operation, 1) for found in group]
        neutral = [reduce.neutral(found.operation, 1) for found in group]
        end, where = self._reduced(kept, place, first)

        @loop(own, end, rows, state=start)
        def totals(number: Any, now: list[Any]) -> list[Any]:
            row, column, inside = where(number)
            here, coordinates = at(row, column)
            values = [here.value(inputs_of(f.operation)[0], coordinates, 1) for f in group]
            if kept != 0:
                inside = ops.both(inside, is_there(row))
            if inside is not None:
                pairs = zip(values, neutral, strict=True)
                values = [ops.select(inside, value, nothing) for value, nothing in pairs]
            values = [
                reduce.taken(f.operation, value, is_row=False)
                for f, value in zip(group, values, strict=True)
            ]
            triples = zip(combines, now, values, strict=True)
            return [combine(total, value) for combine, total, value in triples]

        numbers = [n // side for n, side in zip(first, self.tile, strict=True)]
        for found, total, combine in zip(group, totals, combines, strict=True):
            name = f"{found.name}_rows"
            total = reduce.across_rows(self.kernel, name, total, place, own, rows, combine)
            is_writer = ops.both(self._is_inside(kept, place, first), ops.compare("eq", own, 0))
            with ops.if_(is_writer):
                self._store(found, batch, numbers, [n + place for n in first], total)

    def _store(
        self, found: Exit, batch: Batch, parts: Sequence[Any], places: Sequence[Any], value: Any
    ) -> None:
        """Writes a partial; parts: its numbers along rows and columns.  places: its row, column."""
        target = self.place(found, batch, parts, *places)
        pointer = ops.gep(self.buffer(found), target, found.element)
        ops.store(pointer, value, found.size)

    def _kept_side(self, found: Exit) -> int | None:
        """0: rows are kept, 1: columns; None: neither."""
        return 0 if found.keeps_row else 1 if found.keeps_column else None

    def _is_inside(self, kept: int | None, place: Any, first: Sequence[Any]) -> Any:
        """Whether what a thread keeps is of the matrix; None: always."""
        if kept is None or self.sizes[kept].known_divisor() % self.tile[kept] == 0:
            return None
        return first[kept] + place < self.kernel.size(self.sizes[kept])

    def _reduced(
        self, kept: int | None, place: Any, first: Sequence[Any]
    ) -> tuple[Any, Callable[[Any], tuple[Any, Any, Any]]]:
        """(how many elements are reduced; number -> row, column, whether it is of the matrix)."""
        left = [
            ops.minimum(side, self.kernel.size(size) - start)
            for side, size, start in zip(self.tile, self.sizes, first, strict=True)
        ]
        if kept is None:

            def place_of(number: Any) -> tuple[Any, Any, Any]:
                row, column = number // self.tile[1], number % self.tile[1]
                return row, ops.minimum(column, left[1] - 1), column < left[1]

            return left[0] * self.tile[1], place_of
        own = ops.minimum(place, left[kept] - 1)  # what is past the end is not written
        if kept == 0:
            return left[1], lambda number: (own, number, None)
        return left[0], lambda number: (number, own, None)
