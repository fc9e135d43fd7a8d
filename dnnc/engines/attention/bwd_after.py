# pyright: basic
"""The kernel after the main one of attention's gradient: sums of dQ become dQ, parts of dK and dV
these.

A block of threads has a block of queries, whose sums lie as warpgroups of the main kernel had them
in registers: [warpgroup][4 registers of each thread].  `stmatrix` transposes them on the way to
shared memory, from where TMA stores them.  Blocks of threads after these have a tile of keys' dK
or dV; see `bwd_keys`.  Where heads are long, one warpgroup had a whole block of queries, not
transposed, or a whole tile of keys: each warpgroup here has one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...codegen import ops
from ...codegen.attention.gradient_region import GradientRegion
from ...codegen.hopper import tma, wgmma
from ...codegen.hopper.staged_store import ALIGNMENT, StagedStore
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.scalars.scalar import element_type
from ...codegen.walk.index import Index
from ...expr import Expr, ceildiv
from ...mlir import arith, nvvm
from .bwd_finish import Finish, is_moved
from .bwd_keys import KeyGradients
from .bwd_packed import PackedRows
from .bwd_results import PANEL_REGISTERS, TOGETHER, ResultRows, RowPlace
from .bwd_schedule import BlockPlace, GradientSchedule
from .bwd_sums import Elements, SumsEmitter, finish_of
from .bwd_tile_sm90 import CONSUMERS

THREADS = CONSUMERS * wgmma.WARPGROUP_THREADS
_OWN = 1  # the first of the named barriers, one of each warpgroup
_RUN = 8  # elements of a query that a thread stores together, where they are scaled


@dataclass
class LongQueryGradients(ResultRows):
    """dQ of a block of queries, which one warpgroup had.  sums: the workspace buffer."""

    sums: str

    @property
    def units(self) -> Expr:
        """Blocks of queries."""
        return self.schedule.blocks

    def unit_place(self, number: Any, own: Any) -> RowPlace:
        found = self.schedule.block_place(number)
        entry, head = (place.index().base for place in found.head.batch.values())
        return RowPlace(entry, head, found.block * self.schedule.tiling.queries)

    def total(self, number: Any, own: Any, thread: Any, panel: int) -> list[Any]:
        """A panel's sums."""
        first = panel * PANEL_REGISTERS * wgmma.WARPGROUP_THREADS * 4
        start = ops.to_i64(number) * self.schedule.tiling.dq_bytes + ops.to_i64(thread * 16)
        source = smem.byte_pointer(self.kernel.workspace(self.sums), start)
        four = ops.vector_type(ops.f32_type(), TOGETHER)
        found: list[Any] = []
        for at in range(0, self.registers_of(panel), TOGETHER):
            place = first + at * wgmma.WARPGROUP_THREADS * 4
            loaded = ops.load(smem.byte_pointer(source, place), four, 4 * TOGETHER)
            found += ops.elements(loaded)
        return found

    def finish(self, number: Any, own: Any, thread: Any) -> None:
        """Stores a block's sums, scaled."""
        at = self.unit_place(number, own)
        sums_of = partial(self.total, number, own, thread)
        self.store_scaled(at, self.schedule.query_end, thread, sums_of)


@dataclass
class AfterEmitter:
    """sums: a workspace buffer.  kept: those of parts of dk and of dv, where there are parts.
    added: further outputs by their places, and what they add up."""

    kernel: Kernel
    parts: GradientRegion
    schedule: GradientSchedule
    sums: str
    kept: Mapping[str, str]
    added: Mapping[int, Elements]

    def __post_init__(self) -> None:
        t = self.schedule.tiling
        self.is_moved = is_moved(self.parts, "dq")
        if not self.is_moved or t.is_long:
            return
        _, tensor = self.parts.region.outputs[self.parts.results["dq"]]
        rank = tensor.rank
        box = tma.Box(tensor, (rank - 1, rank - 2), (wgmma.M, t.queries))
        self.store = StagedStore(box, is_transposed=True)
        self.packed = PackedRows.of(self.kernel, self.parts, "dq")
        if self.packed is None:
            self.map_ = tma.map_argument(self.kernel, box)
        self.element = element_type(tensor.type)

    def emit(self) -> None:
        s = self.schedule
        is_long = s.tiling.is_long
        results: list[Any] = [
            KeyGradients(self.kernel, self.parts, s, name, kept) for name, kept in self.kept.items()
        ]
        bytes_ = []
        if is_long:
            results.insert(0, LongQueryGradients(self.kernel, self.parts, s, "dq", self.sums))
        elif self.is_moved:
            bytes_.append(s.tiling.depth_panels * self.store.bytes)
        for result in results:
            if result.is_moved:
                result.describe()
                bytes_.append(result.bytes * (CONSUMERS if is_long else 1))
        if bytes_:
            self.base = self.kernel.dynamic_shared(max(bytes_), ALIGNMENT)
        self.group = ops.thread_id() >> 7
        self.thread = ops.thread_id() & (wgmma.WARPGROUP_THREADS - 1)
        targets = self.parts.region.targets(self.kernel)
        work: list[tuple[Expr, Callable[[Any], None]]] = []
        if is_long:
            work += [(_pairs(result.units), partial(self._unit, result)) for result in results]
        else:
            of_queries = self._queries if self.is_moved else self._finish_queries
            work.append((s.blocks, of_queries))
            work += [(result.units, partial(self._keys, result)) for result in results]
        for place, elements in self.added.items():
            finish = finish_of(self.kernel, self.parts, place)
            made = SumsEmitter(self.kernel, elements, targets[place][1], finish, f"totals{place}")
            work.append((elements.blocks, made.emit))
        self._share(ops.block_id(), work)

    @staticmethod
    def blocks(
        schedule: GradientSchedule, kept: Mapping[str, str], added: Mapping[int, Elements]
    ) -> Expr:
        """Blocks of threads."""
        of_queries, of_keys = schedule.blocks, schedule.key_tiles
        if schedule.tiling.is_long:
            of_queries, of_keys = _pairs(of_queries), _pairs(of_keys)
        found = of_queries + len(kept) * of_keys
        for elements in added.values():
            found = found + elements.blocks
        return found

    def _share(self, number: Any, work: Sequence[tuple[Expr, Callable[[Any], None]]]) -> None:
        """The work of a block of threads by its number.  work: (blocks that it takes, what each
        does by its number among these)."""
        (count, run), *others = work
        if not others:
            run(number)
            return
        blocks = self.kernel.size(count)
        ops.if_else(
            number < blocks, lambda: run(number),
            lambda: self._share(number - blocks, others),
        )  # fmt: skip

    def _keys(self, result: KeyGradients, number: Any) -> None:
        """A tile's dK or dV; each warpgroup has its own keys."""
        if not result.is_moved:
            result.finish(number, self.group, self.thread)
            return
        own_rows = self.group * (wgmma.M * wgmma.ROW_BYTES)
        buffer = smem.address(self.base) + own_rows
        sums: list[Any] = []
        for panel in range(result.panels):
            sums += result.total(number, self.group, self.thread, panel)
        result.put(sums, buffer, self.thread)
        tma.show_writes()
        ops.barrier()
        result.leave(buffer, result.unit_place(number, self.group), self.thread)
        with ops.if_(ops.compare("eq", self.thread, 0)):
            tma.wait_read(0)

    def _unit(self, result: Any, number: Any) -> None:
        """A tile of keys' dK or dV, or a block of queries' dQ, of each warpgroup.  number: of two
        such."""
        unit = number * CONSUMERS + self.group
        with ops.if_(unit < self.kernel.size(result.units)):
            if result.is_moved:
                self._store_unit(result, unit)
            else:
                result.finish(unit, 0, self.thread)

    def _store_unit(self, result: Any, unit: Any) -> None:
        buffer = smem.address(self.base) + self.group * result.bytes
        sums: list[Any] = []
        for panel in range(result.panels):
            sums += result.total(unit, 0, self.thread, panel)
        result.put(sums, buffer, self.thread)
        tma.show_writes()
        nvvm.barrier(
            barrier_id=ops.value_of(self.group + _OWN),
            number_of_threads=ops.const(wgmma.WARPGROUP_THREADS),
        )
        result.leave(buffer, result.unit_place(unit, 0), self.thread)
        with ops.if_(self.thread.eq(0)):
            tma.wait_read(0)

    def _queries(self, number: Any) -> None:
        """A block of queries' dQ."""
        s = self.schedule
        found = s.block_place(number)
        with ops.if_(s.has_queries(found)):
            self._move_queries(number, found)

    def _move_queries(self, number: Any, found: BlockPlace) -> None:
        """From the workspace by shared memory to dQ."""
        kernel, t = self.kernel, self.schedule.tiling
        base, group, thread = self.base, self.group, self.thread
        first = group * t.dq_part_bytes + thread * (4 * TOGETHER)
        start = ops.to_i64(number) * t.dq_bytes + ops.to_i64(first)
        source = smem.byte_pointer(kernel.workspace(self.sums), start)
        pairs: list[list[Any]] = []
        four = ops.vector_type(ops.f32_type(), TOGETHER)
        for j in range(t.dq_columns // 8):
            place = j * wgmma.WARPGROUP_THREADS * 4 * TOGETHER
            loaded = ops.load(smem.byte_pointer(source, place), four, 4 * TOGETHER)
            pairs.append([self._pair(loaded, half) for half in (0, 1)])
        if t.form == "wide":
            self._put_wide(pairs)
        else:
            column, panel = group * t.dq_columns, 0
            if not t.shares_queries:
                column, panel = 0, group * self.store.bytes
            buffer = smem.address(base) + panel
            offset = column * wgmma.ROW_BYTES
            self.store.put(buffer + offset, thread, pairs)
        tma.show_writes()
        ops.barrier()
        if self.packed is not None:
            batch = found.head.batch
            self.packed.copy(
                smem.address(base), self.store.bytes, t.queries, batch[0].index().base,
                batch[1].index().base, found.block * t.queries, ops.thread_id(), THREADS,
            )  # fmt: skip
            return
        with ops.if_(ops.compare("eq", ops.thread_id(), 0)):
            for number_ in range(t.depth_panels):
                at = [
                    *found.head.batch.values(), Index.of(found.block * t.queries),
                    Index.of(number_ * wgmma.M),
                ]  # fmt: skip
                place = smem.address(base) + number_ * self.store.bytes
                self.store.start(self.map_, place, tma.place(self.store.box, at))
            tma.commit()
            tma.wait_read(0)

    def _block_place(self, j: Any) -> tuple[Any, Any]:
        """(first element, first query) of a warpgroup's j-th block of 8 queries."""
        t = self.schedule.tiling
        if t.form == "wide":
            left = j - t.queries // 8
            is_own = left < 0
            shared = self.group * (t.queries // 2) + left * 8
            return (
                ops.select(is_own, self.group * (2 * wgmma.M), ops.const(wgmma.M)),
                ops.select(is_own, j * 8, shared),
            )
        if t.shares_queries:
            return 0, self.group * t.dq_columns + j * 8
        return self.group * wgmma.M, j * 8

    def _put_wide(self, pairs: Sequence[Sequence[Any]]) -> None:
        """A warpgroup's panel, then half of the queries of the one between both."""
        t, whole = self.schedule.tiling, self.schedule.tiling.queries // 8
        address, panel = smem.address(self.base), self.store.bytes
        self.store.put(address + self.group * (2 * panel), self.thread, pairs[:whole])
        half = self.group * (t.queries // 2 * wgmma.ROW_BYTES) + panel
        self.store.put(address + half, self.thread, pairs[whole:])

    def _finish_queries(self, number: Any) -> None:
        """A block of queries' dQ, scaled: each thread has runs of elements of a query."""
        s, t = self.schedule, self.schedule.tiling
        finish = Finish(self.kernel, self.parts, "dq")
        found = s.block_place(number)
        part = self.group * t.dq_part_bytes
        start = ops.to_i64(number) * t.dq_bytes + ops.to_i64(part)
        source = smem.byte_pointer(self.kernel.workspace(self.sums), start)
        size = self.kernel.size(s.queries)
        for first in range(0, t.dq_columns * wgmma.M // _RUN, wgmma.WARPGROUP_THREADS):
            # [8 queries of a block][warp][upper or lower 8 rows][query]
            run = self.thread + first
            inner, half = run & 7, (run >> 3) & 1
            warp, j = (run >> 4) & 3, run >> 6
            lane = warp * 32 + (inner >> 1)
            register = half * 2 + (inner & 1)
            place = j * wgmma.WARPGROUP_THREADS + lane
            place = (place * TOGETHER + register) * 4
            values = [
                ops.load(
                    smem.byte_pointer(source, place + row * 4 * TOGETHER * 4),
                    ops.f32_type(), 4,
                )
                for row in range(_RUN)
            ]  # fmt: skip
            panel, column = self._block_place(j)
            element = panel + (warp * 16 + half * 8)
            query = column + inner
            query = found.block * t.queries + query
            inside = ops.less(query, size) if s.has_row_tail else None
            if t.depth % wgmma.M:
                inside = ops.both(inside, element < t.depth)
            at = [*found.head.batch.values(), Index.of(query), Index(element, 1, _RUN)]
            finish.store(ops.from_elements(values), at, inside)
        finish.meet(self.thread)

    def _pair(self, loaded: Any, half: int) -> Any:
        pair = ops.part(loaded, 2 * half, 2)
        return arith.TruncFOp(ops.vector_type(self.element, 2), pair).result


def _pairs(units: Expr) -> Expr:
    """Blocks of threads of so many units, one of each warpgroup."""
    return ceildiv(units, CONSUMERS)
