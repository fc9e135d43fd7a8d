# pyright: basic
"""A main kernel of engine sdpa_bwd_sm80, top to bottom; see the engine for the whole.

    tile of keys       rows of K, V    goes through blocks of Q, dO    makes dV, dK
    tile of queries    rows of Q, dO   goes through blocks of K, V     makes dQ

    for each query head     of those that share the tile's keys; a tile of queries has one
      for each block        masked ones, whole ones, masked ones again:
        load                wait for its stage; barrier; start loading the one STAGES - 1 further on
        query-key product   S = own @ first of others', [own rows, others]; its softmax
        value product       dP = own @ second of others', unless only dV is made
        score gradient      words of P and dS, in registers
        gradient product    dV += P @ second of others; dK or dQ += dS @ first of others
    epilogue                gradients and largest magnitudes

A warp has 16 rows of a tile and their sums.  Nothing is added to memory, so that results have the
same bits each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...codegen import ops
from ...codegen.ampere import mma
from ...codegen.ampere.async_ring import AsyncRing, Slots
from ...codegen.attention.gradient_region import GradientRegion
from ...codegen.attention.sources import Source
from ...codegen.hopper import wgmma
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.memory.padded_rows import PaddedRows
from ...codegen.memory.tensors import GlobalTensor
from ...codegen.scalars.scalar import element_type
from ...codegen.state import loop
from ...codegen.stretch import stretch
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
from .pattern import group_size
from .schedule import QueryTile
from .sources_sm80 import HeadKeys, Keys


@dataclass(frozen=True)
class Results:
    """Sums of the blocks so far.  sums: of each gradient that is made.  met: the largest magnitudes
    of scores so far."""

    sums: list[list[Any]]
    met: list[Any]


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
        self.ring = AsyncRing(self.tiling.stages, self.tiling.stage_bytes)
        sources = {name: self.parts.source(name) for name in ("q", "k", "v", "do")}
        queries, keys = (sources["q"], sources["do"]), (sources["k"], sources["v"])
        self.own, self.others = (keys, queries) if self.tiling.of_keys else (queries, keys)
        q, k, v, do = (sources[name].tensor.type for name in ("q", "k", "v", "do"))
        self.qk, self.vo = mma.INSTRUCTIONS[q, k], mma.INSTRUCTIONS[v, do]
        self.v = sources["v"]

    # ---- the whole

    def emit(self) -> None:
        """Emits the kernel; see the file's docstring."""
        self.work(self.kernel.dynamic_shared(self.tiling.smem_bytes), ops.block_id())

    def work(self, base: Any, number: Any) -> None:
        """The work of a tile; base: of shared memory.  number: of the tile."""
        t = self.tiling
        self.base, self.tile = base, self.schedule.place(number)
        self.thread = ops.thread_id()
        largest = {} if t.of_keys else self.parts.largest_of("")
        self.walk = self._walk(list(largest.values()))
        self._load_own()
        zero = ops.zeros(ops.f32_type())
        start = Results([[zero] * t.registers_of(name) for name in t.makes], [zero] * len(largest))
        end = self._over_heads(start)
        smem.wait(0)
        self._store(end.sums)
        self._meet(largest, end.met)

    def _walk(self, largest: Sequence[Any]) -> GradientWalk:
        """The work on scores; largest: see `GradientWalk`."""
        t, parts = self.tiling, self.parts
        types = parts.source("do").tensor.type, parts.source("q").tensor.type
        makes = "dv" in t.makes, t.has_products
        own = self.kernel, parts, self.schedule, self.thread, 0, types, makes
        return GradientWalk(*own) if t.of_keys else QueryWalk(*own, largest, kept=self.kept)

    def _over_heads(self, start: Results) -> Results:
        """Goes through the query heads that share the tile's keys."""
        if not (self.tiling.of_keys and self.group > 1):
            return self._attend(0, start)
        return loop(0, self.group, state=start)(self._attend)

    def _attend(self, own: Any, now: Results) -> Results:
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
            self._load(head, blocks.first + stage, blocks.end, stage * t.stage_bytes)
        here = self.ring.first()
        for first, end, is_masked in s.runs(self.tile, blocks):
            step = partial(self._step, head, rows, blocks.end, is_masked=is_masked)
            here, now = loop(first, end, state=(here, now))(step)
        return now

    # ---- rows in memory

    def _rows_of(self, source: Source, head: QueryTile, step: int) -> HeadKeys:
        """The rows of a head of Q, K, V or dO; step: their multiples are gone through."""
        axes = source.axes(is_transposed=source is self.v)
        size = self.parts.dims[2 if source in self._queries else 3]
        share = group_size(source.batch[1], self.parts.dims[1])
        number = head.batch[1].index().base // share if share else 0
        batch = {0: head.batch[0], 1: Index.of(number)}
        found = Keys(self.kernel, self.parts, source, axes, size, step).head(batch)
        assert isinstance(found, HeadKeys), "gradients have no paged caches"
        return found

    @property
    def _queries(self) -> Sequence[Source]:
        return self.others if self.tiling.of_keys else self.own

    @stretch("set up")
    def _load_own(self) -> None:
        """Starts loading the tile's rows, which are part of the first stage's group."""
        t = self.tiling
        head = self.schedule.query_head(self.tile, 0)
        places = (0, t.products_offset)
        own = list(zip(t.own, self.own, places, strict=True))
        for tile, source, place in own[not t.has_scores : 1 + t.has_products]:
            tile.clear_ends(self._at(place), t.threads)
            rows = self._rows_of(source, head, t.rows).block(self.tile.key)
            tile.copy(self._at(place), t.threads, rows)
        for stage in range(t.stages):
            first = t.stages_offset + stage * t.stage_bytes
            for tile, place in zip(t.others, (0, t.others[0].bytes), strict=True):
                tile.clear_ends(self._at(first + place), t.threads)

    @stretch("load")
    def _load(
        self, head: QueryTile, block: Any, end: Any, slot: Any, *, has_first: bool = True
    ) -> None:
        """Starts loading a block into a stage, if it is not past the last; has_first: the first of
        others' rows, too."""
        t = self.tiling
        with ops.if_(block < end):
            row, place = block * t.step, self._at(slot + t.stages_offset)
            first, second = t.others
            if has_first:
                first.copy(place, t.threads, self.heads[0].block(row))
            after = smem.byte_pointer(place, first.bytes)
            second.copy(after, t.threads, self.heads[1].block(row))
            if t.of_keys:
                target = smem.byte_pointer(place, t.rows_offset)
                self.numbers.copy(self.kernel, head.head, row, t.step, target)
        smem.commit()

    def _own_numbers(self, head: QueryTile) -> list[list[Any]]:
        """[base, delta], each of both of the thread's queries."""
        first = self.tile.key + self.walk.down
        found = [self.numbers.load(self.kernel, head.head, first + 8 * half) for half in (0, 1)]
        return [list(numbers) for numbers in zip(*found, strict=True)]

    def _at(self, offset: Any) -> Any:
        return smem.byte_pointer(self.base, offset)

    # ---- blocks

    def _step(
        self, head: QueryTile, rows: Any, end: Any, block: Any, state: tuple[Slots, Results], *,
        is_masked: bool,
    ) -> tuple[Slots, Results]:  # fmt: skip
        """The work of a block; rows: what a tile of queries has in registers."""
        t, (slots, now) = self.tiling, state
        fetched = self.walk.fetch(self.tile, head, block * t.step)
        at = self.ring.advance(
            slots, lambda place: self._load(head, block + (t.stages - 1), end, place)
        )
        slot = self._at(at + t.stages_offset)
        first, second = t.others
        at_second = smem.byte_pointer(slot, first.bytes)
        if t.of_keys:
            numbers = smem.address(smem.byte_pointer(slot, t.rows_offset))
            rows = numbers + self.walk.right * 4
        place = self.tile, head, block * t.step, rows
        scores, e = list[Any](), list[Any]()
        if t.has_scores:
            scores = self._scores(slot)
            e = self.walk.exponentials(scores, *place, is_masked=is_masked)
        products = self._products(at_second) if t.has_products else []
        self.walk.met = now.met
        weights, gradients = self.walk.words(
            e, products, *place, is_masked=is_masked, fetched=fetched
        )
        made = {
            "dv": (self.vo, weights, second, at_second),
            "dk": (self.qk, gradients, first, slot),
            "dq": (self.qk, gradients, first, slot),
        }
        sums = [self._added(*made[name], own) for name, own in zip(t.makes, now.sums, strict=True)]
        return self.ring.next(slots), Results(sums, self.walk.met)

    # ---- products

    @stretch("query-key product")
    def _scores(self, slot: Any) -> list[Any]:
        """S of a block."""
        t = self.tiling
        return self._product(self.qk, t.own[0], 0, t.others[0], slot)

    @stretch("value product")
    def _products(self, slot: Any) -> list[Any]:
        """dP of a block."""
        t = self.tiling
        return self._product(self.vo, t.own[1], t.products_offset, t.others[1], slot)

    def _product(
        self, row: mma.Instruction, own: PaddedRows, place: int, others: PaddedRows, slot: Any
    ) -> list[Any]:
        """[16 rows of the warp, others] = own @ others', as `wgmma.AccumulatorLayout` says."""
        first = (self.thread >> 5) * mma.M
        a_lane = smem.byte_pointer(self._at(place), own.a_place(first))
        b_lane = smem.byte_pointer(slot, others.b_place())
        sums = [ops.zeros(ops.f32_type())] * (others.rows // 2)
        for chunk in range(0, own.filled, mma.CHUNKS_PER_STEP):
            a = own.fragment(a_lane, 0, chunk)
            for first_row in range(0, others.rows, 16):
                b = others.fragment(b_lane, first_row, chunk)
                sums = mma.add_columns(row, a, b, sums, first_row // 2)
        return sums

    @stretch("gradient product")
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

    @stretch("epilogue")
    def _store(self, sums: Sequence[Sequence[Any]]) -> None:
        """Stores the results."""
        targets = self.parts.region.targets(self.kernel)
        # Addresses of what is stored stay out of the loop.
        down, right = wgmma.AccumulatorLayout.origin(ops.opaque(self.thread))
        for name, own in zip(self.tiling.makes, sums, strict=True):
            _, target = targets[self.parts.results[name]]
            finish = None if is_plain(self.parts, name) else Finish(self.kernel, self.parts, name)
            pair = ops.vector_type(element_type(target.tensor.type), 2)
            width = target.tensor.shape[3].constant or 0
            batch, place_of = self._places(name)
            for half in (0, 1):
                row, inside = place_of(self.tile.key + down + 8 * half)
                for j in range(width // 8):
                    place = 4 * j + 2 * half
                    value = ops.from_elements(own[place : place + 2])
                    at = [
                        Index.of(batch), Index.of(self.tile.head), Index.of(row),
                        Index(right + 8 * j, 1, 2),
                    ]  # fmt: skip
                    if finish is not None:
                        finish.store(value, at, inside)
                        continue
                    if value.type != pair:
                        value = arith.TruncFOp(pair, value).result
                    target.store(at, value, inside)
            if finish is not None:
                finish.meet(self.thread)

    @stretch("epilogue")
    def _meet(self, largest: Iterable[int], met: Sequence[Any]) -> None:
        """Updates the largest magnitudes in memory; largest: the places of these outputs."""
        for place, found in zip(largest, met, strict=True):
            meet(place_of(self.kernel, self.parts, place), larger(0, [found]), self.thread)

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
        return 0, lambda row: (entry.first + row, ops.less(row, length))
