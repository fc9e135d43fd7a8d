# pyright: basic
"""Queries that a kernel computes as it loads them: those behind a rotary embedding.

    Q = concatenate(low * cos - high * sin, high * cos + low * sin)     of columns of a row

A thread has some columns of one row.  Those at one place of parts of one width are computed
together: what they share, as cosines, is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ...codegen import ops
from ...codegen.attention.region import AttentionRegion
from ...codegen.kernel import Kernel
from ...codegen.memory.smem import CHUNK_BYTES
from ...codegen.walk.index import Index
from ...codegen.walk.loops import coordinates_of
from ...codegen.walk.region_walk import Walk
from ...mlir import ir
from .operands import PART_ELEMENTS
from .schedule import QueryTile, RowPlace, Schedule

Place = Callable[[Any, Any], Any]  # (row, chunk) -> shared memory


@dataclass(frozen=True)
class ComputedQueries:
    """The queries of an attention, by the rows of a tile.

    filled: chunks of a row in shared memory, the last of them zeros.
    """

    kernel: Kernel
    parts: AttentionRegion
    schedule: Schedule
    filled: int

    def fill(
        self, tile: QueryTile, first: Any, rows: int, thread: Any, threads: int, place: Place
    ) -> None:
        """Computes rows of a tile, by some threads.

        first: of the rows, among the scores'.  place: of these rows.
        """
        together = threads // rows
        row, own = thread % rows, thread // rows
        there, chunk = self.schedule.row(tile, first + row), 0
        for count, group in groupby(self.parts.query_parts, key=self._chunks):
            values = list(group)
            self._fill(there, values, count, (own, together), self._from(place, row, chunk))
            chunk += len(values) * count
        zeros = ops.zeros(ops.vector_type(ir.IntegerType.get_signless(16), PART_ELEMENTS))
        with ops.if_(own.eq(0) if chunk < self.filled else None):
            for last in range(chunk, self.filled):
                ops.store(place(row, last), zeros, CHUNK_BYTES)

    def _chunks(self, value: Any) -> int:
        """Chunks of a row of a part."""
        return (self.parts.region.dims_of(value)[-1].constant or 0) // PART_ELEMENTS

    def _from(self, place: Place, row: Any, first: int) -> Callable[[Any], Any]:
        return lambda chunk: place(row, first + chunk)

    def _fill(
        self, there: RowPlace, values: Sequence[Any], count: int, own: tuple[Any, int],
        place: Callable[[Any], Any],
    ) -> None:  # fmt: skip
        """Parts of one width, side by side; count: chunks of each."""
        region = self.parts.region
        rank = len(region.dims_of(values[0]))

        def one(chunk: Any, carried: Any) -> Any:
            walk = Walk(self.kernel, region.leaves(self.kernel), region.symbols)
            column = Index(ops.mul(chunk, PART_ELEMENTS), 1, PART_ELEMENTS)
            at = coordinates_of(rank, dict(there.batch), {rank - 2: there.query, rank - 1: column})
            for number, value in enumerate(values):
                made = walk.value(value, at, PART_ELEMENTS)
                ops.store(place(ops.add(chunk, number * count)), made, CHUNK_BYTES)
            return carried

        ops.for_(own[0], count, own[1], [], one)
