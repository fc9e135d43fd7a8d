# pyright: basic
"""StagedStore: accumulator fragments to a tensor through shared memory and TMA.

A warpgroup writes a chunk [64 rows, columns] of fragments (`wgmma.AccumulatorLayout`) to shared
memory, swizzled as the chunk's tensor map says, and one thread starts its copy.  What lies past
the tensor's edges is not stored.  Of a tensor whose contiguous elements lie along the rows the
chunk is *transposed*: `stmatrix` transposes its 8x8 matrices on the way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...mlir import ir, llvm, nvvm
from .. import ops
from ..memory.smem import CHUNK_BYTES, pointer_to
from ..state import each
from . import tma, wgmma

ALIGNMENT = 1024  # of a buffer: the repeat of the widest swizzle
TRANSPOSED_BYTES = 2  # of an element of a transposed chunk
TRANSPOSED_ROW_BYTES = wgmma.M * TRANSPOSED_BYTES


@dataclass(frozen=True)
class StagedStore:
    """The buffer and the box of one output's chunk.

    box: [columns, 64 rows], innermost first, the rows along one axis or more; transposed: [64 rows,
    columns], the columns along one axis or two.  kept: of columns along two, how many of those
    along the first are stored, by a copy for each place along the second; 0: all, by one.
    """

    box: tma.Box
    is_transposed: bool = False
    kept: int = 0

    def __post_init__(self) -> None:
        rows = self.box.extents[:1] if self.is_transposed else self.box.extents[1:]
        assert math.prod(rows) == wgmma.M, "a chunk has the rows of one instruction"
        assert self.box.row_bytes in tma.SWIZZLES, f"no swizzle for rows of {self.box.row_bytes}"
        assert not self.is_transposed or self.element_bytes == TRANSPOSED_BYTES, (
            "stmatrix takes 16 bits"
        )
        assert not self.kept or self.is_transposed, "rows of a box are its columns"

    @property
    def element_bytes(self) -> int:
        return self.box.tensor.type.bits // 8

    @property
    def bytes(self) -> int:
        """The bytes of a buffer, a whole number of its alignment."""
        return -(-self.box.bytes // ALIGNMENT) * ALIGNMENT

    @property
    def copied(self) -> tma.Box:
        """The box that one copy moves."""
        if not self.kept:
            return self.box
        rows, _, _ = self.box.extents
        return replace(self.box, extents=(rows, self.kept, 1))

    def put(self, buffer: Any, thread: Any, pairs: Sequence[Sequence[Any]], first: int = 0) -> None:
        """Writes this thread's fragments.

        buffer: i32 address.  thread: of the warpgroup.  pairs: [column block of 8][upper, lower
        row] of two neighbours, vectors of the tensor's register type.  first: their first column;
        of a chunk that is not transposed, 0.
        """
        assert self.is_transposed or first == 0, "columns of a row lie in one chunk"
        if self.is_transposed:
            self._put_transposed(buffer + first * TRANSPOSED_ROW_BYTES, thread, pairs)
        elif self.element_bytes == 2:
            self._put_matrices(buffer, thread, pairs)
        else:
            self._put_rows(buffer, thread, pairs, self.element_bytes)

    def _put_matrices(self, buffer: Any, thread: Any, pairs: Sequence[Sequence[Any]]) -> None:
        """Write by `stmatrix`, two column blocks of 16 rows an instruction."""
        together = 2 if len(pairs) % 2 == 0 else 1
        warp, lane = thread >> 5, thread & 31
        row = warp * 16 + (lane & 15)
        start = buffer + row * self.box.row_bytes
        # Lanes 16 to 31 name the rows of the second column block.
        swizzled = swizzle_of(self.box.row_bytes, row)
        if together == 2:
            swizzled = swizzled ^ ((lane >> 4) << 4)
        for block in range(0, len(pairs), together):
            offset = swizzled ^ (block * CHUNK_BYTES)
            registers = [_word(pairs[block + i][half]) for i in range(together) for half in (0, 1)]
            store_matrices(start + offset, registers, "row")

    def _put_transposed(self, buffer: Any, thread: Any, pairs: Sequence[Sequence[Any]]) -> None:
        """Write by `stmatrix` that transposes, 16 rows of two column blocks an instruction."""
        start = buffer + transposed_offset(thread)
        for block in range(0, len(pairs), 2):
            words = [_word(word) for pair in pairs[block : block + 2] for word in pair]
            store_matrices(start + block * 8 * TRANSPOSED_ROW_BYTES, words, "col")

    def put_quads(self, buffer: Any, thread: Any, quads: Sequence[Sequence[Any]]) -> None:
        """`put` of four neighbours, of 16 columns after 16 columns: `transposed_bytes.quads`.

        quads: [column block of 16][upper, lower row] of vectors of the tensor's register type.
        """
        self._put_rows(buffer, thread, quads, 2 * self.element_bytes)

    def _put_rows(
        self, buffer: Any, thread: Any, blocks: Sequence[Sequence[Any]], bytes_: int
    ) -> None:
        """Stages words by stores of neighbours; bytes_: half of a store, an eighth of a row."""
        row, column = wgmma.AccumulatorLayout.origin(thread)
        for half in (0, 1):
            at = row + 8 * half
            start = buffer + at * self.box.row_bytes
            swizzle = swizzle_of(self.box.row_bytes, at)
            for number, block in enumerate(blocks):
                byte = column * bytes_ + number * 8 * bytes_
                pointer = pointer_to(start + (byte ^ swizzle))
                ops.store(pointer, block[half], 2 * bytes_)

    def start(self, map_: Any, buffer: Any, at: Sequence[Any], policy: Any = None) -> None:
        """Starts the copies of a buffer to the box that begins at some coordinates; map_: of
        `copied`.  policy: see `tma.store`."""
        if not self.kept:
            tma.store(pointer_to(buffer), map_, at, policy)
            return
        columns, count = self.box.extents[1:]
        first, second, third, *outer = at

        @each(0, count)
        def _(i: Any) -> None:
            place = buffer + i * (columns * TRANSPOSED_ROW_BYTES)
            corner = [first, second, third + i, *outer]
            tma.store(pointer_to(place), map_, corner, policy)


def transposed_offset(thread: Any, blocks: int = 2) -> Any:
    """Where in a transposed chunk lies the 16 bytes' row that a thread names for two column blocks.

    Its matrices, in order: the upper 8 rows of the warp's 16, the lower ones, then the same of the
    second column block; of one block, those of the first again.
    """
    warp, lane = thread >> 5, thread & 31
    column = lane & 7
    if blocks == 2:
        column = column + ((lane >> 4) << 3)
    chunk = warp * 2 + ((lane >> 3) & 1)
    swizzled = (chunk << 4) ^ swizzle_of(TRANSPOSED_ROW_BYTES, column)
    return column * TRANSPOSED_ROW_BYTES + swizzled


def store_matrices(address: Any, words: Sequence[Any], layout: str) -> None:
    nvvm.stmatrix(
        pointer_to(address),
        words,
        ir.Attribute.parse(f"#nvvm.mma_layout<{layout}>"),
        ir.Attribute.parse("#nvvm.ld_st_matrix_shape<m = 8, n = 8>"),
        ir.Attribute.parse("#nvvm.ld_st_matrix_elt_type<b16>"),
    )


def store_transposed(address: Any, offset: int, words: Sequence[Any]) -> None:
    """`store_matrices` of four matrices that are transposed, some bytes from an address on.

    The offset is a part of the instruction: LLVM would keep a register for each address.
    """
    llvm.inline_asm(
        None,
        [address, *words],
        f"stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [$0+{offset}], {{$1, $2, $3, $4}};",
        "r,r,r,r,r,~{memory}",
        has_side_effects=True,
    )


def swizzle_of(row_bytes: int, row: Any) -> Any:
    """The number that a swizzle of rows of 16 to 128 bytes combines with the byte offset in a row.

    The driver's swizzles are on address bits: bits 4 to 6 get what bits 7 to 9 hold, as many as a
    row has chunks.
    """
    rows_per_line = 128 // row_bytes
    chunks = row_bytes // CHUNK_BYTES
    return ((row // rows_per_line) & (chunks - 1)) << 4


def _word(pair: Any) -> Any:
    """Two 16-bit elements as one register."""
    return llvm.BitcastOp(ops.i32_type(), pair).result
