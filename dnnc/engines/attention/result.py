# pyright: basic
"""The end of an attention's tile: rows' statistics, the division by their sums, the walks of what
comes after the products, and the largest of all."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...codegen import ops
from ...codegen.attention.online_softmax import HALVES, OnlineSoftmax, Rows, scaled
from ...codegen.hopper.transposed_bytes import quads
from ...codegen.totals.largest import larger, meet
from ...codegen.walk.index import Coordinate, Index
from ...codegen.walk.region_walk import inputs_of
from ...mlir import arith, llvm
from .entry import Entry, packed_entry
from .scale import number_value, times_log2e
from .walk import TileWalk


@dataclass(frozen=True)
class Piece:
    """Neighbours in a row of the result.  half: the thread's upper or lower row.  column: of the
    first.  values: scalars."""

    half: int
    column: Index
    values: Sequence[Any]


@dataclass
class ResultWalk(TileWalk):
    """Statistics and the result of one tile."""

    _entries: dict[int, Entry] = field(default_factory=dict)

    def store(self, softmax: OnlineSoftmax, rows: Rows, result: Sequence[Any]) -> None:
        """Divides the result, walks what comes after, and stores it, and what rows have."""
        self.store_others(self.divided(softmax, rows, result))

    def store_others(self, result: Sequence[Any], staged: Collection[int] = ()) -> None:
        """Outputs of the divided result, but for those that are staged, from registers."""
        largest = self.shared.parts.outputs.largest
        self._store_largest(result)
        for place, (value, _) in enumerate(self.shared.targets):
            if self.shared.parts.outputs.is_of_result(value) and place not in (*staged, *largest):
                self.store_direct(place, result)

    def divided(self, softmax: OnlineSoftmax, rows: Rows, result: Sequence[Any]) -> list[Any]:
        """The result over the sums of rows, whose statistics are stored."""
        self.leave_loop()
        return scaled(result, self.shares(softmax, rows))

    def shares(self, softmax: OnlineSoftmax, rows: Rows) -> list[Any]:
        """The factors of the exponentials of each row; its statistics are stored."""
        totals = softmax.finished(rows)
        scale = [self._share(softmax, rows, totals[half], half) for half in HALVES]
        return self._lowered(softmax, scale)

    # ---- statistics

    def _share(
        self, softmax: OnlineSoftmax, rows: Rows, total: Any, half: int, is_first: Any = None
    ) -> Any:
        """The factor of the exponentials of a row; its statistics are stored, by the lane that
        is first."""
        scale = self._finish_row(softmax, rows, total, half)
        if self.shared.weights_amax:
            self._meet_weights(softmax, rows, scale, half)
        self._store_row(half, is_first)
        return scale

    def _lowered(self, softmax: OnlineSoftmax, scale: Sequence[Any]) -> list[Any]:
        """The factor for bytes, which has in it what weights were not multiplied by."""
        if not self.shared.of_bytes:
            return list(scale)
        own = self._weight_factor(softmax.lift)
        return [arith.MulFOp(value, own).result for value in scale]

    def _weight_factor(self, lift: int) -> Any:
        """The factor that weights were not multiplied by, over 2 ** lift, which they were."""
        found = ops.f32(2.0**-lift)
        for _, _, number in self.shared.parts.weights.factors:
            if number is not None:
                found = arith.MulFOp(found, number_value(number, self.walk)).result
        return found

    def _finish_row(self, softmax: OnlineSoftmax, rows: Rows, total: Any, half: int) -> Any:
        """The factor of the result of a row; maximum and sum are in hand after it."""
        s, parts = self.shared, self.shared.parts
        factor = ops.f32(s.factor) if isinstance(s.factor, float) else s.factor
        maximum = arith.MulFOp(softmax.largest(rows, half), factor).result
        own = arith.MulFOp(softmax.relative_to(rows, half), factor).result
        at = self._at(half, Index.of(0))
        self._hold("maximum", parts.reductions[0], maximum, at)
        base = self.walk.value(parts.base, at, 1)
        distance = times_log2e(arith.SubFOp(own, base).result)
        moved = llvm.call_intrinsic(
            ops.f32_type(), "llvm.nvvm.ex2.approx.ftz.f", [distance], [], []
        )
        sum_ = self._if_keys(arith.MulFOp(total, moved).result)
        self._hold("total", parts.reductions[1], sum_, at)
        weights = parts.weights
        if weights.share is None:
            return self._if_keys(moved)
        operands = [
            ops.f32(1.0) if self._is_exponential(value) else self.walk.value(value, at, 1)
            for value in inputs_of(weights.share)
        ]
        share = self.walk.body(weights.share, operands, at, 1, weights.shared)
        return self._if_keys(arith.MulFOp(moved, share).result)

    def _if_keys(self, value: Any) -> Any:
        """0 where there are no keys: a sum over nothing, whatever its terms would be over."""
        s = self.shared
        if not s.schedule.may_lack_keys:
            return value
        return arith.SelectOp(ops.less(0, s.kernel.size(s.keys)), value, ops.f32(0.0)).result

    def _hold(self, name: str, reduction: Any, value: Any, at: Sequence[Coordinate]) -> None:
        """Takes what a row has in hand, and keeps it: the result is walked when the other row's is
        there."""
        self.hands[name].current = value
        self.walk.know(reduction.results[0], at, 1, value)

    def _is_exponential(self, value: Any) -> bool:
        return value == self.shared.parts.exponential

    def _store_row(self, half: int, is_first: Any = None) -> None:
        """Statistics of a row, by one of its lanes; is_first: whether it is this one."""
        s = self.shared
        at = self._at(half, Index.of(0))
        for place, (value, target) in enumerate(s.targets):
            if s.parts.outputs.is_of_rows(value) and place not in s.parts.outputs.largest:
                made = self.walk.value(s.made(place), at, 1)
                own = is_first
                if own is None:
                    own = self.is_first_lane()
                where, inside = self.spot(place, half, Index.of(0))
                target.store(where, made, ops.both(own, inside))

    def is_first_lane(self) -> Any:
        """Whether a lane is the one that stores what its rows have."""
        before, is_first = self.columns_before(), (self.thread & 3).eq(0)
        return is_first if before is None else ops.both(is_first, before.eq(0))

    # ---- the result

    def store_direct(self, place: int, result: Sequence[Any]) -> None:
        """An output of the result, from registers."""
        s = self.shared
        for piece in self.pieces(result):
            made = self.made_of(s.made(place), piece)
            where, inside = self.spot(place, piece.half, piece.column)
            s.targets[place][1].store(where, made, inside)

    def spot(self, place: int, half: int, column: Coordinate) -> tuple[list[Any], Any]:
        """(coordinates in an output of a row's element, whether it is stored: None, always)."""
        s, row = self.shared, self.rows[half]
        if place not in s.packed:
            return self._at(half, column), self.inside(half)
        entry = self.entry_of(place)
        head = row.batch[1] if len(row.batch) > 1 else Index.of(0)
        at = [Index.of(0), head, Index(entry.first + row.query.base), column]
        is_there = ops.less(row.query.base, entry.length)
        return at[-s.targets[place][1].tensor.rank :], ops.both(self.inside(half), is_there)

    def entry_of(self, place: int) -> Entry:
        """The tile's sequence in a packed output."""
        s = self.shared
        if place not in self._entries:
            source, batch = s.packed[place][1], self.tile.batch[0].index().base
            axis = source.tensor.rank - 2
            self._entries[place] = packed_entry(s.kernel, s.region, source, batch, axis)
        return self._entries[place]

    def pieces(self, result: Sequence[Any], first: int = 0, count: int = 0) -> Iterator[Piece]:
        """Neighbours in a row of the result that a thread has, made as they are asked for.

        first, count: 16 columns after 16 columns (default: all).
        """
        s, before = self.shared, self.columns_before()
        right = self.right if before is None else self.right + before
        last = s.tiling.width // 8
        end = min(2 * (first + count), last) if count else last
        for j in range(2 * first, end, 2 if s.of_bytes else 1):
            for half in HALVES:
                if s.of_bytes:
                    column = Index((self.right << 1) + 8 * j, 1, 4)
                    yield Piece(half, column, quads(result[4 * j : 4 * j + 8])[half])
                else:
                    column = Index(right + 8 * j, 1, 2)
                    place = 4 * j + 2 * half
                    yield Piece(half, column, result[place : place + 2])

    def columns_before(self) -> Any:
        """Columns of a row of the result ahead of those that the block has; None: it has all."""
        return None

    def made_of(self, value: Any, piece: Piece) -> Any:
        """An output's elements."""
        self.hands["result"].current = ops.from_elements(list(piece.values))
        return self.walk.value(value, self._at(piece.half, piece.column), len(piece.values))

    # ---- the largest of all

    def _store_largest(self, result: Sequence[Any]) -> None:
        s = self.shared
        for place in s.result_amax:
            parts = {half: list[Any]() for half in HALVES}
            for piece in self.pieces(result):
                made = self.made_of(s.parts.outputs.largest[place], piece)
                parts[piece.half] += ops.elements(made)
            for half, values in parts.items():
                self._meet(place, values, half)

    def _meet_weights(self, softmax: OnlineSoftmax, rows: Rows, scale: Any, half: int) -> None:
        """The largest weight of a row is its largest score's: its exponential times `scale`."""
        low = ops.f32(-math.inf)
        is_empty = arith.CmpFOp(arith.CmpFPredicate.OEQ, rows.reference[half], low).result
        # No number where the graph does not mind that a row has no scores.
        nothing = arith.MulFOp(ops.f32(0.0), scale).result
        exponential = softmax.largest_exponential(rows, half)
        if exponential is not None:
            scale = arith.MulFOp(scale, exponential).result
        largest = arith.SelectOp(is_empty, nothing, scale).result
        for place in self.shared.weights_amax:
            self._meet(place, [largest], half)

    def _meet(self, place: int, values: Sequence[Any], half: int) -> None:
        """The output becomes the largest of itself and all lanes' values."""
        found = larger(0, values)
        inside = self.inside(half)
        if inside is not None:
            found = ops.select(inside, found, 0)
        _, target = self.shared.targets[place]
        meet(target.address([Index.of(0)] * target.tensor.rank), found, self.thread)
