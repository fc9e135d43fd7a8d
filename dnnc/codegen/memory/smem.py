# pyright: basic
"""Tiles in shared memory, swizzled so that rows of 16-byte chunks are read without conflicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...mlir import ir, llvm, nvvm
from .. import ops
from ..value import wrapped

CHUNK_BYTES = 16
_BANK_BYTES = 128


@dataclass(frozen=True)
class SwizzledTile:
    """A tile of `rows` rows of `row_bytes` (a power of two, at least 32).

    Chunk c of row r lies at place c ^ (r / rows_per_line % chunks): eight rows that a matrix load
    reads at one chunk column fall into eight different groups of banks.

    Example, row_bytes = 64 (two rows to a line of all banks): rows 0, 1 keep their chunks
    0 1 2 3, rows 2, 3 have 1 0 3 2, rows 4, 5 have 2 3 0 1, rows 6, 7 have 3 2 1 0.
    """

    rows: int
    row_bytes: int

    def __post_init__(self) -> None:
        assert self.row_bytes >= 32, "a row is two chunks at least"
        assert self.row_bytes & (self.row_bytes - 1) == 0, "a row is a power of two"

    @property
    def bytes(self) -> int:
        return self.rows * self.row_bytes

    @property
    def chunks(self) -> int:
        """Chunks of a row."""
        return self.row_bytes // CHUNK_BYTES

    def swizzle(self, row: Any) -> Any:
        """The number that a row's chunk numbers are combined with."""
        rows_per_line = max(1, _BANK_BYTES // self.row_bytes)
        return (row // rows_per_line) & (min(8, self.chunks) - 1)

    def offset(self, row: Any, chunk: Any) -> Any:
        """Bytes from the tile's start to a chunk."""
        place = chunk ^ self.swizzle(row)
        return row * self.row_bytes + (place << 4)


@dataclass(frozen=True)
class PanelTile:
    """A tile of `rows` rows of `row_bytes`, in panels of 128 bytes of every row.

    Panel p holds chunks 8p to 8p + 7 of all rows, one row after the other; within it chunk c of
    row r lies at place c ^ (r % 8), as TMA's 128-byte swizzle puts it.
    """

    rows: int
    row_bytes: int

    def __post_init__(self) -> None:
        assert self.row_bytes % _BANK_BYTES == 0, "a row is whole panels"

    @property
    def bytes(self) -> int:
        return self.rows * self.row_bytes

    def offset(self, row: Any, chunk: Any) -> Any:
        """Bytes from the tile's start to a chunk."""
        panel = (chunk >> 3) * (self.rows * _BANK_BYTES)
        place = (chunk & 7) ^ (row & 7)
        return panel + row * _BANK_BYTES + (place << 4)


def copy_async(
    target: Any, source: Any, bytes_: int, valid_bytes: Any = None, *, is_kept: bool = False
) -> None:
    """Starts a copy of 4, 8 or 16 bytes from global to shared memory.

    valid_bytes: how many are read, the rest being zeros (default: all).  is_kept: whether the first
    cache keeps them, as it does those of fewer than 16 bytes.  Part of the group that the next
    `commit` closes.
    """
    is_past = bytes_ == 16 and not is_kept
    kind = nvvm.LoadCacheModifierKind.CG if is_past else nvvm.LoadCacheModifierKind.CA
    options = {} if valid_bytes is None else {"cp_size": ops.value_of(valid_bytes)}
    nvvm.cp_async_shared_global(target, source, bytes_, kind, **options)


def commit() -> None:
    """Closes a group of asynchronous copies."""
    nvvm.cp_async_commit_group()


def wait(pending: int) -> None:
    """Waits until at most `pending` of this thread's groups are under way."""
    nvvm.cp_async_wait_group(pending)


def byte_pointer(base: Any, offset: Any) -> Any:
    """base + offset bytes."""
    return ops.gep(base, offset, ir.IntegerType.get_signless(8))


def address(pointer: Any) -> Any:
    """A shared-memory pointer as an i32."""
    return wrapped(llvm.PtrToIntOp(ops.i32_type(), pointer))


def pointer_to(address_: Any) -> Any:
    """The pointer of an i32 address, !llvm.ptr<3>."""
    return llvm.IntToPtrOp(ir.Type.parse("!llvm.ptr<3>"), address_).result
