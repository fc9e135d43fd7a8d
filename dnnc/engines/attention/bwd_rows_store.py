# pyright: basic
"""Sums of 64 rows of dK or dV, scaled, from a warpgroup's registers to memory, 16 bytes a thread.

They go through 64 rows of 128 bytes of shared memory by `stmatrix`, whose elements of 16 bits are
two of a result of 8 bits: of these a row then has, of each 16 columns, two of the first 8 columns
and two of the last alternately.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.hopper import wgmma
from ...codegen.hopper.staged_store import store_matrices
from ...codegen.memory import smem
from ...codegen.memory.smem import CHUNK_BYTES
from ...codegen.memory.tensors import register_type
from ...codegen.memory.transposed_tile import permuted
from ...codegen.walk.index import Index
from ...mlir import ir, llvm
from .bwd_finish import Finish
from .bwd_results import ResultRows, RowPlace

BUFFER_BYTES = wgmma.M * wgmma.ROW_BYTES
_CHUNKS = wgmma.ROW_BYTES // CHUNK_BYTES  # of a row of the buffer
_UNIT = 8  # elements that a head has a multiple of


@dataclass
class RowsStore:
    """buffer: address of `BUFFER_BYTES` that no other warpgroup uses.  meet: all threads of the
    warpgroup meet."""

    result: ResultRows
    thread: Any
    buffer: Any
    meet: Callable[[], None]

    def store(self, at: RowPlace, end: Any, sums: Sequence[Any]) -> None:
        """Stores sums of all elements.  end: rows that there are; None: all of these are there."""
        result = self.result
        finish = Finish(result.kernel, result.parts, result.name)
        bytes_ = finish.target.tensor.type.bits // 8
        columns = wgmma.ROW_BYTES // bytes_
        for first in range(0, result.elements, columns):
            own = sums[first // 2 : (first + columns) // 2]
            words = self._words(finish, at, first, own, bytes_)
            self.meet()
            self._put(words)
            self.meet()
            self._copy(finish, at, end, first, bytes_)
        finish.meet(self.thread)

    def _words(
        self, finish: Finish, at: RowPlace, first: int, sums: Sequence[Any], bytes_: int
    ) -> list[list[Any]]:
        """[chunk of 16 bytes][upper, lower row] of what a thread has of it, i32."""
        down, right = wgmma.AccumulatorLayout.origin(self.thread)
        halves: list[list[Any]] = [[], []]
        for place in range(0, len(sums), 2):
            block, half = divmod(place // 2, 2)
            column = Index(right + (first + 8 * block), 1, 2)
            row = at.row + down + 8 * half
            there = [Index.of(at.entry), Index.of(at.head), Index.of(row), column]
            pair = ops.from_elements(list(sums[place : place + 2]))
            halves[half].append(finish.finished(pair, there))
        if bytes_ == 1:
            halves = [_joined(pairs) for pairs in halves]
        found = [
            [llvm.BitcastOp(ops.i32_type(), half[i]).result for half in halves]
            for i in range(len(halves[0]))
        ]
        if len(found) % 2:
            found.append([ops.const(0)] * 2)
        return found

    def _put(self, words: Sequence[Sequence[Any]]) -> None:
        """Two chunks of 16 rows an instruction."""
        warp, lane = self.thread >> 5, self.thread & 31
        row = warp * 16 + (lane & 15)
        start = self.buffer + row * wgmma.ROW_BYTES
        for chunk in range(0, len(words), 2):
            swizzled = ((lane >> 4) + chunk) ^ (row & 7)
            store_matrices(
                start + swizzled * CHUNK_BYTES, [*words[chunk], *words[chunk + 1]], "row"
            )

    def _copy(self, finish: Finish, at: RowPlace, end: Any, first: int, bytes_: int) -> None:
        elements = self.result.elements
        width = CHUNK_BYTES // bytes_
        together = width if elements % width == 0 else _UNIT
        type_ = ops.vector_type(register_type(finish.target.tensor.type), width)
        for number in range(wgmma.M * _CHUNKS // wgmma.WARPGROUP_THREADS):
            place = self.thread + number * wgmma.WARPGROUP_THREADS
            own, chunk = place // _CHUNKS, place % _CHUNKS
            source = self.buffer + own * wgmma.ROW_BYTES + (chunk ^ (own & 7)) * CHUNK_BYTES
            four = ops.vector_type(ops.i32_type(), 4)
            loaded = ops.load(smem.pointer_to(source), four, CHUNK_BYTES)
            if bytes_ == 1:
                loaded = ops.from_elements(_parted(ops.elements(loaded)))
            whole = llvm.BitcastOp(type_, loaded).result
            row = at.row + own
            for part in range(0, width, together):
                column = chunk * width + (first + part)
                inside = None if end is None else ops.less(row, end)
                if elements % (wgmma.ROW_BYTES // bytes_):
                    inside = ops.both(inside, column < elements)
                there = [
                    Index.of(at.entry), Index.of(at.head), Index.of(row),
                    Index(column, 1, together),
                ]  # fmt: skip
                finish.target.store(there, ops.part(whole, part, together), inside)


def _joined(pairs: Sequence[Any]) -> list[Any]:
    """Bytes of two columns of two blocks after each other; [block] -> [two blocks]."""
    i16 = ir.IntegerType.get_signless(16)
    words = [llvm.BitcastOp(i16, pair).result for pair in pairs]
    if len(words) % 2:
        words.append(ops.zeros(i16))
    return [ops.from_elements(words[i : i + 2]) for i in range(0, len(words), 2)]


def _parted(words: Sequence[Any]) -> list[Any]:
    """16 columns in order: what lower halves hold, then upper ones."""
    return [
        permuted(words[i], words[i + 1], selector) for selector in (0x5410, 0x7632) for i in (0, 2)
    ]
