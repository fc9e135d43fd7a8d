# pyright: basic
"""Rows that a thread reads again in each pass, from memory or from its slots of shared memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ...codegen import ops
from ...codegen.stretch import stretch
from ...codegen.totals import moments, reduce
from ...codegen.totals.exponentials import RunningSum, SoFar
from ...codegen.totals.moments import Shifted, SumWithMoments, start_of
from ...codegen.totals.parts import times
from ...codegen.totals.reduce import ThreadTotal
from ...codegen.walk.fragments import Fragments, Slots
from ...codegen.walk.region_walk import Walk, inputs_of
from ...mlir import arith
from . import extremes as rows_extremes
from .group import Group

TOGETHER = 4  # fragments of a row that a thread loads together
_MANY_THREADS = 512  # of a block; of more, each has fewer registers

# Of a reduction, what makes a thread's part of it, once the totals that it needs are known.
Later = dict[Any, Callable[[], Any]]


class StreamedGroup(Group):
    """A group of rows with a pass for each level of reductions, and one that stores."""

    def streamed(self, extremes: Sequence[Any]) -> list[Any]:
        """Gives the extremes with what the rows add to them."""
        rows, totals = self.rows, self.place.totals
        fragments = self._fragments()
        later: Later = {}
        for number, level in enumerate(rows.levels):
            parts = self._streamed_parts(fragments, number, level, later)
            combines = [reduce.combiner(self.walk, op) for op in level]
            found = totals.combine(f"level{number}", parts, combines, self.parity)
            self.keep(level, map(reduce.wide, level, found))
        found = list(extremes)
        if self.whole or rows.extremes:
            stores = bool(self.whole)
            found = fragments.later_pass(self._last_at, found, self._use_last, stores=stores)
        self.store_of_rows()
        return found

    @stretch("sum of rows")
    def _streamed_parts(
        self, fragments: Fragments, number: int, level: Sequence[Any], later: Later
    ) -> list[Any]:
        """This thread's parts of a level's totals.

        later: what earlier levels have left, by the reductions that are made of it without another
        pass, once those levels' totals are known; this level leaves its own.
        """
        own = [op for op in level if op not in later]
        states = [self._state(op, number, fragments) for op in own]

        def values(walk: Walk, at: Any) -> list[Any]:
            return [walk.value(inputs_of(op)[0], at, self.width) for op in own]

        def use(now: list[Any], found: Any) -> list[Any]:
            return [s.add(old, value) for s, old, value in zip(states, now, found, strict=True)]

        def use_all(now: list[Any], found: Sequence[Any]) -> list[Any]:
            each = zip(states, now, zip(*found, strict=True), strict=True)
            return [state.add_all(old, values) for state, old, values in each]

        sums: list[Any] = []
        if own:
            go = fragments.later_pass if number else fragments.first_pass
            sums = go(values, [state.start() for state in states], use, use_all)
        parts = {op: later[op]() for op in level if op in later}
        for op, state, found in zip(own, states, sums, strict=True):
            parts[op] = state.total(found)
            later.update(self._left(op, state, found, fragments))
        return [parts[op] for op in level]

    def _state(self, op: Any, number: int, fragments: Fragments) -> Any:
        """State that a thread adds up for a reduction, and for those that are made of it later."""
        combine, is_row = reduce.combiner(self.walk, op), self.rows.is_row
        sums = [other for other, of in self.rows.exponentials.items() if of == op]
        if sums:
            return RunningSum(self.walk, sums[0], combine, self.width)
        is_short, is_exact = self.rows.is_short(op), self.rows.is_exact(op)
        total = ThreadTotal(op, combine, self.width, is_row, is_short, is_exact)
        if op not in self.rows.distances.values():
            return total
        walk, at = self.walk.branch(), fragments.at(0)
        first = walk.value(inputs_of(op)[0], at, self.width)
        return SumWithMoments(total, Shifted(start_of([first], is_row=is_row)))

    def _left(self, op: Any, state: Any, found: Any, fragments: Fragments) -> Later:
        """Makers of this thread's part of other reductions, by reduction, from one's state."""
        if isinstance(state, RunningSum):
            sums = [other for other, of in self.rows.exponentials.items() if of == op]
            return {other: partial(self._scaled, state, found, op) for other in sums}
        if isinstance(state, SumWithMoments):
            part = state.part(found, fragments.count)
            part = moments.folded(part) if self.rows.is_row else part
            squares = [other for other, of in self.rows.distances.items() if of == op]
            return {other: partial(self._distances, other, part) for other in squares}
        return {}

    def _scaled(self, state: RunningSum, found: SoFar, maximum: Any) -> Any:
        return state.part(found, self.leaves[maximum.results[0]].value)

    def _distances(self, op: Any, part: Sequence[Any]) -> Any:
        """This thread's squared distances from the row's mean, by its own moments."""
        count, place, rest, squares = part
        total = self.leaves[self.rows.distances[op].results[0]].value
        whole = moments.average(self.walk, self.rows.distances[op], total)
        off = arith.SubFOp(place, whole).result
        off = arith.AddFOp(off, rest).result
        return arith.AddFOp(squares, arith.MulFOp(times(off, count), off).result).result

    def _fragments(self) -> Fragments:
        """The fragments of this thread's row."""
        t, rows, first = self.tiling, self.rows, self.place.first
        left = self.kernel.size(rows.reduced.fragments) - first
        count = (ops.maximum(left, 0) + (t.step - 1)) // t.step

        def at(i: Any) -> list[Any]:
            return self.at(first + i * t.step)

        # So that several blocks of an SM have the registers, or the one of many threads.
        together, stored = (2, 2) if t.threads > _MANY_THREADS else (TOGETHER, 1)
        return Fragments(
            self.walk, self.width, at, count, rows.again,
            Slots(t.slots, t.threads, ops.thread_id(), self.place.memory), together, stored,
        )  # fmt: skip

    def _last_at(self, walk: Walk, at: Any) -> tuple[Any, list[Any], list[Any]]:
        """(coordinates, what is stored there, the extremes there)."""
        values = [walk.value(value, at, self.width) for value, _ in self.whole]
        return at, values, rows_extremes.of_fragment(self.rows, walk, at, self.width)

    def _use_last(self, carried: Sequence[Any], found: Any) -> Sequence[Any]:
        at, values, extremes = found
        for (_, target), value in zip(self.whole, values, strict=True):
            target.store(at, value, self.is_row_inside)
        return rows_extremes.combined(self.rows, self.walk, carried, extremes)
