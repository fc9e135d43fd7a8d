# pyright: basic
"""The epilogue of matmul_sm90 and conv_sm90: g2 on the accumulators, where they are.

A warpgroup's accumulators are worked through 64 rows at a time, in chunks of columns:

    take the chunk of each staged load; walk g2 on pairs of neighbours; store direct outputs and
    booleans (`bits_sm90`); write the chunk of each staged output to shared memory; one thread
    starts its copy

A reduction along the columns whose row lies in one tile is part of the walk: the row of a
fragment lies in the registers of four lanes.  Other reductions end in `exits`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...codegen import ops
from ...codegen.hopper import tma, wgmma
from ...codegen.hopper.pipeline import Cursor, Pipeline
from ...codegen.hopper.staged_load import StagedLoad
from ...codegen.hopper.staged_store import StagedStore
from ...codegen.hopper.wgmma import AccumulatorLayout
from ...codegen.kernel import Kernel
from ...codegen.memory import l2
from ...codegen.memory.smem import byte_pointer, pointer_to
from ...codegen.region import Region
from ...codegen.state import loop
from ...codegen.stretch import stretch
from ...codegen.tiles.schedule import TilePlace
from ...codegen.totals import reduce
from ...codegen.totals.row_exchange import RowExchange
from ...codegen.walk.index import Coordinate, Index
from ...codegen.walk.region_walk import InHand, Walk, inputs_of
from ...mlir import arith, nvvm
from .bits_sm90 import QuadBits
from .epilogue_loads_sm90 import Loads
from .exit_sm90 import Exits
from .fragments_sm90 import Edge, Fragment
from .matrices_sm90 import Matrices
from .parted_sm90 import PartedStore
from .scatter_sm90 import scatter
from .tile_sm90 import Tiling

_FIRST_BARRIER = 1  # named barriers of the consumer warpgroups; 0 is the block's
_QUAD = 4  # lanes that hold a row
_STAGED = ("tma", "phases", "scattered")  # paths of outputs through shared memory


@dataclass
class Epilogue:
    """The part that the epilogues of all tiles of a kernel share.

    staging: i32 address of shared memory for stores and loads.  own: the warpgroup among the
    consumers.  thread: in the warpgroup.  exchange: of the first warpgroup's rows with other
    blocks of the cluster.  rank: of the block among those.
    """

    kernel: Kernel
    region: Region
    tiling: Tiling
    matrices: Matrices
    address: Any
    exchange: RowExchange
    rank: Any

    def __post_init__(self) -> None:
        t = self.tiling
        self.layout = AccumulatorLayout(t.shared.own_columns)
        arguments = list(self.region.arguments.items())
        self.loads = [
            (
                arguments[place][0],
                StagedLoad(self._loaded_box(arguments[place][1]), t.epilogue.is_transposed),
            )
            for place in t.epilogue.loads
        ]
        self.stores = [
            (place, StagedStore(self._box(tensor), t.epilogue.is_transposed, t.kept_columns))
            for place, (_, tensor) in enumerate(self.region.outputs)
            if t.epilogue.outputs[place] in _STAGED
        ]
        self.load_maps = [tma.map_argument(self.kernel, load.box) for _, load in self.loads]
        self.store_maps = {
            place: [tma.map_argument(self.kernel, box) for box in self._store_boxes(store)]
            for place, store in self.stores
            if t.epilogue.outputs[place] == "tma" and place not in self.region.parted
        }
        self.parted = {
            place: PartedStore(self.kernel, store, self.region.parted[place], self.matrices.space)
            for place, store in self.stores
            if t.epilogue.outputs[place] == "tma" and place in self.region.parted
        }
        self.phases = {
            place: self.matrices.space.phase_store(
                tensor, t.shared.buffer_columns, wgmma.M, t.shared.last_columns
            )
            for place, (_, tensor) in enumerate(self.region.outputs)
            if t.epilogue.outputs[place] == "phases"
        }
        self.exits = Exits(self.kernel, self.region, t, self.matrices)

    def _box(self, tensor: Any) -> tma.Box:
        return self.matrices.space.box(tensor, self.tiling.shared.buffer_columns, wgmma.M)

    def _loaded_box(self, tensor: Any) -> tma.MovedBox:
        columns = self.tiling.shared.buffer_columns
        return self.matrices.space.loaded_box(tensor, columns, wgmma.M)

    def _store_boxes(self, store: StagedStore) -> list[tma.Box]:
        """Boxes of a buffer that copies store: all of it, and of a group the rows up to its end, or
        the columns of a row's last buffer where they are fewer."""
        shared = self.tiling.shared
        if self.tiling.grid.groups:
            return tma.with_parts(store.box)
        if shared.last_columns == shared.buffer_columns:
            return [store.copied]
        rows, columns = store.box.extents
        assert columns == shared.buffer_columns, "columns of a transposed chunk lie along one axis"
        return [store.copied, replace(store.box, extents=(rows, shared.last_columns))]

    def _corner(self, box: tma.Box, there: TilePlace) -> list[Any]:
        return self.matrices.space.corner(box, there.batch, there.row, there.column)

    # ---- the loading warp

    def start_loads(self, ring: Pipeline, tile: TilePlace, cursor: Cursor) -> Cursor:
        """Starts the copies of a tile's loads, by one thread; tile: the warpgroup's."""
        t = self.tiling

        @loop(0, t.shared.buffer_uses, state=cursor)
        def end(i: Any, here: Cursor) -> Cursor:
            ring.wait_empty(here)
            ring.expect(here, self._loaded_bytes)
            self._load_buffer(ring.slot(here), tile, i, ring.full_barrier(here))
            return here.next(t.shared.load_buffers)

        return end

    def load_stage(
        self, stages: Pipeline, tiles: Sequence[TilePlace], cursor: Cursor, step: int
    ) -> None:
        """Starts the copies of a stage after a tile's last step, by one thread.

        tiles: of the warpgroups that share it.  step: of `SharedLayout.load_steps`.
        """
        t = self.tiling
        first = step * t.shared.loads_per_stage
        numbers = range(first, min(first + t.shared.loads_per_stage, t.shared.buffer_uses))
        stages.expect(cursor, len(numbers) * len(tiles) * self._loaded_bytes)
        for own, tile in enumerate(tiles):
            for number in numbers:
                before = (own * t.shared.loads_per_stage + number - first) * t.shared.load_bytes
                place = byte_pointer(stages.slot(cursor), before)
                self._load_buffer(place, tile, number, stages.full_barrier(cursor))

    @property
    def _loaded_bytes(self) -> int:
        """That TMA brings to a buffer."""
        return sum(load.box.bytes for _, load in self.loads)

    def _load_buffer(self, place: Any, tile: TilePlace, number: Any, barrier: Any) -> None:
        """Starts the copies of a buffer; number: of a warpgroup's tile."""
        t = self.tiling
        block, inner = number // t.shared.row_uses, number % t.shared.row_uses
        there = tile.moved(block * wgmma.M, inner * t.shared.buffer_columns)
        for (_, load), map_ in zip(self.loads, self.load_maps, strict=True):
            self.matrices.space.load(place, map_, load.box, there, barrier)
            place = byte_pointer(place, load.bytes)

    # ---- the consumers

    def begin(self, own: Any) -> None:
        """own: the warpgroup's number among the consumers."""
        self.own = own
        self.thread = ops.thread_id() & (wgmma.WARPGROUP_THREADS - 1)
        self.lane = self.thread & 31
        self.own_exchange = self._exchange_of(own)
        self.store_policy = l2.given_up_first() if self.tiling.epilogue.gives_up_stores else None
        stores = own * (self.tiling.shared.store_buffers * self.tiling.shared.store_bytes)
        self.own_stores = self.address + self.tiling.shared.stores_offset + stores

    def _exchange_of(self, own: Any) -> RowExchange:
        """That of a consumer warpgroup."""
        t, first = self.tiling, self.exchange
        barriers = RowExchange.barrier_bytes(t.epilogue.exchanges)
        return replace(
            first,
            memory=byte_pointer(first.memory, own * t.shared.exchange_bytes),
            barriers=byte_pointer(first.barriers, own * barriers),
        )

    def end(self) -> None:
        """Shared memory lasts until every copy has read it; writes end with the kernel."""
        if self.stores:
            with ops.if_(self.thread.eq(0)):
                tma.wait_read(0)

    @stretch("epilogue")
    def run(
        self,
        place: TilePlace,
        sums: Sequence[Sequence[Sequence[Any]]],
        loads: Loads | None,
        cursor: Cursor | None,
        parity: Any = 0,
    ) -> Cursor | None:
        """The epilogue of a tile.

        place: of the warpgroup's tile.  sums: [product][block of 64 rows][register].
        loads, cursor: of what is staged; None: nothing is.  parity: of the tile, 0 and 1
        alternately.
        """
        t = self.tiling
        tile = _Tile(self, place, sums, parity)
        number = 0
        for block in range(t.block.blocks_of_rows):
            for first in range(0, t.shared.own_columns, t.shared.buffer_columns):
                there = place.moved(block * wgmma.M, first)
                columns = min(t.shared.buffer_columns, t.shared.own_columns - first)
                cursor = self._fill(tile, block, first, columns, loads, cursor, number)
                self._start(number, there, columns, tile)
                number += 1
        self.exits.finish(tile, self.thread)
        return cursor

    def _fill(
        self,
        tile: _Tile,
        block: int,
        first: int,
        columns: int,
        loads: Loads | None,
        cursor: Cursor | None,
        number: int,
    ) -> Cursor | None:
        """Works through a buffer's columns, from a column of the tile on, a chunk at a time."""
        t = self.tiling
        for chunk in range(0, columns, t.shared.chunk):
            width = min(t.shared.chunk, columns - chunk)
            if loads is not None:
                assert cursor is not None
                if chunk == 0:
                    loads.wait(number, cursor)
                tile.take(loads.address(number, cursor), chunk, width)
                if chunk + width == columns:
                    cursor = loads.done(number, cursor, self.lane)
            found = tile.values(block, first + chunk, width)
            if self.stores and chunk == 0:
                self._wait_for_buffer(number)
            for (i, store), buffer in zip(self.stores, self._buffers(number), strict=True):
                store.put(buffer, self.thread, found[i], chunk)
        return cursor

    def _buffers(self, number: int) -> list[Any]:
        """Where each staged output goes."""
        slot = number % self.tiling.shared.store_buffers
        buffer, found = self.own_stores + slot * self.tiling.shared.store_bytes, list[Any]()
        for _, store in self.stores:
            found.append(buffer)
            buffer = buffer + store.bytes
        return found

    def _wait_for_buffer(self, number: int) -> None:
        """Waits until the copies of what the buffers held have read it."""
        buffers = self.tiling.shared.store_buffers
        with ops.if_(self.thread.eq(0)):
            tma.wait_read(uses_since(number, self.tiling.shared.buffer_uses, buffers) - 1)
        self.meet()

    def _start(self, number: int, there: TilePlace, columns: int, tile: _Tile) -> None:
        """Starts the copies of the staged outputs of a buffer of so many columns."""
        if not self.stores:
            return
        tma.show_writes()
        self.meet()
        places = [
            (*store, at) for store, at in zip(self.stores, self._buffers(number), strict=True)
        ]
        with ops.if_(self.thread.eq(0)):
            for place, store, source in places:
                if place in self.parted:
                    self.parted[place].start(source, there, self.store_policy)
                if place in self.phases:
                    self.phases[place].start(source, there, columns, self.store_policy)
                if place not in self.store_maps:
                    continue
                self._copy(store, self.store_maps[place], source, there, columns)
            tma.commit()
        for place, store, source in places:
            if tile.tiling.epilogue.outputs[place] == "scattered":
                lines = columns if store.is_transposed else wgmma.M
                target = tile.targets[place][1]
                scatter(target, store, lines, source, self.thread, partial(tile.place, there))

    def _copy(
        self, store: StagedStore, maps: Sequence[Any], source: Any, there: TilePlace, columns: int
    ) -> None:
        """Starts the copies of one buffer of so many columns, by one thread."""
        corner = self._corner(store.box, there)
        is_whole = columns == self.tiling.shared.buffer_columns

        def whole() -> None:
            store.start(maps[0 if is_whole else -1], source, corner, self.store_policy)

        if there.end is None:
            whole()
            return
        column, row, *outer = corner
        height = store.box.extents[1]
        left = ops.minimum(ops.maximum(there.end - row, 0), height)

        def part(which: int, first: Any) -> None:
            place = pointer_to(source + first * store.box.row_bytes)
            tma.store(place, maps[which], [column, row + first, *outer], self.store_policy)

        ops.if_else(
            left.eq(height), whole, lambda: tma.move_rows(self._store_boxes(store), left, part)
        )

    def meet(self) -> None:
        """A barrier of the warpgroup's threads."""
        nvvm.barrier(
            barrier_id=self.own + _FIRST_BARRIER,
            number_of_threads=ops.const(wgmma.WARPGROUP_THREADS),
        )


def uses_since(number: int, uses: int, buffers: int) -> int:
    """How many uses ago a tile's use of a buffer had another one, the tile before included.

    Example: three uses, two buffers: 0 1 0 | 0 1 0, so 1, 3, 2.
    """
    if number >= buffers:
        return buffers
    last = max(i for i in range(-buffers, uses) if (i - number) % buffers == 0)
    return uses - last + number


class _Tile:
    """The epilogue of one tile: the walk of g2 over its fragments."""

    def __init__(
        self,
        epilogue: Epilogue,
        place: TilePlace,
        sums: Sequence[Sequence[Sequence[Any]]],
        parity: Any,
    ):
        self.parity, self.exchanged = parity, 0
        self.epilogue = e = epilogue
        self.tiling = t = e.tiling
        self.batch = place.batch
        self.first_row, self.first_column = row, column = place.row, place.column
        row_end, column_end = (None, place.end) if t.block.swaps else (place.end, None)
        self.registers = sums
        # g2 reads the product, and what is loaded beside it, at the fragment's own place only.
        self.sums = [InHand() for _ in e.matrices.calls]
        self.loaded = [InHand() for _ in e.loads]
        self.taken: list[list[list[Any]]] = []
        leaves: dict[Any, Any] = e.region.leaves(e.kernel)
        leaves |= {c.results[0]: leaf for c, leaf in zip(e.matrices.calls, self.sums, strict=True)}
        leaves |= {v: leaf for (v, _), leaf in zip(e.loads, self.loaded, strict=True)}
        self.walk = Walk(e.kernel, leaves, e.region.symbols, self._reduce)
        self.targets = e.region.targets(e.kernel)
        self.bits = {
            place: QuadBits(target, e.lane, t.shared.own_columns)
            for place, (_, target) in enumerate(self.targets)
            if t.epilogue.outputs[place] == "bits"
        }
        down, self.right = e.layout.origin(e.thread)
        first = row + down
        self.rows = [
            [self._row(first + (block * wgmma.M + 8 * half), row_end) for half in (0, 1)]
            for block in range(t.block.blocks_of_rows)
        ]
        start = column + self.right
        has_edge = e.matrices.sizes[1].known_divisor() % (t.block.columns * t.most_cluster[1])
        if has_edge or ("direct" in t.epilogue.outputs and t.has_few_registers):
            # Of a single column of tiles, which columns are there, and where they lie, is the same
            # of every tile: it would be computed once and live beside the sums all the time.
            start = ops.opaque(start)
        self.column_end = column_end
        self.columns = [
            self._column(start + (8 * (i // 2) + i % 2), t.epilogue.pair)
            for i in range(t.shared.own_columns // 4)
            if t.epilogue.pair == 1 or i % 2 == 0
        ]

    def _row(self, number: Any, end: Any) -> Edge:
        t, e = self.tiling, self.epilogue
        # A block of a cluster may lie past the end as a whole.
        tile = t.block.rows * t.grid.cluster[0]
        is_there = e.matrices.space.is_row(self.batch, number)
        return Edge(e.kernel, number, e.matrices.sizes[0], tile, 1, end, is_there)

    def _column(self, number: Any, width: int) -> Edge:
        t, e = self.tiling, self.epilogue
        size, tile = e.matrices.sizes[1], t.block.columns * t.most_cluster[1]
        is_there = e.matrices.space.is_column(self.batch, number)
        return Edge(e.kernel, number, size, tile, width, self.column_end, is_there)

    def is_column(self, number: Any) -> Any:
        """Whether there is a column, or one and its neighbour; None: there is."""
        return self._column(number, 1).inside

    def place(
        self, there: TilePlace, row: Any, column: Any, width: int, is_along_rows: bool
    ) -> tuple[list[Coordinate], Any]:
        """(coordinates of neighbours along rows or columns, whether they are there).

        there: where row and column are counted from.  The matrix has a whole number of so many.
        """
        e = self.epilogue
        edges = [
            self._row(there.row + row, None if self.tiling.block.swaps else there.end),
            self._column(there.column + column, 1),
        ]
        along = 0 if is_along_rows else 1
        edges[along] = replace(edges[along], width=width)
        at = [Index(edge.kept) for edge in edges]
        at[along] = Index(at[along].base, 1, width)
        return e.matrices.space.at(self.batch, *at), ops.both(*(edge.inside for edge in edges))

    # ---- fragments

    def fragments(self, block: int, half: int, chunk: int = 0, width: int = 0) -> list[Fragment]:
        """The fragments of a row of the thread, of some columns (default: all)."""
        t = self.tiling
        per_block = 2 // t.epilogue.pair
        first, last = chunk // 8, (chunk + (width or t.shared.own_columns)) // 8
        return [
            Fragment(
                self.rows[block][half],
                self.columns[j * per_block + i],
                block,
                half,
                4 * j + 2 * half + i * t.epilogue.pair,
            )
            for j in range(first, last)
            for i in range(per_block)
        ]

    def select(self, fragment: Fragment) -> None:
        """Makes a fragment the one in hand."""
        self.hand = fragment
        pair = self.tiling.epilogue.pair
        for leaf, blocks in zip(self.sums, self.registers, strict=True):
            registers = blocks[fragment.block]
            leaf.current = ops.from_elements(registers[fragment.register :][:pair])
        for leaf, taken in zip(self.loaded, self.taken, strict=False):
            place = fragment.register % (self.tiling.shared.chunk // 2)
            both = taken[place // 4][place // 2 % 2]
            leaf.current = both if pair == 2 else ops.extract(both, place % 2)

    def at(self, fragment: Fragment, *, is_row: bool = False) -> list[Coordinate]:
        """Coordinates of a fragment, or of its row."""
        column = Index.of(0)
        if not is_row:
            width = fragment.column.width
            column = Index(fragment.column.kept, 1 if width > 1 else 0, width)
        return self.epilogue.matrices.space.at(self.batch, Index(fragment.row.kept), column)

    def value(self, tensor: Any, fragment: Fragment) -> Any:
        """A tensor of the product's dims at a fragment."""
        self.select(fragment)
        return self.walk.value(tensor, self.at(fragment), self.tiling.epilogue.pair)

    # ---- staged loads

    def take(self, place: Any, first: int, columns: int) -> None:
        """Takes some columns of every staged load of a buffer into registers."""
        e = self.epilogue
        self.taken = []
        for _, load in e.loads:
            self.taken.append(load.take(place, e.thread, first, columns))
            place = place + load.bytes

    # ---- values

    def values(self, block: int, chunk: int, width: int) -> list[list[list[Any]]]:
        """[output][column block of 8][upper, lower row] of a chunk of the staged outputs.

        The others are stored, or added to what is reduced.
        """
        found: list[list[list[Any]]] = [
            [[None, None] for _ in range(width // 8)] for _ in self.targets
        ]
        parts: dict[Any, list[Any]] = {}
        for j in range(width // 8):
            for half in (0, 1):
                for fragment in self.fragments(block, half, chunk + 8 * j, 8):
                    for place, value in self._fragment_values(fragment):
                        parts.setdefault((place, j, half), []).append(value)
        self.epilogue.exits.fold(self, chunk)
        for (place, j, half), pieces in parts.items():
            found[place][j][half] = ops.concat(pieces)
        if chunk + width == self.tiling.shared.own_columns:
            self._store_rows(block)
        return found

    def _fragment_values(self, fragment: Fragment) -> list[tuple[int, Any]]:
        """(place, value) of staged outputs at a fragment; the others are dealt with."""
        e = self.epilogue
        found = []
        for place, (value, target) in enumerate(self.targets):
            path = self.tiling.epilogue.outputs[place]
            if path in _STAGED:
                found.append((place, self.value(value, fragment)))
            elif path == "direct":
                target.store(self.at(fragment), self.value(value, fragment), fragment.inside)
            elif path == "bits":
                self.bits[place].add(self, fragment, self.value(value, fragment))
        e.exits.add(self, fragment)
        return found

    def _store_rows(self, block: int) -> None:
        """Outputs of one element a row."""
        for place, (value, target) in enumerate(self.targets):
            if self.tiling.epilogue.outputs[place] != "row":
                continue
            for half in (0, 1):
                fragment = self.fragments(block, half)[0]
                at = self.at(fragment, is_row=True)
                self.select(fragment)
                made = self.walk.value(value, at, 1)
                is_first = (self.epilogue.lane & (_QUAD - 1)).eq(0)
                is_writer = ops.both(fragment.row.inside, is_first)
                if self.tiling.grid.cluster[1] > 1:
                    # Other blocks of the cluster have the rest of the row, or nothing.
                    first = ops.compare("eq", self.first_column, 0)
                    is_writer = ops.both(is_writer, first)
                target.store(at, made, is_writer)

    # ---- reductions inside a row

    def _reduce(self, walk: Walk, operation: Any, at: Sequence[Coordinate], width: int) -> Any:
        """A row's reduction, of the row of the fragment in hand: a `Reducer`."""
        combine = reduce.combiner(walk, operation)
        hand = self.hand
        total = None
        for fragment in self.fragments(hand.block, hand.half):
            value = self.inside(operation, self.value(inputs_of(operation)[0], fragment), fragment)
            value = reduce.taken(operation, value, is_row=True)
            total = value if total is None else combine(total, value)
        self.select(hand)
        total = reduce.across_lanes(reduce.lanes(total, combine), _QUAD, combine)
        if self.tiling.epilogue.exchanges:
            total = self._exchange(total, combine)
        return ops.splat(total, width)

    def _exchange(self, total: Any, combine: Any) -> Any:
        """A row's reduction over all blocks that have a part of it."""
        e = self.epilogue
        number, self.exchanged = self.exchanged, self.exchanged + 1
        assert number < self.tiling.epilogue.exchanges, "more exchanges than there are barriers"
        return e.own_exchange.combine(number, total, self.parity, e.thread, e.rank, combine)

    def inside(
        self,
        operation: Any,
        value: Any,
        fragment: Fragment,
        *,
        rows: bool = False,
        columns: bool = True,
    ) -> Any:
        """A fragment to reduce; past the edges, what changes nothing.

        rows, columns: which edges are looked at.
        """
        width = ops.width_of(value)
        is_there = fragment.row.inside if rows else None
        if columns:
            is_there = ops.both(is_there, fragment.column.inside)
        if is_there is not None:
            is_there = ops.splat(is_there, width)
        if columns:
            place = 8 * (fragment.register // 4) + fragment.register % 2
            mask = self.epilogue.matrices.space.mask(self.first_column, self.right + place, width)
            is_there = ops.both(is_there, mask)
        if is_there is None:
            return value
        return arith.SelectOp(is_there, value, reduce.neutral(operation, width)).result
