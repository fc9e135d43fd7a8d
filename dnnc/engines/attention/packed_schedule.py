# pyright: basic
"""The tiles of packed queries: those that sequences have, numbered through.

Of each sequence all heads' tiles follow each other; under a causal mask the longest first, and
whole ones at the sequence's end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.attention.sources import Source
from ...codegen.tiles.tile_table import TileTable
from ...expr import product
from .entry import read
from .schedule import QueryTile, Schedule

WORDS = 2  # that say where a tile is: the number of its head, and its first row


@dataclass
class PackedSchedule(Schedule):
    """source: of the queries.  table: of the tiles of each sequence, in shared memory."""

    source: Source | None = None
    table: TileTable | None = None

    @property
    def is_whole(self) -> bool:
        return False

    def fill(self) -> None:
        """Write the table; the block's first warp does, before its first tile."""
        assert self.table is not None
        self.table.fill(lambda entry: self._rows_of_tiles(entry) * self._heads())

    def _heads(self) -> Any:
        """Heads of a sequence."""
        return self.kernel.size(product(self.parts.dims[1:-2]))

    def length(self, entry: Any) -> Any:
        """Queries of a sequence."""
        assert self.source is not None
        found = ops.to_i32(read(self.kernel, self.parts.region, self.source.values[0], entry))
        return ops.minimum(ops.maximum(found, 0), self.kernel.size(self.queries))

    def lacks(self, tile: QueryTile, row: Any) -> Any:
        """Whether a sequence ends before a row of a tile."""
        return row >= self.length(tile.batch[0].index().base)

    def _rows_of_tiles(self, entry: Any) -> Any:
        return ops.ceildiv(self.length(entry), self.tiling.queries)

    def end(self, entry: Any) -> Any:
        """The row before which a sequence's tiles end."""
        return ops.ceildiv(self.length(entry), self.unit) * self.unit

    def find(self, number: Any, entry: Any) -> tuple[list[Any], Any]:
        """(what `found` takes, entry) of a tile by its number; entry: of a tile before it."""
        assert self.table is not None
        entry, inside = self.table.find(number, entry)
        heads, height = self._heads(), self.tiling.queries
        if self.tiling.is_longest_first:
            place = inside // heads
            head = inside - place * heads
            row = self.end(entry) - (place + 1) * height
        else:
            rows = self._rows_of_tiles(entry)
            head = inside // rows
            row = (inside - head * rows) * height
        return [entry * heads + head, row], entry

    def found(self, words: Sequence[Any]) -> QueryTile:
        """The place of a tile."""
        head, row = words
        return self.tile(row, head)

    def split(self, number: Any) -> tuple[Any, Any]:
        """(entry, head of it) of a head by its number."""
        entry = number // self._heads()
        return entry, number - entry * self._heads()

    def at(self, entry: Any, head: Any, row: Any) -> QueryTile:
        return self.tile(row, entry * self._heads() + head)
