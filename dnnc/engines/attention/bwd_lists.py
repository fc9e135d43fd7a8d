# pyright: basic
"""Lists of the blocks of queries that a tile of keys needs, where masks know that by numbers in
memory, as those of documents are, or have a bit for each block of scores.

    before   the least and the largest number of each tile and block (`number_ranges`)
    main     warps list a tile's blocks, then all of the block of threads goes through the list

A list has its two counts, then blocks: those of which a mask may hide some scores, from the front
on, and those of which every score is kept, from the back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from ...codegen import ops
from ...codegen.attention.gradient_region import GradientRegion
from ...codegen.attention.mask_conditions import (
    Blocks,
    Both,
    Condition,
    conjuncts,
    terms,
)
from ...codegen.memory import smem
from ...codegen.output import Output
from ...codegen.region import Access
from ...codegen.state import each, loop
from ...codegen.totals.votes import ballot, count_bits
from ...mlir import arith, ir
from ...target import WARP_THREADS
from .block_mask import TileBits
from .number_ranges import FEW, NumberRanges, Table, conditions_of, numbers_in, tables_of
from .schedule import QueryTile

if TYPE_CHECKING:
    from .bwd_schedule import GradientSchedule, KeyTile, QueryBlocks

_WORD_BYTES = 4
_COUNTS = 2  # words before the blocks of a list


@dataclass(frozen=True)
class Sparsity:
    """Conditions that leave out blocks of queries one by one.

    numbers: conditions on numbers in memory.  masks: of blocks.  rest: all other conditions.
    has_heads: whether query heads that share keys may see other blocks than each other.
    """

    numbers: tuple[Condition, ...]
    masks: tuple[Blocks, ...]
    rest: Condition
    has_heads: bool

    @property
    def is_any(self) -> bool:
        return bool(self.numbers or self.masks)


def sparsity_of(parts: GradientRegion, queries: int, keys: int) -> Sparsity:
    """The conditions of a region.  queries, keys: of a step of a tile."""
    extent = parts.dims[-2]
    known = conjuncts(parts.condition)
    numbers = conditions_of(parts.condition, extent, queries)
    masks = [part for part in known if isinstance(part, Blocks)]
    if extent.bounds()[1] <= FEW * queries:
        masks = []
    # Blocks of a mask that has none inside a tile's step are seen as a whole.
    aligned = [m for m in masks if TileBits([m], queries, keys, False).is_aligned]
    rest = Both(tuple(part for part in known if part not in numbers and part not in aligned))
    return Sparsity(tuple(numbers), tuple(masks), rest, differs_by_head(parts))


def differs_by_head(parts: GradientRegion) -> bool:
    """Whether query heads that share keys may have other masks, or lengths, than each other."""
    read: list[tuple[Any, Access]] = terms(parts.condition)
    read += [(n.leaf, n.access) for part in conjuncts(parts.condition) for n in numbers_in(part)]
    return (
        any(
            place == ("loop", 1) and parts.region.dims_of(leaf)[axis].constant != 1
            for leaf, access in read
            for axis, place in enumerate(access)
        )
        or any(
            isinstance(part, Blocks) and not part.shared[1] for part in conjuncts(parts.condition)
        )
        or any(
            size.constant != 1
            for source in map(parts.source, ("q", "do"))
            if source.kind == "cut"
            for size in parts.region.dims_of(source.values[0])[1:2]
        )
    )


@dataclass
class BlockLists:
    """See the file's docstring.  buffer: of the workspace.  tables: of numbers."""

    sparsity: Sparsity
    tables: Sequence[Table]
    buffer: str = field(default="")

    @staticmethod
    def of(output: Output, parts: GradientRegion, schedule: GradientSchedule) -> BlockLists | None:
        """The lists of a schedule's tiles; None: no block is left out one by one."""
        t = schedule.tiling
        sparsity = sparsity_of(parts, t.queries, t.keys)
        if not sparsity.is_any:
            return None
        rank = len(parts.dims)
        tables = tables_of(output, parts.region, rank, sparsity.numbers, t)
        found = BlockLists(sparsity, tables)
        words = schedule.tiles * found.heads(schedule) * (schedule.rows + _COUNTS)
        found.buffer = output.workspace("lists", words * _WORD_BYTES)
        return found

    def heads(self, schedule: GradientSchedule) -> int:
        """Lists of a tile."""
        return schedule.tile_heads if self.sparsity.has_heads else 1

    # ---- to go through a list

    def runs(
        self, schedule: GradientSchedule, tile: KeyTile, head: QueryTile
    ) -> list[tuple[Any, Any, bool]]:
        """(first place, end, whether masks hide any of the blocks)."""
        place = self._place(schedule, tile, head)
        some, whole = (
            ops.load(smem.byte_pointer(place, i * _WORD_BYTES), ops.i32_type(), _WORD_BYTES)
            for i in range(_COUNTS)
        )
        rows = schedule.kernel.size(schedule.rows)
        runs: list[tuple[Any, Any, bool]] = [(0, some, True)]
        return runs if self._mixes(schedule) else [*runs, (rows - whole, rows, False)]

    def block(self, schedule: GradientSchedule, tile: KeyTile, head: QueryTile, place: Any) -> Any:
        """The block at a place of a list."""
        at = (place + _COUNTS) * _WORD_BYTES
        pointer = smem.byte_pointer(self._place(schedule, tile, head), at)
        return ops.load(pointer, ops.i32_type(), _WORD_BYTES)

    def _mixes(self, schedule: GradientSchedule) -> bool:
        """Whether all blocks come in one run, in order."""
        return schedule.tiling.is_ordered

    def _place(self, schedule: GradientSchedule, tile: KeyTile, head: QueryTile) -> Any:
        lists, kernel = self.heads(schedule), schedule.kernel
        number = ops.to_i64(tile.number)
        if lists > 1:
            own = ops.to_i64(schedule.own_head(tile, head))
            number = number * lists + own
        words = ops.to_i64(kernel.size(schedule.rows) + _COUNTS)
        at = number * words * _WORD_BYTES
        return smem.byte_pointer(kernel.workspace(self.buffer, is_exclusive=False), at)

    # ---- to make it

    def fill(self, schedule: GradientSchedule, tile: KeyTile) -> None:
        """Makes a tile's lists, by all warps; a barrier follows."""
        warps = schedule.kernel.threads // WARP_THREADS
        warp = ops.thread_id() >> 5

        @each(warp, self.heads(schedule), warps)
        def _(own: Any) -> None:
            self._fill_head(schedule, tile, schedule.query_head(tile, own))

    def _fill_head(self, s: GradientSchedule, tile: KeyTile, head: QueryTile) -> None:
        lane = ops.thread_id() & (WARP_THREADS - 1)
        below = (ops.const(1) << lane) - 1
        blocks = s.query_blocks(tile, head)
        place, rows = self._place(s, tile, head), s.kernel.size(s.rows)

        def put(which: Any, at: Any, block: Any) -> None:
            with ops.if_(which):
                offset = (at + _COUNTS) * _WORD_BYTES
                ops.store(smem.byte_pointer(place, offset), block, _WORD_BYTES)

        @loop(blocks.first, blocks.end, WARP_THREADS, state=(0, 0))
        def counts(first: Any, now: tuple[Any, Any]) -> tuple[Any, Any]:
            some, whole = now
            block = first + lane
            is_seen, is_whole = self._state(s, tile, head, blocks, block)
            votes = ballot(is_seen), ballot(is_whole)
            is_some = ops.both(is_seen, _not(is_whole))
            some_votes = votes[0] & (votes[1] ^ -1)
            before = count_bits(some_votes & below)
            put(is_some, some + before, block)
            if not self._mixes(s):
                back = whole + count_bits(votes[1] & below) + 1
                put(is_whole, rows - back, block)
            return some + count_bits(some_votes), whole + count_bits(votes[1])

        with ops.if_(ops.compare("eq", lane, 0)):
            for i, count in enumerate(counts):
                ops.store(smem.byte_pointer(place, i * _WORD_BYTES), count, _WORD_BYTES)

    def _state(
        self, s: GradientSchedule, tile: KeyTile, head: QueryTile, blocks: QueryBlocks, block: Any
    ) -> tuple[Any, Any]:
        """(whether any score of a block is kept, whether all are), i1."""
        kernel, t = s.kernel, s.tiling
        is_there = ops.less(block, blocks.end)
        block = ops.minimum(block, kernel.size(s.rows) - 1)
        first = block * t.queries
        last_row, end = (kernel.size(n) - 1 for n in (s.queries, s.keys))
        rows = first, ops.minimum(first + (t.queries - 1), last_row)
        column = tile.key // t.keys
        is_seen, may_hide = is_there, None
        if self.sparsity.masks:
            bits = TileBits(self.sparsity.masks, t.queries, t.keys, False)
            own = bits.any(s.walk(), head.batch, rows, column, end)
            is_seen = ops.both(is_seen, own)
        if self.sparsity.numbers:
            load = partial(s.load_term, head)
            known = NumberRanges(kernel, self.sparsity.numbers, self.tables, t.queries, t.keys)
            is_seen = ops.both(is_seen, known.may_hold(head.batch, rows, column, end, load))
            may_hide = known.may_fail(head.batch, rows, column, end, load)
            if may_hide is None:
                return is_seen, _never()
        if self._mixes(s):
            return is_seen, _never()
        inside = ops.both(blocks.whole <= block, block < blocks.whole_end)
        is_whole = ops.both(is_seen, inside)
        return is_seen, is_whole if may_hide is None else ops.both(is_whole, _not(may_hide))


def _never() -> Any:
    return ops.const(0, ir.IntegerType.get_signless(1))


def _not(condition: Any) -> Any:
    one = ops.const(1, ir.IntegerType.get_signless(1))
    return arith.XOrIOp(condition, one).result
