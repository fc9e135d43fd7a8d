# pyright: basic
"""A main kernel of engine sdpa_bwd_sm80, top to bottom; see the engine for the whole.

    tile of keys       rows of K, V    goes through blocks of Q, dO    makes dV, dK
    tile of queries    rows of Q, dO   goes through blocks of K, V     makes dQ

    block of others:  wait for its stage; barrier; start loading the one STAGES - 1 further on;
                      S and dP, [own rows, others]; words of P and dS, in registers;
                      sums += P @ second of others, dS @ first of others

A warp has 16 rows of a tile and their sums.  Query heads that share a head of keys come one after
the other.  Nothing is added to memory, so that results have the same bits each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...codegen import ops
from ...codegen.ampere import mma
from ...codegen.attention.gradient_region import GradientRegion
from ...codegen.attention.sources import Source
from ...codegen.hopper import wgmma
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.memory.padded_rows import PaddedRows
from ...codegen.memory.tensors import GlobalTensor
from ...codegen.scalars.scalar import element_type
from ...codegen.totals.largest import larger, meet
from ...codegen.walk.index import Index
from ...mlir import arith
from .bwd_finish import Finish, is_plain, place_of
from .bwd_query_side import QueryWalk
from .bwd_rows import RowNumbers
from .bwd_schedule import GradientSchedule
from .bwd_tile_sm80 import PassTiling
from .bwd_walk import GradientWalk
from .entry import packed_entry
from .schedule import QueryTile
from .sources_sm80 import HeadKeys, Keys


@dataclass
class PassEmitter:
    """schedule: of keys or of queries, as the tiling says.  numbers: where what queries have lies
    in memory.  group: query heads that share a head of keys.  kept: as of `GradientWalk`."""

    kernel: Kernel
    parts: GradientRegion
    tiling: PassTiling
    schedule: GradientSchedule
    numbers: RowNumbers
    group: int
    kept: Sequence[tuple[Any, GlobalTensor]] = ()

    def __post_init__(self) -> None:
        sources = {name: self.parts.source(name) for name in ("q", "k", "v", "do")}
        queries, keys = (sources["q"], sources["do"]), (sources["k"], sources["v"])
        self.own, self.others = (keys, queries) if self.tiling.of_keys else (queries, keys)
        q, k, v, do = (sources[name].tensor.type for name in ("q", "k", "v", "do"))
        self.qk, self.vo = mma.INSTRUCTIONS[q, k], mma.INSTRUCTIONS[v, do]
        self.v = sources["v"]

    # ---- the whole

    def emit(self) -> None:
        t, s = self.tiling, self.schedule
        self.base = self.kernel.dynamic_shared(t.smem_bytes)
        self.tile = s.place(ops.block_id())
        self.thread = ops.thread_id()
        types = self.parts.source("do").tensor.type, self.parts.source("q").tensor.type
        makes = "dv" in t.makes, t.has_products
        own = self.kernel, self.parts, s, self.thread, 0, types, makes
        largest = {} if t.of_keys else self.parts.largest_of("")
        values = list(largest.values())
        self.walk = GradientWalk(*own) if t.of_keys else QueryWalk(*own, values, kept=self.kept)
        self._load_own()
        zero = ops.zeros(ops.f32_type())
        sums = [zero] * sum(map(t.registers_of, t.makes))
        sums += [zero] * len(largest)
        if t.of_keys and self.group > 1:
            state = ops.for_(0, self.group, 1, sums, self._attend)
        else:
            state = self._attend(0, sums)
        smem.wait(0)
        met = self._store(state)
        for place, found in zip(largest, met, strict=True):
            meet(place_of(self.kernel, self.parts, place), larger(0, [found]), self.thread)

    def _attend(self, own: Any, sums: Sequence[Any]) -> Sequence[Any]:
        """Goes through the blocks of a query head; own: its number among those that share the
        tile's keys."""
        t, s = self.tiling, self.schedule
        head = s.query_head(self.tile, own)
        blocks = s.query_blocks(self.tile, head)
        self.heads = tuple(self._rows_of(source, head, t.step) for source in self.others)
        rows = None if t.of_keys else self._own_numbers(head)
        if t.of_keys and self.group > 1 and t.stages > 1:
            ops.barrier()  # all have left the stages of the head before
        for stage in range(t.stages - 1):
            self._load(head, ops.add(blocks.first, stage), blocks.end, stage * t.stage_bytes)
        state = [ops.const(0), ops.const((t.stages - 1) * t.stage_bytes), *sums]
        step = partial(self._step, head, rows, blocks.end)
        may_hide = self.parts.has_masks or s.has_tail or not t.of_keys
        if may_hide:
            state = ops.for_(blocks.first, blocks.whole, 1, state, partial(step, is_masked=True))
        if blocks.whole is not blocks.whole_end or not may_hide:
            body = partial(step, is_masked=False)
            state = ops.for_(blocks.whole, blocks.whole_end, 1, state, body)
        if blocks.whole_end is not blocks.end:
            state = ops.for_(blocks.whole_end, blocks.end, 1, state, partial(step, is_masked=True))
        return state[2:]

    # ---- rows in memory

    def _rows_of(self, source: Source, head: QueryTile, step: int) -> HeadKeys:
        """The rows of a head of Q, K, V or dO; step: their multiples are gone through."""
        axes = source.axes(is_turned=source is self.v)
        is_of_queries = source.batch[1] == self.parts.dims[1]
        size = self.parts.dims[2 if source in self._queries else 3]
        number = head.batch[1].index().base
        if not is_of_queries:
            number = ops.div(number, self.group)
        batch = {0: head.batch[0], 1: Index.of(number)}
        found = Keys(self.kernel, self.parts, source, axes, size, step).head(batch)
        assert isinstance(found, HeadKeys), "gradients have no paged caches"
        return found

    @property
    def _queries(self) -> Sequence[Source]:
        return self.others if self.tiling.of_keys else self.own

    def _load_own(self) -> None:
        """Starts loading the tile's rows, which are part of the first stage's group."""
        t = self.tiling
        head = self.schedule.query_head(self.tile, 0)
        places = (0, t.own[0].bytes)
        for tile, source, place in list(zip(t.own, self.own, places, strict=True))[
            : 1 + t.has_products
        ]:
            tile.clear_ends(self._at(place), t.threads)
            rows = self._rows_of(source, head, t.rows).block(self.tile.key)
            tile.copy(self._at(place), t.threads, rows)
        for stage in range(t.stages):
            first = t.stages_offset + stage * t.stage_bytes
            for tile, place in zip(t.others, (0, t.others[0].bytes), strict=True):
                tile.clear_ends(self._at(first + place), t.threads)

    def _load(self, head: QueryTile, block: Any, end: Any, slot: Any) -> None:
        """Starts loading a block into a stage, if it is not past the last."""
        t = self.tiling
        with ops.if_(ops.less(block, end)):
            row, place = ops.mul(block, t.step), self._at(ops.add(slot, t.stages_offset))
            first, second = t.others
            first.copy(place, t.threads, self.heads[0].block(row))
            after = smem.byte_pointer(place, first.bytes)
            second.copy(after, t.threads, self.heads[1].block(row))
            if t.of_keys:
                target = smem.byte_pointer(place, t.rows_offset)
                self.numbers.copy(self.kernel, head.head, row, t.step, target)
        smem.commit()

    def _own_numbers(self, head: QueryTile) -> list[list[Any]]:
        """[base, delta], each of both of the thread's queries."""
        first = ops.add(self.tile.key, self.walk.down)
        found = [
            self.numbers.load(self.kernel, head.head, ops.add(first, 8 * half)) for half in (0, 1)
        ]
        return [list(numbers) for numbers in zip(*found, strict=True)]

    def _at(self, offset: Any) -> Any:
        return smem.byte_pointer(self.base, offset)

    # ---- blocks

    def _step(
        self, head: QueryTile, rows: Any, end: Any, block: Any, state: Sequence[Any], *,
        is_masked: bool,
    ) -> Sequence[Any]:  # fmt: skip
        t = self.tiling
        slot = self._turn(head, block, end, state)
        sums = list(state[2:])
        first, second = t.others
        at_second = smem.byte_pointer(slot, first.bytes)
        if t.of_keys:
            numbers = smem.address(smem.byte_pointer(slot, t.rows_offset))
            rows = ops.add(numbers, ops.mul(self.walk.right, 4))
        place = ops.mul(block, t.step)
        scores = self._product(self.qk, t.own[0], 0, first, slot)
        e = self.walk.exponentials(scores, self.tile, head, place, rows, is_masked=is_masked)
        products: list[Any] = []
        if t.has_products:
            products = self._product(self.vo, t.own[1], t.own[0].bytes, second, at_second)
        met = sums[sum(map(t.registers_of, t.makes)) :]
        self.walk.met = met
        weights, gradients = self.walk.words(
            scores, e, products, self.tile, head, place, rows, is_masked=is_masked
        )
        made: list[Any] = []
        for name in t.makes:
            count = t.registers_of(name)
            own, sums = sums[:count], sums[count:]
            if name == "dv":
                made += self._added(self.vo, weights, second, at_second, own)
            else:
                made += self._added(self.qk, gradients, first, slot, own)
        made += self.walk.met
        return [*self._following(state), *made]

    def _turn(self, head: QueryTile, block: Any, end: Any, state: Sequence[Any]) -> Any:
        """Waits for a block's stage, and starts loading the one that is next; gives the stage."""
        t = self.tiling
        if t.stages == 1:
            ops.barrier()  # all have left the stage
            self._load(head, block, end, 0)
            smem.wait(0)
            ops.barrier()
            return self._at(t.stages_offset)
        smem.wait(t.stages - 2)
        ops.barrier()  # the stage is there for all, and all have left the one loaded next
        self._load(head, ops.add(block, t.stages - 1), end, state[1])
        return self._at(ops.add(state[0], t.stages_offset))

    def _following(self, state: Sequence[Any]) -> list[Any]:
        """The stages of the block after, and which is loaded then."""
        t = self.tiling
        if t.stages == 1:
            return list(state[:2])
        found = []
        for offset in state[:2]:
            moved = ops.add(offset, t.stage_bytes)
            is_end = ops.compare("eq", moved, t.stages * t.stage_bytes)
            found.append(ops.select(is_end, ops.const(0), moved))
        return found

    # ---- products

    def _product(
        self, row: mma.Instruction, own: PaddedRows, place: int, others: PaddedRows, slot: Any
    ) -> list[Any]:
        """[16 rows of the warp, others] = own @ others', as `wgmma.AccumulatorLayout` says."""
        first = ops.mul(ops.shr(self.thread, 5), mma.M)
        a_lane = smem.byte_pointer(self._at(place), own.a_place(first))
        b_lane = smem.byte_pointer(slot, others.b_place())
        sums = [ops.zeros(ops.f32_type())] * (others.rows // 2)
        for chunk in range(0, own.filled, mma.CHUNKS_PER_STEP):
            a = own.fragment(a_lane, 0, chunk)
            for first_row in range(0, others.rows, 16):
                b = others.fragment(b_lane, first_row, chunk)
                sums = mma.add_columns(row, a, b, sums, first_row // 2)
        return sums

    def _added(
        self, row: mma.Instruction, words: Sequence[Any], others: PaddedRows, slot: Any,
        sums: Sequence[Any],
    ) -> list[Any]:  # fmt: skip
        """Sums and words @ others."""
        lane = smem.byte_pointer(slot, others.b_place_transposed())
        found = list(sums)
        for first_row in range(0, others.rows, 16):
            a = list(words[first_row // 4 : first_row // 4 + 4])
            for chunk in range(0, others.filled, mma.CHUNKS_PER_STEP):
                b = others.fragment(lane, first_row, chunk, transposed=True)
                found = mma.add_columns(row, a, b, found, 4 * chunk)
        return found

    # ---- results

    def _store(self, sums: Sequence[Any]) -> Sequence[Any]:
        """Stores the results; gives what else was carried."""
        targets = self.parts.region.targets(self.kernel)
        # Addresses of what is stored stay out of the loop.
        down, right = wgmma.AccumulatorLayout.origin(ops.opaque(self.thread))
        rest = list(sums)
        for name in self.tiling.makes:
            _, target = targets[self.parts.results[name]]
            count = self.tiling.registers_of(name)
            own, rest = rest[:count], rest[count:]
            finish = None if is_plain(self.parts, name) else Finish(self.kernel, self.parts, name)
            pair = ops.vector_type(element_type(target.tensor.type), 2)
            width = target.tensor.shape[3].constant or 0
            batch, place_of = self._places(name)
            for half in (0, 1):
                row, inside = place_of(ops.add(ops.add(self.tile.key, down), 8 * half))
                for j in range(width // 8):
                    place = 4 * j + 2 * half
                    value = ops.from_elements(own[place : place + 2])
                    at = [
                        Index.of(batch), Index.of(self.tile.head), Index.of(row),
                        Index(ops.add(right, 8 * j), 1, 2),
                    ]  # fmt: skip
                    if finish is not None:
                        finish.store(value, at, inside)
                        continue
                    if value.type != pair:
                        value = arith.TruncFOp(pair, value).result
                    target.store(at, value, inside)
            if finish is not None:
                finish.meet(self.thread)
        return rest

    def _places(self, name: str) -> tuple[Any, Callable[[Any], tuple[Any, Any]]]:
        """(entry of the batch, row of the tile -> (row in memory, whether it is stored)) of a
        result."""
        s = self.schedule
        size, source = self.kernel.size(s.keys), self.parts.packed(name)
        if source is None:
            return self.tile.entry, lambda row: (row, ops.less(row, size) if s.has_tail else None)
        axis = source.tensor.rank - 2
        entry = packed_entry(self.kernel, self.parts.region, source, self.tile.entry, axis)
        length = ops.minimum(entry.length, size)
        return 0, lambda row: (ops.add(entry.first, row), ops.less(row, length))
