# pyright: basic
"""The warpgroups of sdpa_fwd_sm90 that multiply: 64 queries of a tile each.

    S = Q @ K' of the last block, its softmax
    for each block before: start S' = Q @ K', start O += P @ V, wait for S', its softmax while P @ V
      runs, wait for O, scale it, P = exponentials
    O += P @ V, and the epilogue: beside S = Q @ K' of the next tile and its softmax, where there is
      room for both tiles' queries

A step's softmax runs while the tensor cores are at this warpgroup's P @ V and, as ping-pong, at the
products of another.  Blocks of keys come from the last to the first: those at masks and
at the tensor's end, then those of which every score is kept, then those at masks again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...codegen import ops
from ...codegen.attention.online_softmax import OnlineSoftmax, Rows, Step, scaled
from ...codegen.hopper import mbarrier, tma, wgmma
from ...codegen.hopper.ping_pong import StepPingPong
from ...codegen.hopper.pipeline import Cursor
from ...codegen.hopper.staged_store import swizzle_of
from ...codegen.memory import smem
from ...codegen.state import chosen, each, loop
from ...codegen.stretch import stretch
from ...mlir import arith, ir, llvm, nvvm
from ...target import WARP_THREADS
from .block_sm90 import Progress, SdpaBlock, Slots, unless
from .computed_queries import ComputedQueries
from .kind_sm90 import PROMOTED_STEPS
from .packed_schedule import PackedSchedule
from .region_sm90 import WarpgroupRegion
from .scale import times_log2e
from .schedule import KeyBlocks, QueryTile

_FIRST_BARRIER = 1  # named barriers: of the warpgroups' threads, then of ping-pong


@dataclass(frozen=True)
class Attended:
    """The state that goes from block to block of a tile's keys.

    keys, values: places in the rings, of the blocks that come.  rows: of the softmax.  result:
    registers of O.  weights: P of the block before, whose values come.  recent: registers of
    products that are still to be added to O, where that happens in f32; empty: it does not.
    steps: how many steps have given these.
    """

    keys: Cursor
    values: Cursor
    rows: Rows
    result: Sequence[Any]
    weights: Sequence[Any]
    recent: Sequence[Any]
    steps: Any


@dataclass(frozen=True)
class Behind:
    """A tile whose last product and whose result are still to come.

    count: of tiles up to it; 0: there is none.  row, head, part: where it is, see `QueryTile`.
    state: after its last block of keys.
    """

    count: Any
    row: Any
    head: Any
    part: Any
    state: Attended


@dataclass(frozen=True)
class Waiting:
    """Places in the rings, and how many tiles there are up to one behind; 0: there is none."""

    keys: Cursor
    values: Cursor
    count: Any


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
        p = self.parts.weights.type if t.transposes_values else v
        self.qk, self.pv = wgmma.INSTRUCTIONS[q, k], wgmma.INSTRUCTIONS[p, v]
        self.q_panels = wgmma.Panels(wgmma.M, t.kind.element_bytes)
        self.k_panels = wgmma.Panels(t.keys, t.kind.element_bytes)
        if t.transposes_values:
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
            t.softmax.tracks,
            # Beside masks, whose steps have a copy of all this each, it was no faster.
            by_bits=not self.parts.masks.steps,
        )
        in_turn = t.consumers if t.takes_turns else 1
        self.ping_pong = StepPingPong(in_turn, self.own, _FIRST_BARRIER + t.consumers)
        if isinstance(self.schedule, PackedSchedule):
            self._fill_statistics(self.schedule)
        scale = self.walks.scale
        if scale is None or scale.is_odd is None:
            self._tiles(is_odd=False)
        else:
            # Code of its own for each: a branch in each step to what is seldom done takes time.
            ops.if_else(
                scale.is_odd, lambda: self._tiles(is_odd=True), lambda: self._tiles(is_odd=False)
            )

    def _tiles(self, *, is_odd: bool) -> None:
        """All of the block's tiles.  is_odd: whether the scores' scale is, see `ScoreScale`."""
        t, self.is_odd = self.tiling, is_odd
        self.is_finite = self.walks.is_plain and not is_odd
        self.ping_pong.begin()
        if t.overlaps:
            behind = self.block.each_tile(self._nothing_behind(), self._tile, takes=False)
            with ops.if_(ops.less(0, behind.count)):
                self._complete(behind, self._last_product(behind.state)[1])
        else:
            self.block.each_tile(Progress.start(), self._tile, takes=False)
        self.ping_pong.finish()
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

    def _tile(self, tile: QueryTile, now: Any) -> Any:
        """A tile.  now: the tile behind it, or, where tiles do not overlap, the progress so far."""
        whole = self.block.blocks(tile)
        row = tile.row + self.own * wgmma.M

        def empty() -> None:
            walk = self.walks.at(tile, row)
            if self.block.store is not None:
                self.block.store.put(walk, tile.part, self.softmax, *walk.nothing())
                return
            walk.store_nothing(self.softmax)
            walk.keep_unseen(ops.const(0), ops.const(0))

        attend = self._attend_after if self.tiling.overlaps else self._attend_alone
        return unless(whole.is_empty, now, lambda: attend(tile, whole, row, now), empty)

    def _attend_alone(
        self, tile: QueryTile, whole: KeyBlocks, row: Any, now: Progress
    ) -> Progress:  # fmt: skip
        """A tile, and its result."""
        walk = self.walks.at(tile, row)

        def first(q: Any, last: Any, skipped: Any) -> Attended:
            here = self._skip(Slots(now.keys, now.values), skipped)
            return self._first_block(q, walk, last, now.count, here.keys, here.values)

        state, end = self._attend(tile, whole, row, walk, now.count, first)
        values, result = self._last_product(state)
        self._finish(walk, result, state.rows, now.count)
        walk.keep_unseen(whole.first, end)
        return Progress(state.keys, values, now.count + 1)

    def _attend_after(self, tile: QueryTile, whole: KeyBlocks, row: Any, behind: Behind) -> Behind:
        """A tile but for its last product, beside whose first one is the last of the tile before,
        whose result is stored."""
        walk, before = self.walks.at(tile, row), behind.state

        def first(q: Any, last: Any, skipped: Any) -> Attended:
            now = Waiting(before.keys, before.values, behind.count)
            if self.tiling.idles:
                is_idle = ops.less(0, skipped)
                now = chosen(is_idle, now, lambda: self._settled(behind, skipped), lambda: now)
            return chosen(
                ops.less(0, now.count), before,
                lambda: self._joined_block(q, walk, last, behind),
                lambda: self._first_block(q, walk, last, behind.count, now.keys, now.values),
            )  # fmt: skip

        state, end = self._attend(tile, whole, row, walk, behind.count, first)
        walk.keep_unseen(whole.first, end)
        return Behind(behind.count + 1, tile.row, tile.head, tile.part, state)

    def _settled(self, behind: Behind, skipped: Any) -> Waiting:
        """Completes the tile behind, if there is one, then lets blocks of keys go by."""
        before = behind.state

        def complete() -> Cursor:
            words, sums = wgmma.settled(before.weights), wgmma.settled(before.result)
            state = replace(before, weights=words, result=sums)
            values, result = self._last_product(state)
            self._complete(behind, result)
            return values

        is_there = ops.less(0, behind.count)
        values = chosen(is_there, before.values, complete, lambda: before.values)
        here = self._skip(Slots(before.keys, values), skipped)
        return Waiting(here.keys, here.values, 0)

    def _nothing_behind(self) -> Behind:
        t, zero, low = self.tiling, ops.f32(0.0), ops.f32(-math.inf)
        words = t.keys * t.kind.element_bytes // 8
        is_low = ops.const(1, ir.IntegerType.get_signless(1)) if self.softmax.by_bits else None
        rows = Rows([low, low], [zero, zero], [low, low] if t.softmax.tracks else [], is_low)
        zeros = [zero] * (t.width // 2)
        state = Attended(
            Cursor(),
            Cursor(),
            rows,
            zeros,
            [ops.const(0)] * words,
            zeros if t.kind.promotes else [],
            0,
        )
        return Behind(0, 0, 0, 0, state)

    def _complete(self, behind: Behind, result: Sequence[Any]) -> None:
        """Stores the result of a tile behind."""
        tile = self.schedule.tile(behind.row, behind.head, behind.part)
        walk = self.walks.at(tile, behind.row + self.own * wgmma.M)
        self._finish(walk, result, behind.state.rows, behind.count - 1)

    def _attend(
        self, tile: QueryTile, whole: KeyBlocks, row: Any, walk: Any, count: Any,
        first: Callable[[Any, Any, Any], Attended],
    ) -> tuple[Attended, Any]:  # fmt: skip
        """(state after the blocks of keys of a tile, the end of those that are multiplied).

        count: of tiles before.  first(queries, block, skipped): the state after the block that
        comes first, after so many that are let go by.
        """
        mine = self.schedule.blocks(tile, row, wgmma.M)
        cursor = self.block.query_cursor(count)
        if self.parts.queries is None:
            self.queries.wait_full(cursor)
        else:
            self._compute_queries(tile, row, cursor)
        q = wgmma.descriptor(self.queries.address(cursor), self.q_panels)
        end = whole.end
        if self.tiling.skips:
            end = ops.maximum(ops.minimum(mine.end, whole.end), whole.first + 1)
        elif self.tiling.idles:
            assert isinstance(self.schedule, PackedSchedule), "packed rows"
            end = ops.select(self.schedule.lacks(tile, row), whole.first + 1, whole.end)
        state = first(q, end - 1, whole.end - end)
        # The end of the keys is in the last block.
        has_masks = bool(self.parts.masks.steps)
        runs = mine.runs(whole.first, end - 1, has_masks=has_masks)
        if self.is_odd:  # seldom: code for one kind of blocks is enough
            runs = [(whole.first, end - 1, self.walks.has_masks)]
        for low, high, masked in runs:
            state = self._each_block(q, walk, tile, low, high, masked, state)
        return state, end

    @stretch("load")
    def _compute_queries(self, tile: QueryTile, row: Any, cursor: Cursor) -> None:
        """Computes the warpgroup's queries, once nothing reads what lies in their place."""
        t = self.tiling
        with ops.if_(self.thread.eq(0)):
            # All of them: a result that leaves by no copy, or not at all, is no group of its own.
            tma.wait_read(0)
        self.meet()
        slot = self.queries.slot(cursor)

        def place(row: Any, chunk: Any) -> Any:
            byte = ops.value_of(chunk) * smem.CHUNK_BYTES
            swizzled = swizzle_of(wgmma.ROW_BYTES, row) ^ (byte % wgmma.ROW_BYTES)
            panel = byte // wgmma.ROW_BYTES * self.q_panels.bytes
            return smem.byte_pointer(slot, row * wgmma.ROW_BYTES + swizzled + panel)

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

    def _first_block(
        self, q: Any, walk: Any, block: Any, count: Any, keys: Cursor, values: Cursor
    ) -> Attended:
        """The scores of the block that comes first, and their softmax.  count: of tiles before."""
        t = self.tiling
        self.keys.wait_full(keys)
        if t.overlaps:
            self.ping_pong.wait()
        sums = self._start_scores(q, keys)
        if t.overlaps:
            self.ping_pong.end()
        self._release_queries(count)
        (sums,) = wgmma.wait_for([sums])
        self.keys.release(keys, self.lane)
        step = self._first_softmax(walk, sums, block)
        weights = walk.weights(step.exponentials, block, is_masked=self.walks.has_masks)
        return self._begun(keys.next(t.stages), values, step, weights)

    def _joined_block(self, q: Any, walk: Any, block: Any, behind: Behind) -> Attended:
        """Starts a tile as `_first_block` does, beside the last product of the tile behind, whose
        result is stored."""
        t, before = self.tiling, behind.state
        keys, values = before.keys, before.values
        self.keys.wait_full(keys)
        self.ping_pong.wait()
        sums = self._start_scores(q, keys)
        self.values.wait_full(values)
        products = self._start_result(before, values)
        self.ping_pong.end()
        self._release_queries(behind.count)
        (sums,) = wgmma.wait_for([sums], 1)
        self.keys.release(keys, self.lane)
        step = self._first_softmax(walk, sums, block)
        (products,) = wgmma.wait_for([products])
        self.values.release(values, self.lane)
        is_masked = self.walks.has_masks
        weights = wgmma.settled(walk.weights(step.exponentials, block, is_masked=is_masked))
        self._complete(behind, self._whole_result(before, products))
        return self._begun(keys.next(t.stages), values.next(t.stages), step, weights)

    def _first_softmax(self, walk: Any, sums: Any, block: Any) -> Step:
        is_masked = self.walks.has_masks
        scores = walk.scores(wgmma.unpacked(sums), block, is_masked=is_masked, is_odd=self.is_odd)
        may_be_empty = is_masked or not self.is_finite
        return self.softmax.first(scores, is_masked=may_be_empty)

    def _begun(
        self, keys: Cursor, values: Cursor, step: Step, weights: Sequence[Any]
    ) -> Attended:  # fmt: skip
        """The state after a tile's first block."""
        t = self.tiling
        zeros = wgmma.settled([ops.zeros(ops.f32_type())] * (t.width // 2))
        return Attended(
            keys, values, step.rows, zeros, weights, zeros if t.kind.promotes else [], 0
        )

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
        sums = self._start_result(state, values)
        (sums,) = wgmma.wait_for([sums])
        self.values.release(values, self.lane)
        values = values.next(self.tiling.stages)
        return values, self._whole_result(state, sums)

    def _whole_result(self, before: Attended, products: Any) -> list[Any]:
        """The result with a step's products; those have it in them, or are to be added."""
        products = wgmma.unpacked(products)
        return _sums(before.result, products) if self.tiling.kind.promotes else products

    def _skip(self, here: Slots, count: Any) -> Slots:
        """Lets blocks go by, at the barriers of ping-pong as ever: all warpgroups take as many."""
        if not (self.tiling.skips or self.tiling.idles):
            return here

        @loop(0, count, state=here)
        def end(i: Any, now: Slots) -> Slots:
            self.ping_pong.wait()
            self.ping_pong.end()
            for ring, cursor in ((self.keys, now.keys), (self.values, now.values)):
                ring.wait_full(cursor)
                ring.release(cursor, self.lane)
                # Without it the compiler gives the lanes that release nothing a wait of their
                # own, in which they would keep the other from releasing.
                nvvm.bar_warp_sync(ops.const(-1))
            stages = self.tiling.stages
            return Slots(now.keys.next(stages), now.values.next(stages))

        return end

    def _block(self, q: Any, walk: Any, block: Any, is_masked: bool, now: Attended) -> Attended:
        """Starts S = Q @ K' and O += P @ V of the block before; the softmax of S meanwhile."""
        t = self.tiling
        keys, values = now.keys, now.values
        self.keys.wait_full(keys)
        self.ping_pong.wait()
        sums = self._start_scores(q, keys)
        self.values.wait_full(values)
        products = self._start_result(now, values)
        self.ping_pong.end()
        (sums,) = wgmma.wait_for([sums], 1)
        self.keys.release(keys, self.lane)
        scores = walk.scores(wgmma.unpacked(sums), block, is_masked=is_masked, is_odd=self.is_odd)
        may_be_empty = is_masked or not self.is_finite
        step = self.softmax.next(
            scores, now.rows, is_masked=may_be_empty, pin=self._pin, pinned=t.softmax.pinned
        )
        (products,) = wgmma.wait_for([products])
        self.values.release(values, self.lane)
        # Not before the wait: words that are made while products run would make the assembler
        # serialize these (C7513).  Nor past the branch below, where they would stand in a row.
        weights = wgmma.settled(walk.weights(step.exponentials, block, is_masked=is_masked))
        keys, values = keys.next(t.stages), values.next(t.stages)
        products = wgmma.unpacked(products)
        if not t.kind.promotes:
            result = self._rescaled(products, step)
            return Attended(keys, values, step.rows, result, weights, [], 0)
        promoted = self._promoted(replace(now, recent=products, steps=now.steps + 1), step)
        return replace(promoted, keys=keys, values=values, rows=step.rows, weights=weights)

    def _promoted(self, now: Attended, step: Step) -> Attended:
        """Adds recent products to the result where they are due: in all warps at a time, whose
        products are one instruction; references move in one warp or another."""

        def grown() -> Attended:
            result, recent = (scaled(sums, step.scale) for sums in (now.result, now.recent))
            return replace(now, result=result, recent=recent)

        moved = chosen(step.grows, now, grown, lambda: now)  # grows of None: always

        def added() -> Attended:
            return replace(moved, result=_sums(moved.result, moved.recent), steps=0)

        is_due = moved.steps.eq(PROMOTED_STEPS)
        return chosen(is_due, moved, added, lambda: moved)

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
    def _start_result(self, now: Attended, values: Cursor) -> Any:
        """Starts O += P @ V of a block, or the same of its recent products."""
        t = self.tiling
        v = wgmma.descriptor(self.values.address(values), self.v_panels)
        into = now.recent if t.kind.promotes else now.result
        sums = wgmma.packed(wgmma.accumulator_type(self.pv, t.width), into)
        wgmma.fence()
        for step in range(t.keys // self.pv.k):
            is_added = now.steps if t.kind.promotes and step == 0 else 1
            sums = wgmma.multiply(
                self.pv, t.width, list(now.weights[4 * step : 4 * step + 4]),
                wgmma.moved(v, self._step_of_values(step)), sums, is_added,
                b_k_major=t.transposes_values,
            )  # fmt: skip
        wgmma.commit()
        return sums

    def _step_of_values(self, step: int) -> int:
        """Where a step of keys begins among a block's values, in bytes."""
        if not self.tiling.transposes_values:
            return self.v_panels.offset(0, step)
        panel, inner = divmod(step, self.pv.steps)
        return panel * self.v_panels.bytes + self.v_panels.offset(0, inner)

    # ---- the end of a tile

    def _release_queries(self, count: Any) -> None:
        """Hands back queries by way of which a result left, once the first product of the tile
        after `count` others is under way: of the tile before, or where tiles overlap, whose
        results leave later, of the one before that."""
        t = self.tiling
        behind = t.q_stages - 1
        if behind == 0 or t.hands_back_at_once:
            return
        is_owner = ops.both(self.thread.eq(0), ops.less(behind - 1, count))
        with ops.if_(is_owner):
            tma.wait_read(0)
            slot = self.block.query_cursor(count - behind)
            mbarrier.arrive(self.queries.empty_barrier(slot))

    @stretch("epilogue")
    def _finish(self, walk: Any, result: Sequence[Any], rows: Rows, number: Any) -> None:
        """Divides, walks what comes after, and stores.  number: of the tile."""
        t, cursor = self.tiling, self.block.query_cursor(number)
        if self.block.store is None:
            walk.store_staged(self.softmax, rows, result, self.queries.address(cursor), self.meet)
        else:
            self.block.store.put(walk, walk.tile.part, self.softmax, rows, result)
        if t.staged < 0 and t.q_stages > 1 and not t.hands_back_at_once:
            # `_release_queries` hands these queries back later, by thread 0 for all four warps.  A
            # result that is staged has a barrier of its own, after which all have read the queries;
            # of others thread 0 would know its own warp's progress alone: one warpgroup has no
            # ping-pong, and a tile of a single block begins without one.
            self.meet()
        if t.q_stages == 1 or t.hands_back_at_once:
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


def _sums(one: Sequence[Any], other: Sequence[Any]) -> list[Any]:
    return [arith.AddFOp(a, b).result for a, b in zip(one, other, strict=True)]
