# pyright: basic
"""PaddedRows: rows of elements of 16 bits or 8 in shared memory, as operands of `mma.sync`.

Rows lie an odd number of 16-byte chunks apart: eight of them that a matrix load reads at one
chunk fall into eight different groups of banks, as with a swizzle, but every place is a sum, most
of which is known: what a lane adds, it adds once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any, Protocol

from ...target import WARP_THREADS
from .. import ops
from ..ampere import mma
from . import smem
from .smem import CHUNK_BYTES

_MANY = 8  # copies of a thread


class Source(Protocol):
    """Rows in global memory."""

    def find(self, row: Any) -> Any:
        """Looks up what a row of the tile needs, for all rows before the copies."""
        ...

    def address(self, row: Any, column: Any, found: Any) -> tuple[Any, Any]:
        """(where the chunk of a row from `column` on lies, whether the row exists: i1, None for
        always).  A row that does not exist has the address of one that does."""
        ...


@dataclass(frozen=True)
class PaddedRows:
    """A tile of `rows` rows of `elems` elements, whole chunks.

    Rows are filled up with zeros to a multiple of two chunks, which a matrix load moves.
    Example, elems = 72: 9 chunks, one of zeros, and one that nobody reads; 176 bytes a row.
    """

    rows: int
    elems: int
    element_bytes: int = 2

    def __post_init__(self) -> None:
        assert self.elems % self.chunk == 0, "rows are whole chunks"

    @property
    def chunk(self) -> int:
        """Elements of a chunk."""
        return CHUNK_BYTES // self.element_bytes

    @property
    def chunks(self) -> int:
        """The chunks of a row's elements."""
        return self.elems // self.chunk

    @property
    def filled(self) -> int:
        """Chunks of a row with the zeros at its end."""
        return self.chunks + self.chunks % 2

    @property
    def row_bytes(self) -> int:
        return CHUNK_BYTES * (self.filled + 1)

    @property
    def bytes(self) -> int:
        return self.rows * self.row_bytes

    # ---- filling

    def clear_ends(self, slot: Any, threads: int) -> None:
        """Writes the zeros at the ends of rows; copies leave them alone."""
        if self.filled == self.chunks:
            return
        zeros = ops.zeros(ops.vector_type(ops.i32_type(), 4))
        for first in range(0, self.rows, threads):
            row = ops.thread_id() + first
            guard = None if first + threads <= self.rows else row < self.rows
            with ops.if_(guard):
                offset = row * self.row_bytes + self.chunks * CHUNK_BYTES
                ops.store(smem.byte_pointer(slot, offset), zeros, CHUNK_BYTES)

    def copy(self, slot: Any, threads: int, source: Source) -> None:
        """Starts the copies of all rows, by all threads of a block; absent rows become zeros."""
        total = self.rows * self.chunks
        thread = ops.thread_id()
        if total > _MANY * threads:
            # The compiler would have the places of all copies in registers, from step to step.
            thread = ops.opaque(thread)
        pieces = self._pieces(thread, threads)
        found = [source.find(row) for row, _ in pieces]
        for i, (row, chunk) in enumerate(pieces):
            is_whole = (i + 1) * threads <= total
            guard = None if is_whole else thread < total - i * threads
            with ops.if_(guard):
                address, exists = source.address(row, chunk * self.chunk, found[i])
                count = None if exists is None else ops.select(exists, CHUNK_BYTES, 0)
                offset = row * self.row_bytes + chunk * CHUNK_BYTES
                smem.copy_async(smem.byte_pointer(slot, offset), address, CHUNK_BYTES, count)

    def _pieces(self, thread: Any, threads: int) -> list[tuple[Any, Any]]:
        """(row, chunk) of each copy of a thread: after a period, the same chunks of later rows."""
        period = self.chunks // gcd(self.chunks, threads)
        found: list[tuple[Any, Any]] = []
        for i in range(-(-self.rows * self.chunks // threads)):
            if i < period:
                number = thread + i * threads
                found.append((number // self.chunks, number % self.chunks))
            else:
                row, chunk = found[i - period]
                found.append((row + period * threads // self.chunks, chunk))
        return found

    # ---- fragments, of a lane's place in a tile

    def a_place(self, first_row: Any) -> Any:
        """Place of A, 16 rows from `first_row` on: the bytes to what the lane names of step 0."""
        row, chunk = mma.a_lane(self._lane())
        return self._offset(first_row + row, chunk)

    def b_place(self) -> Any:
        """The place of B whose columns are rows of the tile."""
        return self._offset(*mma.b_lane(self._lane()))

    def b_place_transposed(self) -> Any:
        """The place of B whose depth is rows of the tile."""
        return self._offset(*mma.b_lane_transposed(self._lane()))

    def fragment(self, lane: Any, row: int, chunk: int, *, transposed: bool = False) -> list[Any]:
        """Four registers of 16 rows by 2 chunks.  lane: the address of a lane's place."""
        pointer = smem.byte_pointer(lane, row * self.row_bytes + chunk * CHUNK_BYTES)
        return mma.load_matrices(pointer, transposed=transposed)

    def _lane(self) -> Any:
        return ops.thread_id() & (WARP_THREADS - 1)

    def _offset(self, row: Any, chunk: Any) -> Any:
        return row * self.row_bytes + chunk * CHUNK_BYTES
