# pyright: basic
"""The kernel of engine sdpa_fwd_sm90, top to bottom; see the engine for the whole.

    warpgroup 0      for each tile: load its queries, then keys and values, block by block
    warpgroups 1..   for each tile, of 64 queries each:
                       S = Q @ K' of the last block, its softmax
                       for each block before: start S' = Q @ K', start O += P @ V, wait for S',
                         its softmax while P @ V runs, wait for O, scale it, P = exponentials
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
from ...codegen.attention.region import AttentionRegion
from ...codegen.attention.sources import Source
from ...codegen.hopper import mbarrier, tma, wgmma
from ...codegen.hopper.pipeline import Cursor, Pipeline
from ...codegen.hopper.tile_ring import TileRing
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.tiles.tile_table import TileTable
from ...mlir import arith, ir, llvm, nvvm
from ...mlir import math as mlir_math
from ...target import WARP_THREADS
from .entry import Entry
from .number_ranges import Table
from .packed_schedule import PackedSchedule
from .region_sm90 import WarpgroupRegion
from .scale import times_log2e
from .schedule import KeyBlocks, QueryTile, Schedule
from .sources_sm90 import Rows as MemoryRows
from .tile_sm90 import TURNERS, SdpaTiling
from .turner_sm90 import ValueTurner

_FIRST_BARRIER = 1  # named barriers: of the warpgroups' threads, then of their turns


@dataclass
class SdpaEmitter:
    """One kernel.

    counter: workspace of the number of tiles that are taken, "" for none.  tables: of the ranges of
    numbers that masks compare.
    """

    kernel: Kernel
    parts: AttentionRegion
    tiling: SdpaTiling
    counter: str
    tables: Sequence[Table] = ()

    def __post_init__(self) -> None:
        t, heights = self.tiling, {"q": wgmma.M, "k": self.tiling.keys, "v": self.tiling.keys}
        places = {"q": (0, 0), "k": (0, 1), "v": (1, 1)}
        sources = {name: self.parts.source(*place) for name, place in places.items()}
        panels = {"q": t.depth_panels, "k": t.depth_panels, "v": t.width_panels}
        self.operands = {
            name: MemoryRows(
                self.kernel, self.parts, source, _axes(source, name == "k"), self.parts.dims[:-2],
                heights[name], panels[name],
            )
            for name, source in sources.items()
        }  # fmt: skip
        q, k, v = (source.tensor.type for source in sources.values())
        p = self.parts.weights.type if t.turns else v
        self.qk, self.pv = wgmma.INSTRUCTIONS[q, k], wgmma.INSTRUCTIONS[p, v]
        groups = self.operands["k"].groups
        share = max([group for group in groups if group], default=1)
        made = PackedSchedule if t.entries else Schedule
        self.schedule = made(self.kernel, self.parts, t, share, tables=self.tables)
        self.q_panels = wgmma.Panels(wgmma.M, t.element_bytes)
        self.k_panels = wgmma.Panels(t.keys, t.element_bytes)
        if t.turns:
            self.v_panels = wgmma.Panels(t.width, 1)
        else:
            self.v_panels = wgmma.Panels(t.width_panels * t.panel, 2, False, t.keys)

    # ---- the whole

    def emit(self) -> None:
        t = self.tiling
        base = self.kernel.dynamic_shared(t.smem_bytes, 1024)
        at = partial(smem.byte_pointer, base)
        self.keys = Pipeline.of(at(t.k_offset), t.k_bytes, t.stages, at(t.k_barriers))
        self.values = Pipeline.of(at(t.v_offset), t.v_bytes, t.stages, at(t.v_barriers))
        self.raw = self.values  # as TMA brings them
        if t.turns:
            self.raw = Pipeline.of(at(t.raw_offset), t.raw_bytes, t.stages, at(t.raw_barriers))
        self.base = base
        self.warp = nvvm.shfl_sync(
            ops.const(-1), ops.shr(ops.thread_id(), 5), ops.const(0), ops.const(31),
            nvvm.ShflKind.idx,
        )  # fmt: skip
        self.group = ops.shr(self.warp, 2)
        self.ring = self._tile_ring(at)
        if isinstance(self.schedule, PackedSchedule):
            source = self.parts.source(0, 0)
            assert source.entries is not None, "packed rows"
            self.schedule.source = source
            self.schedule.table = TileTable(self.kernel, at(t.table_offset), source.entries)
        self._begin()
        ops.if_else(ops.compare("eq", self.group, 0), self._produce, self._consume)

    def _tile_ring(self, at: Callable[[int], Any]) -> TileRing | None:
        t = self.tiling
        if not t.is_dynamic:
            return None
        counter = self.kernel.workspace(self.counter, is_exclusive=False)
        blocks = nvvm.read_ptx_sreg_nctaid_x()
        return TileRing.of(at(t.ring_offset), at(t.ring_barriers), counter, blocks)

    def queries_of(self, own: Any) -> Pipeline:
        """The ring of a consumer warpgroup's queries."""
        t = self.tiling
        data = smem.byte_pointer(self.base, ops.mul(own, t.q_stages * t.q_bytes))
        first = smem.byte_pointer(self.base, t.q_barriers)
        barriers = smem.byte_pointer(first, ops.mul(own, Pipeline.barrier_bytes(t.q_stages)))
        return Pipeline.of(data, t.q_bytes, t.q_stages, barriers)

    def _begin(self) -> None:
        t = self.tiling
        warps = t.consumers * wgmma.WARPGROUP_THREADS // WARP_THREADS
        with ops.if_(ops.compare("eq", ops.thread_id(), 0)):
            self.keys.make(1, warps)
            self.values.make(TURNERS if t.turns else 1, warps)
            if t.turns:
                self.raw.make(1, TURNERS)
            for own in range(t.consumers):
                self.queries_of(own).make(1, 1)
            if self.ring is not None:
                self.ring.make(warps + (TURNERS if t.turns else 0))
            mbarrier.make_visible()
        if isinstance(self.schedule, PackedSchedule):
            with ops.if_(ops.compare("eq", self.warp, 0)):
                self.schedule.fill()
        ops.barrier()

    # ---- tiles

    def _each_tile(
        self, start: Sequence[Any], body: Callable[..., Sequence[Any]], *, takes: bool
    ) -> None:
        """body(tile, carried) for the tiles of this block.  takes: whether this thread takes their
        numbers for the block; others read them, as whole warps."""
        first, step = ops.block_id(), nvvm.read_ptx_sreg_nctaid_x()
        if isinstance(self.schedule, PackedSchedule):
            assert self.schedule.table is not None
            tiles = self.schedule.table.total()
            start, body = [ops.const(0), *start], self._in_sequences(body)
        else:
            tiles, body = self.kernel.size(self.schedule.tiles), self._in_place(body)
        if self.ring is None:
            ops.for_(first, tiles, step, start, body)
            return
        ring = self.ring

        def one(carried: Sequence[Any]) -> Sequence[Any]:
            number, stage, phase, *rest = carried
            cursor = Cursor(stage, phase)
            if takes:
                following, cursor = ring.take(cursor)
                rest = body(number, rest)
            else:
                rest = body(number, rest)
                following, cursor = ring.read(cursor, is_warp=True)
                following = nvvm.shfl_sync(
                    ops.const(-1), following, ops.const(0), ops.const(31), nvvm.ShflKind.idx
                )
            return [following, *cursor.values, *rest]

        ops.while_(
            [ops.value_of(first), *Cursor().values, *start], lambda c: ops.less(c[0], tiles), one
        )

    def _in_place(self, body: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
        """The body of a loop over tiles in place, which takes a tile's number."""
        return lambda number, carried: body(self.schedule.place(number), carried)

    def _in_sequences(self, body: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
        """The body of a loop over tiles of sequences, which takes a tile's number and first
        carries its sequence."""

        def one(number: Any, carried: Sequence[Any]) -> Sequence[Any]:
            assert isinstance(self.schedule, PackedSchedule)
            tile, entry = self.schedule.find(number, carried[0])
            return [entry, *body(tile, carried[1:])]

        return one

    # ---- the producer

    def _produce(self) -> None:
        t = self.tiling
        if t.registers:
            wgmma.set_registers(t.registers[0], grows=False)
        is_first = ops.compare("eq", self.warp, 0)
        with ops.if_(ops.both(is_first, nvvm.elect_sync())):
            for operand in self.operands.values():
                operand.prefetch()
            start = [*Cursor().values, *Cursor().values, ops.const(0)]
            self._each_tile(start, self._load_tile, takes=True)
        if t.turns:
            with ops.if_(ops.less(0, self.warp)):
                turner = ValueTurner(t, self.schedule, self.raw, self.values, self.warp)
                self._each_tile(turner.start, turner.tile, takes=False)

    def _load_tile(self, tile: QueryTile, carried: Sequence[Any]) -> Sequence[Any]:
        blocks = self._blocks(tile)
        return _unless(blocks.is_empty, carried, lambda: self._load_rows(tile, blocks, carried))

    def _blocks(self, tile: QueryTile) -> KeyBlocks:
        """The blocks of a tile, the last of which is multiplied."""
        blocks = self.schedule.blocks(tile, tile.row, self.tiling.queries)
        return self.schedule.seen(tile, blocks)

    def _load_rows(
        self, tile: QueryTile, blocks: KeyBlocks, carried: Sequence[Any]
    ) -> Sequence[Any]:
        keys, values, count = Cursor(*carried[:2]), Cursor(*carried[2:4]), carried[4]
        self._load_queries(tile, count)
        last = ops.sub(blocks.end, 1)
        load_keys = partial(self._load_block, "k", self.keys, tile, self.operands["k"].entry(tile))
        load_values = partial(self._load_block, "v", self.raw, tile, self.operands["v"].entry(tile))
        keys = load_keys(keys, last)

        def step(i: Any, carried: Sequence[Any]) -> Sequence[Any]:
            block = ops.sub(last, i)
            keys = load_keys(Cursor(*carried[:2]), ops.sub(block, 1))
            values = load_values(Cursor(*carried[2:]), block)
            return [*keys.values, *values.values]

        def step_if_seen(i: Any, carried: Sequence[Any]) -> Sequence[Any]:
            block = ops.sub(ops.sub(last, 1), i)

            def load() -> Sequence[Any]:
                keys = load_keys(Cursor(*carried[:2]), block)
                values = load_values(Cursor(*carried[2:4]), carried[4])
                return [*keys.values, *values.values, block]

            is_seen = self.schedule.sees(tile, block)
            return ops.either(is_seen, [v.type for v in carried], load, lambda: carried)

        start, steps = [*keys.values, *values.values], ops.sub(last, blocks.first)
        if not self.schedule.is_sparse:
            *keys_, stage, phase = ops.for_(0, steps, 1, start, step)
            final = blocks.first
        else:  # values come one step after the keys, whichever these are
            start = [*start, ops.value_of(last)]
            *keys_, stage, phase, final = ops.for_(0, steps, 1, start, step_if_seen)
        values = load_values(Cursor(stage, phase), final)
        return [*keys_, *values.values, ops.add(count, 1)]

    def _query_cursor(self, count: Any) -> Cursor:
        """The slot in the ring of queries of the n-th tile of this block."""
        return Cursor.at(count, self.tiling.q_stages)

    def _load_queries(self, tile: QueryTile, count: Any) -> None:
        t, cursor, operand = self.tiling, self._query_cursor(count), self.operands["q"]
        entry = operand.entry(tile)
        for own in range(t.consumers):
            ring = self.queries_of(own)
            ring.wait_empty(cursor)
            ring.expect(cursor, t.depth_panels * wgmma.M * wgmma.ROW_BYTES)
            row = self.schedule.from_first(ops.add(tile.row, own * wgmma.M))
            operand.load(ring.slot(cursor), ring.full_barrier(cursor), tile, entry, row)

    def _load_block(
        self, name: str, ring: Pipeline, tile: QueryTile, entry: Entry, cursor: Cursor, block: Any
    ) -> Cursor:
        ring.wait_empty(cursor)
        ring.expect(cursor, ring.stage_bytes)
        row = ops.mul(block, self.tiling.keys)
        slot, barrier = ring.slot(cursor), ring.full_barrier(cursor)
        self.operands[name].load(slot, barrier, tile, entry, row)
        return cursor.next(self.tiling.stages)

    # ---- the consumers

    def _consume(self) -> None:
        t = self.tiling
        if t.registers:
            wgmma.set_registers(t.registers[1], grows=True)
        self.own = ops.sub(self.group, 1)
        self.thread = ops.and_(ops.thread_id(), wgmma.WARPGROUP_THREADS - 1)
        self.lane = ops.and_(self.thread, WARP_THREADS - 1)
        self.queries = self.queries_of(self.own)
        self.walks = WarpgroupRegion(self.kernel, self.parts, t, self.schedule, self.thread)
        self.softmax = OnlineSoftmax(
            times_log2e(self.walks.factor), t.rescale, self.parts.score_steps.may_be_far, t.lift
        )
        if isinstance(self.schedule, PackedSchedule):
            self._fill_statistics(self.schedule)
        self._first_turn()
        start = [*Cursor().values, *Cursor().values, ops.const(0)]
        self._each_tile(start, self._tile, takes=False)
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

        step = nvvm.read_ptx_sreg_nctaid_x()
        ops.for_(ops.block_id(), self.kernel.size(heads), step, [], of_head)

    def _tile(self, tile: QueryTile, carried: Sequence[Any]) -> Sequence[Any]:
        whole = self._blocks(tile)
        row = ops.add(tile.row, ops.mul(self.own, wgmma.M))

        def empty() -> None:
            walk = self.walks.at(tile, row)
            walk.store_nothing(self.softmax)
            walk.keep_unseen(ops.const(0), ops.const(0))

        def full() -> Sequence[Any]:
            return self._attend(tile, whole, row, carried)

        return _unless(whole.is_empty, carried, full, empty)

    def _attend(
        self, tile: QueryTile, whole: KeyBlocks, row: Any, carried: Sequence[Any]
    ) -> Sequence[Any]:
        t = self.tiling
        keys, values, count = Cursor(*carried[:2]), Cursor(*carried[2:4]), carried[4]
        mine = self.schedule.blocks(tile, row, wgmma.M)
        walk = self.walks.at(tile, row)
        cursor = self._query_cursor(count)
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
        place = smem.address(smem.byte_pointer(self.base, self.tiling.pins_offset))
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
            mbarrier.arrive(self.queries.empty_barrier(self._query_cursor(before)))

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


def _unless(
    condition: Any,
    carried: Sequence[Any],
    then: Callable[[], Sequence[Any]],
    other: Callable[[], None] = lambda: None,
) -> Sequence[Any]:
    """The next carried values: those of `then`, but where a condition holds, what they were.

    other: is done there.  condition: None: never.
    """
    if condition is None:
        return then()

    def stay() -> Sequence[Any]:
        other()
        return carried

    return ops.either(condition, [value.type for value in carried], stay, then)


def _number(value: float) -> Any:
    return arith.ConstantOp(ops.f32_type(), ir.FloatAttr.get(ops.f32_type(), value)).result


def _axes(source: Source, is_turned: bool) -> tuple[int, int]:
    """(axis of a head's elements, axis of rows); is_turned: K', which is [D, Skv]."""
    last, before = source.tensor.rank - 1, source.tensor.rank - 2
    return (last, before) if source.is_turned == is_turned else (before, last)
