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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...codegen import ops
from ...codegen.attention.online_softmax import HALVES, OnlineSoftmax, Rows, Step, scaled
from ...codegen.hopper import mbarrier, tma, wgmma
from ...codegen.hopper.pipeline import Cursor
from ...codegen.memory import smem
from ...mlir import arith, ir, llvm, nvvm
from ...mlir import math as mlir_math
from ...target import WARP_THREADS
from .block_sm90 import SdpaBlock, unless
from .packed_schedule import PackedSchedule
from .region_sm90 import WarpgroupRegion
from .scale import times_log2e
from .schedule import KeyBlocks, QueryTile

_FIRST_BARRIER = 1  # named barriers: of the warpgroups' threads, then of their turns


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
        self.q_panels = wgmma.Panels(wgmma.M, t.element_bytes)
        self.k_panels = wgmma.Panels(t.keys, t.element_bytes)
        if t.turns:
            self.v_panels = wgmma.Panels(t.width, 1)
        else:
            self.v_panels = wgmma.Panels(t.width_panels * t.panel, 2, False, t.keys)

    def run(self) -> None:
        """Attends the rows of all of the block's tiles."""
        t = self.tiling
        if t.registers:
            wgmma.set_registers(t.registers[1], grows=True)
        self.own = ops.sub(self.block.group, 1)
        self.thread = ops.and_(ops.thread_id(), wgmma.WARPGROUP_THREADS - 1)
        self.lane = ops.and_(self.thread, WARP_THREADS - 1)
        self.queries = self.block.queries_of(self.own)
        self.walks = WarpgroupRegion(self.kernel, self.parts, t, self.schedule, self.thread)
        self.softmax = OnlineSoftmax(
            times_log2e(self.walks.factor), t.rescale, self.parts.score_steps.may_be_far, t.lift
        )
        if isinstance(self.schedule, PackedSchedule):
            self._fill_statistics(self.schedule)
        self._first_turn()
        start = [*Cursor().values, *Cursor().values, ops.const(0)]
        self.block.each_tile(start, self._tile, takes=False)
        self._last_turn()
        with ops.if_(ops.compare("eq", self.thread, 0)):
            tma.wait_read(0)

    def _fill_statistics(self, schedule: PackedSchedule) -> None:
        """Fills the statistics of rows past the sequences' ends, which have no tiles."""
        if not self.parts.outputs.has_padded_statistics:
            return
        t, heads = self.tiling, schedule.heads

        def of_head(number: Any, carried: Sequence[Any]) -> Sequence[Any]:
            entry, head = schedule.split(number)
            first = ops.add(schedule.end(entry), ops.mul(self.own, wgmma.M))

            def rows(row: Any, carried: Sequence[Any]) -> Sequence[Any]:
                walk = self.walks.at(schedule.at(entry, head, row), row)
                walk.store_no_statistics(self.softmax)
                return carried

            ops.for_(first, self.kernel.size(schedule.queries), t.queries, [], rows)
            return carried

        step = ops.block_count()
        ops.for_(ops.block_id(), self.kernel.size(heads), step, [], of_head)

    def _tile(self, tile: QueryTile, carried: Sequence[Any]) -> Sequence[Any]:
        whole = self.block.blocks(tile)
        row = ops.add(tile.row, ops.mul(self.own, wgmma.M))

        def empty() -> None:
            walk = self.walks.at(tile, row)
            walk.store_nothing(self.softmax)
            walk.keep_unseen(ops.const(0), ops.const(0))

        def full() -> Sequence[Any]:
            return self._attend(tile, whole, row, carried)

        return unless(whole.is_empty, carried, full, empty)

    def _attend(
        self, tile: QueryTile, whole: KeyBlocks, row: Any, carried: Sequence[Any]
    ) -> Sequence[Any]:
        t = self.tiling
        keys, values, count = Cursor(*carried[:2]), Cursor(*carried[2:4]), carried[4]
        mine = self.schedule.blocks(tile, row, wgmma.M)
        walk = self.walks.at(tile, row)
        cursor = self.block.query_cursor(count)
        self.queries.wait_full(cursor)
        q = wgmma.descriptor(self.queries.address(cursor), self.q_panels)

        end = whole.end
        if t.skips:
            end = ops.maximum(ops.minimum(mine.end, whole.end), ops.add(whole.first, 1))
            keys, values = self._skip(keys, values, ops.sub(whole.end, end))
        last = ops.sub(end, 1)
        self.keys.wait_full(keys)
        sums = self._start_scores(q, keys)
        self._release_queries(count)
        (sums,) = wgmma.wait_for([sums])
        self.keys.release(keys, self.lane)
        keys = keys.next(t.stages)
        is_masked = self.walks.has_masks
        scores = walk.scores(wgmma.unpacked(sums), last, is_masked=is_masked)
        first = self.softmax.first(scores, is_masked=is_masked or not self.walks.is_finite)
        weights = walk.weights(first.exponentials, last, is_masked=is_masked)
        zeros = wgmma.settled([ops.zeros(ops.f32_type())] * (t.width // 2))

        state = [*keys.values, *values.values, *first.rows.values, *zeros, *weights]
        if t.promotes:
            state += [_number(1.0)] * len(HALVES)
        for low, high, masked in self._runs(whole, mine, last):
            count_ = ops.maximum(ops.sub(high, low), 0)
            body = partial(self._step, q, walk, ops.sub(high, 1), masked)
            if self.schedule.is_sparse:
                body = partial(self._step_if_seen, tile, ops.sub(high, 1), body)
            state = ops.for_(0, count_, 1, state, body)
        keys, values = Cursor(*state[:2]), Cursor(*state[2:4])
        rows, result, weights, scale = self._carried(state[4:])
        self.values.wait_full(values)
        sums = self._start_result(weights, values, result)
        (sums,) = wgmma.wait_for([sums])
        self.values.release(values, self.lane)
        values = values.next(t.stages)
        result = self._added(result, scale, wgmma.unpacked(sums))
        self._finish(walk, tile, row, result, rows, cursor)
        walk.keep_unseen(whole.first, end)
        return [*keys.values, *values.values, ops.add(count, 1)]

    def _carried(
        self, state: Sequence[Any]
    ) -> tuple[Rows, Sequence[Any], Sequence[Any], Sequence[Any]]:
        """(rows, result, weights, what the result is to be scaled by) of what steps carry on."""
        first = 4 + self.tiling.width // 2
        last = len(state) - (len(HALVES) if self.tiling.promotes else 0)
        return Rows.of(state), state[4:first], state[first:last], state[last:]

    def _added(
        self, result: Sequence[Any], scale: Sequence[Any], sums: Sequence[Any]
    ) -> Sequence[Any]:
        """The result with a step's sums; those have it in them, or are to be added."""
        if not self.tiling.promotes:
            return sums
        return [
            mlir_math.FmaOp(value, scale[i // 2 % 2], more).result
            for i, (value, more) in enumerate(zip(result, sums, strict=True))
        ]

    def _skip(self, keys: Cursor, values: Cursor, count: Any) -> tuple[Cursor, Cursor]:
        """Lets blocks go by; turns as ever, of which all warpgroups take equally many."""

        def one(i: Any, carried: Sequence[Any]) -> Sequence[Any]:
            keys, values = Cursor(*carried[:2]), Cursor(*carried[2:])
            self._turn()
            self._pass_turn()
            for ring, cursor in ((self.keys, keys), (self.values, values)):
                ring.wait_full(cursor)
                ring.release(cursor, self.lane)
                # Without it the compiler gives the lanes that release nothing a wait of their
                # own, in which they would keep the other from releasing.
                nvvm.bar_warp_sync(ops.const(-1))
            stages = self.tiling.stages
            return [*keys.next(stages).values, *values.next(stages).values]

        carried = ops.for_(0, count, 1, [*keys.values, *values.values], one)
        return Cursor(*carried[:2]), Cursor(*carried[2:])

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

    def _step(
        self, q: Any, walk: Any, last: Any, is_masked: bool, i: Any, state: Sequence[Any]
    ) -> Sequence[Any]:
        t = self.tiling
        keys, values = Cursor(*state[:2]), Cursor(*state[2:4])
        rows, result, weights, scale = self._carried(state[4:])
        block = ops.sub(last, i)
        self.keys.wait_full(keys)
        self._turn()
        sums = self._start_scores(q, keys)
        self.values.wait_full(values)
        products = self._start_result(weights, values, result)
        self._pass_turn()
        (sums,) = wgmma.wait_for([sums], 1)
        self.keys.release(keys, self.lane)
        scores = walk.scores(wgmma.unpacked(sums), block, is_masked=is_masked)
        may_be_empty = is_masked or not self.walks.is_finite
        step = self.softmax.next(
            scores, rows, is_masked=may_be_empty, pin=self._pin, pinned=t.pinned
        )
        (products,) = wgmma.wait_for([products])
        self.values.release(values, self.lane)
        # Not before the wait: words that are made while products run would make the assembler
        # serialize these (C7513).  Nor past the branch below, where they would stand in a row.
        weights = wgmma.settled(walk.weights(step.exponentials, block, is_masked=is_masked))
        result = self._added(result, scale, wgmma.unpacked(products))
        if not t.promotes:
            result = self._rescaled(result, step)
        following = [*keys.next(t.stages).values, *values.next(t.stages).values]
        scale = step.scale if t.promotes else ()
        return [*following, *step.rows.values, *result, *weights, *scale]

    def _step_if_seen(
        self, tile: QueryTile, last: Any, step: Callable[..., Sequence[Any]], i: Any,
        state: Sequence[Any],
    ) -> Sequence[Any]:  # fmt: skip
        """A step, of a block that a mask of blocks lets the tile see."""
        is_seen = self.schedule.sees(tile, ops.sub(last, i))
        return ops.either(is_seen, [v.type for v in state], lambda: step(i, state), lambda: state)

    def _rescaled(self, result: Sequence[Any], step: Step) -> Sequence[Any]:
        if step.grows is None:
            return scaled(result, step.scale)
        types = [value.type for value in result]
        return ops.either(
            step.grows, types, lambda: scaled(result, step.scale), lambda: list(result)
        )

    def _pin(self, value: Any) -> None:
        """Has a value computed here: a store that is not moved, on a condition that never holds.

        The assembler would move all exponentials below the wait for P @ V.
        """
        place = smem.address(smem.byte_pointer(self.block.base, self.tiling.pins_offset))
        text = "{\n.reg .pred %p;\nsetp.eq.u32 %p, $1, 0;\n@%p st.volatile.shared.f32 [$1], $0;\n}"
        llvm.inline_asm(None, [value, place], text, "f,r", has_side_effects=True)

    # ---- products

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

    def _start_result(self, weights: Sequence[Any], values: Cursor, result: Sequence[Any]) -> Any:
        """Starts O += P @ V of a block."""
        t = self.tiling
        v = wgmma.descriptor(self.values.address(values), self.v_panels)
        if t.promotes:
            sums = wgmma.undefined(self.pv, t.width)
        else:
            sums = wgmma.packed(wgmma.accumulator_type(self.pv, t.width), result)
        wgmma.fence()
        for step in range(t.keys // self.pv.k):
            sums = wgmma.multiply(
                self.pv, t.width, list(weights[4 * step : 4 * step + 4]),
                wgmma.moved(v, self._step_of_values(step)), sums,
                int(step > 0 or not t.promotes), b_k_major=t.turns,
            )  # fmt: skip
        wgmma.commit()
        return sums

    def _step_of_values(self, step: int) -> int:
        """Where a step of keys begins among a block's values, in bytes."""
        if not self.tiling.turns:
            return self.v_panels.offset(0, step)
        panel, inner = divmod(step, self.pv.steps)
        return panel * self.v_panels.bytes + self.v_panels.offset(0, inner)

    # ---- turns

    def _turn_barrier(self, own: Any) -> Any:
        return ops.value_of(ops.add(own, _FIRST_BARRIER + self.tiling.consumers))

    def _turn(self) -> None:
        """Waits until it is this warpgroup's turn to start products."""
        if self.tiling.takes_turns:
            nvvm.barrier(
                barrier_id=self._turn_barrier(self.own),
                number_of_threads=ops.const(2 * wgmma.WARPGROUP_THREADS),
            )

    def _pass_turn(self) -> None:
        if self.tiling.takes_turns:
            following = ops.add(self.own, 1)
            is_last = ops.compare("eq", following, self.tiling.consumers)
            self._give_turn(ops.select(is_last, 0, following))

    def _give_turn(self, own: Any) -> None:
        threads = ops.const(2 * wgmma.WARPGROUP_THREADS)
        nvvm.barrier_arrive(threads, barrier_id=self._turn_barrier(own))

    def _first_turn(self) -> None:
        """The first warpgroup begins: nobody gave it its first turn."""
        if self.tiling.takes_turns:
            with ops.if_(ops.compare("eq", self.own, 0)):
                self._give_turn(0)

    def _last_turn(self) -> None:
        """The turn that the last warpgroup gave to the first is taken."""
        if self.tiling.takes_turns:
            with ops.if_(ops.compare("eq", self.own, 0)):
                self._turn()

    # ---- the end of a tile

    def _release_queries(self, count: Any) -> None:
        """Hands back the queries of the tile before, by way of which its result left, once this
        tile's first product is under way."""
        if self.tiling.q_stages == 1:
            return
        before = ops.sub(count, 1)
        is_owner = ops.both(ops.compare("eq", self.thread, 0), ops.less(0, count))
        with ops.if_(is_owner):
            tma.wait_read(0)
            mbarrier.arrive(self.queries.empty_barrier(self.block.query_cursor(before)))

    def _finish(
        self, walk: Any, tile: QueryTile, row: Any, result: Sequence[Any], rows: Rows,
        cursor: Cursor,
    ) -> None:  # fmt: skip
        """Divides, walks what comes after, and stores."""
        walk.store_staged(self.softmax, rows, result, self.queries.address(cursor), self.meet)
        if self.tiling.q_stages == 1:
            self.meet()
            with ops.if_(ops.compare("eq", self.thread, 0)):
                tma.wait_read(0)
                mbarrier.arrive(self.queries.empty_barrier(cursor))

    def meet(self) -> None:
        """A barrier of the warpgroup's threads."""
        nvvm.barrier(
            barrier_id=ops.value_of(ops.add(self.own, _FIRST_BARRIER)),
            number_of_threads=ops.const(wgmma.WARPGROUP_THREADS),
        )


def _number(value: float) -> Any:
    return arith.ConstantOp(ops.f32_type(), ir.FloatAttr.get(ops.f32_type(), value)).result
