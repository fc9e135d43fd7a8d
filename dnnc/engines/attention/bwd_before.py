# pyright: basic
"""The kernel before the main one of attention's gradient: what rows have, and zeros.

A block of threads has a block of queries.  It adds up the rows of dO * O, writes
-log2(e) * base and -delta (times the factor of dS) of each query, as the main kernel's
multiply-adds take them, fills the block's sums of dQ, if there are any, with zeros, and widens
or transposes operands of fp8.  Queries past the last one get minus infinity and 0, so that their
weights are 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.attention.gradient_region import GradientRegion
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.memory.tensors import GlobalTensor
from ...codegen.state import each
from ...codegen.stretch import stretch
from ...codegen.totals.global_flags import GlobalFlags
from ...codegen.totals.reduce import across_lanes
from ...codegen.walk.index import Index
from ...codegen.walk.region_walk import Walk, inputs_of
from ...expr import Expr
from ...mlir import arith
from . import bwd_transposed, bwd_widened
from .bwd_ahead import Ahead
from .bwd_packed_tiles import PackedTiles
from .bwd_schedule import GradientSchedule
from .bwd_walk import LOG2E, negated
from .number_ranges import fill, fill_blocks

THREADS = 256
_VECTOR = 8  # elements of a row that a lane has at a time
_ZEROS = 4  # f32 numbers of a store


@dataclass
class BeforeEmitter:
    """rows, sums: workspace buffers of what queries have, and of dQ.  order: of the flags by
    which tiles add to dQ in order.  ahead: of the numbers of `Ahead`.  "": it has none.  others:
    SSA values of rows that are kept, f32, and where.
    """

    kernel: Kernel
    parts: GradientRegion
    schedule: GradientSchedule
    rows: str
    sums: str = ""
    order: str = ""
    ahead: str = ""
    others: Sequence[tuple[Any, GlobalTensor]] = ()

    def emit(self) -> None:
        """Blocks of threads after those of queries fill tables of numbers, or make the list of
        tiles, if there are any."""
        kernel, s = self.kernel, self.schedule
        if s.listed is not None:
            listed, first = s.listed, kernel.size(s.blocks)
            number = ops.block_id()
            ops.if_else(
                number < first, lambda: self._queries(number), lambda: listed.fill(number - first)
            )
            return
        tables = () if s.lists is None else s.lists.tables
        number = ops.block_id()
        if not tables:
            self._queries(number)
            return
        blocks = kernel.size(s.blocks)
        ops.if_else(
            number < blocks, lambda: self._queries(number),
            lambda: fill(kernel, self.parts.region, tables, number - blocks),
        )  # fmt: skip

    @staticmethod
    def blocks(plan: GradientSchedule) -> Expr:
        """Blocks of threads."""
        if plan.listed is not None:
            return plan.blocks + PackedTiles.blocks(plan, THREADS)
        tables = () if plan.lists is None else plan.lists.tables
        return plan.blocks + fill_blocks(tables, THREADS)

    def _queries(self, number: Any) -> None:
        """The values that the rows of a block of queries have."""
        kernel, s, t = self.kernel, self.schedule, self.schedule.tiling
        thread = ops.thread_id()
        place = s.block_place(number)
        block = place.block
        self.batch = list(place.head.batch.values())
        has_queries = s.has_queries(place)
        if self.sums:
            with ops.if_(ops.both(has_queries, self._is_filled_here(number))):
                self._fill(ops.to_i64(number) * t.dq_bytes, thread)
        if self.order:
            self._clear(self.order, s.flags, number, thread)
        if self.ahead:
            self._clear(self.ahead, s.units * 2, number, thread)
        if self.parts.twins:
            bwd_widened.emit(kernel, self.parts, number, kernel.size(s.blocks), THREADS)
        if self.parts.transposed:
            bwd_transposed.emit(kernel, self.parts, number, kernel.size(s.blocks), THREADS)
        with ops.if_(has_queries):
            self._rows(number, block, thread)

    def _rows(self, number: Any, block: Any, thread: Any) -> None:
        kernel, t = self.kernel, self.schedule.tiling
        lanes = self.lanes
        first, lane = thread // lanes, thread % lanes
        step = THREADS // lanes
        target = kernel.workspace(self.rows)
        for i in range(-(-t.queries // step)):
            inside = first + i * step
            own = inside
            if t.queries % step:  # rows past the block may be past the tensor
                own = ops.minimum(inside, t.queries - 1)
            row = block * t.queries + own
            base, delta, others = self._row(row, lane)
            is_own = ops.compare("eq", lane, 0)
            if t.queries % step:
                is_own = ops.both(is_own, inside < t.queries)
            with ops.if_(is_own):
                at = ops.to_i64(number) * t.row_bytes + ops.to_i64(inside) * 4
                for which, value in enumerate((base, delta)):
                    where = smem.byte_pointer(target, at + which * t.queries * 4)
                    ops.store(where, value, 4)
                self._store_others(row, others)

    @property
    def lanes(self) -> int:
        """Lanes that share a row, a power of two."""
        return 1 << max(0, -(-self.schedule.tiling.width // _VECTOR) - 1).bit_length()

    def _fill(self, first: Any, thread: Any) -> None:
        """Zeros in the block's sums."""
        target = smem.byte_pointer(self.kernel.workspace(self.sums), first)
        zeros = ops.zeros(ops.vector_type(ops.f32_type(), _ZEROS))
        place = thread * (4 * _ZEROS)
        for at in range(0, self.schedule.tiling.dq_bytes, THREADS * 4 * _ZEROS):
            ops.store(smem.byte_pointer(target, place + at), zeros, 4 * _ZEROS)

    def _is_filled_here(self, number: Any) -> Any:
        """Whether a block's sums are not filled by the main kernel; None: none are."""
        if not self.ahead:
            return None
        ahead = Ahead(self.kernel, self.schedule, self.sums, self.ahead)
        return number < self.kernel.size(ahead.first_block)

    def _clear(self, buffer: str, flags: Expr, number: Any, thread: Any) -> None:
        """Zeros in this block's share of so many flags of a `GlobalFlags`."""
        target = self.kernel.workspace(buffer)
        words = GlobalFlags.bytes(flags) // 4
        step = self.kernel.size(self.schedule.blocks) * THREADS

        @each(number * THREADS + thread, self.kernel.size(words), step)
        def _(word: Any) -> None:
            ops.store(smem.byte_pointer(target, word * 4), ops.const(0), 4)

    def _store_others(self, row: Any, values: Sequence[Any]) -> None:
        s = self.schedule
        for value, (_, target) in zip(values, self.others, strict=True):
            is_there = ops.less(row, self.kernel.size(s.queries)) if s.has_row_tail else None
            target.store([*self.batch, Index.of(row), Index.of(0)], value, is_there)

    @stretch("sum of rows")
    def _row(self, row: Any, lane: Any) -> tuple[Any, Any, list[Any]]:
        """(-log2(e) * base, -delta times the factor, what else is kept) of a row, f32, the same in
        all its lanes."""
        kernel, s, parts = self.kernel, self.schedule, self.parts
        region, width = parts.region, s.tiling.width
        is_there = None
        if s.has_row_tail:
            size = kernel.size(s.queries)
            is_there = ops.less(row, size)
            row = ops.minimum(row, size - 1)
        walk = Walk(kernel, region.leaves(kernel), region.symbols)
        column = lane * _VECTOR
        is_inside = None
        if self.lanes * _VECTOR != width:
            is_inside = ops.less(column, width)
            column = ops.minimum(column, width - _VECTOR)
        at = [*self.batch, Index.of(row), Index(column, 1, _VECTOR)]
        values = walk.value(inputs_of(parts.delta)[0], at, _VECTOR)
        total = ops.f32(0.0)
        for value in ops.elements(values):
            total = arith.AddFOp(total, value).result
        if is_inside is not None:
            total = arith.SelectOp(is_inside, total, ops.f32(0.0)).result
        total = across_lanes(total, self.lanes, lambda a, b: arith.AddFOp(a, b).result)
        of_row = [*self.batch, Index.of(row), Index.of(0)]
        walk.know(parts.delta.results[0], of_row, 1, total)
        others = [walk.value(value, of_row, 1) for value, _ in self.others]
        base = walk.value(parts.base, of_row, 1)
        delta = walk.value(inputs_of(parts.distance)[1], of_row, 1)
        base = arith.MulFOp(base, ops.f32(-LOG2E)).result
        delta = negated(parts, delta)
        if is_there is not None:
            base = arith.SelectOp(is_there, base, ops.f32(-math.inf)).result
            delta = arith.SelectOp(is_there, delta, ops.f32(0.0)).result
        return base, delta, others
