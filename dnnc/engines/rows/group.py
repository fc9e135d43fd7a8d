# pyright: basic
"""A thread's part of one group of rows that lie side by side in a block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...codegen import ops
from ...codegen.stretch import stretch
from ...codegen.totals import reduce
from ...codegen.walk.index import Coordinate
from ...codegen.walk.loops import coordinates_of
from ...codegen.walk.region_walk import Walk, inputs_of
from . import extremes
from .region import Place, coordinates_read


class Group:
    """Rows in registers: all loads are started, then each level is reduced, then all is stored.

    place: the thread's.  number: of the group.  parity: 0 and 1 alternately where a kernel goes
    through groups.  leaves: of the arguments that are in shared memory.
    """

    def __init__(self, place: Place, number: Any, parity: Any, leaves: Mapping[Any, Any]):
        self.place, self.parity, self.rows = place, parity, place.rows
        self.kernel, self.tiling, region = place.kernel, place.rows.tiling, place.rows.region
        self.kept, self.is_row_inside = place.row_of(number)
        self.leaves: dict[Any, Any] = {
            **region.leaves(self.kernel, is_exclusive=not self.rows.keeps_loads_early),
            **leaves,
        }
        self.staged = leaves
        self.walk = Walk(self.kernel, self.leaves, region.symbols)
        self.width = self.tiling.vector_elems
        outputs = [
            (value, target)
            for value, target in region.targets(self.kernel)
            if not self.rows.is_beside(value)
        ]
        full = tuple(self.rows.dims)
        self.whole = [(v, t) for v, t in outputs if t.tensor.shape == full]
        self.of_rows = [(v, t) for v, t in outputs if t.tensor.shape != full]

    def at(self, fragment: Any) -> list[Coordinate]:
        return self.place.at(self.kept, fragment)

    def held(self, sums: Sequence[Any]) -> list[Any]:
        """Gives the sums of columns, or the extremes, with what the rows add to them."""
        t, rows, place = self.tiling, self.rows, self.place
        places = [self.at(fragment) for fragment in place.fragments]
        inside = [place.inside(fragment) for fragment in place.fragments]
        self.load_all(places)
        for number, level in enumerate(rows.levels):
            combines = [reduce.combiner(self.walk, op) for op in level]
            parts = []
            for op, combine in zip(level, combines, strict=True):
                parts.append(self._part(op, combine, places, inside))
            finishes = [self._finish(op) for op in level]
            name = f"level{number}"
            found = place.totals.combine(name, parts, combines, self.parity, finishes)
            for op, made in zip(level, found, strict=True):
                self.leaves[rows.means.get(op, op.results[0])] = reduce.Total(made)
        added = [
            reduce.combiner(self.walk, op)(
                sums[i * t.held + u],
                self.of_columns(op, at, ops.both(inside[u], self.is_row_inside)),
            )
            for i, op in enumerate(rows.columns)
            for u, at in enumerate(places)
        ]
        ready = [
            (at, ops.both(is_inside, self.is_row_inside),
             [self.walk.value(value, at, self.width) for value, _ in self.whole])
            for at, is_inside in zip(places, inside, strict=True)
        ]  # fmt: skip
        if rows.extremes:
            added = self.with_extremes(sums, [(at, self.walk) for at in places])
        for at, condition, values in ready:
            for (_, target), value in zip(self.whole, values, strict=True):
                target.store(at, value, condition)
        self.store_of_rows()
        return added

    def _finish(self, op: Any) -> Callable[[Any], Any]:
        """Makes the mean from a total, where nothing else is made of the total."""
        if op not in self.rows.means:
            return lambda total: reduce.wide(op, total)
        owner = self.rows.means[op].owner
        return lambda total: self.walk.body(
            owner, [reduce.wide(op, total)], (), ops.width_of(total)
        )

    @stretch("sum of rows")
    def _part(
        self, op: Any, combine: reduce.Combine, places: Sequence[Any], inside: Sequence[Any]
    ) -> Any:
        """This thread's part of a total."""
        is_exact = self.rows.is_exact(op)
        if is_exact or self.rows.is_short(op):
            values = [
                reduce.where_inside(i, self.walk.value(inputs_of(op)[0], at, self.width), op)
                for at, i in zip(places, inside, strict=True)
            ]
            is_row = self.rows.is_row
            return reduce.ThreadTotal(op, combine, self.width, is_row, True, is_exact).of(values)
        total = None
        for at, is_inside in zip(places, inside, strict=True):
            value = self.taken(op, at, is_inside)
            total = value if total is None else combine(total, value)
        return total

    # ---- what other ways through a row share

    @stretch("load")
    def load_all(self, places: Sequence[Any], *, only_of_rows: bool = False) -> None:
        """Starts every load ahead of the first barrier, also of what the end alone reads.

        only_of_rows: of what is one number a row.
        """
        for at in places:
            for leaf, read in self.rows.reads:
                if leaf in self.staged or (only_of_rows and self.rows.is_of_row(read)):
                    continue
                if read.is_known:
                    self.walk.value(leaf, coordinates_read(read, at), self.width)

    def taken(self, op: Any, at: Any, is_inside: Any, walk: Walk | None = None) -> Any:
        """The values of a fragment that a reduction along rows takes: nothing of one past the
        row's end."""
        value = (walk or self.walk).value(inputs_of(op)[0], at, self.width)
        return reduce.taken(op, value, is_row=self.rows.is_row, inside=is_inside)

    def of_columns(self, op: Any, at: Any, is_inside: Any, walk: Walk | None = None) -> Any:
        """The values of a fragment that a sum of columns takes."""
        value = (walk or self.walk).value(inputs_of(op)[0], at, self.width)
        return reduce.taken(op, value, is_row=False, inside=is_inside)

    def with_extremes(self, found: Sequence[Any], fragments: Sequence[Any]) -> list[Any]:
        """The extremes with those of fragments: (coordinates, what knows its values).

        Past the ends lie elements that are seen twice, which changes nothing.
        """
        for at, walk in fragments:
            some = extremes.of_fragment(self.rows, walk, at, self.width)
            found = extremes.combined(self.rows, walk, found, some)
        return list(found)

    def keep(self, level: Sequence[Any], totals: Iterable[Any]) -> None:
        for op, total in zip(level, totals, strict=True):
            self.leaves[op.results[0]] = reduce.Total(total)

    @stretch("epilogue")
    def store_of_rows(self) -> None:
        """The results of whole rows, by the first thread of each."""
        if not self.of_rows:
            return
        at = coordinates_of(len(self.rows.dims), self.kept)
        is_first = ops.compare("eq", self.place.first, 0)
        with ops.if_(ops.both(is_first, self.is_row_inside)):
            walk = self.walk.branch()
            for value, target in self.of_rows:
                target.store(at, walk.value(value, at, self.rows.kept.width))
