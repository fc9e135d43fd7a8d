# pyright: basic
"""The kernel of engine sdpa_sm80, top to bottom; see the engine for the whole.

    stage s of S:   | keys | values |    of a block, loaded S - 1 blocks ahead
    block of keys:  wait for the stage; barrier; start loading the block S - 1 further on;
                    S = Q @ K', its softmax, scale O, O += P @ V

Operands of fp8 are bytes up to the registers, where they become f16 (`widened_bytes`); weights are
rounded to bytes first.

A block of threads has one tile of queries, 16 a warp, and the blocks of keys that it needs, or a
part of them (`_part`).  They come from the last to the first: those at masks and at the tensor's
end, then those of which every score is kept, then those at masks again.

Of values that are too long for a warp's registers a block of threads has a piece; the blocks that
have the others compute the same scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ... import dtypes
from ...codegen import ops
from ...codegen.ampere import mma
from ...codegen.ampere.async_ring import AsyncRing, Slots
from ...codegen.ampere.widened_bytes import a_of_quads, a_steps, b_steps, b_transposed
from ...codegen.attention.online_softmax import OnlineSoftmax, Rows, scaled
from ...codegen.attention.region import AttentionRegion
from ...codegen.attention.sources import Source
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.state import chosen, loop
from ...codegen.stretch import stretch
from ...codegen.walk.index import Index
from ...dtypes import DType
from .computed_queries import ComputedQueries
from .parts_sm80 import PartStore
from .region import SdpaRegion
from .result import ResultWalk
from .scale import times_log2e
from .schedule import KeyBlocks, Packing, QueryTile, Schedule
from .scores import ScoreWalk
from .sources_sm80 import HeadKeys, Keys, PagedKeys, QueryRows
from .surface import groups_of
from .tile_sm80 import Sm80Tiling


@dataclass
class WarpWalk(ScoreWalk, ResultWalk):
    """The walks of one tile, of which a warp has 16 rows."""

    def columns_before(self) -> Any:
        return _columns_before(self.shared.tiling)


@dataclass(frozen=True)
class Place:
    """Where a tile is among its blocks of keys.  ahead: the block that is loaded while the next
    one is read; None: the one as many further on as the ring holds."""

    slots: Slots
    ahead: Any


@dataclass(frozen=True)
class Progress:
    """Where a tile is among its blocks of keys, and the record of what is done with them."""

    place: Place
    own: Any


@dataclass(frozen=True)
class Attended:
    """Maxima and sums of rows, and the result before it is divided."""

    rows: Rows
    result: list[Any]


@dataclass(frozen=True)
class KeyBlock:
    """A block of keys.  slot: where it lies.  is_masked: whether masks are looked at.
    may_be_empty: whether a row may have no score above -inf."""

    number: Any
    slot: Any
    is_masked: bool
    may_be_empty: bool


@dataclass
class SdpaEmitter:
    """One kernel.  parts_store: where the parts of a tile's keys leave what they have; None: a
    tile's keys are not shared.  has_values: whether values are loaded with the keys."""

    kernel: Kernel
    parts: AttentionRegion
    tiling: Sm80Tiling
    parts_store: PartStore | None
    has_values: bool = True

    def __post_init__(self) -> None:
        t = self.tiling
        self.ring = AsyncRing(t.stages, t.stage_bytes)
        self.packing = Packing(t.packed_axis, t.packed) if t.packed > 1 else None
        self.q, self.k, self.v = (self.parts.source(*place) for place in ((0, 0), (0, 1), (1, 1)))
        dims = self.parts.dims
        self.qk, self.pv = (_instruction(source.tensor.type) for source in (self.k, self.v))
        groups = groups_of(dims[:-2], self.k.batch)
        self.schedule = Schedule(
            self.kernel, self.parts, t, max([group for group in groups if group], default=1),
            self.packing,
        )  # fmt: skip

    def _keys(
        self, source: Source, tile: QueryTile, *, is_transposed: bool
    ) -> HeadKeys | PagedKeys:
        """Keys or values of a tile's head.  is_transposed: K', which is [D, Skv]."""
        axes = source.axes(is_transposed=is_transposed)
        size, step = self.parts.dims[-1], self.tiling.keys
        keys = Keys(self.kernel, self.parts, source, axes, size, step)
        head = keys.head(self._batch_of(source, tile))
        before = None if is_transposed else _columns_before(self.tiling)
        return head if before is None else replace(head, start=keys.pointer(head.start, before))

    # ---- the whole

    def emit(self) -> None:
        t = self.tiling
        self.base = self.kernel.dynamic_shared(t.smem_bytes)
        self.tile = tile = self.schedule.place(ops.block_id())
        blocks = self._part(self.schedule.blocks(tile, tile.row, t.queries))
        self.k_head = self._keys(self.k, tile, is_transposed=True)
        self.v_head = self._keys(self.v, tile, is_transposed=False)
        self._clear_ends()
        self._load_queries(tile)
        if t.holds_queries:
            smem.commit()  # else they come with the first keys
        self.ahead = self._begin(blocks)
        queries = self._queries()

        walks = SdpaRegion(self.kernel, self.parts, t, self.schedule, ops.thread_id())
        softmax = OnlineSoftmax(
            times_log2e(walks.factor), may_be_far=self.parts.score_steps.may_be_far, lift=t.lift
        )
        walk = WarpWalk(walks, tile, tile.row)
        self._attend(walks, softmax, walk, queries, blocks)

    def _attend(
        self, walks: SdpaRegion, softmax: OnlineSoftmax, walk: WarpWalk, queries: Queries,
        blocks: KeyBlocks,
    ) -> None:  # fmt: skip
        """Goes through the keys, and stores what comes of it."""
        found = self._over_keys(walks, softmax, walk, queries, blocks)
        rows, result = found.rows, found.result
        smem.wait(0)
        with stretch("epilogue"):
            if self.parts_store is None:
                walk.store(softmax, rows, result)
                walk.keep_unseen(blocks.first, blocks.end)
            else:
                self.parts_store.put(walk, ops.block_id("y"), softmax, rows, result)

    def _begin(self, blocks: KeyBlocks) -> Any:
        """Starts loading the first blocks; gives the one that is next where some blocks are left
        out, else None."""
        t = self.tiling
        if not self.schedule.is_sparse:
            for stage in range(t.stages - 1):
                self._load(blocks.end - (1 + stage), blocks.first, stage * t.stage_bytes)
            return None
        block = self._seen(blocks.end - 1, blocks.first)
        for stage in range(t.stages - 1):
            self._load(block, blocks.first, stage * t.stage_bytes)
            block = self._seen(block - 1, blocks.first)
        return block

    def _seen(self, block: Any, first: Any) -> Any:
        return self.schedule.next_seen(self.tile, block, first)

    def _part(self, blocks: KeyBlocks) -> KeyBlocks:
        """This block's part of a tile's keys."""
        return blocks.part(ops.block_id("y") if self.tiling.parts > 1 else 0, self.tiling.parts)

    def _batch_of(self, source: Source, tile: QueryTile) -> dict[int, Any]:
        """The batch coordinates of a tile in K or V, of which heads may share entries."""
        found = {}
        for axis, group in enumerate(groups_of(self.parts.dims[:-2], source.batch)):
            coordinate = tile.batch[axis]
            if group == 0:
                continue
            is_packed = self.packing is not None and axis == self.packing.axis
            if group > 1 and not is_packed:
                coordinate = _over(coordinate, group)
            found[axis] = coordinate
        return found

    # ---- shared memory

    def _at(self, offset: Any) -> Any:
        return smem.byte_pointer(self.base, offset)

    def _clear_ends(self) -> None:
        t = self.tiling
        t.q_rows.clear_ends(self._at(t.q_offset), t.threads)
        for stage in range(t.stages):
            t.k_rows.clear_ends(self._at(stage * t.stage_bytes), t.threads)

    @stretch("load")
    def _load_queries(self, tile: QueryTile) -> None:
        """Starts to load a tile's queries, or computes them."""
        t, slot = self.tiling, self._at(self.tiling.q_offset)
        if self.parts.queries is None:
            queries = QueryRows.of(self.schedule, self.q, self.q.axes(is_transposed=False), tile)
            t.q_rows.copy(slot, t.threads, queries)
            return

        def place(row: Any, chunk: Any) -> Any:
            return smem.byte_pointer(slot, row * t.q_rows.row_bytes + chunk * smem.CHUNK_BYTES)

        made = ComputedQueries(self.kernel, self.parts, self.schedule, t.q_rows.chunks)
        made.fill(tile, tile.row, t.queries, ops.thread_id(), t.threads, place)

    @stretch("load")
    def _load(self, block: Any, first: Any, slot: Any) -> None:
        """Starts loading a block of keys and values into a stage, if it is not before the first."""
        t = self.tiling
        with ops.if_(block >= first):
            key = block * t.keys
            place = self._at(slot)
            t.k_rows.copy(place, t.threads, self.k_head.block(key))
            if self.has_values:
                self._load_values(smem.byte_pointer(place, t.k_rows.bytes), key)
        smem.commit()

    def _load_values(self, place: Any, key: Any) -> None:
        """Starts loading a block of values; of one that is not cut, without a look at its rows."""
        t, values = self.tiling, self.v_head.block(key)
        copy = partial(t.v_rows.copy, place, t.threads)
        if not isinstance(values, HeadKeys) or not values.is_cut_within_size:
            copy(values)
            return
        is_whole = key + t.keys <= values.entry.length
        ops.if_else(is_whole, lambda: copy(values.uncut()), lambda: copy(values))

    # ---- queries

    def _queries(self) -> Queries:
        """Waits for the queries, and has them in registers, if they stay there."""
        t = self.tiling
        warp_row = (ops.thread_id() >> 5) * mma.M
        lane = smem.byte_pointer(self._at(t.q_offset), t.q_rows.a_place(warp_row))
        steps = t.q_rows.filled // mma.CHUNKS_PER_STEP
        kind = _bytes_kind(self.q)
        if not t.holds_queries:
            return Queries(t, lane, kind)
        smem.wait(t.stages - 1)
        ops.barrier()
        queries = Queries(t, lane, kind)
        found = [queries.steps(mma.CHUNKS_PER_STEP * i) for i in range(steps)]
        return Queries(t, lane, kind, tuple(found))

    # ---- blocks of keys

    def _over_keys(
        self, walks: SdpaRegion, softmax: OnlineSoftmax, walk: WarpWalk, queries: Queries,
        blocks: KeyBlocks,
    ) -> Attended:  # fmt: skip
        low, zero = ops.f32(-math.inf), ops.f32(0.0)
        result = [zero] * self.tiling.result_registers

        def block(at: KeyBlock, now: Attended) -> Attended:
            scores = walk.scores(self._scores(at.slot, queries), at.number, is_masked=at.is_masked)
            step = softmax.next(scores, now.rows, is_masked=at.may_be_empty)
            weights = walk.weights(step.exponentials, at.number, is_masked=at.is_masked)
            result = self._add_result(at.slot, weights, scaled(now.result, step.scale))
            return Attended(step.rows, result)

        start = Attended(Rows([low, low], [zero, zero]), result)
        return self._each_block(walks, blocks, start, block)

    def _each_block(
        self, walks: SdpaRegion, blocks: KeyBlocks, state: Any,
        body: Callable[[KeyBlock, Any], Any],
    ) -> Any:  # fmt: skip
        """Runs body(block, record), which gives the next record, from the last block to the first;
        state: the first record."""
        now = Progress(Place(self.ring.first(), self.ahead), state)
        runs = blocks.runs(blocks.first, blocks.end, has_masks=walks.has_masks)
        for low, high, is_masked in runs:
            masked = (is_masked, is_masked or not walks.is_plain)
            now = self._run(blocks.first, low, high, masked, now, body)
        return now.own

    def _run(
        self, first: Any, low: Any, high: Any, masked: tuple[bool, bool], now: Progress,
        body: Callable[[KeyBlock, Any], Any],
    ) -> Progress:  # fmt: skip
        """Blocks from high - 1 down to low; masked: see `KeyBlock`."""
        count, last = ops.maximum(high - low, 0), high - 1

        @loop(0, count, state=now)
        def end(i: Any, now: Progress) -> Progress:
            def step() -> Progress:
                number = last - i
                slot = self._next_block(first, number, now.place)
                own = body(KeyBlock(number, slot, *masked), now.own)
                return Progress(self._following(first, now.place), own)

            if not self.schedule.is_sparse:
                return step()
            # A block that a mask of blocks lets the tile see.
            return chosen(self.schedule.sees(self.tile, last - i), now, step, lambda: now)

        return end

    def _next_block(self, first: Any, block: Any, place: Place) -> Any:
        """Waits for a block's stage, and starts loading the one that is next; gives the stage."""
        self.ring.wait()
        ahead = block - (self.ring.stages - 1) if place.ahead is None else place.ahead
        self._load(ahead, first, place.slots.filled)
        return self._at(place.slots.read)

    def _following(self, first: Any, place: Place) -> Place:
        ahead = None if place.ahead is None else self._seen(place.ahead - 1, first)
        return Place(self.ring.next(place.slots), ahead)

    # ---- products

    @stretch("query-key product")
    def _scores(self, slot: Any, queries: Queries) -> list[Any]:
        """Q @ K' of a block: as `wgmma.AccumulatorLayout` says."""
        t = self.tiling
        keys = t.k_rows
        lane = smem.byte_pointer(slot, keys.b_place())
        sums = [ops.f32(0.0)] * (t.keys // 2)
        kind = _bytes_kind(self.k)
        for chunk in range(0, keys.filled, mma.CHUNKS_PER_STEP):
            steps = queries.steps(chunk)
            for row in range(0, t.keys, 16):
                words = keys.fragment(lane, row, chunk)
                found = b_steps(words, kind) if kind else [words]
                for a, b in zip(steps, found, strict=True):
                    sums = mma.add_columns(self.qk, a, b, sums, row // 2)
        return sums

    @stretch("value product")
    def _add_result(self, slot: Any, weights: Sequence[Any], result: Sequence[Any]) -> list[Any]:
        """O + P @ V of a block."""
        t = self.tiling
        values = t.v_rows
        lane = smem.byte_pointer(slot, t.k_rows.bytes)
        lane = smem.byte_pointer(lane, values.b_place_transposed())
        sums, kind = list(result), _bytes_kind(self.v)
        for row in range(0, t.keys, 16):
            a = self._weights_of(weights, row)
            for chunk in range(0, values.filled, 2):
                b = values.fragment(lane, row, chunk, transposed=True)
                if kind:
                    b = b_transposed(b, kind)
                sums = mma.add_columns(self.pv, a, b, sums, len(b) * chunk)
        return sums

    def _weights_of(self, weights: Sequence[Any], row: int) -> list[Any]:
        """The first operand of the product with 16 keys of a block."""
        if not _bytes_kind(self.v):
            return list(weights[row // 4 : row // 4 + 4])
        return a_of_quads(weights[row // 8 : row // 8 + 2], self.parts.weights.type.name)


@dataclass(frozen=True)
class Queries:
    """A warp's 16 queries.  lane: the address of a lane's place.  kind: as of
    `_bytes_kind`.  held: operands of all steps, () where they are read anew."""

    tiling: Sm80Tiling
    lane: Any
    kind: str
    held: tuple[list[list[Any]], ...] = ()

    def steps(self, chunk: int) -> list[list[Any]]:
        """The first operands of two chunks: of one step, or of two where elements are bytes."""
        if self.held:
            return self.held[chunk // mma.CHUNKS_PER_STEP]
        words = self.tiling.q_rows.fragment(self.lane, 0, chunk)
        return a_steps(words, self.kind) if self.kind else [words]


def _columns_before(tiling: Any) -> Any:
    """Elements of a value ahead of those that the block has; None: it has all."""
    return ops.block_id("z") * tiling.width if tiling.pieces > 1 else None


def _instruction(dtype: DType) -> mma.Instruction:
    """That of a type, or of f16, which bytes become."""
    multiplied = dtypes.f16 if dtype.is_fp8 else dtype
    return mma.INSTRUCTIONS[multiplied, multiplied]


def _bytes_kind(source: Source) -> str:
    """The type of an operand's bytes; "": it has none."""
    dtype = source.tensor.type
    return dtype.name if dtype.is_fp8 else ""


def _over(coordinate: Any, group: int) -> Any:
    return Index(coordinate.index().base // group)
