# pyright: basic
"""The main kernel of engine sdpa_bwd_sm90 of operands of 8 bits, multiplied as they are.

Tensor cores take bytes with k contiguous only, so that Q, dO and K are loaded twice: as they lie,
and transposed, by `bwd_transposed`, in whose order of rows P' and dS' are in registers, and dS in
shared memory:

    dS' of two keys, 8 apart, and a query are 16 bits, which `stmatrix` transposes
    dS  [queries][128 keys], a row of which is a panel's

Accumulators of fp8 have few bits: dV and dK are added up in f32, at each step, of parts of 64
elements that are made one after the other, two at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from ...codegen import ops
from ...codegen.hopper import tma, wgmma
from ...codegen.hopper.staged_store import store_transposed
from ...codegen.memory import smem
from ...codegen.memory.transposed_tile import permuted
from ...codegen.scalars.byte_math import f8_word
from ...codegen.scalars.scalar import element_type
from ...dtypes import DType
from ...mlir import arith, llvm
from .bwd_kernel_sm90 import GradientEmitter
from .bwd_records_sm90 import Sums
from .bwd_rows_store import BUFFER_BYTES, RowsStore
from .bwd_schedule import KeyTile
from .bwd_surface import FP8
from .bwd_tile_sm90 import STAGES, NarrowTiling
from .bwd_walk import GradientWalk
from .entry import Entry
from .schedule import QueryTile
from .sources_sm90 import Rows

_COLUMNS = 64  # of dV and dK that are made together
_GROUP = 32  # queries of an instruction's k


@dataclass
class TransposedRows(Rows):
    """All elements of some rows of a transposed operand, a box."""

    columns: int

    def _boxes(self) -> list[tma.Box]:
        return [tma.Box(self.tensor, self.axes, (self.columns, self.rows))]

    def load(self, slot: Any, barrier: Any, tile: QueryTile, entry: Entry, row: Any) -> None:
        at = {**self._heads(tile), self.axes[0]: row, self.axes[1]: 0}
        corner = [ops.value_of(at[axis]) for axis in self.boxes[0].map_axes]
        tma.load(slot, self.maps[0], corner, barrier)


@dataclass
class TwiceRows:
    """Rows of an operand as they lie, and transposed, some bytes further on."""

    rows: Rows
    transposed: TransposedRows
    offset: int

    def prefetch(self) -> None:
        self.rows.prefetch()
        self.transposed.prefetch()

    def entry(self, tile: QueryTile) -> Entry:
        return self.rows.entry(tile)

    def load(self, slot: Any, barrier: Any, tile: QueryTile, entry: Entry, row: Any) -> None:
        self.rows.load(slot, barrier, tile, entry, row)
        self.transposed.load(smem.byte_pointer(slot, self.offset), barrier, tile, entry, row)


@dataclass
class NarrowWalk(GradientWalk):
    """Words have four queries, two neighbours of two blocks of 8 columns."""

    def words(self, *args: Any, **named: Any) -> tuple[list[Any], list[Any]]:
        self._waiting: tuple[list[Any], list[Any]] = ([], [])
        weights, gradients = super().words(*args, **named)
        return [w for w in weights if w is not None], [g for g in gradients if g is not None]

    def _word(self, pair: Any, which: int) -> Any:
        """The word of a pair and of that in the block of columns before; None: it is to come."""
        pairs = self._waiting[which]
        pairs.append(ops.elements(pair))
        if (len(pairs) - 1) % 4 < 2:  # [block of columns][upper, lower row]
            return None
        values = [*pairs[-3], *pairs[-1]]
        kind = self.rounded[which]
        if kind is None or str(values[0].type) == "i8":
            return llvm.BitcastOp(ops.i32_type(), ops.from_elements(values)).result
        return f8_word(values, kind)


@dataclass
class NarrowGradientEmitter(GradientEmitter):
    """See the file's docstring."""

    walk_type: ClassVar[type[GradientWalk]] = NarrowWalk
    is_staged: ClassVar[bool] = False

    @property
    def tiling(self) -> NarrowTiling:
        return self.schedule.tiling

    def set_operands(self) -> None:
        t = self.tiling
        plain = {name: self.rows_of(name, 1) for name in ("q", "do", "k", "v")}
        heights = {"q": t.transposed_depth, "do": t.transposed_width, "k": t.transposed_depth}
        self.operands = {
            name: TwiceRows(
                rows, self._transposed(name, heights[name]), rows.rows * wgmma.ROW_BYTES
            )
            if name in heights
            else rows
            for name, rows in plain.items()
        }
        q, k, v, do = (self.parts.source(name).tensor.type for name in ("q", "k", "v", "do"))
        self.qk, self.vo = wgmma.INSTRUCTIONS[k, q], wgmma.INSTRUCTIONS[v, do]
        self.types = p, ds = _fp8_type(self.parts.weights), _fp8_type(self.parts.gradients)
        self.of_dv, self.of_dk = wgmma.INSTRUCTIONS[p, do], wgmma.INSTRUCTIONS[ds, q]
        self.of_dq = wgmma.INSTRUCTIONS[k, ds]
        self.key_rows = wgmma.Panels(t.keys, 1)
        self.query_rows = wgmma.Panels(t.queries, 1)
        self.keys_transposed = wgmma.Panels(t.transposed_depth, 1)
        self.queries_transposed = wgmma.Panels(t.transposed_depth, 1, row_bytes=t.queries)
        self.do_transposed = wgmma.Panels(t.transposed_width, 1, row_bytes=t.queries)

    def _transposed(self, name: str, height: int) -> TransposedRows:
        t, tensor = self.tiling, self.parts.transposed[name]
        axes = (tensor.rank - 1, tensor.rank - 2)
        source = replace(self.parts.source(name), tensor=tensor, is_transposed=False, kind="")
        columns = t.keys if name == "k" else t.queries
        return TransposedRows(
            self.kernel, self.parts.region, source, axes, self.parts.dims[:-2], height, 1, columns
        )

    # ---- places

    def described(self, offset: Any, panels: wgmma.Panels) -> wgmma.Halves:
        return wgmma.descriptor_in_halves(self.address + offset, panels)

    def _describe(self) -> None:
        t = self.tiling
        self.describe_keys(self.own)
        panel = 0 if t.shares_queries else self.own * (wgmma.M * wgmma.ROW_BYTES)
        self.k_transposed = self.described(panel + t.k_rows_bytes, self.keys_transposed)
        part = self.own * (t.dq_columns * wgmma.ROW_BYTES) if t.shares_queries else 0
        self.ds_all = self.described(part + t.ds_offset, self.query_rows)
        self.q_rows = self.described(t.q_offset, self.query_rows)
        self.do_rows = self.described(t.do_offset, self.query_rows)
        self.q_transposed = self.described(t.q_offset + t.q_rows_bytes, self.queries_transposed)
        self.do_transposed_ = self.described(t.do_offset + t.q_rows_bytes, self.do_transposed)
        self.find_places(self.own)
        own_sums = self.own * t.dq_part_bytes + self.thread * 16
        self.dq_place = self.address + (own_sums + t.dq_offset)

    def find_places(self, own: Any) -> None:
        t = self.tiling
        _, right = wgmma.AccumulatorLayout.origin(self.thread)
        self.row_place = self.address + (right * 4 + t.rows_offset)
        # A lane names a query's 16 bytes of its warp's 16 keys.
        query = self.thread & 31
        chunk = (own * 4 + (self.thread >> 5)) ^ (query & 7)
        self.ds_place = self.address + (query * wgmma.ROW_BYTES + chunk * 16 + t.ds_offset)

    # ---- a step

    def in_ring(self, stage: Any, bytes_: int) -> Any:
        """The number to add to the low half of the descriptor of a ring's first stage."""
        return stage * (bytes_ >> 4)

    def _step(self, head: QueryTile, block: Any, now: Sums, is_masked: bool) -> Sums:
        t, cursor = self.tiling, now.cursor
        buffer = cursor.stage  # of dS
        _, row, q, do, scores, products, weights, gradients = self.weigh(
            head, block, now, is_masked
        )
        dv, dk = list(now.dv), list(now.dk)
        weights, gradients = wgmma.settled(weights), wgmma.settled(gradients)
        self.never = ops.opaque(row) >> 31
        of_values = partial(
            self._part, self.of_dv, weights, self.do_transposed_ + do, self.do_transposed
        )
        of_keys = partial(
            self._part, self.of_dk, gradients, self.q_transposed + q, self.queries_transposed
        )
        flight = _Flight(scores, products)
        first, *others = _columns(t.width)
        flight.start(partial(of_values, first), partial(_add, dv, first))
        self.put_gradients(gradients, buffer)
        self._tell(buffer)
        for at in others:
            flight.start(partial(of_values, at), partial(_add, dv, at))
        self._meet_both(buffer)
        flight.start(partial(self._of_gradients, buffer), self._hand_over)
        for at in _columns(t.depth):
            flight.start(partial(of_keys, at), partial(_add, dk, at))
        self.do.release(cursor, self.lane)
        flight.end()
        self.q.release(cursor, self.lane)
        return Sums(cursor.next(STAGES), dk, dv, list(self.walk.met))

    def _part(
        self,
        row: Any,
        words: Sequence[Any],
        b: Any,
        panels: wgmma.Panels,
        at: tuple[int, int],
        place: Any,
    ) -> Any:
        """Starts A @ B of some columns, [own keys, columns], A in registers; at: (first, how
        many)."""
        first, columns = at
        sums = wgmma.columns_of(row, place, 0, columns)
        wgmma.fence()
        for step in range(len(words) // 4):
            sums = wgmma.multiply(
                row, columns, list(words[4 * step : 4 * step + 4]),
                wgmma.moved(b, panels.offset(first, step)), sums, 1 if step else self.never,
            )  # fmt: skip
        wgmma.commit()
        return sums

    def _of_gradients(self, buffer: Any, place: Any) -> Any:
        t, row = self.tiling, self.of_dq
        b = self.ds_all + buffer * (t.ds_bytes >> 4)
        sums = wgmma.columns_of(row, place, 0, t.dq_columns)
        wgmma.fence()
        for step in range(t.keys // row.k):
            sums = wgmma.multiply(
                row, t.dq_columns,
                wgmma.moved(self.k_transposed, self.keys_transposed.offset(0, step)),
                wgmma.moved(b, self.query_rows.offset(0, step)), sums, 1 if step else self.never,
            )  # fmt: skip
        wgmma.commit()
        return sums

    def put_gradients(self, words: Sequence[Any], buffer: Any, query: int = 0) -> None:
        """dS' as dS in shared memory, [queries][keys]."""
        place = self.ds_place + buffer * self.tiling.ds_bytes
        for first in range(0, len(words), 4):
            # Of each two words, of keys 8 apart: the pairs of bytes of two blocks of 8 queries.
            pairs = [
                permuted(words[first + i], words[first + i + 1], selector)
                for i in (0, 2)
                for selector in (0x5140, 0x7362)
            ]
            store_transposed(place, (query + first // 4 * _GROUP) * wgmma.ROW_BYTES, pairs)
        tma.show_writes()

    # ---- results

    def store_keys(self, end: Sums, tile: KeyTile) -> None:
        own = self.address + self.own * BUFFER_BYTES  # rows of K and V that nobody else multiplies
        for name, sums, offset in (("dv", end.dv, self.tiling.v_offset), ("dk", end.dk, 0)):
            result = self.results[name]
            store = RowsStore(result, self.thread, own + offset, self.meet_own)
            store.store(result.place_of(tile, self.own), self.schedule.key_end, sums)


class _Flight:
    """Products one after the other, each of which is used under the next, alternately in two
    places.

    places: accumulators that nobody needs any more.
    """

    def __init__(self, *places: Any) -> None:
        self._free = list(places)
        self._made: Any = None
        self._use: Callable[[Sequence[Any]], None] | None = None

    def start(self, begin: Callable[[Any], Any], use: Callable[[Sequence[Any]], None]) -> None:
        done, last = self._done(), self._use
        self._made, self._use = begin(self._free.pop(0)), use
        if last is not None:
            last(wgmma.unpacked(done))
            self._free.append(done)

    def end(self) -> None:
        done, last = self._done(), self._use
        if last is not None:
            last(wgmma.unpacked(done))

    def _done(self) -> Any:
        if self._use is None:
            return None
        (made,) = wgmma.wait_for([self._made])
        return made


def _fp8_type(value: Any) -> DType:
    """The type of a tensor of fp8."""
    return next(t for t in FP8 if element_type(t) == value.type.element_type)


def _columns(elements: int) -> list[tuple[int, int]]:
    """(first, how many) of parts of dV or dK."""
    return [(at, min(_COLUMNS, elements - at)) for at in range(0, elements, _COLUMNS)]


def _add(sums: list[Any], at: tuple[int, int], part: Sequence[Any]) -> None:
    """Adds a part to sums, in place."""
    first = at[0] // 2
    made = [arith.AddFOp(sums[first + i], value).result for i, value in enumerate(part)]
    # Here, not after the products that follow in the part's registers, which would then be copied.
    sums[first : first + len(part)] = wgmma.settled(made)
