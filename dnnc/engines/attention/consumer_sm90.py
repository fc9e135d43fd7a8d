# pyright: basic
"""The warpgroups of sdpa_fwd_sm90 that multiply: 64 queries of a tile each.

    S = Q @ K' of the last block, its softmax
    for each block before: start S' = Q @ K', start O += P @ V, wait for S', its softmax while P @ V
      runs, wait for O, scale it, P = exponentials
    O += P @ V, and the epilogue

A step's softmax runs while the tensor cores are at this warpgroup's P @ V and, by turns, at the
products of another (`_turn`).  Blocks of keys come from the last to the first: those at masks and
at the tensor's end, then those of which every score is kept, then those at masks again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...codegen import ops
from ...codegen.attention.online_softmax import HALVES, OnlineSoftmax, Rows, Step, scaled
from ...codegen.hopper import mbarrier, tma, wgmma
from ...codegen.hopper.pipeline import Cursor
from ...codegen.hopper.staged_store import turn_of
from ...codegen.hopper.turns import StepTurns
from ...codegen.memory import smem
from ...codegen.state import chosen, each, loop
from ...codegen.stretch import stretch
from ...mlir import llvm, nvvm
from ...mlir import math as mlir_math
from ...target import WARP_THREADS
from .block_sm90 import Progress, SdpaBlock, Slots, unless
from .computed_queries import ComputedQueries
from .packed_schedule import PackedSchedule
from .region_sm90 import WarpgroupRegion
from .scale import times_log2e
from .schedule import KeyBlocks, QueryTile

_FIRST_BARRIER = 1  # named barriers: of the warpgroups' threads, then of their turns


@dataclass(frozen=True)
class Attended:
    """The state that goes from block to block of a tile's keys.

    keys, values: places in the rings, of the blocks that come.  rows: of the softmax.  result:
    registers of O.  weights: P of the block before, whose values come.  scale: what the result is
    to be scaled by, of each row; empty: it is already.
    """

    keys: Cursor
    values: Cursor
    rows: Rows
    result: Sequence[Any]
    weights: Sequence[Any]
    scale: Sequence[Any]


@dataclass
class SdpaConsumer:
    """A warpgroup of a block from 1 on."""

    block: SdpaBlock

    def __post_init__(self) -> None:
        block = self.block
        self.kernel, self.parts, self.tiling = block.kernel, block.parts, block.tiling
        self.schedule, self.keys, self.values = block.schedule, block.keys, block.values
        t = self.tiling
        q, k, v = (self.parts.source(*place).tensor.type for place in ((0, 0), (0, 1), (1, 1)))
        p = self.parts.weights.type if t.turns else v
        self.qk, self.pv = wgmma.INSTRUCTIONS[q, k], wgmma.INSTRUCTIONS[p, v]
        self.q_panels = wgmma.Panels(wgmma.M, t.kind.element_bytes)
        self.k_panels = wgmma.Panels(t.keys, t.kind.element_bytes)
        if t.turns:
            self.v_panels = wgmma.Panels(t.width, 1)
        else:
            self.v_panels = wgmma.Panels(t.width_panels * t.panel, 2, False, t.keys)

    def run(self) -> None:
        """Attends the rows of all of the block's tiles."""
        t = self.tiling
        if t.registers:
            wgmma.set_registers(t.registers[1], grows=True)
        self.own = self.block.group - 1
        self.thread = ops.thread_id() & (wgmma.WARPGROUP_THREADS - 1)
        self.lane = self.thread & (WARP_THREADS - 1)
        self.queries = self.block.queries_of(self.own)
        self.walks = WarpgroupRegion(self.kernel, self.parts, t, self.schedule, self.thread)
        self.softmax = OnlineSoftmax(
            times_log2e(self.walks.factor),
            t.softmax.rescale,
            self.parts.score_steps.may_be_far,
            t.softmax.lift,
        )
        self.turns = StepTurns(t.consumers, self.own, _FIRST_BARRIER + t.consumers)
        if isinstance(self.schedule, PackedSchedule):
            self._fill_statistics(self.schedule)
        self.turns.begin()
        self.block.each_tile(Progress.start(), self._tile, takes=False)
        self.turns.finish()
        with ops.if_(self.thread.eq(0)):
            tma.wait_read(0)

    def _fill_statistics(self, schedule: PackedSchedule) -> None:
        """Fills the statistics of rows past the sequences' ends, which have no tiles."""
        if not self.parts.outputs.has_padded_statistics:
            return
        t, heads = self.tiling, schedule.heads

        step = ops.block_count()

        @each(ops.block_id(), self.kernel.size(heads), step)
        def _(number: Any) -> None:
            entry, head = schedule.split(number)
            first = schedule.end(entry) + self.own * wgmma.M

            @each(first, self.kernel.size(schedule.queries), t.queries)
            def _(row: Any) -> None:
                walk = self.walks.at(schedule.at(entry, head, row), row)
                walk.store_no_statistics(self.softmax)

    def _tile(self, tile: QueryTile, now: Progress) -> Progress:
        whole = self.block.blocks(tile)
        row = tile.row + self.own * wgmma.M

        def empty() -> None:
            walk = self.walks.at(tile, row)
            walk.store_nothing(self.softmax)
            walk.keep_unseen(ops.const(0), ops.const(0))

        return unless(whole.is_empty, now, lambda: self._attend(tile, whole, row, now), empty)

    def _attend(self, tile: QueryTile, whole: KeyBlocks, row: Any, now: Progress) -> Progress:
        """A tile: its queries, its blocks of keys from the last to the first, its result."""
        mine = self.schedule.blocks(tile, row, wgmma.M)
        walk = self.walks.at(tile, row)
        cursor = self.block.query_cursor(now.count)
        if self.parts.queries is None:
            self.queries.wait_full(cursor)
        else:
            self._compute_queries(tile, row, cursor)
        q = wgmma.descriptor(self.queries.address(cursor), self.q_panels)

        keys, values, end = now.keys, now.values, whole.end
        if self.tiling.tiles.skips:
            end = ops.maximum(ops.minimum(mine.end, whole.end), whole.first + 1)
            here = self._skip(Slots(keys, values), whole.end - end)
            keys, values = here.keys, here.values
        last = end - 1
        state = self._first_block(q, walk, last, replace(now, keys=keys, values=values))
        for low, high, masked in self._runs(whole, mine, last):
            state = self._each_block(q, walk, tile, low, high, masked, state)
        values, result = self._last_product(state)
        self._finish(walk, result, state.rows, cursor)
        walk.keep_unseen(whole.first, end)
        return Progress(state.keys, values, now.count + 1)

    @stretch("load")
    def _compute_queries(self, tile: QueryTile, row: Any, cursor: Cursor) -> None:
        """Computes the warpgroup's queries, once nothing reads what lies in their place."""
        t = self.tiling
        with ops.if_(self.thread.eq(0)):
            tma.wait_read(t.q_stages - 1)
        self.meet()
        slot = self.queries.slot(cursor)

        def place(row: Any, chunk: Any) -> Any:
            byte = ops.value_of(chunk) * smem.CHUNK_BYTES
            turned = turn_of(wgmma.ROW_BYTES, row) ^ (byte % wgmma.ROW_BYTES)
            panel = byte // wgmma.ROW_BYTES * self.q_panels.bytes
            return smem.byte_pointer(slot, row * wgmma.ROW_BYTES + turned + panel)

        steps = -(-t.depth // self.qk.k)
        chunks = steps * wgmma.K_BYTES // smem.CHUNK_BYTES
        made = ComputedQueries(self.kernel, self.parts, self.schedule, chunks)
        made.fill(
            tile, self.schedule.from_first(row), wgmma.M, self.thread,
            wgmma.WARPGROUP_THREADS, place,
        )  # fmt: skip
        tma.show_writes()
        self.meet()

    # ---- blocks of keys

    def _first_block(self, q: Any, walk: Any, block: Any, now: Progress) -> Attended:
        """The scores of the block that comes first, and their softmax."""
        t, keys = self.tiling, now.keys
        self.keys.wait_full(keys)
        sums = self._start_scores(q, keys)
        self._release_queries(now.count)
        (sums,) = wgmma.wait_for([sums])
        self.keys.release(keys, self.lane)
        keys = keys.next(t.stages)
        is_masked = self.walks.has_masks
        scores = walk.scores(wgmma.unpacked(sums), block, is_masked=is_masked)
        first = self.softmax.first(scores, is_masked=is_masked or not self.walks.is_finite)
        weights = walk.weights(first.exponentials, block, is_masked=is_masked)
        zeros = wgmma.settled([ops.zeros(ops.f32_type())] * (t.width // 2))
        scale = [ops.f32(1.0)] * len(HALVES) if t.kind.promotes else []
        return Attended(keys, now.values, first.rows, zeros, weights, scale)

    def _each_block(
        self, q: Any, walk: Any, tile: QueryTile, low: Any, high: Any, is_masked: bool,
        state: Attended,
    ) -> Attended:  # fmt: skip
        """Blocks from high - 1 down to low."""
        count, last = ops.maximum(high - low, 0), high - 1

        @loop(0, count, state=state)
        def end(i: Any, now: Attended) -> Attended:
            if not self.schedule.is_sparse:
                return self._block(q, walk, last - i, is_masked, now)
            # A block that a mask of blocks lets the tile see.
            is_seen, block = self.schedule.sees(tile, last - i), last - i
            return chosen(
                is_seen, now, lambda: self._block(q, walk, block, is_masked, now), lambda: now
            )

        return end

    def _last_product(self, state: Attended) -> tuple[Cursor, Sequence[Any]]:
        """(the place of the next values, the result): O += P @ V of the last block."""
        values = state.values
        self.values.wait_full(values)
        sums = self._start_result(state.weights, values, state.result)
        (sums,) = wgmma.wait_for([sums])
        self.values.release(values, self.lane)
        values = values.next(self.tiling.stages)
        return values, self._added(state.result, state.scale, wgmma.unpacked(sums))

    def _added(
        self, result: Sequence[Any], scale: Sequence[Any], sums: Sequence[Any]
    ) -> Sequence[Any]:
        """The result with a step's sums; those have it in them, or are to be added."""
        if not self.tiling.kind.promotes:
            return sums
        return [
            mlir_math.FmaOp(value, scale[i // 2 % 2], more).result
            for i, (value, more) in enumerate(zip(result, sums, strict=True))
        ]

    def _skip(self, here: Slots, count: Any) -> Slots:
        """Lets blocks go by; turns as ever, of which all warpgroups take equally many."""

        @loop(0, count, state=here)
        def end(i: Any, now: Slots) -> Slots:
            self.turns.wait()
            self.turns.end()
            for ring, cursor in ((self.keys, now.keys), (self.values, now.values)):
                ring.wait_full(cursor)
                ring.release(cursor, self.lane)
                # Without it the compiler gives the lanes that release nothing a wait of their
                # own, in which they would keep the other from releasing.
                nvvm.bar_warp_sync(ops.const(-1))
            stages = self.tiling.stages
            return Slots(now.keys.next(stages), now.values.next(stages))

        return end

    def _runs(self, whole: KeyBlocks, mine: KeyBlocks, last: Any) -> list[tuple[Any, Any, bool]]:
        """(first, end, whether masks are looked at) of the blocks below the last one."""
        if not self.parts.masks.steps:
            return [(whole.first, last, False)]  # the end of the keys is in the last block
        if isinstance(mine.all_end, int) and mine.all_end == 0:
            return [(whole.first, last, True)]  # of no block is every score known to be kept
        high = ops.maximum(ops.minimum(mine.all_end, last), whole.first)
        if isinstance(mine.all, int) and mine.all == 0:
            return [(high, last, True), (whole.first, high, False)]
        low = ops.minimum(ops.maximum(mine.all, whole.first), high)
        return [(high, last, True), (low, high, False), (whole.first, low, True)]

    def _block(self, q: Any, walk: Any, block: Any, is_masked: bool, now: Attended) -> Attended:
        """Starts S = Q @ K' and O += P @ V of the block before; the softmax of S meanwhile."""
        t = self.tiling
        keys, values = now.keys, now.values
        self.keys.wait_full(keys)
        self.turns.wait()
        sums = self._start_scores(q, keys)
        self.values.wait_full(values)
        products = self._start_result(now.weights, values, now.result)
        self.turns.end()
        (sums,) = wgmma.wait_for([sums], 1)
        self.keys.release(keys, self.lane)
        scores = walk.scores(wgmma.unpacked(sums), block, is_masked=is_masked)
        may_be_empty = is_masked or not self.walks.is_finite
        step = self.softmax.next(
            scores, now.rows, is_masked=may_be_empty, pin=self._pin, pinned=t.softmax.pinned
        )
        (products,) = wgmma.wait_for([products])
        self.values.release(values, self.lane)
        # Not before the wait: words that are made while products run would make the assembler
        # serialize these (C7513).  Nor past the branch below, where they would stand in a row.
        weights = wgmma.settled(walk.weights(step.exponentials, block, is_masked=is_masked))
        result = self._added(now.result, now.scale, wgmma.unpacked(products))
        if not t.kind.promotes:
            result = self._rescaled(result, step)
        keys, values = keys.next(t.stages), values.next(t.stages)
        return Attended(
            keys, values, step.rows, result, weights, step.scale if t.kind.promotes else []
        )

    def _rescaled(self, result: Sequence[Any], step: Step) -> Sequence[Any]:
        if step.grows is None:
            return scaled(result, step.scale)
        result = list(result)
        return chosen(step.grows, result, lambda: scaled(result, step.scale), lambda: result)

    def _pin(self, value: Any) -> None:
        """Has a value computed here: a store that is not moved, on a condition that never holds.

        The assembler would move all exponentials below the wait for P @ V.
        """
        place = smem.address(smem.byte_pointer(self.block.base, self.tiling.pins_offset))
        text = "{\n.reg .pred %p;\nsetp.eq.u32 %p, $1, 0;\n@%p st.volatile.shared.f32 [$1], $0;\n}"
        llvm.inline_asm(None, [value, place], text, "f,r", has_side_effects=True)

    # ---- products

    @stretch("query-key product")
    def _start_scores(self, q: Any, keys: Cursor) -> Any:
        """Starts Q @ K' of a block."""
        t = self.tiling
        k = wgmma.descriptor(self.keys.address(keys), self.k_panels)
        sums = wgmma.undefined(self.qk, t.keys)
        wgmma.fence()
        for step in range(-(-t.depth // self.qk.k)):
            panel, inner = divmod(step, self.qk.steps)
            sums = wgmma.multiply(
                self.qk, t.keys,
                wgmma.moved(q, panel * self.q_panels.bytes + self.q_panels.offset(0, inner)),
                wgmma.moved(k, panel * self.k_panels.bytes + self.k_panels.offset(0, inner)),
                sums, int(step > 0),
            )  # fmt: skip
        wgmma.commit()
        return sums

    @stretch("value product")
    def _start_result(self, weights: Sequence[Any], values: Cursor, result: Sequence[Any]) -> Any:
        """Starts O += P @ V of a block."""
        t = self.tiling
        v = wgmma.descriptor(self.values.address(values), self.v_panels)
        if t.kind.promotes:
            sums = wgmma.undefined(self.pv, t.width)
        else:
            sums = wgmma.packed(wgmma.accumulator_type(self.pv, t.width), result)
        wgmma.fence()
        for step in range(t.keys // self.pv.k):
            sums = wgmma.multiply(
                self.pv, t.width, list(weights[4 * step : 4 * step + 4]),
                wgmma.moved(v, self._step_of_values(step)), sums,
                int(step > 0 or not t.kind.promotes), b_k_major=t.turns,
            )  # fmt: skip
        wgmma.commit()
        return sums

    def _step_of_values(self, step: int) -> int:
        """Where a step of keys begins among a block's values, in bytes."""
        if not self.tiling.turns:
            return self.v_panels.offset(0, step)
        panel, inner = divmod(step, self.pv.steps)
        return panel * self.v_panels.bytes + self.v_panels.offset(0, inner)

    # ---- the end of a tile

    def _release_queries(self, count: Any) -> None:
        """Hands back the queries of the tile before, by way of which its result left, once this
        tile's first product is under way."""
        if self.tiling.q_stages == 1:
            return
        before = count - 1
        is_owner = ops.both(self.thread.eq(0), ops.less(0, count))
        with ops.if_(is_owner):
            tma.wait_read(0)
            mbarrier.arrive(self.queries.empty_barrier(self.block.query_cursor(before)))

    @stretch("epilogue")
    def _finish(self, walk: Any, result: Sequence[Any], rows: Rows, cursor: Cursor) -> None:
        """Divides, walks what comes after, and stores."""
        walk.store_staged(self.softmax, rows, result, self.queries.address(cursor), self.meet)
        if self.tiling.q_stages == 1:
            self.meet()
            with ops.if_(self.thread.eq(0)):
                tma.wait_read(0)
                mbarrier.arrive(self.queries.empty_barrier(cursor))

    def meet(self) -> None:
        """A barrier of the warpgroup's threads."""
        nvvm.barrier(
            barrier_id=ops.value_of(self.own + _FIRST_BARRIER),
            number_of_threads=ops.const(wgmma.WARPGROUP_THREADS),
        )
