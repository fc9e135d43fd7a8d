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
from functools import partial
from typing import Any

from ...codegen import ops
from ...codegen.hopper import cluster, mbarrier, wgmma
from ...codegen.hopper.cluster import Cluster
from ...codegen.hopper.pipeline import Cursor, Pipeline
from ...codegen.hopper.split import SplitSum
from ...codegen.hopper.stream_sum import StreamSum
from ...codegen.hopper.tile_ring import TileRing
from ...codegen.hopper.turns import Turns
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.region import Region
from ...codegen.tiles.groups import GroupTable
from ...codegen.tiles.schedule import TileOrder, TilePlace
from ...codegen.totals.row_exchange import RowExchange
from ...codegen.walk.index import Index
from ...codegen.walk.region_walk import Walk
from ...expr import ceildiv
from ...mlir import nvvm
from ...target import WARP_THREADS
from .epilogue_loads_sm90 import Loads, RingLoads, StageLoads
from .epilogue_sm90 import Epilogue
from .matrices_sm90 import Loop, Matrices, Rewriter
from .multiplier_sm90 import Multiplier
from .producer_sm90 import Producer
from .region_sm90 import OFFSETS
from .tile_loop_sm90 import Role, Tiles, chosen, has_epilogue, own_part
from .tile_sm90 import Tiling

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
            t.chunk,
            t.swaps,
        )

    # ---- the whole

    def emit(self) -> None:
        t = self.tiling
        base = self.kernel.dynamic_shared(t.shared.bytes, 1024)
        barriers = smem.byte_pointer(base, t.shared.barriers_offset)
        self.pipeline = Pipeline.of(base, t.shared.stage_bytes, t.stages, barriers)
        self.load_rings = self._load_rings(base)
        self.raw_rings = [self._raw_ring(base, i) for i in range(t.producers)]
        self.split = SplitSum(
            t.splits, t.shared.slices, t.consumers * wgmma.WARPGROUP_THREADS,
            smem.byte_pointer(base, t.shared.split_offset),
            smem.byte_pointer(base, t.shared.split_barriers_offset),
        )  # fmt: skip
        self.turns = Turns(t.consumers, smem.byte_pointer(base, t.shared.turns_offset))
        self.groups = self._group_table(smem.byte_pointer(base, t.shared.groups_offset))
        self.rank = self.cluster.rank()
        self.exchange = RowExchange(
            t.cluster[1], t.exchanges, smem.byte_pointer(base, t.shared.exchange_offset),
            smem.byte_pointer(base, t.shared.exchange_barriers_offset),
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
            self._tile_ring(base), *self._own_steps(), self.matrices.steps_of,
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
        s = self.tiling.shared
        bytes_, barriers = s.raw_buffers * s.raw_bytes, Pipeline.barrier_bytes(s.raw_buffers)
        return Pipeline.of(
            smem.byte_pointer(smem.byte_pointer(base, s.raw_offset), ops.mul(own, bytes_)),
            s.raw_bytes,
            s.raw_buffers,
            smem.byte_pointer(
                smem.byte_pointer(base, s.raw_barriers_offset), ops.mul(own, barriers)
            ),
        )

    def _load_rings(self, base: Any) -> list[Pipeline]:
        """A ring of each consumer warpgroup for what its epilogues read."""
        s = self.tiling.shared
        if not s.load_buffers:
            return []
        bytes_, barriers = s.load_buffers * s.load_bytes, Pipeline.barrier_bytes(s.load_buffers)
        return [
            Pipeline.of(
                smem.byte_pointer(base, s.loads_offset + i * bytes_),
                s.load_bytes,
                s.load_buffers,
                smem.byte_pointer(base, s.load_barriers_offset + i * barriers),
            )
            for i in range(s.consumers)
        ]

    def _tile_ring(self, base: Any) -> TileRing | None:
        """Where tiles are taken from a counter."""
        t = self.tiling
        if not t.is_dynamic:
            return None
        return TileRing.of(
            smem.byte_pointer(base, t.shared.ring_offset),
            smem.byte_pointer(base, t.shared.ring_offset + TileRing.bytes()),
            self.kernel.workspace(self.workspace("tiles")),
            self.cluster.count(),
        )

    def _own_loop(self, base: Any) -> Loop | None:
        """Where pixels of a convolution come once for all taps."""
        t, loop = self.tiling, self.matrices.loop
        if loop is None:
            return None
        pixels = Pipeline.of(
            smem.byte_pointer(base, t.shared.pixels_offset),
            t.shared.pixel_bytes,
            t.shared.pixel_slots,
            smem.byte_pointer(base, t.shared.pixels_barriers_offset),
        )
        return loop(self.operands, self.pipeline, pixels)

    def _own_rewriter(self, base: Any) -> Rewriter | None:
        """Where warps of the producer compute an operand in shared memory."""
        rewriter = self.matrices.rewriter
        if rewriter is not None:
            ring = self.loop.pixels if self.loop else self.pipeline
            rewriter.place(ring, smem.byte_pointer(base, self.tiling.shared.rewriting_offset))
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
        blocks = (1, 1) if t.in_pairs else t.cluster
        tiles = (t.rows * blocks[0], t.columns * blocks[1])
        return GroupTable(
            self.kernel, memory, t.groups, self.region.dims_of(offsets)[0], sizes[along],
            tiles[along], ceildiv(sizes[beside], tiles[beside]), t.group_rows, t.in_pairs,
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
            for ring in self.raw_rings if t.shared.raw_bytes else []:
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
        Producer(
            self.tiling, self.matrices, self.pipeline, self.load_rings,
            partial(self._raw_ring, self.base), self.loop, self.rewriter, self.tiles,
            self.epilogue, self.group, self.warp, self.rank,
        ).run()  # fmt: skip

    # ---- the consumers

    def _consume(self) -> None:
        t = self.tiling
        if t.registers:
            wgmma.set_registers(t.registers[1], grows=True)
        self.own = ops.sub(self.group, t.producers)
        self.lane = ops.and_(ops.thread_id(), WARP_THREADS - 1)
        self.epilogue.begin(self.own)
        loads, stream = self._own_loads(), self._stream_sum()
        multiplier = Multiplier(
            t, self.matrices, self.pipeline, self.cluster.tiles, self.loop, self.turns, self.own,
            self.lane, self.tiles,
        )  # fmt: skip

        def multiply(place: TilePlace, carried: Sequence[Any]) -> Sequence[Any]:
            places, sums = multiplier.tile(carried[:rings], place)
            carried = carried[rings:]
            if t.splits > 1:
                self._finish_split(place, sums, carried[0])
                return [*places, ops.xor(carried[0], 1)]
            registers = [wgmma.unpacked(accumulator) for accumulator in sums]
            if t.shared.loads_per_stage:  # after the operands, in the same ring
                carried = [*places[:2], *carried]
            if stream is None:
                kept = finish(place, registers, carried)
            else:
                kept = self._finish_streamed(stream, place, registers, carried, finish)
            if t.shared.loads_per_stage:
                places, kept = [*kept[:2], *places[2:]], kept[2:]
            return [*multiplier.following(places, place), *kept]

        def finish(place: TilePlace, sums: Sequence[Any], carried: Sequence[Any]) -> Sequence[Any]:
            turn = carried[-1] if t.exchanges else 0
            cursor = Cursor(*carried[:2])
            cursor = self.epilogue.run(place, self._by_product(sums), loads, cursor, turn)
            turns = [ops.xor(turn, 1)] if t.exchanges else []
            return [*(cursor.values if loads else []), *turns]

        def tile(place: TilePlace, carried: Sequence[Any]) -> Sequence[Any]:
            place = own_part(t, place, self.own)
            return chosen(
                None if t.streams else has_epilogue(self.tiling, place), carried,
                lambda: multiply(place, carried),
                lambda: [*multiplier.skip(Cursor(*carried[:2]), place).values, *carried[2:]],
            )  # fmt: skip

        start = multiplier.first_places()
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

        return chosen(has_epilogue(self.tiling, place), carried, total, leave)

    def _finish_split(self, place: TilePlace, sums: Sequence[Any], phase: Any) -> None:
        """Adds the sums of the blocks that share the tile; those that have a slice finish it."""
        t = self.tiling
        thread = ops.sub(ops.thread_id(), t.producers * wgmma.WARPGROUP_THREADS)
        self.split.exchange(sums, thread, phase)
        has_slice = ops.less(self.rank, t.shared.slices) if t.shared.slices < t.splits else None
        with ops.if_(has_slice):
            registers = self.split.total(sums, t.shared.own_columns, thread, self.rank)
            own = place.moved(0, ops.mul(self.rank, t.shared.own_columns))
            self.epilogue.run(own, self._by_product(registers), None, Cursor())
        self.split.free(thread)

    def _own_loads(self) -> Loads | None:
        """The tensors that this warpgroup's epilogues read."""
        t = self.tiling
        if t.shared.loads_per_stage:
            own = self.own if t.sharers > 1 else 0
            return StageLoads(self.pipeline, t, own, self.cluster.tiles)
        if not self.load_rings:
            return None
        first, s = self.load_rings[0], t.shared
        data = smem.byte_pointer(first.data, ops.mul(self.own, s.load_buffers * s.load_bytes))
        bytes_ = Pipeline.barrier_bytes(s.load_buffers)
        barriers = smem.byte_pointer(first.full, ops.mul(self.own, bytes_))
        return RingLoads(Pipeline.of(data, s.load_bytes, s.load_buffers, barriers))

    def _by_product(self, sums: Sequence[Any]) -> list[list[Any]]:
        """[product][block of rows] of what there is for each accumulator."""
        blocks = self.tiling.blocks_of_rows
        return [list(sums[i : i + blocks]) for i in range(0, len(sums), blocks)]
