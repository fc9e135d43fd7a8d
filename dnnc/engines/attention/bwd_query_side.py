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
from ...codegen.memory.tensors import MAX_ACCESS_BYTES, GlobalTensor
from ...codegen.memory.tiled_tensor import TiledTensor
from ...codegen.stretch import stretch
from ...codegen.walk.index import Coordinate, Index
from ...codegen.walk.region_walk import Walk, inputs_of
from ...expr import ceildiv, product
from ...mlir import arith
from .bwd_schedule import GradientSchedule, KeyTile, QueryBlocks, is_open
from .bwd_walk import GradientWalk, negated
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

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tiles: dict[int, list[tuple[Sequence[Coordinate], Any]]] = {}

    def _at(
        self, head: QueryTile, tile: KeyTile, row: Any, j: int, half: int, *, is_cut: bool
    ) -> list[Coordinate]:
        query = self._own(tile, half, is_cut=self.schedule.has_tail)
        keys = self._pair(row, j, is_cut=is_cut)
        return [head.batch[0], head.batch[1], query, keys]

    def _rows(self, rows: Any, which: int, j: int) -> tuple[Any, Any]:
        first, second = (ops.splat(number, 2) for number in rows[which])
        return first, second

    @stretch("sum of rows")
    def row_sums(
        self, products: Sequence[Any], tile: KeyTile, head: QueryTile, row: Any,
        before: Sequence[Any], *, is_masked: bool, fetched: Sequence[Sequence[Any]],
    ) -> list[Any]:  # fmt: skip
        """Sums of what delta adds up, one of each of the thread's queries.

        products: dP of a block.  before: the sums of the blocks before.  fetched: by `fetch`.
        """
        walk = self.weight_walks.branch(is_masked=is_masked)
        is_cut = is_masked and self._cuts
        inside = self._inside(tile, row) if is_cut else None
        (value,) = inputs_of(self.parts.delta)
        found = list(before)
        for j in range(len(products) // 4):
            for half in (0, 1):
                place = 4 * j + 2 * half
                self.hands["products"].current = ops.from_elements(list(products[place:][:2]))
                at = self._at(head, tile, row, j, half, is_cut=is_cut)
                self.know_fetched(walk, fetched, at, j, half)
                pair = walk.value(value, at, 2)
                if inside is not None:
                    pair = arith.SelectOp(inside(j, half), pair, ops.zeros(pair.type)).result
                for element in ops.elements(pair):
                    found[half] = arith.AddFOp(found[half], element).result
        return found

    def negated_deltas(self, totals: Sequence[Any], tile: KeyTile, head: QueryTile) -> list[Any]:
        """-delta of each of the thread's queries, of the sums of rows; 0 past the last query."""
        s, found = self.schedule, list[Any]()
        for half, total in enumerate(totals):
            walk = self.weight_walks.branch(is_masked=True)
            query = self._own(tile, half, is_cut=s.has_tail)
            of_row = [head.batch[0], head.batch[1], query, Index.of(0)]
            walk.know(self.parts.delta.results[0], of_row, 1, total)
            delta = walk.value(inputs_of(self.parts.distance)[1], of_row, 1)
            value = negated(self.parts, delta)
            if s.has_tail:
                is_there = ops.less(self._key(tile) + 8 * half, self.kernel.size(s.keys))
                value = arith.SelectOp(is_there, value, ops.f32(0.0)).result
            found.append(value)
        return found

    def _store(
        self, walk: Walk, at: Sequence[Coordinate], tile: KeyTile, row: Any, j: int, half: int
    ) -> None:
        """Stores as the base class does, and in the order F16x16 a tile of 16 x 16 at once."""
        others = list[tuple[Any, GlobalTensor]]()
        tiled = list[tuple[Any, TiledTensor]]()
        for value, target in self.kept:
            if isinstance(target, TiledTensor) and target.tensor.alignment >= MAX_ACCESS_BYTES:
                tiled.append((value, target))
            else:
                others.append((value, target))
        self._store_all(others, walk, at, tile, row, j, half)
        s = self.schedule
        inside = self._key(tile) < self.kernel.size(s.keys) if s.has_tail else None
        if s.has_row_tail:
            first = row + (self.right + 8 * (j // 2 * 2))
            inside = ops.both(inside, first < self.kernel.size(s.queries))
        for number, (value, target) in enumerate(tiled):
            held = self.tiles.setdefault(number, [])
            held.append((at, walk.value(value, at, 2)))
            if len(held) == 4:  # of two blocks of 8 keys, both halves each
                parts = [held[place][1] for place in (0, 2, 1, 3)]
                target.store_tile(held[0][0], parts, inside)
                held.clear()

    @property
    def _cuts(self) -> bool:
        return self.schedule.has_row_tail

    def _inside(self, tile: KeyTile, row: Any) -> Callable[[int, int], Any]:
        left = self.kernel.size(self.schedule.queries) - (row + self.right)

        def pair(j: int, half: int) -> Any:
            lanes: Sequence[Any] = [ops.less(8 * j + i, left) for i in range(2)]
            return ops.from_elements(lanes)

        return pair
