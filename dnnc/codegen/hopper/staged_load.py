# pyright: basic
"""StagedLoad: tiles of a tensor that an epilogue reads, through shared memory by TMA.

One warp starts the copies of chunks [64 rows, columns] well before a warpgroup wants them; the
warpgroup takes a chunk in the layout of its accumulators.  What lies past the edges is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...mlir import llvm
from .. import ops
from ..ampere import mma
from ..memory.smem import pointer_to
from ..memory.tensors import register_type
from . import tma, wgmma
from .staged_store import ALIGNMENT, TRANSPOSED_ROW_BYTES, swizzle_of, transposed_offset


@dataclass(frozen=True)
class StagedLoad:
    """The buffer and the box of one tensor's chunk.

    box: [columns, 64 rows], innermost first; transposed: [64 rows, columns], of 16-bit elements.
    """

    box: tma.MovedBox
    is_transposed: bool = False

    @property
    def element_bytes(self) -> int:
        return self.box.tensor.type.bits // 8

    @property
    def bytes(self) -> int:
        """The bytes of a buffer, a whole number of its alignment."""
        return -(-self.box.bytes // ALIGNMENT) * ALIGNMENT

    def take(self, buffer: Any, thread: Any, first: int = 0, columns: int = 0) -> list[list[Any]]:
        """[column block of 8][upper, lower row] of a chunk: pairs of neighbours.

        buffer: i32 address.  thread: of the warpgroup.  first, columns: of a transposed chunk,
        those that are taken; default: all.
        """
        if self.is_transposed:
            buffer = buffer + first * TRANSPOSED_ROW_BYTES
            return self._take_transposed(buffer, thread, columns or self.box.extents[1])
        assert first == 0, "columns of a row lie in one chunk"
        if self.element_bytes == 2 and self.box.extents[0] % 16 == 0:
            return self._take_matrices(buffer, thread)
        return self._take_pairs(buffer, thread)

    def _take_matrices(self, buffer: Any, thread: Any) -> list[list[Any]]:
        """Read by `ldmatrix`, two column blocks of 16 rows an instruction."""
        warp, lane = thread >> 5, thread & 31
        row = warp * 16 + (lane & 15)
        start = buffer + row * self.box.row_bytes
        # Lanes 16 to 31 name the rows of the second column block.
        swizzled = swizzle_of(self.box.row_bytes, row) ^ ((lane >> 4) << 4)
        pair = ops.vector_type(register_type(self.box.tensor.type), 2)
        found: list[list[Any]] = []
        for block in range(0, self.box.extents[0] // 8, 2):
            pointer = pointer_to(start + (swizzled ^ (block * 16)))
            words = mma.load_matrices(pointer, transposed=False)
            pairs = [llvm.BitcastOp(pair, word).result for word in words]
            found += [pairs[:2], pairs[2:]]
        return found

    def _take_transposed(self, buffer: Any, thread: Any, columns: int) -> list[list[Any]]:
        """Read by `ldmatrix` that transposes, 16 rows of two column blocks an instruction."""
        pair = ops.vector_type(register_type(self.box.tensor.type), 2)
        found: list[list[Any]] = []
        for block in range(0, columns // 8, 2):
            offset = transposed_offset(thread, min(2, columns // 8 - block))
            place = buffer + (offset + block * 8 * TRANSPOSED_ROW_BYTES)
            pointer = pointer_to(place)
            words = mma.load_matrices(pointer, transposed=True)
            pairs = [llvm.BitcastOp(pair, word).result for word in words]
            found += [pairs[:2], pairs[2:]]
        return found[: columns // 8]  # of an odd number of blocks, the last was read twice

    def _take_pairs(self, buffer: Any, thread: Any) -> list[list[Any]]:
        size = self.element_bytes
        row, column = wgmma.AccumulatorLayout.origin(thread)
        pair = ops.vector_type(register_type(self.box.tensor.type), 2)
        found: list[list[Any]] = [[] for _ in range(self.box.extents[0] // 8)]
        for half in (0, 1):
            at = row + 8 * half
            start = buffer + at * self.box.row_bytes
            swizzle = swizzle_of(self.box.row_bytes, at)
            for block, pairs in enumerate(found):
                byte = column * size + block * 8 * size
                pointer = pointer_to(start + (byte ^ swizzle))
                pairs.append(ops.load(pointer, pair, 2 * size))
        return found
