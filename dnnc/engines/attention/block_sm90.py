# pyright: basic
"""Rings, tiles and barriers that the warpgroups of an sdpa_fwd_sm90 block share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...codegen import ops
from ...codegen.attention.region import AttentionRegion
from ...codegen.attention.sources import Source
from ...codegen.hopper import mbarrier, wgmma
from ...codegen.hopper.pipeline import Cursor, Pipeline
from ...codegen.hopper.tile_ring import TileRing
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.state import chosen
from ...codegen.stretch import stretch
from ...codegen.tiles.numbers import TileNumbers
from ...codegen.tiles.tile_table import TileTable
from ...expr import at_least
from ...target import WARP_THREADS
from .number_ranges import Table
from .packed_schedule import WORDS, PackedSchedule
from .parts_sm80 import PartStore
from .schedule import KeyBlocks, Packing, QueryTile, Schedule
from .sources_sm90 import Rows, SharedQueries
from .tile_sm90 import TRANSPOSERS, SdpaTiling

# body(tile, record) gives the next record: see `codegen.state`.
Body = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Slots:
    """Where a warpgroup is in the rings of keys and of values."""

    keys: Cursor
    values: Cursor


@dataclass(frozen=True)
class Progress:
    """Where a warpgroup is: in the rings of keys and of values, and after how many tiles."""

    keys: Cursor
    values: Cursor
    count: Any

    @staticmethod
    def start() -> Progress:
        return Progress(Cursor(), Cursor(), 0)


@dataclass
class SdpaBlock:
    """A block: its operands, schedule, and rings in shared memory.

    counter: workspace of the number of tiles that are taken, "" for none.  tables: of the ranges of
    numbers that masks compare.  store: where parts of a tile's keys leave what they have; None:
    tiles have no parts.
    """

    kernel: Kernel
    parts: AttentionRegion
    tiling: SdpaTiling
    counter: str
    tables: Sequence[Table] = ()
    store: PartStore | None = None

    def __post_init__(self) -> None:
        t, heights = self.tiling, {"q": wgmma.M, "k": self.tiling.keys, "v": self.tiling.keys}
        places = {"q": (0, 0), "k": (0, 1), "v": (1, 1)}
        if self.parts.queries is not None:
            del places["q"]  # consumers compute them
        sources = {name: self.parts.source(*place) for name, place in places.items()}
        panels = {"q": t.depth_panels, "k": t.depth_panels, "v": t.width_panels}
        packing = Packing(t.few.axis, t.few.heads) if t.few.heads > 1 else None
        dims = self.parts.dims if packing is None else packing.dims(self.parts.dims)

        def operand(name: str) -> Rows:
            source = sources[name]
            axes = source.axes(is_transposed=name == "k")
            given = (self.kernel, self.parts.region, source, axes)
            more = (heights[name], panels[name])
            ends = name == "v" or not self._are_hidden(name, source)
            if name == "q" and packing is not None:
                return SharedQueries(*given, self.parts.dims[:-2], *more, packing)
            return Rows(*given, dims[:-2], *more, ends=ends)

        self.operands = {name: operand(name) for name in sources}
        groups = self.operands["k"].groups
        share = max([group for group in groups if group], default=1)
        made = PackedSchedule if t.entries else Schedule
        self.schedule = made(self.kernel, self.parts, t, share, packing, self.tables)

    def _are_hidden(self, name: str, source: Source) -> bool:
        """Whether nothing that is stored depends on rows of an operand past its entries' ends,
        whatever these are: every score of theirs is hidden, or packed results have none."""
        if not source.is_gathered:
            return False
        masks, lengths = self.parts.masks, source.values[0]
        if name == "k":
            return masks.hide_columns_past(lengths)
        return self.tiling.entries > 0 or masks.hide_rows_past(lengths)

    def lay_out(self) -> None:
        """Makes the rings, in the order in which their addresses are computed."""
        t = self.tiling
        base = self.kernel.dynamic_shared(t.smem_bytes, 1024)
        at = partial(smem.byte_pointer, base)
        self.keys = Pipeline.of(at(t.k_offset), t.k_bytes, t.stages, at(t.k_barriers))
        self.values = Pipeline.of(at(t.v_offset), t.v_bytes, t.stages, at(t.v_barriers))
        self.raw = self.values  # as TMA brings them
        if t.transposes_values:
            self.raw = Pipeline.of(at(t.raw_offset), t.raw_bytes, t.stages, at(t.raw_barriers))
        self.base = base
        self.warp = ops.warp_id()
        self.group = self.warp >> 2
        self.ring = self._tile_ring(at)
        if isinstance(self.schedule, PackedSchedule):
            source = self.parts.source(0, 0)
            assert source.entries is not None, "packed rows"
            self.schedule.source = source
            self.schedule.table = TileTable(self.kernel, at(t.table_offset), source.entries)

    def _tile_ring(self, at: Callable[[int], Any]) -> TileRing | None:
        t = self.tiling
        if not t.tiles.is_dynamic:
            return None
        counter = self.kernel.workspace(self.counter, is_exclusive=False)
        blocks = ops.block_count()
        return TileRing.of(at(t.ring_offset), at(t.ring_barriers), counter, blocks)

    def queries_of(self, own: Any) -> Pipeline:
        """The ring of a consumer warpgroup's queries."""
        t = self.tiling
        data = smem.byte_pointer(self.base, own * (t.q_stages * t.q_bytes))
        first = smem.byte_pointer(self.base, t.q_barriers)
        barriers = smem.byte_pointer(first, own * Pipeline.barrier_bytes(t.q_stages))
        return Pipeline.of(data, t.q_bytes, t.q_stages, barriers)

    @stretch("set up")
    def begin(self) -> None:
        """Initialises the barriers, and what all threads read."""
        t = self.tiling
        warps = t.consumers * wgmma.WARPGROUP_THREADS // WARP_THREADS
        with ops.if_(ops.thread_id().eq(0)):
            self.keys.make(1, warps)
            self.values.make(TRANSPOSERS if t.transposes_values else 1, warps)
            if t.transposes_values:
                self.raw.make(1, TRANSPOSERS)
            for own in range(t.consumers):
                self.queries_of(own).make(1, 1)
            if self.ring is not None:
                self.ring.make(warps + (TRANSPOSERS if t.transposes_values else 0))
            mbarrier.make_visible()
        if isinstance(self.schedule, PackedSchedule):
            with ops.if_(self.warp.eq(0)):
                self.schedule.fill()
        ops.barrier()

    # ---- tiles

    def each_tile(self, state: Any, body: Body, *, takes: bool) -> Any:
        """Runs body(tile, record), which gives the next record, for the tiles of this block; gives
        the last record.

        state: the first record.  takes: whether this thread takes the tiles' numbers for the
        block; others read them, as whole warps.
        """
        first, step = ops.block_id(), ops.block_count()
        schedule = self.schedule
        if isinstance(schedule, PackedSchedule):
            assert schedule.table is not None
            numbers = TileNumbers(first, schedule.table.total(), step, self.ring, takes)
            return numbers.each_handed(
                state, schedule.find, WORDS, lambda words, now: body(schedule.found(words), now)
            )
        end = self.kernel.size(schedule.tiles * self.tiling.parts)
        numbers = TileNumbers(first, end, step, self.ring, takes)
        return numbers.each(state, lambda number, now: body(self._place(number), now))

    def _place(self, number: Any) -> QueryTile:
        """The place of a tile by its number; the first parts of all tiles' keys come first."""
        schedule = self.schedule
        if self.tiling.parts == 1:
            return schedule.place(number)
        tiles = at_least(schedule.tiles, 1)
        part = self.kernel.divide(number, tiles)
        tile = schedule.place(self.kernel.remainder(number, tiles, part))
        return replace(tile, part=part)

    def blocks(self, tile: QueryTile) -> KeyBlocks:
        """The blocks of a tile, the last of which is multiplied."""
        t = self.tiling
        blocks = self.schedule.blocks(tile, tile.row, t.queries)
        if t.parts > 1:
            own = blocks.part(tile.part, t.parts)
            end = ops.maximum(own.end, own.first + 1)
            blocks = replace(own, end=end, is_empty=own.end <= own.first)
        return self.schedule.seen(tile, blocks)

    def query_cursor(self, count: Any) -> Cursor:
        """The slot in the ring of queries of the n-th tile of this block."""
        return Cursor.at(count, self.tiling.q_stages)


def unless(
    condition: Any, state: Any, then: Callable[[], Any], other: Callable[[], None] = lambda: None
) -> Any:
    """The next record: that of `then`, but where a condition holds, what it was.

    other: is done there.  condition: None: never.
    """

    def stay() -> Any:
        other()
        return state

    return then() if condition is None else chosen(condition, state, stay, then)
