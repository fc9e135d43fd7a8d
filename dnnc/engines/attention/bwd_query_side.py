# pyright: basic
"""Attention's gradient by tiles of queries: which keys they need, and the work on their scores.

What `GradientSchedule` and `GradientWalk` do for tiles of keys, with both exchanged: of a schedule
`keys` are the tile's own rows, queries, and `queries` are what it goes through, keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...codegen import ops
from ...codegen.attention.mask_ranges import Ranges
from ...codegen.walk.index import Coordinate
from ...expr import ceildiv, product
from .bwd_schedule import GradientSchedule, KeyTile, QueryBlocks, is_open
from .bwd_walk import GradientWalk
from .schedule import QueryTile


@dataclass
class QuerySchedule(GradientSchedule):
    """See the file's docstring.  group: query heads that share a head of keys, of which each has
    its own tiles."""

    def __post_init__(self) -> None:
        self.batch, heads, self.keys, self.queries = self.parts.dims
        self.query_heads = self.key_heads = heads
        self.shared, self.group = self.group, 1
        self.heads = product((self.batch, heads))
        self.rows = ceildiv(self.queries, self.tiling.queries)
        self.columns = ceildiv(self.keys, self.tiling.keys)
        self.condition = self.parts.condition

    @property
    def _may_hide(self) -> bool:
        return True

    def place(self, number: Any) -> KeyTile:
        tile = super().place(number)
        if not self.tiling.is_longest_first:
            return tile
        last = (self.kernel.size(self.columns) - 1) * self.tiling.keys
        return replace(tile, key=last - tile.key)

    def _in_blocks(self, tile: KeyTile, found: Ranges) -> QueryBlocks:
        width, keys = self.tiling.queries, self.kernel.size(self.queries)
        count = self.kernel.size(self.rows)
        if self.sees_all:
            return QueryBlocks(0, count, count, count)
        first, end, whole = self._bounds(found)
        if isinstance(found.all_end, int) and found.all_end == 0:
            return QueryBlocks(first, end, whole, whole)
        # A block that the last key does not fill is masked.
        last = ops.maximum(ops.minimum(found.all_end, keys), 0) // width
        whole_end = ops.maximum(ops.minimum(last, end), whole)
        has_all = is_open(found) and not self.has_row_tail
        return QueryBlocks(first, end, whole, end if has_all else whole_end)


@dataclass
class QueryWalk(GradientWalk):
    """See the file's docstring.  Rows are here numbers in registers: [base, delta], each of both of
    the thread's queries."""

    pair_axis: ClassVar[int] = 3

    def _at(
        self, head: QueryTile, tile: KeyTile, row: Any, j: int, half: int, *, is_cut: bool
    ) -> list[Coordinate]:
        query = self._own(tile, half, is_cut=self.schedule.has_tail)
        keys = self._pair(row, j, is_cut=is_cut)
        return [head.batch[0], head.batch[1], query, keys]

    def _rows(self, rows: Any, which: int, j: int) -> tuple[Any, Any]:
        first, second = (ops.splat(number, 2) for number in rows[which])
        return first, second

    @property
    def _cuts(self) -> bool:
        return self.schedule.has_row_tail

    def _inside(self, tile: KeyTile, row: Any) -> Callable[[int, int], Any]:
        left = self.kernel.size(self.schedule.queries) - (row + self.right)

        def pair(j: int, half: int) -> Any:
            lanes: Sequence[Any] = [ops.less(8 * j + i, left) for i in range(2)]
            return ops.from_elements(lanes)

        return pair
