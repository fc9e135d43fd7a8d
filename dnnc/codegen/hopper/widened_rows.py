# pyright: basic
"""WidenedRows: rows of 64 fp8 in shared memory, made into rows of 64 f16, which `wgmma` takes.

A lane takes 16 bytes of a row and gives 32: four lanes have a row, a warp eight, after which both
swizzles repeat.  So a lane's places in rows further on are constants away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import ops
from ..memory.smem import CHUNK_BYTES, pointer_to
from ..scalars.byte_math import f16_words
from .transposed_bytes import in_rounds
from .wgmma import ROW_BYTES

GROUP = 8  # rows that a warp widens at once
SOURCE_BYTES = 64  # of a row
_TOGETHER = 4  # groups whose loads are under way


@dataclass(frozen=True)
class WidenedRows:
    """rows: those up to the next multiple of eight are there, too.  kind: of the bytes.

    source: [rows][64 bytes] in the 64-byte swizzle; target: [rows][128 bytes] in the 128-byte one.
    """

    rows: int
    kind: str

    def run(self, source: Any, target: Any, warp: Any, warps: int, lane: Any) -> None:
        """Widens rows, by so many warps; source, target: i32 addresses, aligned to 1024 bytes."""
        row, chunk = lane >> 2, lane & 3
        first = source + (row * SOURCE_BYTES + ((chunk ^ ((row >> 1) & 3)) * CHUNK_BYTES))
        made = target + (row * ROW_BYTES + (((chunk * 2) ^ row) * CHUNK_BYTES))
        in_rounds(
            -(-self.rows // GROUP), warp, warps, _TOGETHER,
            lambda group, count: self._widen(first, made, group, warps, count),
        )  # fmt: skip

    def _widen(self, first: Any, made: Any, group: Any, step: int, count: int) -> None:
        """Widens some groups, `step` apart."""
        words = ops.vector_type(ops.i32_type(), CHUNK_BYTES // 4)
        source = first + group * (GROUP * SOURCE_BYTES)
        target = made + group * (GROUP * ROW_BYTES)
        loaded = [
            ops.load(pointer_to(source + i * step * GROUP * SOURCE_BYTES), words, CHUNK_BYTES)
            for i in range(count)
        ]
        for i, taken in enumerate(loaded):
            wide = [half for word in ops.elements(taken) for half in f16_words(word, self.kind)]
            there = target + i * step * GROUP * ROW_BYTES
            for half, place in enumerate((there, there ^ CHUNK_BYTES)):
                own = ops.from_elements(wide[4 * half : 4 * half + 4])
                ops.store(pointer_to(place), own, CHUNK_BYTES)
