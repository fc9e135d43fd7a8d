# pyright: basic
"""The kernel of engines matmul_sm90 and conv_sm90, top to bottom; see the engines for the whole.

    warpgroup 0      for each tile: for each k block: wait until the stage is empty, load it; then
                     load what the epilogues read into the stages after, or by warps 1 and 2 into
                     rings of their own
    warpgroups 1..   for each tile, or by turns: for each k block: wait until the stage is full,
                     multiply, release the stage before; then the epilogue

*Rows* and *columns* are those of the instruction: of the product itself, or, swapped, of its
transpose, whose first operand is B.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..codegen import cluster, mbarrier, ops, smem, tma, wgmma
from ..codegen.cluster import Cluster
from ..codegen.groups import GroupTable
from ..codegen.index import Index
from ..codegen.kernel import Kernel
from ..codegen.operand_fragments import OperandFragments
from ..codegen.pipeline import Cursor, Pipeline
from ..codegen.region import Region
from ..codegen.row_exchange import RowExchange
from ..codegen.schedule import TileOrder, TilePlace
from ..codegen.split import SplitSum
from ..codegen.stream_sum import StreamSum
from ..codegen.tile_ring import TileRing
from ..codegen.turns import Turns, later
from ..codegen.walk import Walk
from ..expr import ceildiv
from ..mlir import arith, nvvm
from ..target import WARP_THREADS
from .epilogue_loads_sm90 import Loads, RingLoads, StageLoads
from .epilogue_sm90 import Epilogue
from .matrices_sm90 import Loop, Matrices, Rewriter
from .region_sm90 import OFFSETS
from .tile_loop_sm90 import Role, Tiles
from .tile_sm90 import RAW_BUFFERS, Tiling

_PRODUCER_BARRIER = 8  # named barrier of the producer's threads; see `epilogue_sm90`


@dataclass
class Emitter:
    """One kernel; matrices: what it multiplies."""

    kernel: Kernel
    region: Region
    tiling: Tiling
    matrices: Matrices

    def __post_init__(self) -> None:
        t = self.tiling
        self.row = t.row
        self.cluster = Cluster(*t.cluster, t.splits)
        self.operands = self.matrices.operands
        self.k_panel = self.matrices.k_panel
        rows, columns = self.matrices.sizes
        self.order = TileOrder(
            ceildiv(rows, t.rows * self.cluster.rows),
            ceildiv(columns, t.columns * self.cluster.columns),
            self.matrices.batch.fragments,
            t.group_rows,
        )

    # ---- the whole

    def emit(self) -> None:
        t = self.tiling
        base = self.kernel.dynamic_shared(t.smem_bytes, 1024)
        barriers = smem.byte_pointer(base, t.barriers_offset)
        self.pipeline = Pipeline.of(base, t.stage_bytes, t.stages, barriers)
        self.load_rings = self._load_rings(base)
        self.raw_buffers = RAW_BUFFERS[t.producers]
        self.raw_rings = [self._raw_ring(base, i) for i in range(t.producers)]
        self.split = SplitSum(
            t.splits, t.slices, t.consumers * wgmma.WARPGROUP_THREADS,
            smem.byte_pointer(base, t.split_offset),
            smem.byte_pointer(base, t.split_barriers_offset),
        )  # fmt: skip
        self.turns = Turns(t.consumers, smem.byte_pointer(base, t.turns_offset))
        self.groups = self._group_table(smem.byte_pointer(base, t.groups_offset))
        self.rank = self.cluster.rank()
        self.exchange = RowExchange(
            t.cluster[1], t.exchanges, smem.byte_pointer(base, t.exchange_offset),
            smem.byte_pointer(base, t.exchange_barriers_offset),
        )  # fmt: skip
        self.epilogue = Epilogue(
            self.kernel, self.region, t, self.matrices, smem.address(base),
            self.exchange, self.cluster.column(self.rank),
        )  # fmt: skip
        # Through a shuffle, so that the assembler knows it to be the same in the whole warp.
        self.warp = nvvm.shfl_sync(
            ops.const(-1), ops.shr(ops.thread_id(), 5), ops.const(0), ops.const(31),
            nvvm.ShflKind.idx,
        )  # fmt: skip
        self.group = ops.shr(self.warp, 2)
        self.tiles = Tiles(
            self.kernel, t, self.order, self.matrices.batch, self.cluster, self.rank, self.groups,
            self._tile_ring(base), *self._own_steps(),
        )  # fmt: skip
        self.loop = self._own_loop(base)
        self.rewriter = self._own_rewriter(base)
        self._begin()
        self.base = base
        ops.if_else(ops.less(self.group, t.producers), self._produce, self._consume)
        if self.cluster.blocks > 1:
            # A block's memory has to last until nobody arrives there any more.
            cluster.synchronize(self.cluster)

    def _own_steps(self) -> tuple[Any, Any]:
        """The range of k panels that this block multiplies: a part of them where k is split."""
        steps, splits = self.kernel.size(self.matrices.steps), self.tiling.splits
        if splits == 1:
            return 0, steps
        own = self.cluster.slice(self.rank)
        return tuple(ops.div(ops.mul(ops.add(own, i), steps), splits) for i in (0, 1))

    def _raw_ring(self, base: Any, own: Any) -> Pipeline:
        """The ring of raw tiles of a producer."""
        t = self.tiling
        bytes_, barriers = self.raw_buffers * t.raw_bytes, Pipeline.barrier_bytes(self.raw_buffers)
        return Pipeline.of(
            smem.byte_pointer(smem.byte_pointer(base, t.raw_offset), ops.mul(own, bytes_)),
            t.raw_bytes,
            self.raw_buffers,
            smem.byte_pointer(
                smem.byte_pointer(base, t.raw_barriers_offset), ops.mul(own, barriers)
            ),
        )

    def _load_rings(self, base: Any) -> list[Pipeline]:
        """A ring of each consumer warpgroup for what its epilogues read."""
        t = self.tiling
        if not t.loads or not t.load_buffers:
            return []
        first = t.barriers_offset + Pipeline.barrier_bytes(t.stages)
        return [
            Pipeline.of(
                smem.byte_pointer(base, t.loads_offset + i * t.load_buffers * t.load_bytes),
                t.load_bytes,
                t.load_buffers,
                smem.byte_pointer(base, first + i * Pipeline.barrier_bytes(t.load_buffers)),
            )
            for i in range(t.consumers)
        ]

    def _tile_ring(self, base: Any) -> TileRing | None:
        """Where tiles are taken from a counter."""
        t = self.tiling
        if not t.is_dynamic:
            return None
        return TileRing.of(
            smem.byte_pointer(base, t.ring_offset),
            smem.byte_pointer(base, t.ring_offset + TileRing.bytes()),
            self.kernel.workspace(self.workspace("tiles")),
            self.cluster.count(),
        )

    def _own_loop(self, base: Any) -> Loop | None:
        """Where pixels of a convolution come once for all taps."""
        t, loop = self.tiling, self.matrices.loop
        if loop is None:
            return None
        pixels = Pipeline.of(
            smem.byte_pointer(base, t.pixels_offset), t.pixels["slot_bytes"], t.pixels["slots"],
            smem.byte_pointer(base, t.pixels_barriers_offset),
        )  # fmt: skip
        return loop(self.operands, self.pipeline, pixels)

    def _own_rewriter(self, base: Any) -> Rewriter | None:
        """Where warps of the producer compute an operand in shared memory."""
        rewriter = self.matrices.rewriter
        if rewriter is not None:
            ring = self.loop.pixels if self.loop else self.pipeline
            rewriter.place(ring, smem.byte_pointer(base, self.tiling.rewriting_offset))
        return rewriter

    def _stream_sum(self) -> StreamSum | None:
        """Where tiles are cut along k."""
        t = self.tiling
        if not t.streams:
            return None
        slots, flags = (self.kernel.workspace(self.workspace(n)) for n in ("slots", "flags"))
        return StreamSum(slots, flags, t.consumers, t.sums)

    def workspace(self, name: str) -> str:
        """The full name of a workspace buffer of this kernel."""
        return f"{self.kernel.name}.{name}"

    def _group_table(self, memory: Any) -> GroupTable | None:
        """Where A's rows are grouped, by bounds that are on the device."""
        t = self.tiling
        if not t.groups:
            return None
        offsets = self.matrices.calls[0].operands[OFFSETS]
        along, beside = (1, 0) if t.swaps else (0, 1)
        sizes = self.matrices.sizes
        tiles = (t.rows * self.cluster.rows, t.columns * self.cluster.columns)
        return GroupTable(
            self.kernel, memory, t.groups, self.region.dims_of(offsets)[0], sizes[along],
            tiles[along], ceildiv(sizes[beside], tiles[beside]), t.group_rows,
        )  # fmt: skip

    def _first_of_group(self, group: Any) -> Any:
        """The first row of a group, from memory."""
        offsets = self.matrices.calls[0].operands[OFFSETS]
        walk = Walk(self.kernel, self.region.leaves(self.kernel), self.region.symbols)
        return walk.value(offsets, [Index(group), Index.of(0), Index.of(0)], 1)

    def _begin(self) -> None:
        """Makes the barriers, and the table of groups."""
        t = self.tiling
        producers = int(any(o.is_async for o in self.operands))
        producers += wgmma.WARPGROUP_THREADS * (not t.is_all_async)
        rewriting = self.rewriter.arrivals if self.rewriter else 0
        producers += 0 if self.loop else rewriting
        with ops.if_(ops.compare("eq", ops.thread_id(), 0)):
            self.pipeline.make(producers, self.cluster.tiles * t.sharers * 4)
            if t.takes_turns:
                self.turns.make()
            if t.splits > 1:
                self.split.make()
            for ring in self.raw_rings if t.raw_bytes else []:
                ring.make(1, 1)
            for ring in self.load_rings:
                ring.make(1, 4)
            for i in range(t.consumers if t.exchanges else 0):
                offset = i * RowExchange.barrier_bytes(t.exchanges)
                replace(
                    self.exchange, barriers=smem.byte_pointer(self.exchange.barriers, offset)
                ).make()
            if self.loop:
                self.loop.pixels.make(rewriting or 1, t.consumers * 4)
            if self.rewriter:
                self.rewriter.make()
            if self.tiles.ring:
                self.tiles.ring.make(t.consumers * 4 + len(self.load_rings) + rewriting)
            mbarrier.make_visible()
        if self.groups:
            with ops.if_(ops.compare("eq", self.warp, 0)):
                self.groups.fill(self._first_of_group)
        cluster.synchronize(self.cluster)

    # ---- the producer

    def _produce(self) -> None:
        t = self.tiling
        if t.registers:
            wgmma.set_registers(t.registers[0], grows=False)
        if t.is_all_async:
            is_first = ops.both(ops.compare("eq", self.warp, 0), nvvm.elect_sync())
            with ops.if_(is_first):
                maps = [o.map for o in self.operands if o.map is not None]
                maps += self.rewriter.maps if self.rewriter else []
                for map_ in (*maps, *self.epilogue.load_maps, *self.epilogue.store_maps):
                    tma.prefetch(map_)
                self._load_tiles(None)
            for i, ring in enumerate(self.load_rings):
                is_own = ops.both(ops.compare("eq", self.warp, i + 1), nvvm.elect_sync())
                with ops.if_(is_own):
                    self._load_beside(i, ring)
            if self.rewriter:
                with ops.if_(ops.less(0, self.warp)):
                    self.rewriter.run(self.tiles)
        else:
            thread = ops.and_(ops.thread_id(), wgmma.WARPGROUP_THREADS - 1)
            self.raw_ring = self._raw_ring(self.base, self.group if t.producers > 1 else 0)
            self._load_tiles(ops.compare("eq", thread, 0))

    def _load_beside(self, own: int, ring: Pipeline) -> None:
        """Loads what the epilogues of a consumer warpgroup read."""

        def tile(place: TilePlace, carried: Sequence[Any]) -> Sequence[Any]:
            place = self._part(place, own)
            return self._where(
                self._has_epilogue(place), carried,
                lambda: self.epilogue.start_loads(ring, place, Cursor(*carried)).values,
                lambda: carried,
            )  # fmt: skip

        self.tiles.each(Cursor().values, tile, Role.THREAD, own)

    def _load_tiles(self, is_issuer: Any) -> None:
        """is_issuer: which thread starts copies; None: the one that is here."""
        t = self.tiling
        if self.loop:
            self.tiles.each(self.loop.start_loads(), self.loop.load_tile, Role.TAKER)
            return
        has_raw = bool(t.raw_bytes)

        def tile(place: TilePlace, carried: Sequence[Any]) -> Sequence[Any]:
            *carried, turn = carried
            first = ops.add(place.first_step, turn) if t.producers > 1 else place.first_step
            if has_raw:
                self._start_raw(place, first, Cursor(*carried[2:]), is_issuer)

            def step(i: Any, carried: Sequence[Any]) -> Sequence[Any]:
                cursor, raw = Cursor(*carried[:2]), Cursor(*carried[2:])
                if has_raw:
                    self.raw_ring.wait_full(raw)
                self._load_stage(place, i, cursor, is_issuer, raw)
                for _ in range(t.producers):
                    cursor = cursor.next(t.stages)
                if not has_raw:
                    return cursor.values
                self._load_raw_again(place, i, raw, is_issuer)
                return [*cursor.values, *raw.next(self.raw_buffers).values]

            carried = ops.for_(first, place.end_step, t.producers, carried, step)
            carried = [*self._load_after(place, Cursor(*carried[:2])).values, *carried[2:]]
            return [*carried, self._next_turn(turn, place)]

        cursor, turn = Cursor(), ops.const(0)
        if t.producers > 1:  # producer i has the uses of the ring i, i + 2, ...
            cursor, turn = Cursor(self.group, 0), self.group
        start = [*cursor.values, *(Cursor().values if has_raw else []), turn]
        self.tiles.each(start, tile, Role.TAKER)

    def _load_after(self, place: TilePlace, cursor: Cursor) -> Cursor:
        """Loads what a tile's epilogues read, where the operands' stages bring it."""
        t = self.tiling
        if not t.load_steps:
            return cursor

        def load() -> Sequence[Any]:
            tiles = [self._part(place, i) for i in range(t.sharers)]
            following = cursor
            for step in range(t.load_steps):
                self.pipeline.wait_empty(following)
                self.epilogue.load_stage(self.pipeline, tiles, following, step)
                following = following.next(t.stages)
            return following.values

        here = cursor.values
        return Cursor(*self._where(self._has_epilogue(place), here, load, lambda: here))

    def _next_turn(self, turn: Any, place: TilePlace) -> Any:
        """Which step of the next tile is this producer's first."""
        if self.tiling.producers == 1:
            return turn
        return ops.and_(ops.add(turn, place.steps), 1)

    # ---- raw tiles: loaded ahead within a tile of the product, by one thread

    def _load_raw(self, place: TilePlace, step: Any, slot: Cursor, is_issuer: Any) -> None:
        raws = [o for o in self.operands if o.raw is not None]
        with ops.if_(is_issuer):
            self.raw_ring.expect(slot, sum(o.box.bytes for o in raws))
            barrier = self.raw_ring.full_barrier(slot)
            for operand in raws:
                first = place.row if operand.is_rows else place.column
                batch = place.batch_of(is_a=operand.is_a)
                first_k = ops.mul(step, self.k_panel)
                operand.load_raw(self.raw_ring.slot(slot), batch, first, first_k, barrier)

    def _start_raw(self, place: TilePlace, first: Any, slot: Cursor, is_issuer: Any) -> None:
        """Starts the first loads of a tile, from a step on; the ring is empty."""
        for i in range(self.raw_buffers):
            step = ops.add(first, i * self.tiling.producers)
            is_there = ops.less(step, place.end_step)
            self._load_raw(place, step, slot, ops.both(is_issuer, is_there))
            slot = slot.next(self.raw_buffers)
        # LLVM would give the threads that start nothing a wait of their own, before these loads.
        nvvm.bar_warp_sync(ops.const(-1))

    def _load_raw_again(self, place: TilePlace, step: Any, slot: Cursor, is_issuer: Any) -> None:
        """Once all threads have read a slot, loads what comes a round later into it."""
        nvvm.barrier(
            barrier_id=ops.add(ops.value_of(self.group), _PRODUCER_BARRIER),
            number_of_threads=ops.const(wgmma.WARPGROUP_THREADS),
        )
        ahead = ops.add(step, self.raw_buffers * self.tiling.producers)
        self._load_raw(place, ahead, slot, ops.both(is_issuer, ops.less(ahead, place.end_step)))

    def _load_stage(
        self, place: TilePlace, step: Any, cursor: Cursor, is_issuer: Any, raw: Cursor
    ) -> None:
        first_k = ops.mul(step, self.k_panel)
        stage = self.pipeline.slot(cursor)
        self.pipeline.wait_empty(cursor)
        barrier = self.pipeline.full_barrier(cursor)
        copied = [o for o in self.operands if o.is_async]
        filled = [o for o in self.operands if not o.is_async]
        if copied:
            with ops.if_(is_issuer):
                computed = self.rewriter.operand if self.rewriter else None
                mbarrier.expect(barrier, sum(o.bytes for o in copied if o is not computed))
                for operand in copied:
                    first = place.row if operand.is_rows else place.column
                    batch = place.batch_of(is_a=operand.is_a)
                    there = barrier
                    if self.rewriter and operand is computed:
                        there = self.rewriter.barrier(cursor)
                        mbarrier.expect(there, operand.bytes)
                    operand.load(stage, batch, first, first_k, there, self.rank)
        for operand in filled:
            raw_slot = self.raw_ring.slot(raw) if operand.raw is not None else None
            first = place.row if operand.is_rows else place.column
            batch = place.batch_of(is_a=operand.is_a)
            operand.fill(stage, batch, first, first_k, raw_slot)
        if filled:
            tma.show_writes()
            mbarrier.arrive(barrier)

    # ---- the consumers

    def _consume(self) -> None:
        t = self.tiling
        if t.registers:
            wgmma.set_registers(t.registers[1], grows=True)
        self.own = ops.sub(self.group, t.producers)
        self.lane = ops.and_(ops.thread_id(), WARP_THREADS - 1)
        self.epilogue.begin(self.own)
        loads, stream = self._own_loads(), self._stream_sum()

        def multiply(place: TilePlace, carried: Sequence[Any]) -> Sequence[Any]:
            places, sums = self._multiply(carried[:rings], place)
            carried = carried[rings:]
            if t.splits > 1:
                self._finish_split(place, sums, carried[0])
                return [*places, ops.xor(carried[0], 1)]
            registers = [wgmma.unpacked(accumulator) for accumulator in sums]
            if t.loads_per_stage:  # after the operands, in the same ring
                carried = [*places[:2], *carried]
            if stream is None:
                kept = finish(place, registers, carried)
            else:
                kept = self._finish_streamed(stream, place, registers, carried, finish)
            if t.loads_per_stage:
                places, kept = [*kept[:2], *places[2:]], kept[2:]
            return [*self._following(places, place), *kept]

        def finish(place: TilePlace, sums: Sequence[Any], carried: Sequence[Any]) -> Sequence[Any]:
            turn = carried[-1] if t.exchanges else 0
            cursor = Cursor(*carried[:2])
            cursor = self.epilogue.run(place, self._by_product(sums), loads, cursor, turn)
            turns = [ops.xor(turn, 1)] if t.exchanges else []
            return [*(cursor.values if loads else []), *turns]

        def tile(place: TilePlace, carried: Sequence[Any]) -> Sequence[Any]:
            place = self._part(place, self.own)
            return self._where(
                None if t.streams else self._has_epilogue(place), carried,
                lambda: multiply(place, carried),
                lambda: [*self._skip(Cursor(*carried[:2]), place).values, *carried[2:]],
            )  # fmt: skip

        start = self._first_places()
        rings = len(start)
        start = [*start, *(Cursor().values if self.load_rings else [])]
        if t.splits > 1 or t.exchanges:
            start.append(ops.const(0))
        if self.loop:
            first = t.producers * wgmma.WARPGROUP_THREADS
            threads = t.consumers * wgmma.WARPGROUP_THREADS
            self.loop.begin(ops.sub(ops.thread_id(), first), threads)
        self.tiles.each(start, tile, Role.WARPS, self.own)
        self.epilogue.end()

    def _finish_streamed(
        self,
        stream: StreamSum,
        place: TilePlace,
        sums: Sequence[Sequence[Any]],
        carried: Sequence[Any],
        finish: Callable[..., Sequence[Any]],
    ) -> Sequence[Any]:
        """Adds what other blocks have of a tile and finishes it, or leaves its sums to another."""
        flat = [register for part in sums for register in part]
        block, thread, meet = ops.block_id(), self.epilogue.thread, self.epilogue.meet

        def total() -> Sequence[Any]:
            whole = stream.total(flat, block, place.last_block, self.own, thread, meet)
            each = len(whole) // len(sums)
            parts = [whole[i : i + each] for i in range(0, len(whole), each)]
            return finish(place, parts, carried)

        def leave() -> Sequence[Any]:
            stream.put(flat, block, self.own, thread, meet)
            return carried

        return self._where(self._has_epilogue(place), carried, total, leave)

    def _has_epilogue(self, place: TilePlace) -> Any:
        """Whether a warpgroup's part of a tile has an epilogue here: it has rows of its group,
        and its beginning along k.  None: always."""
        if self.tiling.streams:
            return ops.compare("eq", place.first_step, 0)
        if place.end is None or self.tiling.swaps or self.tiling.splits > 1:
            return None
        return ops.less(place.row, place.end)

    def _part(self, place: TilePlace, own: Any) -> TilePlace:
        """A consumer warpgroup's part of a tile."""
        return place.moved(*(ops.mul(own, step) for step in self.tiling.part_step))

    def _where(
        self,
        condition: Any,
        carried: Sequence[Any],
        then: Callable[[], Sequence[Any]],
        other: Callable[[], Sequence[Any]],
    ) -> Sequence[Any]:
        """The next carried values: from `then` where a condition holds, or is None."""
        if condition is None:
            return then()
        return ops.either(condition, [value.type for value in carried], then, other)

    def _skip(self, cursor: Cursor, place: TilePlace) -> Cursor:
        """Lets the stages of a tile go by."""

        def step(i: Any, carried: Sequence[Any]) -> Sequence[Any]:
            here = Cursor(*carried)
            self.pipeline.wait_full(here)
            self._release(here)
            return here.next(self.tiling.stages).values

        return Cursor(*ops.for_(0, place.steps, 1, cursor.values, step))

    def _finish_split(self, place: TilePlace, sums: Sequence[Any], phase: Any) -> None:
        """Adds the sums of the blocks that share the tile; those that have a slice finish it."""
        t = self.tiling
        thread = ops.sub(ops.thread_id(), t.producers * wgmma.WARPGROUP_THREADS)
        self.split.exchange(sums, thread, phase)
        has_slice = ops.less(self.rank, t.slices) if t.slices < t.splits else None
        with ops.if_(has_slice):
            registers = self.split.total(sums, t.own_columns, thread, self.rank)
            own = place.moved(0, ops.mul(self.rank, t.own_columns))
            self.epilogue.run(own, self._by_product(registers), None, Cursor())
        self.split.free(thread)

    def _own_loads(self) -> Loads | None:
        """What this warpgroup's epilogues read."""
        t = self.tiling
        if t.loads_per_stage:
            own = self.own if t.sharers > 1 else 0
            return StageLoads(self.pipeline, t, own, self.cluster.tiles)
        if not self.load_rings:
            return None
        first = self.load_rings[0]
        data = smem.byte_pointer(first.data, ops.mul(self.own, t.load_buffers * t.load_bytes))
        bytes_ = Pipeline.barrier_bytes(t.load_buffers)
        barriers = smem.byte_pointer(first.full, ops.mul(self.own, bytes_))
        return RingLoads(Pipeline.of(data, t.load_bytes, t.load_buffers, barriers))

    def _by_product(self, sums: Sequence[Any]) -> list[list[Any]]:
        """[product][block of rows] of what there is for each accumulator."""
        blocks = self.tiling.blocks_of_rows
        return [list(sums[i : i + blocks]) for i in range(0, len(sums), blocks)]

    def _multiply(self, carried: Sequence[Any], place: TilePlace) -> tuple[list[Any], list[Any]]:
        """The accumulators of a tile: of each product, one for each 64 rows of the warpgroup.

        carried: the places in the rings, before and after.  place: of the warpgroup's tile.
        """
        if self.loop:
            return self.loop.multiply(
                carried, place, self.own, self.lane, self._undefined(), self._start_products
            )
        if self.tiling.takes_turns:
            return self._multiply_in_turn(Cursor(*carried[:2]), carried[2], place)
        multiply = self._multiply_panels
        if self.tiling.promotes:
            multiply = self._multiply_promoted
        elif self.tiling.takes_fragments:
            multiply = self._multiply_fragments
        cursor, sums = multiply(Cursor(*carried), place)
        return cursor.values, sums

    def _first_places(self) -> list[Any]:
        """This warpgroup's, in the rings."""
        if self.loop:
            return list(self.loop.start())
        if not self.tiling.takes_turns:
            return Cursor().values
        t = self.tiling
        steps = ops.add(ops.sub(self.tiles.end_step, self.tiles.first_step), t.load_steps)
        first = Cursor.at(ops.mul(self.own, steps), t.stages)
        return [*first.values, self.turns.first(self.own)]

    def _following(self, places: Sequence[Any], place: TilePlace) -> Sequence[Any]:
        """This warpgroup's places in the rings, once it has finished a tile."""
        t = self.tiling
        if not t.takes_turns:
            return places
        others = ops.mul(ops.add(place.steps, t.load_steps), t.consumers - 1)
        following = later(Cursor(*places[:2]), others, t.stages)
        return [*following.values, ops.xor(places[2], 1)]

    def _multiply_in_turn(
        self, cursor: Cursor, turn: Any, place: TilePlace
    ) -> tuple[list[Any], list[Any]]:
        """The same, when the warpgroup before this one has begun its last products."""
        self.turns.wait(self.own, turn)
        cursor, sums = self._multiply_panels(cursor, place)
        return [*cursor.values, turn], sums

    def _multiply_panels(self, cursor: Cursor, place: TilePlace) -> tuple[Cursor, list[Any]]:
        undefined = self._undefined()

        def step(i: Any, carried: Sequence[Any]) -> Sequence[Any]:
            stage, phase, previous, *sums = carried
            here = Cursor(stage, phase)
            self.pipeline.wait_full(here)
            sums = self._multiply_stage(here, i, sums)
            wgmma.wait(1)
            with ops.if_(ops.compare("sge", previous, 0)):
                self._release(Cursor(previous))
            return [*here.next(self.tiling.stages).values, stage, *sums]

        start = [*cursor.values, ops.const(-1), *undefined]
        stage, phase, previous, *sums = ops.for_(0, place.steps, 1, start, step)
        has_more = self.tiling.load_steps > 0
        if self.tiling.takes_turns and not has_more:
            self.turns.end(self.own, self.lane)
        sums = wgmma.wait_for(sums)
        self._release(Cursor(previous))
        if self.tiling.takes_turns and has_more:
            self._end_turn(Cursor(stage, phase))
        return Cursor(stage, phase), sums

    def _end_turn(self, cursor: Cursor) -> None:
        """Once the stages after a tile's last step are there, of which another would take its own
        too early for loaded."""
        for _ in range(self.tiling.load_steps):
            self.pipeline.wait_full(cursor)
            cursor = cursor.next(self.tiling.stages)
        self.turns.end(self.own, self.lane)

    def _multiply_promoted(self, cursor: Cursor, place: TilePlace) -> tuple[Cursor, list[Any]]:
        """The same, with the sums of each stage added by additions that round to f32."""
        t = self.tiling
        undefined = self._undefined()
        columns = t.part[1]
        type_ = wgmma.accumulator_type(self.row, columns)

        def step(i: Any, carried: Sequence[Any]) -> Sequence[Any]:
            here = Cursor(*carried[:2])
            self.pipeline.wait_full(here)
            parts = wgmma.wait_for(self._multiply_stage(here, ops.const(0), undefined))
            self._release(here)
            flat = [value for part in parts for value in wgmma.unpacked(part)]
            totals = [
                arith.AddFOp(total, value).result
                for total, value in zip(carried[2:], flat, strict=True)
            ]
            return [*here.next(t.stages).values, *totals]

        registers = len(undefined) * columns // 2
        zeros = [ops.zeros(ops.f32_type())] * registers
        start = [*cursor.values, *zeros]
        stage, phase, *totals = ops.for_(0, place.steps, 1, start, step)
        each = columns // 2
        sums = [wgmma.packed(type_, totals[i : i + each]) for i in range(0, registers, each)]
        return Cursor(stage, phase), sums

    def _multiply_fragments(self, cursor: Cursor, place: TilePlace) -> tuple[Cursor, list[Any]]:
        """The same, with the operand along the rows in registers.

        The fragments of a stage are computed while another warpgroup's products run.
        """
        t = self.tiling
        operand = self.operands[t.products[0][0]]
        thread = ops.and_(ops.thread_id(), wgmma.WARPGROUP_THREADS - 1)
        batch = place.batch_of(is_a=operand.is_a)
        fragments = OperandFragments(operand, batch, place.row, t.blocks_of_rows, thread)
        own_row = ops.mul(self.own, t.part[0])

        def take(here: Cursor, step: Any) -> list[Any]:
            self.pipeline.wait_full(here)
            first_k = ops.mul(ops.add(place.first_step, step), self.k_panel)
            blocks = fragments.take(self.pipeline.slot(here), own_row, first_k)
            return [word for words in blocks for word in words]

        def start(here: Cursor, step: Any, words: Sequence[Any], sums: Sequence[Any]) -> Any:
            per_block = len(words) // t.blocks_of_rows
            blocks = [words[i : i + per_block] for i in range(0, len(words), per_block)]
            return self._multiply_stage(here, step, sums, blocks)

        words = wgmma.settled(take(cursor, 0))
        count = len(words)

        def step(i: Any, carried: Sequence[Any]) -> Sequence[Any]:
            here = Cursor(*carried[:2])
            sums = start(here, i, carried[2 : 2 + count], carried[2 + count :])
            following = here.next(t.stages)
            # Words that are computed while products run would be written to registers that these
            # read, or make the assembler serialize them (C7513): the other warpgroup's run then.
            wgmma.wait(0)
            self._release(here)
            words = wgmma.settled(take(following, ops.add(i, 1)))
            return [*following.values, *words, *sums]

        last = ops.sub(place.steps, 1)
        carried = ops.for_(0, last, 1, [*cursor.values, *words, *self._undefined()], step)
        here = Cursor(*carried[:2])
        sums = start(here, last, carried[2 : 2 + count], carried[2 + count :])
        sums = wgmma.wait_for(sums)
        self._release(here)
        return here.next(t.stages), sums

    def _undefined(self) -> list[Any]:
        """Accumulators whose first products do not read them."""
        count = len(self.tiling.products) * self.tiling.blocks_of_rows
        return [wgmma.undefined(self.row, self.tiling.part[1])] * count

    def _release(self, cursor: Cursor) -> None:
        self.pipeline.release(cursor, self.lane, self.cluster.tiles)

    def _multiply_stage(
        self, cursor: Cursor, is_added: Any, sums: Sequence[Any], words: Sequence[Any] = ()
    ) -> list[Any]:
        """Starts the products of a stage; is_added: 0 where they are the first of the tile.

        words: [block of rows][words of each step of k] of a first operand in registers.
        """
        t = self.tiling
        stage = self.pipeline.address(cursor)
        descriptors = list[Any]()
        for operand in self.operands:
            step = t.part_step[0 if operand.is_rows else 1] * operand.panels.row_bytes
            place = ops.add(stage, operand.plan["offset"])
            place = ops.add(place, ops.mul(self.own, step))
            descriptors.append(wgmma.descriptor(place, operand.panels))
        return self._start_products(descriptors, is_added, sums, words)

    def _start_products(
        self,
        descriptors: Sequence[Any],
        is_added: Any,
        sums: Sequence[Any],
        words: Sequence[Any] = (),
    ) -> list[Any]:
        """The same, of operands that lie where some descriptors say."""
        t = self.tiling
        sums, own = list(sums), t.part[1] // t.beside
        wgmma.fence()
        for k in range(t.k_steps):
            for i, (a, b) in enumerate(t.products):
                first, second = self.operands[a].panels, self.operands[b].panels
                column, inner = self._columns_of_step(k)
                for block in range(t.blocks_of_rows):
                    place = i * t.blocks_of_rows + block
                    rows = (
                        words[block][4 * k : 4 * k + 4]
                        if words
                        else wgmma.moved(descriptors[a], first.offset(block * wgmma.M, k))
                    )
                    made = wgmma.multiply(
                        self.row,
                        own,
                        rows,
                        wgmma.moved(descriptors[b], second.offset(column, inner)),
                        wgmma.columns_of(self.row, sums[place], column, own),
                        is_added if inner == 0 else 1,
                        a_k_major=first.is_k_major,
                        b_k_major=second.is_k_major,
                    )
                    sums[place] = wgmma.with_columns(sums[place], column, made)
        wgmma.commit()
        return sums

    def _columns_of_step(self, k: int) -> tuple[int, int]:
        """(first column that step k of a panel adds to, the step of the filter's rows)."""
        t = self.tiling
        group, inner = divmod(k, t.k_steps // t.beside)
        return group * (t.part[1] // t.beside), inner
