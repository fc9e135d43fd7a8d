# pyright: basic
"""The main kernel of engine sdpa_bwd_sm90, top to bottom; see the engine for the whole.

    warp 0           loads K and V of the tile, then Q, what rows have, and dO, block by block
    warps 1, 2       add what a warpgroup has of dQ' to memory, in bulk
    warpgroups 1, 2  for each block of queries, of 64 keys each:
                       start S' = K @ Q' and dP' = V @ dO', exponentials while dP' runs
                       P', dS' in registers; dS to shared memory; start dV += P' @ dO
                       a barrier of both; start dQ' = K' @ dS', start dK += dS' @ Q
                       wait for dQ' and dV, hand dQ' over while dK runs, wait for dK

There are two buffers of dS, used by the same turns as stages of queries, so that one barrier a step
is enough: a warpgroup comes to the next one after its dQ' has read the last buffer but one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...codegen import ops
from ...codegen.attention.gradient_region import GradientRegion
from ...codegen.hopper import mbarrier, tma, wgmma
from ...codegen.hopper.pipeline import Cursor, Pipeline
from ...codegen.hopper.staged_store import store_turned, turned_offset
from ...codegen.kernel import Kernel
from ...codegen.memory import bulk_add, smem
from ...codegen.memory.tensors import GlobalTensor
from ...codegen.totals.largest import larger, meet
from ...codegen.totals.turn_order import TurnOrder
from ...mlir import arith, nvvm
from ...target import WARP_THREADS
from .bwd_finish import place_of
from .bwd_keys import KeyGradients
from .bwd_schedule import GradientSchedule
from .bwd_tile_sm90 import CONSUMERS, STAGES, WRITERS, GradientTiling
from .bwd_turns import WriterTurns
from .bwd_walk import GradientWalk
from .schedule import QueryTile
from .sources_sm90 import Rows as MemoryRows

# Named barriers: of both warpgroups, then of each, then of each and its writer.
_BOTH = 1
_OWN = _BOTH + 1
_FREE = _OWN + CONSUMERS
_FULL = _FREE + CONSUMERS
_PARTS = _FULL + CONSUMERS  # of each buffer of dS and warpgroup
_BOTH_THREADS = CONSUMERS * wgmma.WARPGROUP_THREADS
_WRITTEN_BY = wgmma.WARPGROUP_THREADS + WARP_THREADS  # threads of a warpgroup and its writer


@dataclass
class GradientEmitter:
    """rows, sums: workspace buffers of what queries have, and of dQ.  turns: of the order in which
    tiles add to dQ; "": any.  kept: those of parts of dk and of dv, where there are parts.
    elements: `kept` of `GradientWalk`."""

    kernel: Kernel
    parts: GradientRegion
    schedule: GradientSchedule
    rows: str
    sums: str
    turns: str
    kept: Mapping[str, str]
    elements: Sequence[tuple[Any, GlobalTensor]] = ()

    def __post_init__(self) -> None:
        t = self.tiling
        heights = {"q": t.queries, "do": t.queries, "k": t.keys, "v": t.keys}
        panels = {
            "q": t.depth_panels, "k": t.depth_panels, "do": t.width_panels, "v": t.width_panels
        }  # fmt: skip
        sources = {name: self.parts.source(name) for name in heights}
        self.operands = {
            name: MemoryRows(
                self.kernel, self.parts.region, source, source.axes(is_turned=name == "v"),
                self.parts.dims[:-2], heights[name], panels[name],
            )
            for name, source in sources.items()
        }  # fmt: skip
        q, k, v, do = (sources[name].tensor.type for name in ("q", "k", "v", "do"))
        self.qk, self.vo = wgmma.INSTRUCTIONS[q, k], wgmma.INSTRUCTIONS[v, do]
        self.types = (do, q)
        self.results = {
            name: KeyGradients(
                self.kernel, self.parts, self.schedule, name, self.kept.get(name, "")
            )
            for name in ("dk", "dv")
        }  # fmt: skip
        if not self.kept:
            for result in self.results.values():
                result.describe()
        # Panels of a tile of keys, of a block of queries, and the same as transposed operands.
        self.key_rows = wgmma.Panels(t.keys, 2)
        self.query_rows = wgmma.Panels(t.queries, 2)
        self.keys_turned = wgmma.Panels(64 * t.depth_panels, 2, False, t.keys)
        self.queries_turned = wgmma.Panels(64 * t.depth_panels, 2, False, t.queries)
        self.do_turned = wgmma.Panels(64 * t.width_panels, 2, False, t.queries)

    @property
    def tiling(self) -> GradientTiling:
        return self.schedule.tiling

    # ---- the whole

    def emit(self) -> None:
        t = self.tiling
        base = self.kernel.dynamic_shared(t.smem_bytes, 1024)
        at = partial(smem.byte_pointer, base)
        self.q = Pipeline.of(at(t.q_offset), t.q_bytes, STAGES, at(t.q_barriers))
        self.do = Pipeline.of(at(t.do_offset), t.do_bytes, STAGES, at(t.do_barriers))
        self.base = base
        self.k_full, self.v_full = at(t.kv_barriers), at(t.kv_barriers + mbarrier.BYTES)
        self.warp = nvvm.shfl_sync(
            ops.const(-1), ops.shr(ops.thread_id(), 5), ops.const(0), ops.const(31),
            nvvm.ShflKind.idx,
        )  # fmt: skip
        # What LLVM knows nothing of: it would fold places into other instructions, which spill.
        self.address = ops.opaque(smem.address(base))
        self.lane = ops.and_(ops.thread_id(), WARP_THREADS - 1)
        self._begin()
        self.tile = self.schedule.place(self._number())
        if self.schedule.lists is not None:
            self.schedule.lists.fill(self.schedule, self.tile)
            ops.barrier()
        group = ops.shr(self.warp, 2)
        self.own = ops.sub(group, 1)
        ops.if_else(ops.compare("eq", group, 0), self._produce, self._consume)

    def _number(self) -> Any:
        """The number by which the tile comes."""
        if not self.turns:
            return ops.block_id()
        place = smem.byte_pointer(self.base, self.tiling.number_offset)
        return ops.load(place, ops.i32_type(), 4)

    def _begin(self) -> None:
        warps = CONSUMERS * wgmma.WARPGROUP_THREADS // WARP_THREADS
        with ops.if_(ops.compare("eq", ops.thread_id(), 0)):
            self.q.make(1, warps)
            self.do.make(1, warps)
            mbarrier.make(self.k_full, 1)
            mbarrier.make(self.v_full, 1)
            mbarrier.make_visible()
            if self.turns:
                place = smem.byte_pointer(self.base, self.tiling.number_offset)
                ops.store(place, self._order().next_number(), 4)
        ops.barrier()

    # ---- the producer

    def _produce(self) -> None:
        wgmma.set_registers(self.tiling.registers[0], grows=False)
        is_first = ops.compare("eq", self.warp, 0)
        with ops.if_(ops.both(is_first, nvvm.elect_sync())):
            self._load()
        writer = ops.sub(self.warp, 1)
        with ops.if_(ops.compare("ult", writer, WRITERS)):
            self._write(writer)

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

        def step(
            head: QueryTile, block: Any, carried: Sequence[Any], is_masked: bool
        ) -> Sequence[Any]:
            cursor, row = Cursor(*carried), ops.mul(block, t.queries)
            for name, ring, more in (("q", self.q, t.row_bytes), ("do", self.do, 0)):
                ring.wait_empty(cursor)
                ring.expect(cursor, ring.stage_bytes + more)
                barrier = ring.full_barrier(cursor)
                self.operands[name].load(ring.slot(cursor), barrier, head, entries[name], row)
                if more:
                    self._load_rows(head, block, cursor, barrier)
            return cursor.next(STAGES).values

        self.schedule.each_step(tile, Cursor().values, step, begin)

    def _load_rows(self, head: QueryTile, block: Any, cursor: Cursor, barrier: Any) -> None:
        """Starts the copy of what a block's queries have."""
        t = self.tiling
        number = ops.to_i64(self.schedule.block_number(head, block))
        source = smem.byte_pointer(self.kernel.workspace(self.rows), ops.mul(number, t.row_bytes))
        place = ops.add(ops.mul(cursor.stage, t.row_bytes), t.rows_offset)
        nvvm.cp_async_bulk_shared_cluster_global(
            mbarrier.in_cluster(smem.byte_pointer(self.base, place)), source, barrier,
            ops.const(t.row_bytes),
        )  # fmt: skip

    def _write(self, writer: Any) -> None:
        """Adds a warpgroup's parts of dQ' to memory, as they come."""
        t = self.tiling
        part = ops.mul(writer, t.dq_part_bytes)
        source = ops.add(ops.add(self.address, t.dq_offset), part)
        is_one = nvvm.elect_sync()
        turns = WriterTurns(self._order(), self.schedule, self.tile, writer) if self.turns else None

        def add(head: QueryTile, block: Any) -> None:
            bulk_add.start(self._sums(head, block, part), source, t.dq_part_bytes)
            tma.commit()

        def step(
            head: QueryTile, block: Any, carried: Sequence[Any], is_masked: bool
        ) -> Sequence[Any]:
            self._arrive(_FREE, writer, _WRITTEN_BY)
            if turns is None:
                self._meet(_FULL, writer, _WRITTEN_BY)
                with ops.if_(is_one):
                    add(head, block)
                    tma.wait_read(0)
                nvvm.bar_warp_sync(ops.const(-1))
                return carried
            own, (seen, done) = turns, carried
            with ops.if_(is_one):
                own.show(done)
            self._meet(_FULL, writer, _WRITTEN_BY)
            number = ops.add(self.schedule.step_number(self.tile, head, block), 1)

            def in_turn() -> Sequence[Any]:
                now = own.wait(number, seen)
                add(head, block)
                tma.wait_read(0)
                return [now]

            following = ops.either(is_one, [seen.type], in_turn, lambda: [seen])
            nvvm.bar_warp_sync(ops.const(-1))
            return [*following, number]

        if turns is None:
            self.schedule.each_step(self.tile, [], step)
            with ops.if_(is_one):
                tma.wait(0)
        else:
            seen, _ = self.schedule.each_step(self.tile, [ops.const(0)] * 2, step)
            with ops.if_(is_one):
                turns.end(seen)

    def _order(self) -> TurnOrder:
        return TurnOrder(self.kernel.workspace(self.turns, is_exclusive=False))

    def _sums(self, head: QueryTile, block: Any, part: Any) -> Any:
        """Where a part of a block's sums of dQ' lies."""
        number = ops.to_i64(self.schedule.block_number(head, block))
        place = ops.add(ops.mul(number, self.tiling.dq_bytes), ops.to_i64(part))
        return smem.byte_pointer(self.kernel.workspace(self.sums, is_exclusive=False), place)

    def _arrive(self, first: int, own: Any, threads: int) -> None:
        barrier = ops.value_of(ops.add(own, first))
        nvvm.barrier_arrive(ops.const(threads), barrier_id=barrier)

    def _meet(self, first: int, own: Any, threads: int) -> None:
        nvvm.barrier(
            barrier_id=ops.value_of(ops.add(own, first)), number_of_threads=ops.const(threads)
        )

    # ---- the consumers

    def _consume(self) -> None:
        t = self.tiling
        wgmma.set_registers(t.registers[1], grows=True)
        self.thread = ops.and_(ops.thread_id(), wgmma.WARPGROUP_THREADS - 1)
        largest = self.parts.largest_of("")
        self.walk = GradientWalk(
            self.kernel, self.parts, self.schedule, self.thread, self.own, self.types,
            largest=list(largest.values()),
            kept=self.elements,
        )  # fmt: skip
        self._describe()
        zeros = wgmma.settled([ops.zeros(ops.f32_type())] * ((t.depth + t.width) // 2))
        mbarrier.wait(self.k_full, 0)
        mbarrier.wait(self.v_full, 0)
        address = self.address
        again = self._describe_again if self.schedule.lists is not None else lambda: None
        start = [*Cursor().values, *zeros, *[ops.zeros(ops.f32_type())] * len(largest)]
        state = self.schedule.each_run(self.tile, start, self._step, again)
        self.address = address  # the one that is known outside loops over heads
        first, last = 2 + t.depth // 2, 2 + (t.depth + t.width) // 2
        for place, found in zip(largest, state[last:], strict=True):
            meet(place_of(self.kernel, self.parts, place), larger(0, [found]), self.thread)
        if self.kept or self.turns:
            # Found again, it takes no registers in the loop.
            self.tile = self.schedule.place(ops.opaque(self._number()))
        if self.kept:
            self.results["dv"].keep(state[first:last], self.tile, self.own, self.thread)
            self.results["dk"].keep(state[2:first], self.tile, self.own, self.thread)
            return
        # Both warpgroups' products have read all of K: each then has its own rows of it.
        self._meet(_BOTH, 0, _BOTH_THREADS)
        self._store(self.results["dv"], state[first:last], t.v_offset)
        self._store(self.results["dk"], state[2:first], 0)
        with ops.if_(ops.compare("eq", self.thread, 0)):
            tma.wait_read(0)

    def _describe_again(self) -> None:
        """Computes places anew for a run of blocks: what those of the run before need registers for
        would spill them."""
        self.address = ops.opaque(smem.address(self.base))
        self._describe()

    def _describe(self) -> None:
        """The descriptors of operands in shared memory, and the thread's places there."""
        t = self.tiling

        def at(offset: Any) -> Any:
            return ops.add(self.address, offset)

        own_rows = ops.mul(self.own, wgmma.M * wgmma.ROW_BYTES)
        self.k_own = wgmma.descriptor(at(own_rows), self.key_rows)
        self.v_own = wgmma.descriptor(at(ops.add(own_rows, t.v_offset)), self.key_rows)
        panel = 0 if t.shares_queries else ops.mul(self.own, self.keys_turned.panel_bytes)
        self.k_turned = wgmma.descriptor(at(panel), self.keys_turned)
        part = ops.mul(self.own, t.dq_columns * wgmma.ROW_BYTES) if t.shares_queries else 0
        self.ds_all = wgmma.descriptor(at(ops.add(part, t.ds_offset)), self.query_rows)
        self.q_rows = wgmma.descriptor(at(t.q_offset), self.query_rows)
        self.do_rows = wgmma.descriptor(at(t.do_offset), self.query_rows)
        self.q_turned = wgmma.descriptor(at(t.q_offset), self.queries_turned)
        self.do_turned_ = wgmma.descriptor(at(t.do_offset), self.do_turned)
        _, right = wgmma.AccumulatorLayout.origin(self.thread)
        self.row_place = at(ops.add(ops.mul(right, 4), t.rows_offset))
        own_part = ops.add(ops.mul(self.own, t.ds_part_bytes), t.ds_offset)
        self.ds_place = ops.add(at(own_part), turned_offset(self.thread))
        own_sums = ops.add(ops.mul(self.own, t.dq_part_bytes), ops.mul(self.thread, 16))
        self.dq_place = at(ops.add(own_sums, t.dq_offset))

    def _step(
        self, head: QueryTile, block: Any, state: Sequence[Any], is_masked: bool
    ) -> Sequence[Any]:
        t, tile = self.tiling, self.tile
        if self.schedule.lists is not None and is_masked:
            # Few blocks are masked: what their masks read is found in each of them anew.
            tile, head = self.schedule.found_here(tile, head)
        cursor = Cursor(*state[:2])
        buffer = cursor.stage  # of dS
        first, last = 2 + t.depth // 2, 2 + (t.depth + t.width) // 2
        dk, dv, self.walk.met = state[2:first], state[first:last], state[last:]
        row = ops.mul(block, t.queries)
        rows = ops.add(self.row_place, ops.mul(cursor.stage, t.row_bytes))
        q, do = (_moved(cursor.stage, bytes_) for bytes_ in (t.q_bytes, t.do_bytes))

        self.q.wait_full(cursor)
        scores = self._of_rows(self.qk, self.k_own, ops.add(self.q_rows, q), t.depth)
        self.do.wait_full(cursor)
        products = self._of_rows(self.vo, self.v_own, ops.add(self.do_rows, do), t.width)
        (scores,) = wgmma.wait_for([scores], 1)
        sums = wgmma.unpacked(scores)
        e = self.walk.exponentials(sums, tile, head, row, rows, is_masked=is_masked)
        (products,) = wgmma.wait_for([products])
        weights, gradients = self.walk.words(
            sums, e, wgmma.unpacked(products), tile, head, row, rows, is_masked=is_masked
        )
        self._put_gradients(gradients, buffer)
        self._tell(buffer)
        weights = wgmma.settled(weights)
        dv = self._add(self.vo, t.width, dv, weights, ops.add(self.do_turned_, do), self.do_turned)
        self._meet_both(buffer)
        dq = self._of_gradients(buffer)
        dk = self._add(
            self.qk, t.depth, dk, gradients, ops.add(self.q_turned, q), self.queries_turned
        )
        dq, dv = wgmma.wait_for([dq, dv], 1)
        self.do.release(cursor, self.lane)
        self._hand_over(wgmma.unpacked(dq))
        (dk,) = wgmma.wait_for([dk])
        self.q.release(cursor, self.lane)
        following = cursor.next(STAGES).values
        return [*following, *wgmma.unpacked(dk), *wgmma.unpacked(dv), *self.walk.met]

    # ---- products

    def _of_rows(self, row: Any, a: Any, b: Any, depth: int) -> Any:
        """Starts [own keys, queries] = A @ B', both [rows][depth] in shared memory."""
        t = self.tiling
        sums = wgmma.undefined(row, t.queries)
        wgmma.fence()
        for step in range(-(-depth // row.k)):
            panel, inner = divmod(step, row.steps)
            sums = wgmma.multiply(
                row, t.queries,
                wgmma.moved(a, panel * self.key_rows.bytes + self.key_rows.offset(0, inner)),
                wgmma.moved(b, panel * self.query_rows.bytes + self.query_rows.offset(0, inner)),
                sums, int(step > 0),
            )  # fmt: skip
        wgmma.commit()
        return sums

    def _add(
        self, row: Any, n: int, sums: Sequence[Any], words: Sequence[Any], b: Any,
        panels: wgmma.Panels,
    ) -> Any:  # fmt: skip
        """Starts sums + A @ B, [own keys, n], A in registers, B [queries][n] in shared memory."""
        made = wgmma.packed(wgmma.accumulator_type(row, n), sums)
        wgmma.fence()
        for step in range(self.tiling.queries // row.k):
            made = wgmma.multiply(
                row, n, list(words[4 * step : 4 * step + 4]),
                wgmma.moved(b, panels.offset(0, step)), made, 1, b_k_major=False,
            )  # fmt: skip
        wgmma.commit()
        return made

    def _of_gradients(self, buffer: Any) -> Any:
        """Starts this warpgroup's part of dQ' = K' @ dS', over both warpgroups' keys."""
        t, row = self.tiling, self.qk
        b = ops.add(self.ds_all, _moved(buffer, t.ds_bytes))
        sums = wgmma.undefined(row, t.dq_columns)
        wgmma.fence()
        for step in range(t.keys // row.k):
            panel, inner = divmod(step, row.steps)
            sums = wgmma.multiply(
                row, t.dq_columns, wgmma.moved(self.k_turned, self.keys_turned.offset(0, step)),
                wgmma.moved(b, panel * t.ds_part_bytes + self.query_rows.offset(0, inner)),
                sums, int(step > 0), a_k_major=False,
            )  # fmt: skip
        wgmma.commit()
        return sums

    # ---- what leaves registers

    def _put_gradients(self, words: Sequence[Any], buffer: Any) -> None:
        """dS' as dS in shared memory, [queries][own keys]."""
        place = ops.add(self.ds_place, ops.mul(buffer, self.tiling.ds_bytes))
        for first in range(0, len(words), 4):
            offset = first // 4 * 16 * wgmma.ROW_BYTES
            store_turned(place, offset, words[first : first + 4])
        tma.show_writes()

    # ---- when both warpgroups' parts of dS are there

    def _tell(self, buffer: Any) -> None:
        """Tells the other warpgroup that this one's part of a buffer is there."""
        if self.tiling.splits:
            self._arrive(_PARTS, self._part(ops.xor(self.own, 1), buffer), _BOTH_THREADS)

    def _meet_both(self, buffer: Any) -> None:
        """Waits for the other warpgroup's part of a buffer."""
        if self.tiling.splits:
            self._meet(_PARTS, self._part(self.own, buffer), _BOTH_THREADS)
        else:
            self._meet(_BOTH, 0, _BOTH_THREADS)

    def _part(self, own: Any, buffer: Any) -> Any:
        return ops.add(ops.mul(buffer, CONSUMERS), own)

    def _hand_over(self, sums: Sequence[Any]) -> None:
        """A part of dQ' to the warp that adds it to memory."""
        self._meet(_FREE, self.own, _WRITTEN_BY)
        for first in range(0, len(sums), 4):
            place = ops.add(self.dq_place, first // 4 * wgmma.WARPGROUP_THREADS * 16)
            four = ops.from_elements(list(sums[first : first + 4]))
            ops.store(smem.pointer_to(place), four, 16)
        tma.show_writes()
        self._arrive(_FULL, self.own, _WRITTEN_BY)

    def _store(self, result: KeyGradients, sums: Sequence[Any], offset: int) -> None:
        """dK or dV, by way of the warpgroup's own keys or values."""
        first = ops.add(ops.mul(self.own, wgmma.M * wgmma.ROW_BYTES), offset)
        buffer = ops.add(self.address, first)
        result.put(sums, buffer, self.thread)
        tma.show_writes()
        self._meet(_OWN, self.own, wgmma.WARPGROUP_THREADS)
        result.leave(buffer, self.tile, self.own, self.thread)


def _moved(stage: Any, bytes_: int) -> Any:
    """The number to add to the descriptor of a ring's first stage."""
    wide = ops.value_of(ops.mul(stage, bytes_ >> 4))
    return arith.ExtUIOp(ops.i64_type(), wide).result
