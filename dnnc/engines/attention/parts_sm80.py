# pyright: basic
"""Keys of a tile that several blocks share: what each leaves in the workspace, and their sum.

    part p of a row:  its largest score m[p], its sum of exponentials l[p], its result o[p], all
                      relative to m[p]
    m = max m[p];  l = sum l[p] * 2^(m[p] - m);  o = sum o[p] * 2^(m[p] - m),  p from the first on

A second kernel, a warp a row, adds the parts up in their order, divides, and does what comes after
the product; of no keys, a part has m = -inf, l = 0 and zeros.  A row's largest
weight, which an amax asks for, is that of its m.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...codegen import ops
from ...codegen.attention.online_softmax import HALVES, OnlineSoftmax, Rows
from ...codegen.attention.region import AttentionRegion
from ...codegen.kernel import Kernel
from ...codegen.output import Output
from ...codegen.state import loop
from ...codegen.totals.reduce import across_lanes
from ...codegen.walk.index import Index
from ...codegen.walk.loops import Loops
from ...expr import Expr, ceildiv, product
from ...mlir import arith, llvm, nvvm
from ...target import WARP_THREADS
from .region import SdpaRegion
from .result import ResultWalk
from .scale import times_log2e
from .schedule import QueryTile, RowPlace, Schedule, Tiling

THREADS = 128
_ROWS = THREADS // WARP_THREADS  # of a block of the second kernel
_TOGETHER = 8  # parts whose results a thread loads together


class SplitTiling(Tiling, Protocol):
    """The facts of a tiling whose tiles' keys blocks share."""

    @property
    def whole_width(self) -> int: ...

    @property
    def parts(self) -> int: ...

    @property
    def lift(self) -> int: ...


@dataclass(frozen=True)
class PartStore:
    """Where parts lie in the workspace.  count: of a tile.

    results: [count, rows, width] of f32.  sums: [count, rows, 2]: m and l.  rows: the queries of
    all heads, row-major.
    """

    kernel: Kernel
    results: str
    sums: str
    dims: tuple[Expr, ...]
    width: int
    count: int

    @staticmethod
    def rows_of(dims: Sequence[Expr]) -> Expr:
        return product(dims[:-1])

    @staticmethod
    def workspace(output: Output, dims: Sequence[Expr], tiling: SplitTiling) -> tuple[str, str]:
        """The names of what a launch has for results and for sums; "": its tiles have no parts."""
        if tiling.parts == 1:
            return "", ""
        rows = PartStore.rows_of(dims) * tiling.parts
        return (
            output.workspace("results", rows * (4 * tiling.whole_width)),
            output.workspace("sums", rows * 8),
        )

    @staticmethod
    def of(
        kernel: Kernel, names: tuple[str, str], dims: tuple[Expr, ...], tiling: SplitTiling
    ) -> PartStore | None:
        """The store of a kernel of a launch; None: its tiles have no parts."""
        if tiling.parts == 1:
            return None
        return PartStore(kernel, *names, dims, tiling.whole_width, tiling.parts)

    def number(self, place: RowPlace) -> Any:
        """The number of a row among all."""
        return place.head * self.kernel.size(self.dims[-2]) + place.query.index().base

    def _address(self, name: str, part: Any, row: Any, elements: int, column: Any) -> Any:
        rows = self.kernel.size(self.rows_of(self.dims), 64)
        line = ops.to_i64(ops.value_of(part)) * rows + ops.to_i64(row)
        place = line * elements + ops.to_i64(ops.value_of(column))
        return ops.gep(self.kernel.workspace(name), place, ops.f32_type())

    def sums_of(self, part: Any, row: Any) -> Any:
        return self._address(self.sums, part, row, 2, 0)

    def result_of(self, part: Any, row: Any, column: Any) -> Any:
        return self._address(self.results, part, row, self.width, column)

    # ---- by the first kernel

    def put(
        self, walk: ResultWalk, part: Any, softmax: OnlineSoftmax, rows: Rows,
        result: Sequence[Any],
    ) -> None:  # fmt: skip
        """Leaves what a block has of its tile.  part: of the tile's keys."""
        totals = softmax.finished(rows)
        walk.leave_loop()
        pieces = list(walk.pieces(result))
        for half in HALVES:
            with ops.if_(walk.inside(half)):
                row = self.number(walk.rows[half])
                self._put_sums(walk, part, row, rows.reference[half], totals[half])
                own = [piece for piece in pieces if piece.half == half]
                start = self.result_of(part, row, own[0].column.base)
                step = walk.shared.tiling.width // len(own)
                for i, piece in enumerate(own):
                    values = ops.from_elements(list(piece.values))
                    place = ops.gep(start, step * i, ops.f32_type())
                    ops.store(place, values, 4 * len(piece.values))

    def _put_sums(self, walk: ResultWalk, part: Any, row: Any, maximum: Any, total: Any) -> None:
        with ops.if_(walk.is_first_lane()):
            ops.store(self.sums_of(part, row), ops.from_elements([maximum, total]), 8)


@dataclass
class PartsEmitter:
    """The second kernel."""

    kernel: Kernel
    parts: AttentionRegion
    tiling: SplitTiling
    store: PartStore

    @staticmethod
    def launch(
        output: Output, parts: AttentionRegion, tiling: SplitTiling, names: tuple[str, str]
    ) -> None:
        """Launches it, if tiles have parts."""
        if tiling.parts == 1:
            return
        kernel = output.kernel("parts", THREADS)
        with kernel.body():
            store = PartStore.of(kernel, names, parts.dims, tiling)
            assert store is not None, "tiles have parts"
            PartsEmitter(kernel, parts, tiling, store).emit()
        output.launch(kernel, (PartsEmitter.blocks(parts.dims), 1, 1))

    def emit(self) -> None:
        self.lane = ops.thread_id() & (WARP_THREADS - 1)
        rows = PartStore.rows_of(self.parts.dims)
        warp = ops.thread_id() >> 5
        row = ops.block_id() * _ROWS + warp
        with ops.if_(row < self.kernel.size(rows)):
            self._emit_row(row)

    @staticmethod
    def blocks(dims: Sequence[Expr]) -> Expr:
        return ceildiv(PartStore.rows_of(dims), _ROWS)

    def _emit_row(self, row: Any) -> None:
        schedule = Schedule(self.kernel, self.parts, self.tiling, 1)
        shared = SdpaRegion(self.kernel, self.parts, self.tiling, schedule, ops.thread_id())
        self.is_packed = bool(shared.packed)
        may_be_far = self.parts.score_steps.may_be_far
        softmax = OnlineSoftmax(
            times_log2e(shared.factor), may_be_far=may_be_far, lift=self.tiling.lift
        )
        maximum, total, shares = self._sums(row, softmax)
        walk = RowWalk(shared, *self._place(row))
        scale = walk.finish(softmax, maximum, total, self.lane.eq(0))
        width = self._fragment_width
        for first in range(0, self.tiling.whole_width, WARP_THREADS * width):
            column = self.lane * width + first
            is_whole = first + WARP_THREADS * width <= self.tiling.whole_width
            # Shares come from other lanes: all take part, those past the end with another's place.
            kept = column if is_whole else ops.minimum(column, self.tiling.whole_width - width)
            result = self._result(row, kept, width, shares)
            inside = None if is_whole else column < self.tiling.whole_width
            result = arith.MulFOp(result, ops.splat(scale, width)).result
            walk.put(result, Index(kept, 1, width), inside)
        walk.meet_largest()

    @property
    def _fragment_width(self) -> int:
        return 2 if self.tiling.whole_width <= 2 * WARP_THREADS else 4

    def _place(self, row: Any) -> tuple[QueryTile, RowPlace]:
        dims = self.parts.dims
        head = self.kernel.divide(row, dims[-2])
        query = self.kernel.remainder(row, dims[-2], head)
        loops = Loops(dims, tuple((axis,) for axis in range(len(dims) - 2)))
        batch = loops.coordinates(self.kernel, head) if loops.groups else {}
        return QueryTile(query, batch, head), RowPlace(Index(query), batch, head)

    # ---- parts

    def _sums(self, row: Any, softmax: OnlineSoftmax) -> tuple[Any, Any, list[Any]]:
        """(maximum, sum, share of each part in it: of part 32 i + lane) of a row."""
        count = self.tiling.parts
        pairs = [
            self._pair(row, self.lane + first, count) for first in range(0, count, WARP_THREADS)
        ]
        maximum = pairs[0][0]
        for other, _ in pairs[1:]:
            maximum = _max(maximum, other)
        lanes = min(count, WARP_THREADS)
        maximum = across_lanes(maximum, lanes, _max)
        base = softmax.relative_to(Rows([maximum], []), 0)
        shares, total = [], None
        for own, sum_ in pairs:
            (share,) = softmax.shares([own], [base])
            shares.append(share)
            more = arith.MulFOp(sum_, share).result
            total = more if total is None else arith.AddFOp(total, more).result
        return maximum, across_lanes(total, lanes, _add), shares

    def _pair(self, row: Any, part: Any, count: int) -> tuple[Any, Any]:
        """m and l of a part; lanes past the last have those of one before, which is in a group of
        lanes that is not theirs."""
        kept = part & (count - 1)
        two = ops.vector_type(ops.f32_type(), 2)
        own, sum_ = ops.elements(ops.load(self.store.sums_of(kept, row), two, 8))
        return own, sum_

    def _result(self, row: Any, column: Any, width: int, shares: Sequence[Any]) -> Any:
        """The sum of the parts of a fragment of a row's result."""
        count = self.tiling.parts
        type_ = ops.vector_type(ops.f32_type(), width)
        together = min(count, _TOGETHER)

        def some(i: Any, found: Any) -> Any:
            first = i * together
            loaded = [
                ops.load(self.store.result_of(first + p, row, column), type_, 4 * width)
                for p in range(together)
            ]
            for p, value in enumerate(loaded):
                share = ops.splat(self._share(shares, first + p), width)
                found = arith.AddFOp(found, arith.MulFOp(value, share).result).result
            return found

        rounds: Any = count // together
        if rounds > 1 and self.is_packed:
            rounds = ops.opaque(
                ops.const(rounds)
            )  # unrolled, two rounds load all at once, and spill
        return loop(0, rounds, state=ops.zeros(type_))(some)

    def _share(self, shares: Sequence[Any], part: Any) -> Any:
        """The share of a part, from the lane that has it."""
        chosen = shares[0]
        for i, share in enumerate(shares[1:], 1):
            is_there = part >= i * WARP_THREADS
            chosen = arith.SelectOp(is_there, share, chosen).result
        word = llvm.BitcastOp(ops.i32_type(), chosen).result
        lane = ops.value_of(part & (WARP_THREADS - 1))
        moved = nvvm.shfl_sync(ops.const(-1), word, lane, ops.const(31), nvvm.ShflKind.idx)
        return llvm.BitcastOp(ops.f32_type(), moved).result


class RowWalk(ResultWalk):
    """The walks of one row, which a warp has."""

    def __init__(self, shared: SdpaRegion, tile: QueryTile, place: RowPlace):
        self.place = place
        self.largest = {place: list[Any]() for place in shared.result_amax}
        super().__init__(shared, tile, 0)

    def _place(self, thread: Any) -> None:
        self.thread, self.rows = thread, [self.place]

    def finish(self, softmax: OnlineSoftmax, maximum: Any, total: Any, is_first: Any) -> Any:
        """The factor of the result, once the row's statistics are stored."""
        rows = Rows([maximum], [total])
        (scale,) = self._lowered(softmax, [self._share(softmax, rows, total, 0, is_first)])
        return scale

    def put(self, result: Any, column: Index, condition: Any) -> None:
        """Walks what comes after a fragment of the divided result, and stores it."""
        self.hands["result"].current = result
        walk = self.walk.branch()
        s = self.shared
        at, width = self._at(0, column), ops.width_of(result)
        for place, (value, target) in enumerate(s.targets):
            if s.parts.outputs.is_of_result(value) and place not in s.parts.outputs.largest:
                made = walk.value(s.made(place), at, width)
                where, inside = self.spot(place, 0, column)
                target.store(where, made, ops.both(condition, inside))
        for place, found in self.largest.items():
            found += ops.elements(walk.value(s.parts.outputs.largest[place], at, width))

    def meet_largest(self) -> None:
        """The largest of the result, once all of it has been walked: lanes past the row's end have
        had another's elements."""
        for place, found in self.largest.items():
            self._meet(place, found, 0)

    def inside(self, half: int) -> Any:
        return None  # a warp has a row that is there


def _add(a: Any, b: Any) -> Any:
    return arith.AddFOp(a, b).result


def _max(a: Any, b: Any) -> Any:
    return arith.MaximumFOp(a, b).result
