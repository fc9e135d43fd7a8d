# pyright: basic
"""The kernel of engines matmul_sm90 and conv_sm90, top to bottom; see the engines for the whole.

*Rows* and *columns* are those of the instruction: of the product itself, or, swapped, of its
transpose, whose first operand is B.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...codegen import ops
from ...codegen.hopper import cluster, mbarrier, wgmma
from ...codegen.hopper.cluster import Cluster
from ...codegen.hopper.ping_pong import TilePingPong
from ...codegen.hopper.pipeline import Pipeline
from ...codegen.hopper.split import SplitSum
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.region import Region
from ...codegen.stretch import stretch
from ...codegen.tiles.groups import GroupTable
from ...codegen.tiles.schedule import TileOrder
from ...codegen.totals.row_exchange import RowExchange
from ...codegen.walk.index import Index
from ...codegen.walk.region_walk import Walk
from ...expr import ceildiv
from ...target import WARP_THREADS
from .consumer_sm90 import Consumer, own_loads
from .epilogue_sm90 import Epilogue
from .matrices_sm90 import Loop, Matrices, Rewriter
from .multiplier_sm90 import Multiplier
from .producer_sm90 import Producer
from .region_sm90 import OFFSETS
from .rings_sm90 import Rings
from .tile_loop_sm90 import Tiles
from .tile_sm90 import Tiling


@dataclass
class Emitter:
    """One kernel; matrices: what it multiplies."""

    kernel: Kernel
    region: Region
    tiling: Tiling
    matrices: Matrices

    def emit(self) -> None:
        """Emits the kernel.

            warpgroup 0..   for each tile:
              (Producer)      for each k panel: wait until its stage is empty, load it
                              load what the epilogues read into the stages after, or by warps
                              1 and 2 into rings of their own
            warpgroups ..n  for each tile, or alternately:
              (Consumer)      for each k panel: wait until its stage is full, multiply,
                              release the stage before
                              the epilogue
            warpgroup n+1   rewrites an operand beside warpgroup 0, where one helps

        One warpgroup loads, or two do that also compute operands.  Both roles go through the same
        tiles (`Tiles`), each at its own pace: a producer is ahead by the stages of the ring.  Of a
        convolution, a ring of their own may bring pixels once for all taps (`Loop`), and the
        producer's other warps may compute an operand in shared memory (`Rewriter`).
        """
        t = self.tiling
        self.cluster = Cluster(*t.grid.cluster, t.grid.splits)
        self.rings = rings = Rings.of(self.kernel.dynamic_shared(t.shared.bytes, 1024), t.shared)
        self.split = self._split_sum()
        self.ping_pong = TilePingPong(t.block.consumers, rings.at(t.shared.ping_pong_offset))
        self.groups = self._group_table(rings.at(t.shared.groups_offset))
        self.rank = self.cluster.rank()
        self.exchange = RowExchange(
            t.grid.cluster[1], t.epilogue.exchanges,
            rings.at(t.shared.exchange_offset), rings.at(t.shared.exchange_barriers_offset),
        )  # fmt: skip
        self.epilogue = Epilogue(
            self.kernel, self.region, t, self.matrices, smem.address(rings.base),
            self.exchange, self.cluster.column(self.rank),
        )  # fmt: skip
        self.warp = ops.warp_id()
        self.group = self.warp >> 2
        self.tiles = self._tiles()
        self.loop = self._own_loop()
        self.rewriter = self._own_rewriter()

        self._begin()
        if t.block.helpers:  # behind the consumers
            own = self.group - t.block.producers
            is_consumer = ops.compare("ult", own, t.block.consumers)
            ops.if_else(is_consumer, self._consume, self._produce)
        else:
            ops.if_else(self.group < t.block.producers, self._produce, self._consume)
        if self.cluster.blocks > 1:
            # A block's memory has to last until nobody arrives there any more.
            cluster.synchronize(self.cluster)

    # ---- the two roles

    def _produce(self) -> None:
        Producer(
            self.tiling, self.matrices, self.rings, self.loop, self.rewriter, self.tiles,
            self.epilogue, self.split, self.group, self.warp, self.rank,
        ).run()  # fmt: skip

    def _consume(self) -> None:
        t = self.tiling
        if t.registers:
            wgmma.set_registers(t.registers[1], grows=True)
        own, lane = self.group - t.block.producers, ops.thread_id() & (WARP_THREADS - 1)
        self.epilogue.begin(own)
        loads = own_loads(t, self.rings, own, self.cluster.tiles)
        multiplier = Multiplier(
            t, self.matrices, self.rings.stages, self.cluster.tiles, self.loop, self.ping_pong, own,
            lane, self.tiles,
        )  # fmt: skip
        Consumer(t, multiplier, self.epilogue, self.split, loads, self.rank).run()

    # ---- barriers

    @stretch("set up")
    def _begin(self) -> None:
        """Makes the barriers, and the table of groups; all threads of the cluster meet."""
        with ops.if_(ops.thread_id().eq(0)):
            self._make_barriers()
            mbarrier.make_visible()
        if self.groups:
            with ops.if_(self.warp.eq(0)):
                self.groups.fill(self._first_of_group)
        cluster.synchronize(self.cluster)

    def _make_barriers(self) -> None:
        t, rings = self.tiling, self.rings
        producers = int(any(o.is_async for o in self.matrices.operands))
        producers += wgmma.WARPGROUP_THREADS * (not t.is_all_async)
        rewriting = self.rewriter.arrivals if self.rewriter else 0
        producers += 0 if self.loop else rewriting
        rings.stages.make(producers, self.cluster.tiles * t.block.sharers * 4)
        if t.block.is_ping_pong:
            self.ping_pong.make()
        if t.grid.splits > 1:
            self.split.make()
        for ring in rings.raw if t.shared.raw_bytes else []:
            ring.make(1, 1)
        for ring in rings.loads:
            ring.make(1, 4)
        for i in range(t.block.consumers if t.epilogue.exchanges else 0):
            offset = i * RowExchange.barrier_bytes(t.epilogue.exchanges)
            barriers = smem.byte_pointer(self.exchange.barriers, offset)
            replace(self.exchange, barriers=barriers).make()
        if self.loop:
            self.loop.pixels.make(rewriting or 1, t.block.consumers * 4)
        if self.rewriter:
            self.rewriter.make()

    # ---- the block's parts

    def _tiles(self) -> Tiles:
        t, matrices = self.tiling, self.matrices
        rows, columns = matrices.sizes
        order = TileOrder(
            ceildiv(rows, t.block.rows * self.cluster.rows),
            ceildiv(columns, t.block.columns * self.cluster.columns),
            matrices.batch.fragments,
            t.grid.group_rows,
            t.grid.chunk,
            t.block.swaps,
        )
        return Tiles(
            self.kernel, t, order, matrices.batch, self.cluster, self.rank, self.groups,
            *self._own_steps(), matrices.steps_of,
        )  # fmt: skip

    def _own_steps(self) -> tuple[Any, Any]:
        """The range of k panels that this block multiplies: a part of them where k is split."""
        steps, splits = self.kernel.size(self.matrices.steps), self.tiling.grid.splits
        if splits == 1:
            return 0, steps
        own = self.cluster.slice(self.rank)
        return own * steps // splits, (own + 1) * steps // splits

    def _own_loop(self) -> Loop | None:
        """The main loop where pixels of a convolution come once for all taps."""
        s, loop = self.tiling.shared, self.matrices.loop
        if loop is None:
            return None
        pixels, barriers = self.rings.at(s.pixels_offset), self.rings.at(s.pixels_barriers_offset)
        ring = Pipeline.of(pixels, s.pixels.ring.slot_bytes, s.pixels.ring.slots, barriers)
        return loop(self.matrices.operands, self.rings.stages, ring)

    def _own_rewriter(self) -> Rewriter | None:
        """The warps of the producer that compute an operand in shared memory."""
        rewriter = self.matrices.rewriter
        if rewriter is not None:
            ring = self.loop.pixels if self.loop else self.rings.stages
            rewriter.place(ring, self.rings.at(self.tiling.shared.rewriting_offset))
        return rewriter

    def _split_sum(self) -> SplitSum:
        """The sums of blocks that share a tile's k."""
        t, rings = self.tiling, self.rings
        return SplitSum(
            t.grid.splits, t.shared.slices, t.block.consumers * wgmma.WARPGROUP_THREADS,
            rings.at(t.shared.split_offset), rings.at(t.shared.split_barriers_offset),
            t.shared.are_sums_in_stages,
        )  # fmt: skip

    def _group_table(self, memory: Any) -> GroupTable | None:
        """The table of A's groups of rows, whose bounds are on the device; None: there are none."""
        t = self.tiling
        if not t.grid.groups:
            return None
        offsets = self.matrices.calls[0].operands[OFFSETS]
        along, beside = (1, 0) if t.block.swaps else (0, 1)
        sizes = self.matrices.sizes
        blocks = (1, 1) if t.in_pairs else t.grid.cluster
        tiles = (t.block.rows * blocks[0], t.block.columns * blocks[1])
        return GroupTable(
            self.kernel, memory, t.grid.groups, self.region.dims_of(offsets)[0], sizes[along],
            tiles[along], ceildiv(sizes[beside], tiles[beside]), t.grid.group_rows, t.in_pairs,
        )  # fmt: skip

    def _first_of_group(self, group: Any) -> Any:
        """The first row of a group, from memory."""
        offsets = self.matrices.calls[0].operands[OFFSETS]
        walk = Walk(self.kernel, self.region.leaves(self.kernel), self.region.symbols)
        return walk.value(offsets, [Index(group), Index.of(0), Index.of(0)], 1)
