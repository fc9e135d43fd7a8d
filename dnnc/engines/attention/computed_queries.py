# pyright: basic
"""Queries that a kernel computes as it loads them: those behind a rotary embedding.

    Q = concatenate(low * cos - high * sin, high * cos + low * sin)     of columns of a row

A piece is eight columns at one place of parts of one width, which are computed together: what they
share, as cosines, is computed once.  Threads side by side have the pieces of a row.
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
from ...codegen.region import read_values
from ...codegen.scalars.matching import body_of
from ...codegen.state import each
from ...codegen.walk.index import Index
from ...codegen.walk.loops import coordinates_of
from ...codegen.walk.region_walk import Walk
from ...mlir import ir
from .operands import PART_ELEMENTS
from .schedule import QueryTile, Schedule

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
        chunk = 0
        for count, group in groupby(self.parts.query_parts, key=self._chunks):
            values = list(group)
            self._fill(tile, first, rows, values, (thread, threads), self._from(place, chunk))
            chunk += len(values) * count
        self._clear(rows, chunk, (thread, threads), place)

    def _chunks(self, value: Any) -> int:
        """Chunks of a row of a part."""
        return (self.parts.region.dims_of(value)[-1].constant or 0) // PART_ELEMENTS

    def _from(self, place: Place, first: int) -> Place:
        """Places of chunks that are counted from one on."""
        return lambda row, chunk: place(row, ops.add(chunk, first))

    def _fill(
        self, tile: QueryTile, first: Any, rows: int, values: Sequence[Any],
        own: tuple[Any, int], place: Place,
    ) -> None:  # fmt: skip
        """Parts of one width, side by side; own: the thread, and how many there are."""
        region, count = self.parts.region, self._chunks(values[0])
        rank = len(region.dims_of(values[0]))

        def piece(row: Any, chunk: Any) -> list[Any]:
            there = self.schedule.row(tile, first + row)
            walk = Walk(self.kernel, region.leaves(self.kernel), region.symbols)
            column = Index(ops.mul(chunk, PART_ELEMENTS), 1, PART_ELEMENTS)
            at = coordinates_of(rank, dict(there.batch), {rank - 2: there.query, rank - 1: column})
            return [walk.value(value, at, PART_ELEMENTS) for value in values]

        def put(row: Any, chunk: Any, made: Sequence[Any]) -> None:
            for number, elements in enumerate(made):
                ops.store(place(row, ops.add(chunk, number * count)), elements, CHUNK_BYTES)

        self._each_piece(rows, count, own, piece, put, together=self._is_light(values))

    def _clear(self, rows: int, first: int, own: tuple[Any, int], place: Place) -> None:
        """Writes zeros to the chunks of rows from one on."""
        zeros = ops.zeros(ops.vector_type(ir.IntegerType.get_signless(16), PART_ELEMENTS))

        def put(row: Any, chunk: Any, made: Sequence[Any]) -> None:
            ops.store(place(row, ops.add(chunk, first)), zeros, CHUNK_BYTES)

        if first < self.filled:
            self._each_piece(rows, self.filled - first, own, lambda row, chunk: [], put)

    def _each_piece(
        self, rows: int, count: int, own: tuple[Any, int],
        compute: Callable[[Any, Any], list[Any]], put: Callable[[Any, Any, Sequence[Any]], None],
        *, together: bool = False,
    ) -> None:  # fmt: skip
        """Computes the thread's pieces, by row and chunk, and puts them in place.

        count: pieces of a row.  together: all before the first is put, whose loads are then under
        way at once.
        """
        (thread, threads), total = own, rows * count

        def one(number: Any) -> None:
            row, chunk = number // count, number % count
            put(row, chunk, compute(row, chunk))

        if not together or total % threads:
            each(thread, total, threads)(one)
            return
        numbers = [thread + begin for begin in range(0, total, threads)]
        places = [(number // count, number % count) for number in numbers]
        made = [compute(*at) for at in places]
        for at, piece in zip(places, made, strict=True):
            put(*at, piece)

    def _is_light(self, values: Sequence[Any]) -> bool:
        """Whether no function is computed that takes many instructions, as a cosine does."""
        pending, seen = list(values), set[Any]()
        while pending:
            value = pending.pop()
            if value in seen or value in self.parts.region.arguments:
                continue
            seen.add(value)
            if any(op.name.startswith("math.") for op in body_of(value.owner)):
                return False
            pending += read_values(value.owner)
        return True
