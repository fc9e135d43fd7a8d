# pyright: basic
"""Where the numbers of queries lie in memory, which the kernel before the main ones computes.

[block of ROWS queries of each head][-log2(e) * base, -delta][query of the block], f32
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.memory.smem import CHUNK_BYTES
from ...expr import Expr, ceildiv
from .bwd_tile_sm80 import ROWS

_NUMBERS = 2
_BYTES = 4


@dataclass(frozen=True)
class RowNumbers:
    """buffer: of the workspace.  blocks: of a head.  has_base: whether it has both numbers, or
    -delta alone."""

    buffer: str
    blocks: Expr
    has_base: bool = True

    @staticmethod
    def bytes_of(dims: Sequence[Expr]) -> Expr:
        """Bytes of the numbers of all heads.  dims: of the scores."""
        batch, heads, queries, _ = dims
        return batch * heads * ceildiv(queries, ROWS) * (_NUMBERS * ROWS * _BYTES)

    def _address(self, kernel: Kernel, head: Any, row: Any, which: int) -> Any:
        block, place = row // ROWS, row % ROWS
        number = ops.to_i64(head * kernel.size(self.blocks) + block)
        offset = number * (_NUMBERS * ROWS * _BYTES)
        offset = offset + ops.to_i64((place + which * ROWS) * _BYTES)
        return smem.byte_pointer(kernel.workspace(self.buffer), offset)

    def load(self, kernel: Kernel, head: Any, row: Any) -> list[Any]:
        """The numbers of a query, or of one past the last of a block."""
        type_ = ops.f32_type()
        return [
            ops.load(self._address(kernel, head, row, which), type_, _BYTES)
            for which in range(_NUMBERS)
        ]

    def store_delta(self, kernel: Kernel, head: Any, row: Any, value: Any) -> None:
        """Stores -delta of a query."""
        ops.store(self._address(kernel, head, row, _NUMBERS - 1), value, _BYTES)

    def copy(self, kernel: Kernel, head: Any, row: Any, count: int, target: Any) -> None:
        """Starts the copy of a step's numbers to shared memory, one after the other."""
        chunks = count * _BYTES // CHUNK_BYTES
        thread, first = ops.thread_id(), 0 if self.has_base else _NUMBERS - 1
        with ops.if_(thread < (_NUMBERS - first) * chunks):
            which, chunk = thread // chunks + first, thread % chunks
            start = self._address(kernel, head, row, 0)
            inside = chunk * CHUNK_BYTES
            source = which * (ROWS * _BYTES) + inside
            place = which * (count * _BYTES) + inside
            smem.copy_async(
                smem.byte_pointer(target, place), smem.byte_pointer(start, source), CHUNK_BYTES
            )
