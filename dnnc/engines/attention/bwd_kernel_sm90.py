# pyright: basic
"""The main kernel of engine sdpa_bwd_sm90, top to bottom; see the engine for the whole.

    warp 0           loads K and V of the tile, then Q, what rows have, and dO, block by block
    warps 1, 2       add what a warpgroup has of dQ' to memory, in bulk
    warp 3           fills sums of dQ with zeros for tiles to come, as `bwd_ahead` says
    warpgroups 1, 2  for each block of queries, of 64 keys each:
                       start S' = K @ Q' and dP' = V @ dO', exponentials while dP' runs
                       P', dS' in registers; dS to shared memory; start dV += P' @ dO
                       a barrier of both; start dQ' = K' @ dS', start dK += dS' @ Q
                       wait for dQ' and dV, hand dQ' over while dK runs, wait for dK

There are two buffers of dS, used in step with stages of queries, so that one barrier a step
is enough: a warpgroup comes to the next one after its dQ' has read the last buffer but one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from ...codegen import ops
from ...codegen.attention.gradient_region import GradientRegion
from ...codegen.hopper import mbarrier, tma, wgmma
from ...codegen.hopper.pipeline import Cursor, Pipeline
from ...codegen.hopper.staged_store import store_transposed, transposed_offset
from ...codegen.kernel import Kernel
from ...codegen.memory import bulk_add, smem
from ...codegen.memory.tensors import GlobalTensor
from ...codegen.totals.global_flags import GlobalFlags
from ...codegen.totals.largest import larger, meet
from ...mlir import arith, nvvm
from ...target import WARP_THREADS
from .bwd_add_order import AddOrder, AddState
from .bwd_ahead import Ahead
from .bwd_finish import place_of
from .bwd_keys import KeyGradients
from .bwd_records_sm90 import Buffers, Sums, Weighed
from .bwd_schedule import GradientSchedule, KeyTile
from .bwd_tile_sm90 import CONSUMERS, STAGES, GradientTiling
from .bwd_walk import GradientWalk
from .schedule import QueryTile
from .sources_sm90 import Rows as MemoryRows

# Named barriers: of both warpgroups, then of each, then of each and its writer.
_BOTH = 1
_OWN = _BOTH + 1
_FREE = _OWN + CONSUMERS
_FULL = _FREE + CONSUMERS
PARTS = _FULL + CONSUMERS  # of each buffer of dS and warpgroup
_AHEAD_WARP = 3
BOTH_THREADS = CONSUMERS * wgmma.WARPGROUP_THREADS
_WRITTEN_BY = wgmma.WARPGROUP_THREADS + WARP_THREADS  # threads of a warpgroup and its writer


@dataclass
class GradientEmitter:
    """elements: `kept` of `GradientWalk`."""

    kernel: Kernel
    parts: GradientRegion
    schedule: GradientSchedule
    buffers: Buffers
    elements: Sequence[tuple[Any, GlobalTensor]] = ()

    walk_type: ClassVar[type[GradientWalk]] = GradientWalk
    is_staged: ClassVar[bool] = True  # whether dK and dV go through shared memory

    def __post_init__(self) -> None:
        self.set_operands()
        kept = self.buffers.kept
        self.results = {
            name: KeyGradients(self.kernel, self.parts, self.schedule, name, kept.get(name, ""))
            for name in ("dk", "dv")
        }
        if not kept and self.is_staged:
            for result in self.results.values():
                result.describe()

    def set_operands(self) -> None:
        """Operands, as they are loaded and multiplied."""
        t = self.tiling
        panels = {
            "q": t.depth_panels, "do": t.width_panels, "k": t.depth_panels, "v": t.width_panels
        }  # fmt: skip
        self.operands = {name: self.rows_of(name, panels[name]) for name in panels}
        q, k, v, do = (self.parts.source(name).tensor.type for name in ("q", "k", "v", "do"))
        self.qk, self.vo = wgmma.INSTRUCTIONS[q, k], wgmma.INSTRUCTIONS[v, do]
        self.types = (do, q)
        # Panels of a tile of keys, of a block of queries, and the same as transposed operands.
        self.key_rows = wgmma.Panels(t.keys, 2)
        self.query_rows = wgmma.Panels(t.queries, 2)
        self.keys_transposed = wgmma.Panels(64 * t.depth_panels, 2, False, t.keys)
        self.queries_transposed = wgmma.Panels(64 * t.depth_panels, 2, False, t.queries)
        self.do_transposed = wgmma.Panels(64 * t.width_panels, 2, False, t.queries)

    def rows_of(self, name: str, panels: int) -> MemoryRows:
        """The rows of q, k, v or do, as they lie in memory."""
        t, source = self.tiling, self.parts.source(name)
        return MemoryRows(
            self.kernel, self.parts.region, source, source.axes(is_transposed=name == "v"),
            self.parts.dims[:-2], t.keys if name in "kv" else t.queries, panels,
        )  # fmt: skip

    @property
    def tiling(self) -> GradientTiling:
        return self.schedule.tiling

    @property
    def readers(self) -> tuple[int, int]:
        """Warpgroups that read a stage of Q, and of dO."""
        return CONSUMERS, CONSUMERS

    # ---- the whole

    def emit(self) -> None:
        t = self.tiling
        base = self.kernel.dynamic_shared(t.smem_bytes, 1024)
        at = partial(smem.byte_pointer, base)
        self.q = Pipeline.of(at(t.q_offset), t.q_bytes, STAGES, at(t.q_barriers))
        self.do = Pipeline.of(at(t.do_offset), t.do_bytes, STAGES, at(t.do_barriers))
        self.base = base
        self.k_full, self.v_full = at(t.kv_barriers), at(t.kv_barriers + mbarrier.BYTES)
        self.warp = ops.warp_id()
        # What LLVM knows nothing of: it would fold places into other instructions, which spill.
        self.address = ops.opaque(smem.address(base))
        self.lane = ops.thread_id() & (WARP_THREADS - 1)
        with ops.if_(self.schedule.has_tile(ops.block_id)):
            self._begin()
            self.tile = self.schedule.place(self._number())
            if self.schedule.lists is not None:
                self.schedule.lists.fill(self.schedule, self.tile)
                ops.barrier()
            group = self.warp >> 2
            self.own = group - 1
            ops.if_else(group.eq(0), self._produce, self._consume)

    def _number(self) -> Any:
        """The number by which the tile comes."""
        if not self.buffers.order:
            return ops.block_id()
        place = smem.byte_pointer(self.base, self.tiling.number_offset)
        return ops.load(place, ops.i32_type(), 4)

    def _begin(self) -> None:
        warps = wgmma.WARPGROUP_THREADS // WARP_THREADS
        with ops.if_(ops.thread_id().eq(0)):
            for ring, readers in zip((self.q, self.do), self.readers, strict=True):
                ring.make(1, readers * warps)
            mbarrier.make(self.k_full, 2 if self.buffers.ahead else 1)
            mbarrier.make(self.v_full, 1)
            mbarrier.make_visible()
            if self.buffers.order:
                place = smem.byte_pointer(self.base, self.tiling.number_offset)
                ops.store(place, self.flags.next_number(), 4)
        ops.barrier()

    # ---- the producer

    def _produce(self) -> None:
        wgmma.set_registers(self.tiling.registers[0], grows=False)
        with ops.if_(ops.both(self.warp.eq(0), nvvm.elect_sync())):
            self._load()
        if self.buffers.ahead:
            ops.if_else(self.warp.eq(_AHEAD_WARP), self._work_ahead, self._add_queries)
        else:
            self._add_queries()

    def _work_ahead(self) -> None:
        """Fills sums for a later tile; shows, as a part of K, that this one's are there."""
        ahead = Ahead(self.kernel, self.schedule, self.buffers.sums, self.buffers.ahead)

        def begin() -> None:
            with ops.if_(nvvm.elect_sync()):
                mbarrier.arrive(self.k_full)

        ahead.work(self._number(), self.tile, begin)

    def _load(self) -> None:
        t, tile = self.tiling, self.tile
        for operand in self.operands.values():
            operand.prefetch()
        head = self.schedule.query_head(tile, 0)
        for name, barrier, offset, bytes_ in (
            ("k", self.k_full, 0, t.k_bytes), ("v", self.v_full, t.v_offset, t.v_bytes)
        ):  # fmt: skip
            operand = self.operands[name]
            mbarrier.expect(barrier, bytes_)
            slot = smem.byte_pointer(self.base, offset)
            operand.load(slot, barrier, head, operand.entry(head), tile.key)

        entries: dict[str, Any] = {}

        def begin(head: QueryTile) -> None:
            entries.update((name, self.operands[name].entry(head)) for name in ("q", "do"))

        def step(head: QueryTile, block: Any, cursor: Cursor, is_masked: bool) -> Cursor:
            row = block * t.queries
            for name, ring, more in (("q", self.q, t.row_bytes), ("do", self.do, 0)):
                ring.wait_empty(cursor)
                ring.expect(cursor, ring.stage_bytes + more)
                barrier = ring.full_barrier(cursor)
                self.operands[name].load(ring.slot(cursor), barrier, head, entries[name], row)
                if more:
                    self._load_rows(head, block, cursor, barrier)
            return cursor.next(STAGES)

        self.schedule.each_step(tile, Cursor(), step, begin)

    def _load_rows(self, head: QueryTile, block: Any, cursor: Cursor, barrier: Any) -> None:
        """Starts the copy of what a block's queries have."""
        t = self.tiling
        number = ops.to_i64(self.schedule.block_number(head, block))
        rows = self.kernel.workspace(self.buffers.rows)
        source = smem.byte_pointer(rows, number * t.row_bytes)
        place = cursor.stage * t.row_bytes + t.rows_offset
        nvvm.cp_async_bulk_shared_cluster_global(
            mbarrier.in_cluster(smem.byte_pointer(self.base, place)), source, barrier,
            ops.const(t.row_bytes),
        )  # fmt: skip

    # ---- dQ

    def _add_queries(self) -> None:
        """Adds parts of dQ' to memory, a warp for each warpgroup."""
        writer = self.warp - 1
        with ops.if_(ops.compare("ult", writer, self.tiling.writers)):
            self._write(writer)

    def _write(self, writer: Any) -> None:
        """Adds a warpgroup's parts of dQ' to memory, as they come."""
        t = self.tiling
        part = writer * t.dq_part_bytes
        source = self.address + t.dq_offset + part
        is_one = nvvm.elect_sync()
        order = self.add_order(writer)

        def add(head: QueryTile, block: Any) -> None:
            bulk_add.start(self.sums_place(head, block, part), source, t.dq_part_bytes)
            tma.commit()

        def step(
            head: QueryTile, block: Any, now: AddState | None, is_masked: bool
        ) -> AddState | None:
            self.arrive(_FREE, writer, _WRITTEN_BY)
            if order is None or now is None:
                self.meet(_FULL, writer, _WRITTEN_BY)
                with ops.if_(is_one):
                    add(head, block)
                    tma.wait_read(0)
                nvvm.bar_warp_sync(ops.const(-1))
                return None
            with ops.if_(is_one):
                order.show(now.done)
            self.meet(_FULL, writer, _WRITTEN_BY)
            number = self.schedule.step_number(self.tile, head, block) + 1
            wait = partial(order.wait, number, now.seen)

            def add_in_order() -> Sequence[Any]:
                seen = wait()
                add(head, block)
                tma.wait_read(0)
                return [seen]

            (seen,) = ops.either(is_one, [now.seen.type], add_in_order, lambda: [now.seen])
            nvvm.bar_warp_sync(ops.const(-1))
            return AddState(seen, number)

        end = self.schedule.each_step(self.tile, None if order is None else AddState(), step)
        with ops.if_(is_one):
            if order is None:
                tma.wait(0)
            else:
                order.end(end.seen)

    @property
    def flags(self) -> GlobalFlags:
        return GlobalFlags(self.kernel.workspace(self.buffers.order, is_exclusive=False))

    def add_order(self, writer: Any) -> AddOrder | None:
        """The order of a writer, by its number; None: it adds at any time."""
        if not self.buffers.order:
            return None
        return AddOrder(self.flags, self.schedule, self.tile, writer)

    def sums_place(self, head: QueryTile, block: Any, offset: Any) -> Any:
        """Where a block's sums of dQ lie, some bytes from the first on."""
        number = ops.to_i64(self.schedule.block_number(head, block))
        place = number * self.tiling.dq_bytes + ops.to_i64(offset)
        sums = self.kernel.workspace(self.buffers.sums, is_exclusive=False)
        return smem.byte_pointer(sums, place)

    def arrive(self, first: int, own: Any, threads: int) -> None:
        barrier = ops.value_of(own + first)
        nvvm.barrier_arrive(ops.const(threads), barrier_id=barrier)

    def meet(self, first: int, own: Any, threads: int) -> None:
        nvvm.barrier(barrier_id=ops.value_of(own + first), number_of_threads=ops.const(threads))

    # ---- the consumers

    def _consume(self) -> None:
        t = self.tiling
        wgmma.set_registers(t.registers[1], grows=True)
        self.thread = ops.thread_id() & (wgmma.WARPGROUP_THREADS - 1)
        self.begin_walk(self.own)
        if not self.describes_here:
            self._describe()
        zeros = wgmma.settled([ops.zeros(ops.f32_type())] * ((t.depth + t.width) // 2))
        mbarrier.wait(self.k_full, 0)
        mbarrier.wait(self.v_full, 0)
        dk, dv = zeros[: t.depth // 2], zeros[t.depth // 2 :]
        start = Sums(Cursor(), dk, dv, self.no_magnitudes)
        again = self.found_tile if self.buffers.order else None
        end = self.schedule.each_run(self.tile, start, self._step, again)
        self.meet_magnitudes(end.met)
        tile = self.found_tile()
        if self.buffers.kept:
            self.results["dv"].keep(end.dv, tile, self.own, self.thread)
            self.results["dk"].keep(end.dk, tile, self.own, self.thread)
            return
        self.store_keys(end, tile)

    def store_keys(self, end: Sums, tile: KeyTile) -> None:
        """dV and dK of the warpgroup's keys."""
        t = self.tiling
        # Both warpgroups' products have read all of K: each then has its own rows of it.
        self.meet(_BOTH, 0, BOTH_THREADS)
        self.store("dv", end.dv, t.v_offset, tile, self.own)
        self.store("dk", end.dk, 0, tile, self.own)
        with ops.if_(self.thread.eq(0)):
            tma.wait_read(0)

    def begin_walk(self, own: Any) -> None:
        """own: the number of the warpgroup's keys."""
        self.largest = self.parts.largest_of("")
        self.walk = self.walk_type(
            self.kernel, self.parts, self.schedule, self.thread, own, self.types,
            largest=list(self.largest.values()),
            kept=self.elements,
        )  # fmt: skip

    @property
    def no_magnitudes(self) -> list[Any]:
        return [ops.zeros(ops.f32_type())] * len(self.largest)

    def meet_magnitudes(self, found: Sequence[Any]) -> None:
        for place, own in zip(self.largest, found, strict=True):
            where = place_of(self.kernel, self.parts, place)
            meet(where, larger(0, [own]), self.thread, looks_first=True)

    def found_tile(self) -> KeyTile:
        """The tile's place; where much makes it up, found again, not kept in registers."""
        if not (self.buffers.kept or self.buffers.order):
            return self.tile
        return self.schedule.place(ops.opaque(self._number()))

    @property
    def describes_here(self) -> bool:
        """Whether each step finds descriptors and places, not all steps together: many queries,
        options and loops over heads need their registers; else it is 1 to 5% slower."""
        s, t = self.schedule, self.tiling
        is_short = s.parts.has_masks and t.form == "" and t.shares_queries
        rises = t.is_ordered and self.tile.rises is not None and t.depth % 64 != 0
        is_tight = t.is_tight or is_short or rises or s.tile_heads > 1
        return is_tight or s.lists is not None or t.cuts or self.walk.is_large

    def begin_step(
        self, head: QueryTile, block: Any, is_masked: bool
    ) -> tuple[KeyTile, QueryTile, Any]:
        """(tile, head, first query) of a step, as what it reads of scores is found by."""
        row = block * self.tiling.queries
        if self.describes_here:
            known = self.address, self.thread
            self.address, self.thread = map(ops.opaque, known)
            self._describe()
            self.address, self.thread = known
            if is_masked or self.walk.reads_scores:
                return self.schedule.found_here(self.tile, head, row)
        return self.tile, head, row

    def _describe(self) -> None:
        """The descriptors of operands in shared memory, and the thread's places there."""
        t = self.tiling
        self.describe_keys(self.own)
        panel = 0 if t.shares_queries else self.own * self.keys_transposed.panel_bytes
        self.k_transposed = self.described(panel, self.keys_transposed)
        part = self.own * (t.dq_columns * wgmma.ROW_BYTES) if t.shares_queries else 0
        self.ds_all = self.described(part + t.ds_offset, self.query_rows)
        self.describe_queries()
        self.find_places(self.own)
        own_sums = self.own * t.dq_part_bytes + self.thread * 16
        self.dq_place = self.address + (own_sums + t.dq_offset)

    def describe_keys(self, own: Any) -> None:
        """Rows of K and V of a warpgroup that has scores.  own: the number of its keys."""
        own_rows = own * (wgmma.M * wgmma.ROW_BYTES)
        self.k_own = self.described(own_rows, self.key_rows)
        self.v_own = self.described(own_rows + self.tiling.v_offset, self.key_rows)

    def describe_queries(self) -> None:
        """Q and dO of the first stage, as they are and transposed."""
        t = self.tiling
        self.q_rows = self.described(t.q_offset, self.query_rows)
        self.do_rows = self.described(t.do_offset, self.query_rows)
        self.q_transposed = self.described(t.q_offset, self.queries_transposed)
        self.do_transposed_ = self.described(t.do_offset, self.do_transposed)

    def find_places(self, own: Any) -> None:
        """Where a thread finds what queries have, and puts dS; own: the number of its keys."""
        t = self.tiling
        _, right = wgmma.AccumulatorLayout.origin(self.thread)
        self.row_place = self.address + (right * 4 + t.rows_offset)
        own_part = own * t.ds_part_bytes + t.ds_offset
        self.ds_place = self.address + own_part + transposed_offset(self.thread)

    def described(self, offset: Any, panels: wgmma.Panels) -> Any:
        return wgmma.descriptor(self.address + offset, panels)

    def weigh(self, head: QueryTile, block: Any, now: Sums, is_masked: bool) -> Weighed:
        """Waits for a block of queries, and makes P and dS of it."""
        t, cursor = self.tiling, now.cursor
        tile, head, row = self.begin_step(head, block, is_masked)
        self.walk.met = now.met
        rows = self.row_place + cursor.stage * t.row_bytes
        q, do = (self.in_ring(cursor.stage, bytes_) for bytes_ in (t.q_bytes, t.do_bytes))

        self.q.wait_full(cursor)
        scores = self.of_rows(self.qk, self.k_own, self.q_rows + q, t.depth, t.queries)
        self.do.wait_full(cursor)
        products = self.of_rows(self.vo, self.v_own, self.do_rows + do, t.width, t.queries)
        fetched = self.walk.fetch(tile, head, row)
        (scores,) = wgmma.wait_for([scores], 1)
        sums = wgmma.unpacked(scores)
        e = self.walk.exponentials(sums, tile, head, row, rows, is_masked=is_masked)
        (products,) = wgmma.wait_for([products])
        weights, gradients = self.walk.words(
            e, wgmma.unpacked(products), tile, head, row, rows, is_masked=is_masked,
            fetched=fetched,
        )  # fmt: skip
        return Weighed(head, row, q, do, scores, products, weights, gradients)

    def in_ring(self, stage: Any, bytes_: int) -> Any:
        """The number to add to the descriptor of a ring's first stage."""
        return moved(stage, bytes_)

    def _step(self, head: QueryTile, block: Any, now: Sums, is_masked: bool) -> Sums:
        t, cursor = self.tiling, now.cursor
        buffer = cursor.stage  # of dS
        head, _, q, do, _, _, weights, gradients = self.weigh(head, block, now, is_masked)
        self.put_gradients(gradients, buffer)
        self._tell(buffer)
        weights = wgmma.settled(weights)
        dv = self.add(
            self.vo, t.width, now.dv, weights, self.do_transposed_ + do, self.do_transposed
        )
        self._meet_both(buffer)
        dq = self._of_gradients(buffer)
        dk = self.add(
            self.qk, t.depth, now.dk, gradients, self.q_transposed + q, self.queries_transposed
        )
        dq, dv = wgmma.wait_for([dq, dv], 1)
        self.do.release(cursor, self.lane)
        self.add_part(head, block, wgmma.unpacked(dq))
        (dk,) = wgmma.wait_for([dk])
        self.q.release(cursor, self.lane)
        return Sums(
            cursor.next(STAGES), wgmma.unpacked(dk), wgmma.unpacked(dv), list(self.walk.met)
        )

    # ---- products

    def of_rows(self, row: Any, a: Any, b: Any, depth: int, queries: int) -> Any:
        """Starts [own keys, queries] = A @ B', both [rows][depth] in shared memory."""
        sums = wgmma.undefined(row, queries)
        wgmma.fence()
        for step in range(-(-depth // row.k)):
            panel, inner = divmod(step, row.steps)
            sums = wgmma.multiply(
                row, queries,
                wgmma.moved(a, panel * self.key_rows.bytes + self.key_rows.offset(0, inner)),
                wgmma.moved(b, panel * self.query_rows.bytes + self.query_rows.offset(0, inner)),
                sums, int(step > 0),
            )  # fmt: skip
        wgmma.commit()
        return sums

    def add(
        self, row: Any, n: int, sums: Sequence[Any], words: Sequence[Any], b: Any,
        panels: wgmma.Panels,
    ) -> Any:  # fmt: skip
        """Starts sums + A @ B, [own keys, n], A in registers, B [queries][n] in shared memory."""
        made = wgmma.packed(wgmma.accumulator_type(row, n), sums)
        wgmma.fence()
        for step in range(len(words) // 4):
            made = wgmma.multiply(
                row, n, list(words[4 * step : 4 * step + 4]),
                wgmma.moved(b, panels.offset(0, step)), made, 1, b_k_major=False,
            )  # fmt: skip
        wgmma.commit()
        return made

    def _of_gradients(self, buffer: Any) -> Any:
        """Starts this warpgroup's part of dQ' = K' @ dS', over both warpgroups' keys."""
        t, row = self.tiling, self.qk
        b = self.ds_all + moved(buffer, t.ds_bytes)
        sums = wgmma.undefined(row, t.dq_columns)
        wgmma.fence()
        for step in range(t.keys // row.k):
            panel, inner = divmod(step, row.steps)
            sums = wgmma.multiply(
                row, t.dq_columns,
                wgmma.moved(self.k_transposed, self.keys_transposed.offset(0, step)),
                wgmma.moved(b, panel * t.ds_part_bytes + self.query_rows.offset(0, inner)),
                sums, int(step > 0), a_k_major=False,
            )  # fmt: skip
        wgmma.commit()
        return sums

    # ---- what leaves registers

    def put_gradients(self, words: Sequence[Any], buffer: Any, query: int = 0) -> None:
        """dS' as dS in shared memory, [queries][own keys]; query: the first."""
        place = self.ds_place + buffer * self.tiling.ds_bytes
        for first in range(0, len(words), 4):
            offset = (query + first // 4 * 16) * wgmma.ROW_BYTES
            store_transposed(place, offset, words[first : first + 4])
        tma.show_writes()

    # ---- when both warpgroups' parts of dS are there

    def _tell(self, buffer: Any) -> None:
        """Tells the other warpgroup that this one's part of a buffer is there."""
        if self.tiling.splits:
            self.arrive(PARTS, _part(self.own ^ 1, buffer), BOTH_THREADS)

    def _meet_both(self, buffer: Any) -> None:
        """Waits for the other warpgroup's part of a buffer."""
        if self.tiling.splits:
            self.meet(PARTS, _part(self.own, buffer), BOTH_THREADS)
        else:
            self.meet(_BOTH, 0, BOTH_THREADS)

    def add_part(self, head: QueryTile, block: Any, sums: Sequence[Any]) -> None:
        """Adds a warpgroup's part of a block's dQ' to memory."""
        self._hand_over(sums)

    def _hand_over(self, sums: Sequence[Any]) -> None:
        """A part of dQ' to the warp that adds it to memory."""
        self.meet(_FREE, self.own, _WRITTEN_BY)
        for first in range(0, len(sums), 4):
            place = self.dq_place + first // 4 * wgmma.WARPGROUP_THREADS * 16
            four = ops.from_elements(list(sums[first : first + 4]))
            ops.store(smem.pointer_to(place), four, 16)
        tma.show_writes()
        self.arrive(_FULL, self.own, _WRITTEN_BY)

    def store(self, name: str, sums: Sequence[Any], offset: int, tile: KeyTile, keys: Any) -> None:
        """dK or dV, by way of the warpgroup's own keys or values.  keys: the number of its own."""
        result = self.results[name]
        first = keys * (wgmma.M * wgmma.ROW_BYTES) + offset
        buffer = self.address + first
        result.put(sums, buffer, self.thread)
        tma.show_writes()
        self.meet_own()
        result.leave(buffer, result.place_of(tile, keys), self.thread)

    def meet_own(self) -> None:
        """All threads of the warpgroup meet."""
        self.meet(_OWN, self.own, wgmma.WARPGROUP_THREADS)


def _part(own: Any, buffer: Any) -> Any:
    return buffer * CONSUMERS + own


def moved(stage: Any, bytes_: int) -> Any:
    """The number to add to the descriptor of a ring's first stage."""
    wide = ops.value_of(stage * (bytes_ >> 4))
    return arith.ExtUIOp(ops.i64_type(), wide).result
