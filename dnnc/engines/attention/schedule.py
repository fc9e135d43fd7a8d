# pyright: basic
"""Which tile of queries a block of an attention works on, and which blocks of keys it needs.

Tiles of one head share its keys and values, which are to be found in L2: a head's
tiles follow each other.  Where the last queries attend to the most keys, tiles go by sections of
some heads, in each of which the longest come first, so that the short ones fill up the end.

Heads that share keys and values may share tiles, too (`Packing`): a tile's rows are then queries,
and of each query those heads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol

from ...codegen import ops
from ...codegen.attention.mask_conditions import Condition, conjuncts, terms
from ...codegen.attention.mask_ranges import Ranges, ends_rows, ranges
from ...codegen.attention.region import AttentionRegion
from ...codegen.kernel import Kernel
from ...codegen.region import Access
from ...codegen.state import chosen, repeat
from ...codegen.walk.index import Coordinate, Index
from ...codegen.walk.loops import Loops
from ...codegen.walk.region_walk import Walk
from ...expr import Expr, at_least, ceildiv, minimum, product
from ...mlir import arith, ir
from .block_mask import TileBits
from .number_ranges import NumberRanges, Table, conditions_of

_SECTION_BYTES = 32 << 20  # keys and values of a section, which L2 holds
_SHORT_SECTION_BYTES = 16 << 20
_SHORT_KEYS = 2048


class Tiling(Protocol):
    """The facts of an engine's tiling that a schedule needs; see `sdpa_tile_sm90.SdpaTiling`."""

    @property
    def queries(self) -> int: ...

    @property
    def keys(self) -> int: ...

    @property
    def depth(self) -> int: ...

    @property
    def width(self) -> int: ...

    @property
    def is_longest_first(self) -> bool: ...

    @property
    def row_unit(self) -> int: ...


@dataclass(frozen=True)
class QueryTile:
    """row: its first query, before the tensor's first one it may be.  batch: of the scores' axes.
    head: their number, row-major.  part: which part of its keys, where blocks share these.

    Of packed heads: row: query * heads + head.  batch, head: count those that share as one.
    """

    row: Any
    batch: Mapping[int, Coordinate]
    head: Any
    part: Any = 0


@dataclass(frozen=True)
class RowPlace:
    """A row of the scores.  query: its place along their axis.  batch, head: as of a tile, of the
    scores' own axes."""

    query: Index
    batch: Mapping[int, Coordinate]
    head: Any


@dataclass(frozen=True)
class Packing:
    """Heads that share keys and values, as rows of one tile.

    axis: of the scores.  heads: how many of its entries share one of the keys'.
    """

    axis: int
    heads: int

    def dims(self, dims: Sequence[Expr]) -> tuple[Expr, ...]:
        """Dims of the scores, with those that share counted as one."""
        return tuple(n // self.heads if axis == self.axis else n for axis, n in enumerate(dims))

    def place(self, dims: Sequence[Expr], tile: QueryTile, number: Any, kernel: Kernel) -> RowPlace:
        """The place of a row by its number: query * heads + head."""
        query, own = number // self.heads, number % self.heads
        shared = tile.batch[self.axis].index().base
        batch = {**tile.batch, self.axis: Index(shared * self.heads + own)}
        inner = product(dims[self.axis + 1 : -2])
        outer = kernel.divide(tile.head, inner)
        head = outer * self.heads + own
        if inner.constant != 1:
            rest = kernel.remainder(tile.head, inner, outer)
            head = head * kernel.size(inner) + rest
        return RowPlace(Index(query), batch, head)


@dataclass(frozen=True)
class KeyBlocks:
    """The blocks of keys of some rows, which are gone through from the last to the first.

    first, end: those that are multiplied, one at least.  all, all_end: of those, the ones of which
    every score is kept.  Numbers or i32 values.  is_empty: i1, whether no score is kept, or there
    are no keys; None: it depends on nothing that is loaded.
    """

    first: Any
    end: Any
    all: Any
    all_end: Any
    is_empty: Any = None

    def part(self, number: Any, count: int) -> KeyBlocks:
        """One of `count` parts, in which any has as many blocks as another, or one more; none where
        no score is kept."""
        start, end = self.first, self.end
        if self.is_empty is not None:
            end = ops.select(self.is_empty, start, end)
        if count > 1:
            whole = end - start
            end = start + whole * (number + 1) // count
            start = start + whole * number // count
        return KeyBlocks(start, end, self.all, self.all_end)

    def runs(self, first: Any, end: Any, *, has_masks: bool) -> list[tuple[Any, Any, bool]]:
        """(first, end, whether masks are looked at) of some of the blocks, from the last to the
        first."""
        if not has_masks:
            return [(first, end, False)]
        if isinstance(self.all_end, int) and self.all_end == 0:
            return [(first, end, True)]  # of no block is every score known to be kept
        high = ops.maximum(ops.minimum(self.all_end, end), first)
        if isinstance(self.all, int) and self.all == 0:
            return [(high, end, True), (first, high, False)]
        low = ops.minimum(ops.maximum(self.all, first), high)
        return [(high, end, True), (low, high, False), (first, low, True)]


@dataclass
class Schedule:
    """See the file's docstring."""

    kernel: Kernel
    parts: AttentionRegion
    tiling: Tiling
    group: int  # heads that share keys
    packing: Packing | None = None
    tables: Sequence[Table] = ()  # of numbers that masks compare

    def __post_init__(self) -> None:
        dims = self.parts.dims
        if self.packing is not None:
            dims = self.packing.dims(dims)
        self.loops = Loops(dims, tuple((axis,) for axis in range(len(dims) - 2)))
        self.heads = product(dims[:-2])
        self.queries, self.keys = dims[-2:]
        self.count = self.queries * self.packed
        self.rows = ceildiv(self.count, self.tiling.queries)
        self.may_lack_keys = self.keys.bounds()[0] < 1

    @property
    def packed(self) -> int:
        """Rows of a query in a tile."""
        return 1 if self.packing is None else self.packing.heads

    @property
    def tiles(self) -> Expr:
        return self.heads * self.rows

    # ---- places

    def place(self, number: Any) -> QueryTile:
        """The place of a tile by its number."""
        height = self.tiling.queries
        if self.tiling.is_longest_first:
            head, place = in_section(self.kernel, number, self.section, self.heads, self.rows)
            unit = self.unit
            end = self.kernel.size(ceildiv(self.count, unit) * unit)
            row = end - (place + 1) * height
        else:
            rows = at_least(self.rows, 1)
            head = self.kernel.divide(number, rows)
            row = self.kernel.remainder(number, rows, head) * height
        return self.tile(row, head)

    def tile(self, row: Any, head: Any, part: Any = 0) -> QueryTile:
        """The tile of a row of a head."""
        batch = self.loops.coordinates(self.kernel, head) if self.loops.groups else {}
        return QueryTile(row, batch, head, part)

    def row(self, tile: QueryTile, number: Any) -> RowPlace:
        """Where a row of a tile lies, or the nearest of the tensor."""
        number = self.kept(number)
        if self.packing is None:
            return RowPlace(Index(number), tile.batch, tile.head)
        return self.packing.place(self.parts.dims, tile, number, self.kernel)

    def kept(self, row: Any) -> Any:
        """A row, or the nearest of the tensor."""
        if self.is_whole:
            return row
        last = self.kernel.size(self.count) - 1
        return ops.minimum(self.from_first(row), last)

    def from_first(self, row: Any) -> Any:
        """A row, or 0 where a tile begins before the tensor."""
        return ops.maximum(row, 0) if self._begins_anywhere else row

    def inside(self, row: Any) -> Any:
        """Whether a row is one of the tensor's, i1; None: always."""
        if self.is_whole:
            return None
        is_before_end = row < self.kernel.size(self.count)
        return ops.both(self.not_before(row), is_before_end)

    def not_before(self, row: Any) -> Any:
        """Whether a row is not before the tensor's first, i1; None: always."""
        return row >= 0 if self._begins_anywhere else None

    @property
    def unit(self) -> int:
        """Rows whose multiple a head's tiles end with.  Where later ones take longer, whole ones
        are at the end, and the first may begin before row 0."""
        t = self.tiling
        return t.row_unit if t.is_longest_first else t.queries

    @property
    def is_whole(self) -> bool:
        """Whether all tiles are full."""
        return self.count.known_divisor() % self.tiling.queries == 0

    @property
    def section(self) -> Expr:
        """Heads of a section: as many as L2 holds, and all sections about alike."""
        of_key = 2 * (self.tiling.depth + self.tiling.width)
        is_short = self.keys.bounds()[1] <= _SHORT_KEYS
        keys = Expr.of((_SHORT_SECTION_BYTES if is_short else _SECTION_BYTES) // of_key)
        return even_section(self.heads, (keys // at_least(self.keys, 1) + 1) * self.group)

    # ---- keys

    def blocks(self, tile: QueryTile, first: Any, rows: int) -> KeyBlocks:
        """Key blocks of some rows of a tile, from a row on."""
        last = self.kept(first + (rows - 1)) // self.packed
        first = self.kept(first) // self.packed
        if not self.parts.masks.steps:
            found = Ranges.everywhere()
        elif self._differs_in_tiles():
            found = Ranges.unknown()
        else:
            found = ranges(self._condition, first, last, lambda *term: self._load(tile, *term))
        return self._in_blocks(found)

    @property
    def _condition(self) -> Condition:
        """The condition of key blocks that are multiplied: masks of blocks hold there already,
        where none of their blocks ends inside a tile."""
        is_known = self._bits is not None and self._bits.is_aligned
        return self.parts.masks.beside_blocks if is_known else self.parts.masks.condition

    @property
    def is_sparse(self) -> bool:
        """Whether blocks of keys may be left out one by one."""
        return self._bits is not None or self._numbers is not None

    @cached_property
    def _bits(self) -> TileBits | None:
        if not self.parts.masks.blocks or self.packing is not None:
            return None
        sizes = self.tiling.queries, self.tiling.keys
        return TileBits(self.parts.masks.blocks, *sizes, self._begins_anywhere)

    @cached_property
    def _numbers(self) -> NumberRanges | None:
        if not self.tables:
            return None
        sizes = self.tiling.queries, self.tiling.keys
        conditions = conditions_of(self.parts.masks.condition, self.keys, self.tiling.keys)
        return NumberRanges(self.kernel, conditions, self.tables, *sizes)

    @property
    def _begins_anywhere(self) -> bool:
        """Whether tiles begin at other rows than multiples of theirs, and one before row 0."""
        return self.unit < self.tiling.queries and not self.is_whole

    def sees(self, tile: QueryTile, block: Any) -> Any:
        """Whether masks of blocks, and numbers, let rows of a tile see keys of a block, i1."""
        last = self.kept(tile.row + (self.tiling.queries - 1))
        rows = (self.kept(tile.row), last)
        end = self.kernel.size(self.keys) - 1
        found = None
        if self._bits is not None:
            found = self._bits.any(self.walk(), tile.batch, rows, block, end)
        if self._numbers is not None:
            load = partial(self._load, tile)
            own = self._numbers.may_hold(tile.batch, rows, block, end, load)
            found = ops.both(found, own)
        return ops.const(1, ir.IntegerType.get_signless(1)) if found is None else found

    def seen(self, tile: QueryTile, blocks: KeyBlocks) -> KeyBlocks:
        """Blocks of keys of a tile from the last on that it sees."""
        if not self.is_sparse:
            return blocks
        end = self.next_seen(tile, blocks.end - 1, blocks.first) + 1
        is_empty = end <= blocks.first
        if blocks.is_empty is not None:
            is_empty = arith.OrIOp(is_empty, blocks.is_empty).result
        end = ops.maximum(end, blocks.first + 1)
        return KeyBlocks(blocks.first, end, blocks.all, blocks.all_end, is_empty)

    def next_seen(self, tile: QueryTile, block: Any, first: Any) -> Any:
        """The last block up to this one that a tile sees, or the one before the first."""

        def is_hidden(at: Any) -> Any:
            is_seen = self.sees(tile, ops.maximum(at, 0))
            return ops.select(is_seen, ops.const(0), ops.const(1))

        def is_passed(at: Any) -> Any:
            is_there = at >= first
            if not self.may_lack_keys:
                return ops.both(is_there, is_hidden(at).ne(0))
            # Of no keys, masks have nothing to read.
            is_there = ops.both(is_there, ops.less(0, self.kernel.size(self.keys)))
            return chosen(is_there, at, lambda: is_hidden(at), lambda: ops.const(0)).ne(0)

        @repeat(is_passed, state=ops.value_of(block))
        def found(at: Any) -> Any:
            return at - 1

        return found

    def _differs_in_tiles(self) -> bool:
        """Whether a mask may be another for heads that share a tile."""
        if self.packing is None:
            return False
        moving = ("loop", self.packing.axis)
        return any(
            place == moving and self.parts.region.dims_of(leaf)[axis].constant != 1
            for leaf, access in terms(self.parts.masks.condition)
            for axis, place in enumerate(access)
        )

    def ends_rows(self, *, has_tail: bool) -> bool:
        """Whether one comparison of a score's column says whether it is kept, in place of several;
        has_tail: whether one of them is with the last key."""
        parts = conjuncts(self.parts.masks.condition)
        return (
            bool(self.parts.masks.steps)
            and len(parts) + has_tail > 1
            and ends_rows(self.parts.masks.condition)
        )

    def end_of(self, row: RowPlace) -> Any:
        """The key before which a row keeps all scores, and from which on none; see `ends_rows`."""
        query = row.query.base
        found = ranges(
            self.parts.masks.condition, query, query, lambda *term: self._load(row, *term)
        )
        return ops.minimum(found.some_end, self.kernel.size(self.keys))

    def _in_blocks(self, found: Ranges) -> KeyBlocks:
        t, keys = self.tiling, self.kernel.size(self.keys)
        count = ops.ceildiv(keys, t.keys)
        start = ops.minimum(ops.maximum(found.some, 0) // t.keys, count - 1)
        if self.may_lack_keys:
            start = ops.maximum(start, 0)
        some_end = ops.maximum(ops.minimum(found.some_end, keys), 0)
        end = ops.maximum(ops.ceildiv(some_end, t.keys), start + 1)
        full_end = ops.maximum(ops.minimum(found.all_end, keys), 0) // t.keys
        if isinstance(found.all_end, int) and found.all_end == 0:
            full_end = 0
        full = found.all
        if not (isinstance(full, int) and full == 0):
            full = ops.ceildiv(ops.maximum(full, 0), t.keys)
        is_empty = None
        if terms(self.parts.masks.condition):
            is_empty = found.some >= found.some_end
        if self.may_lack_keys:
            lacks_keys = keys.eq(0)
            is_empty = lacks_keys if is_empty is None else arith.OrIOp(is_empty, lacks_keys).result
        return KeyBlocks(start, end, full, full_end, is_empty)

    def _load(self, tile: QueryTile | RowPlace, leaf: Any, access: Access) -> Any:
        dims = self.parts.region.dims_of(leaf)
        return mask_term(self.walk(), tile, leaf, dims, access)

    def walk(self) -> Walk:
        """A walk over what tiles need to know of their entry of the batch."""
        region = self.parts.region
        return Walk(self.kernel, region.leaves(self.kernel), region.symbols)


# ---- what tiles of queries and tiles of keys share


def even_section(heads: Expr, most: Expr) -> Expr:
    """Heads of a section, at most so many, such that all sections are about alike."""
    held = minimum(heads, most)
    sections = ceildiv(heads, at_least(held, 1))
    return ceildiv(heads, at_least(sections, 1))


def in_section(
    kernel: Kernel, number: Any, section: Expr, heads: Expr, tiles: Expr
) -> tuple[Any, Any]:
    """(head, tile of it) of a number where heads run fastest inside a section; tiles: of a head."""
    of_section = at_least(section * tiles, 1)
    which = kernel.divide(number, of_section)
    inside = kernel.remainder(number, of_section, which)
    first = which * kernel.size(section)
    height = ops.minimum(kernel.size(heads) - first, kernel.size(section))
    tile = inside // height
    return first + (inside - tile * height), tile


def mask_term(
    walk: Walk, tile: QueryTile | RowPlace, leaf: Any, dims: Sequence[Expr], access: Access
) -> Any:
    """A term of a mask, i32; dims: of the leaf."""
    at: list[Coordinate] = []
    for extent, place in zip(dims, access, strict=True):
        is_fixed = extent.constant == 1 or place[0] != "loop"
        at.append(Index.of(0) if is_fixed else tile.batch[place[1]])
    return ops.to_i32(walk.value(leaf, at, 1))
