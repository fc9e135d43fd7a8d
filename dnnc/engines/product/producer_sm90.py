# pyright: basic
"""Loads tiles in the producer warpgroups of engines matmul_sm90 and conv_sm90.

Operands come by TMA, by one thread; what TMA does not bring as the instruction reads it is filled
in by all threads, from memory or from raw tiles that TMA brought.  Then comes what epilogues read:
into the operands' stages, or by a warp for each consumer warpgroup into a ring of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...codegen import ops
from ...codegen.hopper import mbarrier, tma, wgmma
from ...codegen.hopper.pipeline import Cursor, Pipeline
from ...codegen.hopper.split import SplitSum
from ...codegen.state import chosen, loop
from ...codegen.stretch import stretch
from ...codegen.tiles.schedule import TilePlace
from ...mlir import nvvm
from ...target import WARP_THREADS
from .epilogue_sm90 import Epilogue
from .matrices_sm90 import Loop, Matrices, Rewriter
from .rings_sm90 import Rings
from .tile_loop_sm90 import Tiles, has_epilogue, own_part
from .tile_sm90 import Tiling

_WARPS = wgmma.WARPGROUP_THREADS // WARP_THREADS
_PRODUCER_BARRIER = 8  # named barrier of the producer's threads; see `epilogue_sm90`


@dataclass(frozen=True)
class Loading:
    """Where a producer is.

    here: the stage that it fills next.  raw: its next slot of raw tiles; None: there are none.
    first: which step of the next tile it loads first.  parity: of the next tile, where blocks show
    their sums in the stages; None: they do not.
    """

    here: Cursor
    raw: Cursor | None
    first: Any
    parity: Any = None


@dataclass
class Producer:
    """The work of the producer warpgroups; all their threads run it.

    loop: where pixels of a convolution come once for all taps.  rewriter: where warps compute an
    operand in shared memory.  group, warp: the thread's.  rank: of the block in its cluster.
    raw_ring: this producer's, once it runs.
    """

    tiling: Tiling
    matrices: Matrices
    rings: Rings
    loop: Loop | None
    rewriter: Rewriter | None
    tiles: Tiles
    epilogue: Epilogue
    split: SplitSum
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
            is_first = ops.both(self.warp.eq(0), nvvm.elect_sync())
            with ops.if_(is_first):
                maps = [map_ for o in self.operands for map_ in o.maps]
                maps += self.rewriter.maps if self.rewriter else []
                maps += self.epilogue.load_maps
                maps += [map_ for found in self.epilogue.store_maps.values() for map_ in found]
                for map_ in maps:
                    tma.prefetch(map_)
                self._load_tiles(None)
            for i, ring in enumerate(self.rings.loads):
                is_own = ops.both(self.warp.eq(i + 1), nvvm.elect_sync())
                with ops.if_(is_own):
                    self._load_beside(i, ring)
            if self.rewriter:
                warp = self.warp & (_WARPS - 1) if t.block.helpers else self.warp
                with ops.if_(ops.less(0, warp)):
                    self.rewriter.run(self.tiles)
            if self.matrices.zeros:
                with ops.if_(ops.less(0, self.warp)):
                    self.matrices.zeros.run(self.warp)
        else:
            thread = ops.thread_id() & (wgmma.WARPGROUP_THREADS - 1)
            self.raw_ring = self.rings.raw_of(self.group if t.block.producers > 1 else 0)
            self._load_tiles(thread.eq(0))

    @stretch("load")
    def _load_beside(self, own: int, ring: Pipeline) -> None:
        """Loads what the epilogues of a consumer warpgroup read."""
        t = self.tiling

        def tile(place: TilePlace, here: Cursor) -> Cursor:
            place = own_part(t, place, own)
            return chosen(
                has_epilogue(t, place), here,
                lambda: self.epilogue.start_loads(ring, place, here), lambda: here,
            )  # fmt: skip

        self.tiles.each(Cursor(), tile, own)

    @stretch("load")
    def _load_tiles(self, is_issuer: Any) -> None:
        """is_issuer: which thread starts copies; None: the one that is here."""
        t = self.tiling
        if self.loop:
            self.tiles.each(self.loop.start_loads(), self.loop.load_tile)
            return

        def tile(place: TilePlace, now: Loading) -> Loading:
            if now.parity is not None:
                self.split.wait_free(now.parity)
            first = place.first_step + now.first if t.block.producers > 1 else place.first_step
            if now.raw is not None:
                self._start_raw(place, first, now.raw, is_issuer)

            places = Loading(now.here, now.raw, None)

            @loop(first, place.end_step, t.block.producers, state=places)
            def end(i: Any, at: Loading) -> Loading:
                if at.raw is not None:
                    self.raw_ring.wait_full(at.raw)
                self._load_stage(place, i, at.here, is_issuer, at.raw)
                here = at.here
                for _ in range(t.block.producers):
                    here = here.next(t.stages)
                if at.raw is None:
                    return replace(at, here=here)
                self._load_raw_again(place, i, at.raw, is_issuer)
                return replace(at, here=here, raw=at.raw.next(t.shared.raw_buffers))

            following = self._load_after(place, end.here)
            parity = None if now.parity is None else now.parity ^ 1
            return Loading(following, end.raw, self._next_first(now.first, place), parity)

        raw = Cursor() if t.shared.raw_bytes else None
        start = Loading(Cursor(), raw, 0, 0 if t.shared.are_sums_in_stages else None)
        if t.block.producers > 1:  # producer i has the uses of the ring i, i + 2, ...
            start = Loading(Cursor(self.group, 0), raw, self.group)
        self.tiles.each(start, tile)

    def _load_after(self, place: TilePlace, here: Cursor) -> Cursor:
        """Loads what a tile's epilogues read, where the operands' stages bring it."""
        t = self.tiling
        if not t.shared.load_steps:
            return here

        def load() -> Cursor:
            tiles = [own_part(t, place, i) for i in range(t.block.sharers)]
            following = here
            for step in range(t.shared.load_steps):
                self.rings.stages.wait_empty(following)
                self.epilogue.load_stage(self.rings.stages, tiles, following, step)
                following = following.next(t.stages)
            return following

        return chosen(has_epilogue(t, place), here, load, lambda: here)

    def _next_first(self, first: Any, place: TilePlace) -> Any:
        """Which step of the next tile is this producer's first."""
        return first if self.tiling.block.producers == 1 else (first + place.steps) & 1

    # ---- raw tiles: loaded ahead within a tile of the product, by one thread

    def _load_raw(self, place: TilePlace, step: Any, slot: Cursor, is_issuer: Any) -> None:
        raws = [o for o in self.operands if o.raw is not None]
        with ops.if_(is_issuer):
            self.raw_ring.expect(slot, sum(o.box.bytes for o in raws))
            barrier = self.raw_ring.full_barrier(slot)
            for operand in raws:
                first = place.row if operand.is_rows else place.column
                batch = place.batch_of(is_a=operand.is_a)
                first_k = step * self.matrices.k_panel
                operand.load_raw(self.raw_ring.slot(slot), batch, first, first_k, barrier)

    def _start_raw(self, place: TilePlace, first: Any, slot: Cursor, is_issuer: Any) -> None:
        """Starts the first loads of a tile, from a step on; the ring is empty."""
        for i in range(self.tiling.shared.raw_buffers):
            step = first + i * self.tiling.block.producers
            is_there = step < place.end_step
            self._load_raw(place, step, slot, ops.both(is_issuer, is_there))
            slot = slot.next(self.tiling.shared.raw_buffers)
        # LLVM would give the threads that start nothing a wait of their own, before these loads.
        nvvm.bar_warp_sync(ops.const(-1))

    def _load_raw_again(self, place: TilePlace, step: Any, slot: Cursor, is_issuer: Any) -> None:
        """Once all threads have read a slot, loads what comes a round later into it."""
        nvvm.barrier(
            barrier_id=ops.value_of(self.group) + _PRODUCER_BARRIER,
            number_of_threads=ops.const(wgmma.WARPGROUP_THREADS),
        )
        ahead = step + self.tiling.shared.raw_buffers * self.tiling.block.producers
        self._load_raw(place, ahead, slot, ops.both(is_issuer, ahead < place.end_step))

    def _load_stage(
        self, place: TilePlace, step: Any, cursor: Cursor, is_issuer: Any, raw: Cursor | None
    ) -> None:
        first_k = step * self.matrices.k_panel
        stage = self.rings.stages.slot(cursor)
        self.rings.stages.wait_empty(cursor)
        barrier = self.rings.stages.full_barrier(cursor)
        copied = [o for o in self.operands if o.is_async]
        filled = [o for o in self.operands if not o.is_async]
        pairs = {} if place.is_across is None else {"is_across": place.is_across}
        if copied:
            with ops.if_(is_issuer):
                if self.tiling.takes_fragments:  # by consumers, whose products have used them
                    tma.start_after_reads(of_cluster=max(self.tiling.most_cluster) > 1)
                raws = list(self.rewriter.operands) if self.rewriter else []
                all_bytes, raw_bytes = (sum(o.bytes for o in some) for some in (copied, raws))
                mbarrier.expect(barrier, all_bytes - raw_bytes)
                for operand in copied:
                    first = place.row if operand.is_rows else place.column
                    batch = place.batch_of(is_a=operand.is_a)
                    there = barrier
                    if self.rewriter and any(operand is raw for raw in raws):
                        there = self.rewriter.barrier(cursor)
                        if operand is raws[0]:
                            mbarrier.expect(there, raw_bytes)
                    operand.load(stage, batch, first, first_k, there, self.rank, **pairs)
        for operand in filled:
            raw_slot = None if operand.raw is None or raw is None else self.raw_ring.slot(raw)
            first = place.row if operand.is_rows else place.column
            batch = place.batch_of(is_a=operand.is_a)
            operand.fill(stage, batch, first, first_k, raw_slot)
        if filled:
            tma.show_writes()
            mbarrier.arrive(barrier)
