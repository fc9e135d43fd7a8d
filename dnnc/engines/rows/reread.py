# pyright: basic
"""Rows in shared memory: each pass takes its fragments from there, one after the other, so that
sums of columns have the registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...codegen import ops
from ...codegen.memory.tensors import GlobalTensor
from ...codegen.totals import reduce
from ...codegen.walk.region_walk import Walk, inputs_of
from .group import Group
from .region import Place


class RereadGroup(Group):
    """A group of rows that stay in a ring, where each pass reads them again."""

    def __init__(self, place: Place, number: Any, parity: Any, leaves: Mapping[Any, Any]):
        super().__init__(place, number, parity, leaves)
        # Each pass makes f32 of the fragments again.
        self.walk = Walk(self.kernel, self.leaves, place.rows.region.symbols, unpacks=True)
        self._of_all_passes = self._places()
        self._hide_vectors()

    def _places(self) -> tuple[list[Any], list[Any]]:
        """(the coordinates of each fragment, whether it is inside).

        The compiler does not know that another row has the same ones: it would work them out ahead
        of all rows, and hold them.
        """
        first, place = ops.opaque(self.place.first), self.place
        fragments = [first + u * place.stride for u in range(self.tiling.held)]
        return (
            [self.at(fragment) for fragment in fragments],
            [place.inside(fragment) for fragment in fragments],
        )

    def places(self) -> tuple[list[Any], list[Any]]:
        """The places of a pass."""
        return self._of_all_passes

    def load_of_rows(self) -> None:
        """Starts the loads of what is one number a row."""
        self.load_all(self._of_all_passes[0][:1], only_of_rows=True)

    def combines(self, level: Sequence[Any]) -> list[Any]:
        return [reduce.combiner(self.walk, op) for op in level]

    def fragments(self) -> list[tuple[Any, Any, Walk]]:
        """The fragments of a pass: (coordinates, whether it is inside, what knows its values)."""
        return [
            (at, is_inside, self.walk.branch())
            for at, is_inside in zip(*self.places(), strict=True)
        ]

    def parts(self, level: Sequence[Any], fragments: Sequence[Any] | None = None) -> list[Any]:
        """This thread's parts of a level's totals."""
        combines = self.combines(level)
        short = {op for op in level if self.rows.is_row and self.rows.is_short(op)}
        found: dict[Any, list[Any]] = {op: [] for op in level}
        for at, is_inside, walk in fragments or self.fragments():
            for op, combine in zip(level, combines, strict=True):
                if op in short:
                    value = walk.value(inputs_of(op)[0], at, self.width)
                    value = reduce.where_inside(is_inside, value, op)
                    found[op].append(reduce.lanes(value, combine))
                    continue
                value = self.taken(op, at, is_inside, walk)
                found[op] = [combine(*found[op], value) if found[op] else value]
        return [
            self.total_of_short(op, found[op], combine) if op in short else found[op][0]
            for op, combine in zip(level, combines, strict=True)
        ]

    def total_of_short(self, op: Any, sums: Sequence[Any], combine: reduce.Combine) -> Any:
        """This thread's total, by sums of a fragment each."""
        return reduce.total_of_short(sums, combine, is_row=True, elements=self.width)

    def finish(self, sums: Sequence[Any]) -> list[Any]:
        """Stores what comes after the reductions; gives the sums of columns, or the extremes, with
        these rows.

        What is added up past a row's end is of no column.
        """
        t, rows, added = self.tiling, self.rows, list(sums)
        for u, (at, is_inside) in enumerate(zip(*self.places(), strict=True)):
            walk, condition = self.walk.branch(), ops.both(is_inside, self.is_row_inside)
            for i, op in enumerate(rows.columns):
                combine, place = reduce.combiner(walk, op), i * t.held + u
                found = self.of_columns(op, at, self.is_row_inside, walk)
                added[place] = combine(added[place], found)
            values = [walk.value(value, at, self.width) for value, _ in self.whole]
            if rows.columns and condition is not None:
                # Around as many branches as there are fragments, sums would be spilled.
                values = [ops.computed_here(value) for value in values]
            if rows.extremes:
                added = self.with_extremes(added, [(at, walk)])
            for (_, target), value in zip(self.whole, values, strict=True):
                target.store(at, value, condition)
        self.store_of_rows()
        return added

    def _hide_vectors(self) -> None:
        """Has what is the same in all rows loaded for each row: the compiler would load it ahead of
        them all, and hold as many registers as it has elements."""
        for leaf in dict.fromkeys(v for v, read in self.rows.reads if self.rows.is_of_row(read)):
            tensor = self.rows.region.arguments[leaf]
            if leaf not in self.staged and not tensor.is_by_value:
                pointer = ops.opaque(self.kernel.pointer(tensor, is_exclusive=True))
                self.leaves[leaf] = GlobalTensor(self.kernel, tensor, True, pointer)


class RingGroup(RereadGroup):
    """A group of rows in a ring, with no barrier of the block between its passes."""

    def places(self) -> tuple[list[Any], list[Any]]:
        """The compiler does not know that another pass has the same ones, either."""
        return self._places()
