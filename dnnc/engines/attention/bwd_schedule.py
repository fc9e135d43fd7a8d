# pyright: basic
"""Which keys a block of attention's gradient works on, and which blocks of queries these need.

Tiles of one head share its queries and dO, which are to be found in L2: a head's tiles
follow each other.  Where the first keys have the most queries, tiles go by sections of some heads,
in each of which the longest come first, so that the short ones fill up the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.attention.gradient_region import GradientRegion, transposed
from ...codegen.attention.mask_ranges import Ranges, ranges
from ...codegen.kernel import Kernel
from ...codegen.region import Access
from ...codegen.walk.index import Coordinate, Index
from ...codegen.walk.region_walk import Walk
from ...expr import Expr, at_least, ceildiv, minimum, product
from .bwd_tile_sm90 import GradientTiling
from .schedule import QueryTile

_SECTION_BYTES = 16 << 20  # queries, dO and dQ in f32 of a section, which L2 holds
_SHORT_SECTION_BYTES = 8 << 20
_SHORT_QUERIES = 1024
_QUERY_BYTES = 8  # of an element of a query, of dO's and of dQ's in f32 together


@dataclass(frozen=True)
class KeyTile:
    """key: its first.  entry: of the batch.  head: of keys and values."""

    key: Any
    entry: Any
    head: Any


@dataclass(frozen=True)
class QueryBlocks:
    """Blocks of queries of a tile, from `first` to `end`; of those from `whole` to `whole_end`
    masks hide nothing.  Numbers or i32 values."""

    first: Any
    end: Any
    whole: Any
    whole_end: Any


@dataclass
class GradientSchedule:
    """See the file's docstring.  group: query heads that share a head of keys."""

    kernel: Kernel
    parts: GradientRegion
    tiling: GradientTiling
    group: int

    def __post_init__(self) -> None:
        batch, heads, self.queries, self.keys = self.parts.dims
        self.query_heads, self.key_heads = heads, heads // self.group
        self.batch = batch
        self.heads = product((batch, self.key_heads))
        self.rows = ceildiv(self.queries, self.tiling.queries)
        self.columns = ceildiv(self.keys, self.tiling.keys)
        self.condition = transposed(self.parts.condition)

    @property
    def tiles(self) -> Expr:
        return self.heads * self.columns

    @property
    def blocks(self) -> Expr:
        """Blocks of queries of all heads."""
        return product((self.batch, self.query_heads)) * self.rows

    @property
    def has_tail(self) -> bool:
        return self.keys.known_divisor() % self.tiling.keys != 0

    @property
    def has_row_tail(self) -> bool:
        return self.queries.known_divisor() % self.tiling.queries != 0

    # ---- places

    def place(self, number: Any) -> KeyTile:
        """The place of a tile by its number."""
        if self.tiling.is_longest_first:
            head, column = self._in_section(number)
        else:
            columns = at_least(self.columns, 1)
            head = self.kernel.divide(number, columns)
            column = self.kernel.remainder(number, columns, head)
        entry = self.kernel.divide(head, at_least(self.key_heads, 1))
        own = self.kernel.remainder(head, at_least(self.key_heads, 1), entry)
        return KeyTile(ops.mul(column, self.tiling.keys), entry, own)

    def _in_section(self, number: Any) -> tuple[Any, Any]:
        """(head, column of tiles) where heads run fastest inside a section."""
        section = self.section
        tiles = at_least(section * self.columns, 1)
        which = self.kernel.divide(number, tiles)
        inside = self.kernel.remainder(number, tiles, which)
        first = ops.mul(which, self.kernel.size(section))
        height = ops.minimum(
            ops.sub(self.kernel.size(self.heads), first), self.kernel.size(section)
        )
        column = ops.div(inside, height)
        return ops.add(first, ops.sub(inside, ops.mul(column, height))), column

    @property
    def section(self) -> Expr:
        """Heads of a section: as many as L2 holds, and all sections about alike."""
        t = self.tiling
        is_short = self.queries.bounds()[1] <= _SHORT_QUERIES
        held_bytes = _SHORT_SECTION_BYTES if is_short else _SECTION_BYTES
        of_query = _QUERY_BYTES * max(t.depth, t.width) * self.group
        held = minimum(self.heads, Expr.of(held_bytes // of_query) // at_least(self.queries, 1) + 1)
        sections = ceildiv(self.heads, at_least(held, 1))
        return ceildiv(self.heads, at_least(sections, 1))

    def query_head(self, tile: KeyTile, own: Any) -> QueryTile:
        """A query head's place; own: its number among those that share the tile's."""
        head = ops.add(ops.mul(tile.head, self.group), own)
        heads = self.kernel.size(self.query_heads)
        number = ops.add(ops.mul(tile.entry, heads), head)
        return QueryTile(0, {0: Index.of(tile.entry), 1: Index.of(head)}, number)

    def block_number(self, head: QueryTile, block: Any) -> Any:
        """The number of a head's block of queries among all."""
        return ops.add(ops.mul(head.head, self.kernel.size(self.rows)), block)

    # ---- queries

    def query_blocks(self, tile: KeyTile, head: QueryTile) -> QueryBlocks:
        last = ops.add(tile.key, self.tiling.keys - 1)
        if self.has_tail:
            last = ops.minimum(last, ops.sub(self.kernel.size(self.keys), 1))
        found = Ranges.everywhere()
        if self.parts.has_masks:
            found = ranges(self.condition, tile.key, last, lambda *term: self._load(head, *term))
        return self._in_blocks(tile, found)

    def _in_blocks(self, tile: KeyTile, found: Ranges) -> QueryBlocks:
        height, queries = self.tiling.queries, self.kernel.size(self.queries)
        count = self.kernel.size(self.rows)
        first = ops.minimum(ops.div(ops.maximum(found.some, 0), height), count)
        some_end = ops.maximum(ops.minimum(found.some_end, queries), 0)
        end = ops.maximum(ops.ceildiv(some_end, height), first)
        whole: Any = first
        if not (isinstance(found.all, int) and found.all == 0):
            whole = ops.minimum(
                ops.maximum(ops.ceildiv(ops.maximum(found.all, 0), height), first), end
            )
        if isinstance(found.all_end, int):
            whole_end: Any = end if found.all_end else whole
        else:
            # Queries past the last one have no weights, masked or not.
            at = ops.div(ops.maximum(ops.minimum(found.all_end, queries), 0), height)
            is_all = ops.compare("sge", found.all_end, queries)
            whole_end = ops.maximum(ops.minimum(ops.select(is_all, count, at), end), whole)
        if self.has_tail:
            keys = self.kernel.size(self.keys)
            is_cut = ops.less(keys, ops.add(tile.key, self.tiling.keys))
            is_open = whole_end is end
            whole = ops.select(is_cut, end, whole)
            whole_end = end if is_open else ops.select(is_cut, end, whole_end)
        return QueryBlocks(first, end, whole, whole_end)

    def _load(self, head: QueryTile, leaf: Any, access: Access) -> Any:
        """A term of a mask, i32."""
        at: list[Coordinate] = []
        for extent, place in zip(self.parts.region.dims_of(leaf), access, strict=True):
            is_fixed = extent.constant == 1 or place[0] != "loop"
            at.append(Index.of(0) if is_fixed else head.batch[place[1]])
        region = self.parts.region
        walk = Walk(self.kernel, region.leaves(self.kernel), region.symbols)
        return ops.to_i32(walk.value(leaf, at, 1))
