# pyright: basic
"""Which keys a block of attention's gradient works on, and which blocks of queries these need.

Tiles of one head share its queries and dO, which are to be found in L2: a head's tiles
follow each other.  Where the first keys have the most queries, tiles go by sections of some heads,
in each of which the longest come first, so that the short ones fill up the end.  So do tiles that
wait for the one before them: few of a head run together then, each well behind the one before.
Where the first keys have the most queries, the last keys come first instead
(`GradientSchedule._starts_from_ends`).

Query heads that share keys come one after the other in a tile, or are split among tiles of the same
keys (`GradientTiling.parts`).  Tiles that are not alike would drift apart from head to head, until
L2 has lost what one reads before the next one does: they go from the last block of queries, which
all of them need, to the first, or back, and through all heads of a block before the next
(`joins_heads`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...codegen import ops
from ...codegen.attention.gradient_region import GradientRegion, transposed
from ...codegen.attention.mask_conditions import FAR
from ...codegen.attention.mask_ranges import Ranges, ranges
from ...codegen.kernel import Kernel
from ...codegen.region import Access
from ...codegen.state import loop
from ...codegen.walk.index import Index
from ...codegen.walk.region_walk import Walk
from ...expr import Expr, at_least, ceildiv, minimum, product
from .bwd_lists import BlockLists
from .entry import read
from .schedule import QueryTile, even_section, in_section, mask_term

if TYPE_CHECKING:
    from .bwd_packed_tiles import PackedTiles

_SECTION_BYTES = 16 << 20  # queries, dO and dQ in f32 of a section, which L2 holds
_SHORT_SECTION_BYTES = 8 << 20
_ORDERED_SECTION_BYTES = 24 << 20
_FALLING_SECTION_BYTES = 48 << 20
_MOST_RISING_BYTES = 8 << 20  # of a head: with longer ones, of which a section has two, it loses
_SHORT_QUERIES = 1024
_QUERY_BYTES = 8  # of an element of a query, of dO's and of dQ's in f32 together
# Heads of keys of a section whose tiles keep step: a block of queries of each is in use.
_HEADS_IN_STEP = 32

# A tile's step: (head, block of queries, record, whether masks hide any of it) gives
# the next record; see `codegen.state`.
Step = Callable[[QueryTile, Any, Any, bool], Any]


@dataclass(frozen=True)
class KeyTile:
    """key: its first.  entry: of the batch.  head: of keys and values.  part: of the query heads
    that share them.  number: of the tile, [entry, head, part, keys].  rises: i1, whether it goes
    from its first block of queries to its last; None: as the tiling says."""

    key: Any
    entry: Any
    head: Any
    part: Any
    number: Any
    rises: Any = None


@dataclass(frozen=True)
class BlockPlace:
    """A block of queries: its head, its number there, and its number among those of all heads."""

    head: QueryTile
    block: Any
    number: Any


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
    """See the file's docstring.  tiling: a `GradientTiling`, or what has the facts that are needed
    here.  group: query heads that share a head of keys.  lists: of blocks that tiles need, where
    masks leave some out one by one.  sees_all: whether tiles go through all blocks, masked or
    not.  may_leave_out: whether kernels leave out what `leaves_out_ends` says.  listed: the tiles
    that the main kernel has, where it leaves out others."""

    kernel: Kernel
    parts: GradientRegion
    tiling: Any
    group: int
    lists: BlockLists | None = field(default=None, kw_only=True)
    sees_all: bool = field(default=False, kw_only=True)
    may_leave_out: bool = field(default=False, kw_only=True)
    listed: PackedTiles | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        batch, heads, self.queries, self.keys = self.parts.dims
        self.query_heads, self.key_heads = heads, heads // self.group
        self.batch = batch
        self.heads = product((batch, self.key_heads))
        self.rows = ceildiv(self.queries, self.tiling.queries)
        self.columns = ceildiv(self.keys, self.tiling.keys)
        self.condition = transposed(self.parts.condition)
        if self.lists is not None:
            self.condition = transposed(self.lists.sparsity.rest)

    @property
    def tile_heads(self) -> int:
        """Query heads of a tile."""
        return self.group // self.tiling.parts

    @property
    def tiles(self) -> Expr:
        return self.units * self.columns

    @property
    def entry_units(self) -> Expr:
        """Units of an entry of the batch."""
        return self.key_heads * self.tiling.parts

    @property
    def units(self) -> Expr:
        """Query heads of tiles of the same keys: all that share these, or a part of them."""
        return self.heads * self.tiling.parts

    @property
    def unit_blocks(self) -> Expr:
        """Blocks of queries of a unit, one after the other in memory."""
        return self.rows * self.tile_heads

    @property
    def units_together(self) -> Expr:
        """Units whose tiles come before those of the next ones."""
        if self._starts_from_ends:
            return self._falling_units
        return self.section if self._goes_by_sections else Expr.of(1)

    @property
    def _goes_by_sections(self) -> bool:
        return self.tiling.is_longest_first or self.tiling.is_ordered

    @property
    def key_tiles(self) -> Expr:
        """Tiles of keys, whose parts count as one."""
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

    @property
    def key_end(self) -> Any:
        """The number of keys; None: all keys of tiles are there."""
        return self.kernel.size(self.keys) if self.has_tail else None

    @property
    def query_end(self) -> Any:
        """The number of queries; None: all queries of blocks are there."""
        return self.kernel.size(self.queries) if self.has_row_tail else None

    # ---- packed sequences

    @cached_property
    def leaves_out_ends(self) -> bool:
        """Whether queries and keys past the end of a sequence are left out: they are nobody's, as
        results are packed and weights are 0 there, and nothing else is made of scores or rows."""
        parts = self.parts
        if not self.may_leave_out or self.lists is not None or self.sees_all:
            return False
        is_packed = all(parts.packed(name) is not None for name in ("dq", "dk", "dv"))
        others = (parts.kept, parts.sums, parts.largest, parts.twins, parts.transposed)
        return is_packed and not any(others) and self._ends_with_operands

    @property
    def _ends_with_operands(self) -> bool:
        """Whether packed results have the lengths of operands, past which weights are 0: engines
        take no others."""
        of_queries, *of_keys = (self._lengths(name) for name in ("dq", "dk", "dv"))
        k, *queries = (self.parts.source(name).values[0] for name in ("k", "q", "do"))
        has_queries = any(found is not None and found == of_queries for found in queries)
        return has_queries and k is not None and all(k == found for found in of_keys)

    def _lengths(self, name: str) -> Any:
        """The SSA tensor of lengths of packed dq, dk or dv."""
        source = self.parts.packed(name)
        assert source is not None, "packed rows"
        return source.values[0]

    def count(self, name: str, entry: Any) -> Any:
        """Rows that a sequence has of dq, dk or dv."""
        found = ops.to_i32(read(self.kernel, self.parts.region, self._lengths(name), entry))
        size = self.queries if name == "dq" else self.keys
        return ops.minimum(ops.maximum(found, 0), self.kernel.size(size))

    def has_queries(self, place: BlockPlace) -> Any:
        """Whether a block of queries has any, i1; None: each has."""
        if not self.leaves_out_ends:
            return None
        entry = place.head.batch[0].index().base
        return ops.less(place.block * self.tiling.queries, self.count("dq", entry))

    def has_tile(self, number: Callable[[], Any]) -> Any:
        """Whether there is a tile that comes as the number-th, i1; None: there is."""
        return None if self.listed is None else self.place(number()).entry >= 0

    # ---- places

    def place(self, number: Any) -> KeyTile:
        """The place of the tile that comes as the number-th."""
        if self.listed is not None:
            return self._listed_place(self.listed, number)
        rises = self._rises(number)
        if self._starts_from_ends:
            rises, head, column = self._place_from_end(number)
            number = head * self.kernel.size(self.columns) + column
        elif self._goes_by_sections:
            head, column = in_section(self.kernel, number, self.section, self.units, self.columns)
            number = head * self.kernel.size(self.columns) + column
        else:
            head, column = self._split(number, self.columns)
        shared, part = self._split(head, Expr.of(self.tiling.parts))
        entry, own = self._split(shared, self.key_heads)
        return KeyTile(column * self.tiling.keys, entry, own, part, number, rises)

    @property
    def _starts_from_ends(self) -> bool:
        """Whether tiles that wait for each other begin with the last keys, whose queries are the
        fewest, and rise: each begins at its own first query, so that those of the keys after it,
        which begin beside it, are two steps ahead of it in every block, and it never waits.

        The longest tiles end last then.  So those of the last section fall, as `descends` says.
        """
        t = self.tiling
        # Of several heads in a tile, which masks may tell apart, `_in_runs` would not know which.
        is_plain = self.group == 1 and self.lists is None and not self.sees_all
        is_short = self._unit_bytes * self.queries.bounds()[1] <= _MOST_RISING_BYTES
        return is_plain and t.is_ordered and t.is_longest_first and is_short and t.form == ""

    @property
    def _falling_units(self) -> Expr:
        """Units of the last section, whose tiles fall."""
        return minimum(self.units, self._held_units(_ORDERED_SECTION_BYTES))

    def _place_from_end(self, number: Any) -> tuple[Any, Any, Any]:
        """(whether the tile rises, unit, tile of it) of the tile that comes as the number-th."""
        size = self.kernel.size
        columns, falling = size(self.columns), self._falling_units
        rising = self.units - falling
        rises = ops.less(number, size(rising * self.columns))
        first = ops.select(rises, 0, size(rising))
        end = ops.select(rises, size(rising), size(self.units))
        section = even_section(rising, self._held_units(self._held_bytes))
        section = ops.select(rises, size(section), size(falling))
        inside = number - first * columns
        first = first + inside // (section * columns) * section
        inside = number - first * columns
        height = ops.minimum(end - first, section)
        column = inside // height
        unit = first + (inside - column * height)
        # `columns - 1` would be kept in a register from one call to the next.
        return rises, unit, ops.select(rises, size(self.columns - 1) - column, column)

    def _listed_place(self, listed: PackedTiles, number: Any) -> KeyTile:
        """All heads of a tile of the list come together."""
        place, unit = self._split(number, self.entry_units)
        entry, column = listed.find(place)
        own, part = self._split(unit, Expr.of(self.tiling.parts))
        units = self.kernel.size(self.entry_units)
        number = (entry * units + unit) * self.kernel.size(self.columns) + column
        return KeyTile(column * self.tiling.keys, entry, own, part, number, self._rises(number))

    def _rises(self, number: Any) -> Any:
        """Whether a tile goes through its blocks of queries the other way round, i1.

        Where a wave of tiles begins together, at the last block, the next begins one by one as
        these end, each at the keys' own queries: those are about where the others are by then.
        Beside parts it takes a register too many.
        """
        t = self.tiling
        if not t.joins_heads or t.is_ordered or t.parts > 1 or self.lists is not None:
            return None
        wave = number // self.kernel.target.sm_count
        return ops.compare("ne", wave & 1, 0)

    def key_place(self, number: Any) -> KeyTile:
        """The place of a tile of keys by its number, [entry, head, keys]."""
        head, column = self._split(number, self.columns)
        entry, own = self._split(head, self.key_heads)
        return KeyTile(column * self.tiling.keys, entry, own, 0, number)

    def block_place(self, number: Any) -> BlockPlace:
        """The place of a block of queries by its number among those of all heads."""
        head, block = self._split(number, self.rows)
        entry, own = self._split(head, self.query_heads)
        place = QueryTile(0, {0: Index.of(entry), 1: Index.of(own)}, head)
        return BlockPlace(place, block, number)

    def _split(self, number: Any, size: Expr) -> tuple[Any, Any]:
        """(quotient, remainder) of a number and a size."""
        size = at_least(size, 1)
        quotient = self.kernel.divide(number, size)
        return quotient, self.kernel.remainder(number, size, quotient)

    @property
    def section(self) -> Expr:
        """Heads of a section, parts of one counted as heads: as many as L2 holds, and all sections
        about alike."""
        t, heads = self.tiling, self.units
        if t.joins_heads:
            return even_section(heads, Expr.of(_HEADS_IN_STEP))
        return even_section(heads, self._held_units(self._held_bytes))

    @property
    def _held_bytes(self) -> int:
        """Bytes of a section."""
        if self.tiling.is_ordered and not self._starts_from_ends:
            return _FALLING_SECTION_BYTES if self.tiling.descends else _ORDERED_SECTION_BYTES
        is_short = self.queries.bounds()[1] <= _SHORT_QUERIES
        return _SHORT_SECTION_BYTES if is_short else _SECTION_BYTES

    def _held_units(self, held_bytes: int) -> Expr:
        """Units of a section of so many bytes."""
        return Expr.of(held_bytes // self._unit_bytes) // at_least(self.queries, 1) + 1

    @property
    def _unit_bytes(self) -> int:
        """Bytes of a unit's query."""
        t = self.tiling
        return _QUERY_BYTES * max(t.depth, t.width) * self.tile_heads

    def query_head(self, tile: KeyTile, own: Any) -> QueryTile:
        """A query head's place; own: its number among those of the tile."""
        inside = tile.part * self.tile_heads + own
        head = tile.head * self.group + inside
        heads = self.kernel.size(self.query_heads)
        number = tile.entry * heads + head
        return QueryTile(0, {0: Index.of(tile.entry), 1: Index.of(head)}, number)

    def unit_of(self, tile: KeyTile) -> Any:
        """The number of a tile's unit."""
        shared = tile.entry * self.kernel.size(self.key_heads) + tile.head
        return shared * self.tiling.parts + tile.part

    def found_here(
        self, tile: KeyTile, head: QueryTile, row: Any
    ) -> tuple[KeyTile, QueryTile, Any]:
        """A step's places, such that addresses of scores are not kept in registers around a
        loop."""
        at = {
            axis: Index.of(ops.opaque(ops.value_of(i.index().base)))
            for axis, i in head.batch.items()
        }
        key = ops.opaque(ops.value_of(tile.key))
        return replace(tile, key=key), replace(head, batch=at), ops.opaque(ops.value_of(row))

    def own_head(self, tile: KeyTile, head: QueryTile) -> Any:
        """A query head's number among those of the tile."""
        first = tile.head * self.group + tile.part * self.tile_heads
        return head.batch[1].index().base - first

    def block_number(self, head: QueryTile, block: Any) -> Any:
        """The number of a head's block of queries among all."""
        return head.head * self.kernel.size(self.rows) + block

    # ---- the order of tiles that add to the same block of dQ

    @property
    def flags(self) -> Expr:
        """Flags of all tiles, one for each writer."""
        return self.tiles * self.tiling.writers

    def step_number(self, tile: KeyTile, head: QueryTile, block: Any) -> Any:
        """A number that grows from step to step of a tile, the same of all tiles that add to a
        block of a head."""
        own = self.own_head(tile, head)
        rows = self.kernel.size(self.rows)
        place = rows - 1 - block if self.tiling.descends else block
        if tile.rises is not None:
            place = ops.select(tile.rises, block, place)
        if self.tiling.joins_heads:
            return place * self.tile_heads + own
        return own * rows + place

    # ---- the steps of a tile

    def each_step(
        self, tile: KeyTile, start: Any, step: Step,
        begin: Callable[[QueryTile], None] = lambda head: None,
    ) -> Any:  # fmt: skip
        """The record after the steps of all query blocks of a tile's heads.

        begin: called before the steps of a head, or of all heads where these go together.
        """
        return self._each_head(
            tile, start, step, lambda tile, blocks: [(blocks.first, blocks.end, True)], begin
        )

    def each_run(
        self, tile: KeyTile, start: Any, step: Step, again: Callable[[], KeyTile] | None = None
    ) -> Any:
        """Walks the steps of a tile, those that look at masks apart from those that need not.

        again: finds the tile once more, so that bounds of its last steps are not kept until then.
        """
        return self._each_head(
            tile, start, step, lambda tile, blocks: self.runs(tile, blocks, again),
            lambda head: None,
        )  # fmt: skip

    def _each_head(
        self, tile: KeyTile, start: Any, step: Step,
        runs: Callable[[KeyTile, QueryBlocks], Iterable[tuple[Any, Any, bool]]],
        begin: Callable[[QueryTile], None],
    ) -> Any:  # fmt: skip
        heads = self.tile_heads

        def of_heads(head: QueryTile, now: Any) -> Any:
            parts: Iterable[tuple[Any, Any, bool]]
            if self.lists is None:
                parts = runs(tile, self.query_blocks(tile, head))
            else:
                parts = self.lists.runs(self, tile, head)
            begin(head)
            for first, end, is_masked in parts:
                now = self._run(tile, head, (first, end), now, step, is_masked)
            return now

        if heads == 1 or self.tiling.joins_heads:
            return of_heads(self.query_head(tile, 0), start)

        @loop(0, heads, state=start)
        def after_all(own: Any, now: Any) -> Any:
            # Else what is made of the number is counted on beside it, in registers of its own.
            return of_heads(self.query_head(tile, ops.opaque(own)), now)

        return after_all

    def _run(
        self, tile: KeyTile, head: QueryTile, blocks: tuple[Any, Any], start: Any, step: Step,
        is_masked: bool,
    ) -> Any:  # fmt: skip
        first, end = blocks

        def listed(block: Any) -> Any:
            return block if self.lists is None else self.lists.block(self, tile, head, block)

        if not self.tiling.descends:

            @loop(first, end, state=start)
            def after_blocks(block: Any, now: Any) -> Any:
                return step(head, listed(block), now, is_masked)

            return after_blocks
        together = self.tile_heads if self.tiling.joins_heads else 1

        @loop(0, (end - first) * together, state=start)
        def after_all(i: Any, now: Any) -> Any:
            passed = i // together
            block = end - 1 - passed
            if tile.rises is not None:
                block = ops.select(tile.rises, first + passed, block)
            own = head if together == 1 else self.query_head(tile, i % together)
            return step(own, listed(block), now, is_masked)

        return after_all

    @property
    def _may_hide(self) -> bool:
        """Whether masks, or the end of the keys, hide scores of some blocks."""
        return self.parts.has_masks or self.has_tail

    def runs(
        self, tile: KeyTile, blocks: QueryBlocks, again: Callable[[], KeyTile] | None = None
    ) -> Iterable[tuple[Any, Any, bool]]:
        """(first block, end, whether masks hide any of it), in the tile's order; again: as of
        `each_run`."""
        if not self._may_hide:
            return [(blocks.first, blocks.end, False)]
        runs: list[tuple[Any, Any, bool]] = [(blocks.first, blocks.whole, True)]
        if blocks.whole is not blocks.whole_end:
            runs.append((blocks.whole, blocks.whole_end, False))
        if blocks.whole_end is not blocks.end:
            runs.append((blocks.whole_end, blocks.end, True))
        if not self.tiling.descends:
            return runs
        runs.reverse()
        if tile.rises is None or len(runs) == 1:
            return runs
        return self._in_runs(tile, blocks, again, has_whole=any(not run[2] for run in runs))

    def _in_runs(
        self, tile: KeyTile, blocks: QueryBlocks, again: Callable[[], KeyTile] | None, *,
        has_whole: bool,
    ) -> Iterator[tuple[Any, Any, bool]]:  # fmt: skip
        """Runs in one order or the other: what masks hide is at both ends, of which one may be
        empty.  Each is made when those before it are."""
        low, high = (blocks.first, blocks.whole), (blocks.whole_end, blocks.end)
        yield *_either(tile.rises, low, high), True
        if has_whole:
            yield blocks.whole, blocks.whole_end, False
        if again is not None:
            tile = again()
            blocks = self.query_blocks(tile, self.query_head(tile, 0))
            low, high = (blocks.first, blocks.whole), (blocks.whole_end, blocks.end)
        yield *_either(tile.rises, high, low), True

    # ---- queries

    def query_blocks(self, tile: KeyTile, head: QueryTile) -> QueryBlocks:
        last = tile.key + (self.tiling.keys - 1)
        if self.has_tail:
            last = ops.minimum(last, self.kernel.size(self.keys) - 1)
        found = Ranges.everywhere()
        if self.parts.has_masks:
            found = ranges(
                self.condition, tile.key, last, lambda *term: self.load_term(head, *term)
            )
        if self.leaves_out_ends:
            some_end = ops.minimum(found.some_end, self.count("dq", tile.entry))
            found = replace(found, some_end=some_end)
        return self._in_blocks(tile, found)

    def _in_blocks(self, tile: KeyTile, found: Ranges) -> QueryBlocks:
        height, queries = self.tiling.queries, self.kernel.size(self.queries)
        count = self.kernel.size(self.rows)
        if self.sees_all:
            return QueryBlocks(0, count, count, count)
        first, end, whole = self._bounds(found)
        if is_open(found):
            whole_end: Any = end
        elif isinstance(found.all_end, int) and found.all_end == 0:
            whole_end = whole
        else:
            # Queries past the last one have no weights, masked or not.
            at = ops.maximum(ops.minimum(found.all_end, queries), 0) // height
            is_all = ops.compare("sge", found.all_end, queries)
            whole_end = ops.maximum(ops.minimum(ops.select(is_all, count, at), end), whole)
        if self.has_tail:
            keys = self.kernel.size(self.keys)
            is_cut = ops.less(keys, tile.key + self.tiling.keys)
            whole = ops.select(is_cut, end, whole)
            whole_end = end if is_open(found) else ops.select(is_cut, end, whole_end)
        return QueryBlocks(first, end, whole, whole_end)

    def _bounds(self, found: Ranges) -> tuple[Any, Any, Any]:
        """(first, end, first whole one) of the blocks that a tile sees."""
        height, queries = self.tiling.queries, self.kernel.size(self.queries)
        first = ops.minimum(ops.maximum(found.some, 0) // height, self.kernel.size(self.rows))
        some_end = ops.maximum(ops.minimum(found.some_end, queries), 0)
        end = ops.maximum(ops.ceildiv(some_end, height), first)
        if isinstance(found.all, int) and found.all == 0:
            return first, end, first
        start = ops.ceildiv(ops.maximum(found.all, 0), height)
        return first, end, ops.minimum(ops.maximum(start, first), end)

    def load_term(self, head: QueryTile, leaf: Any, access: Access) -> Any:
        """A term of a mask, i32."""
        dims = self.parts.region.dims_of(leaf)
        return mask_term(self.walk(), head, leaf, dims, access)

    def walk(self) -> Walk:
        """A walk over what tiles need to know of their entry of the batch."""
        region = self.parts.region
        return Walk(self.kernel, region.leaves(self.kernel), region.symbols)


def is_open(found: Ranges) -> bool:
    """Whether no bound ends the rows that a tile sees whole: of a single tile, whose place is
    known, a bound is a number as well."""
    return isinstance(found.all_end, int) and found.all_end >= FAR


def _either(condition: Any, a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
    """One pair of numbers or the other."""
    first, end = (
        ops.select(condition, *map(ops.value_of, pair)) for pair in zip(a, b, strict=True)
    )
    return first, end
