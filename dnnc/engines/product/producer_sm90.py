# pyright: basic
"""Loads tiles in the producer warpgroups of engines matmul_sm90 and conv_sm90.

Operands come by TMA, by one thread; what TMA does not bring as the instruction reads it is filled
in by all threads, from memory or from raw tiles that TMA brought.  Then comes what epilogues read:
into the operands' stages, or by a warp for each consumer warpgroup into a ring of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.hopper import mbarrier, tma, wgmma
from ...codegen.hopper.pipeline import Cursor, Pipeline
from ...codegen.tiles.schedule import TilePlace
from ...mlir import nvvm
from .epilogue_sm90 import Epilogue
from .matrices_sm90 import Loop, Matrices, Rewriter
from .tile_loop_sm90 import Role, Tiles, chosen, has_epilogue, own_part
from .tile_sm90 import Tiling

_PRODUCER_BARRIER = 8  # named barrier of the producer's threads; see `epilogue_sm90`


@dataclass
class Producer:
    """By all threads of the producer warpgroups.

    pipeline: of the operands' stages.  load_rings: of what the epilogues of each consumer
    warpgroup read.  raw_ring_of: a producer's ring of raw tiles.  loop:
    where pixels of a convolution come once for all taps.  rewriter: where warps compute an operand
    in shared memory.  group, warp: the thread's.  rank: of the block in its cluster.  raw_ring:
    this producer's, once it runs.
    """

    tiling: Tiling
    matrices: Matrices
    pipeline: Pipeline
    load_rings: Sequence[Pipeline]
    raw_ring_of: Callable[[Any], Pipeline]
    loop: Loop | None
    rewriter: Rewriter | None
    tiles: Tiles
    epilogue: Epilogue
    group: Any
    warp: Any
    rank: Any
    raw_ring: Any = None

    @property
    def operands(self) -> Sequence[Any]:
        return self.matrices.operands

    def run(self) -> None:
        t = self.tiling
        if t.registers:
            wgmma.set_registers(t.registers[0], grows=False)
        if t.is_all_async:
            is_first = ops.both(ops.compare("eq", self.warp, 0), nvvm.elect_sync())
            with ops.if_(is_first):
                maps = [map_ for o in self.operands for map_ in o.maps]
                maps += self.rewriter.maps if self.rewriter else []
                for map_ in (*maps, *self.epilogue.load_maps, *self.epilogue.store_maps.values()):
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
            self.raw_ring = self.raw_ring_of(self.group if t.producers > 1 else 0)
            self._load_tiles(ops.compare("eq", thread, 0))

    def _load_beside(self, own: int, ring: Pipeline) -> None:
        """Loads what the epilogues of a consumer warpgroup read."""
        t = self.tiling

        def tile(place: TilePlace, carried: Sequence[Any]) -> Sequence[Any]:
            place = own_part(t, place, own)
            return chosen(
                has_epilogue(t, place), carried,
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
        has_raw = bool(t.shared.raw_bytes)

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
                return [*cursor.values, *raw.next(self.tiling.shared.raw_buffers).values]

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
        if not t.shared.load_steps:
            return cursor

        def load() -> Sequence[Any]:
            tiles = [own_part(t, place, i) for i in range(t.sharers)]
            following = cursor
            for step in range(t.shared.load_steps):
                self.pipeline.wait_empty(following)
                self.epilogue.load_stage(self.pipeline, tiles, following, step)
                following = following.next(t.stages)
            return following.values

        here = cursor.values
        return Cursor(*chosen(has_epilogue(t, place), here, load, lambda: here))

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
                first_k = ops.mul(step, self.matrices.k_panel)
                operand.load_raw(self.raw_ring.slot(slot), batch, first, first_k, barrier)

    def _start_raw(self, place: TilePlace, first: Any, slot: Cursor, is_issuer: Any) -> None:
        """Starts the first loads of a tile, from a step on; the ring is empty."""
        for i in range(self.tiling.shared.raw_buffers):
            step = ops.add(first, i * self.tiling.producers)
            is_there = ops.less(step, place.end_step)
            self._load_raw(place, step, slot, ops.both(is_issuer, is_there))
            slot = slot.next(self.tiling.shared.raw_buffers)
        # LLVM would give the threads that start nothing a wait of their own, before these loads.
        nvvm.bar_warp_sync(ops.const(-1))

    def _load_raw_again(self, place: TilePlace, step: Any, slot: Cursor, is_issuer: Any) -> None:
        """Once all threads have read a slot, loads what comes a round later into it."""
        nvvm.barrier(
            barrier_id=ops.add(ops.value_of(self.group), _PRODUCER_BARRIER),
            number_of_threads=ops.const(wgmma.WARPGROUP_THREADS),
        )
        ahead = ops.add(step, self.tiling.shared.raw_buffers * self.tiling.producers)
        self._load_raw(place, ahead, slot, ops.both(is_issuer, ops.less(ahead, place.end_step)))

    def _load_stage(
        self, place: TilePlace, step: Any, cursor: Cursor, is_issuer: Any, raw: Cursor
    ) -> None:
        first_k = ops.mul(step, self.matrices.k_panel)
        stage = self.pipeline.slot(cursor)
        self.pipeline.wait_empty(cursor)
        barrier = self.pipeline.full_barrier(cursor)
        copied = [o for o in self.operands if o.is_async]
        filled = [o for o in self.operands if not o.is_async]
        pairs = {} if place.is_across is None else {"is_across": place.is_across}
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
                    operand.load(stage, batch, first, first_k, there, self.rank, **pairs)
        for operand in filled:
            raw_slot = self.raw_ring.slot(raw) if operand.raw is not None else None
            first = place.row if operand.is_rows else place.column
            batch = place.batch_of(is_a=operand.is_a)
            operand.fill(stage, batch, first, first_k, raw_slot)
        if filled:
            tma.show_writes()
            mbarrier.arrive(barrier)
