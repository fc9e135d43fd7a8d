# pyright: basic
"""Boolean outputs of matmul_sm90: eight elements of a row are one byte, gathered by four lanes.

The four lanes of a quad hold a row of an accumulator, two neighbours each of every block of eight
columns.  Four blocks make a word of 32 bits:

    lane q     sets bits 2q and 2q + 1 of byte b, for each block b
    shuffles   combine the four lanes' words: every lane has the whole one
    lane q     stores byte q

A row begins at a whole byte, so that each byte has one writer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...codegen import ops
from ...codegen.memory.tensors import GlobalTensor
from ...codegen.totals import reduce
from ...dialect.fusion import Fusion
from ...mlir import arith, ir
from ..engine import Reason
from .bits import BYTE, bits_reason, booleans_of, swaps_of
from .pattern import flowing_reductions, is_grouped, matmul_of

# A block has as many columns as a byte has elements.
_QUAD = 4  # lanes that hold a row, and bytes of a word

_SUPPORTED = (
    "boolean outputs of the product's dims with contiguous rows whose length is a multiple of 8 "
    "and whose other strides are, or all with contiguous columns (no groups, no reductions of "
    "rows that flow on)"
)


# ---- the support surface


def swaps_of_bits(fusion: Fusion) -> list[int]:
    """The values of SWAP_AB with which every boolean output is stored as whole bytes."""
    booleans = booleans_of(fusion)
    if not booleans:
        return [0, 1]
    keeps_rows = is_grouped(fusion) or bool(flowing_reductions(fusion))
    return [swap for swap in swaps_of(booleans) if not (swap and keeps_rows)]


def bits_reasons(fusion: Fusion) -> list[Reason]:
    """Why a boolean output has bytes that would have several writers."""
    dims = matmul_of(fusion).c.shape
    booleans = booleans_of(fusion)
    strange = [t for t in booleans if t.shape != dims]
    if not strange and swaps_of_bits(fusion):
        return []
    return [bits_reason((strange or booleans)[0], _SUPPORTED)]


# ---- code


class QuadBits:
    """A boolean output of one tile; its fragments come in the order of their columns."""

    def __init__(self, target: GlobalTensor, lane: Any, columns: int):
        """lane: of the warp.  columns: of the tile."""
        self.target = target
        self.own = lane & (_QUAD - 1)
        self.blocks = columns // BYTE
        self.words: dict[tuple[int, int], Any] = {}

    def add(self, tile: Any, fragment: Any, value: Any) -> None:
        """Takes two neighbours; the last ones of a word store it."""
        assert ops.width_of(value) == 2, "rows of whole bytes have pairs"
        block = fragment.register // _QUAD
        place = block % _QUAD
        row = (fragment.block, fragment.half)
        word = self.words.pop(row, 0)
        for i, bit in enumerate(ops.elements(value)):
            word = ops.select(bit, 1 << (BYTE * place + i), 0) | word
        if place + 1 == _QUAD or block + 1 == self.blocks:
            self._store(tile, fragment, word, place + 1)
        else:
            self.words[row] = word

    def _store(self, tile: Any, fragment: Any, word: Any, blocks: int) -> None:
        """Gathers a word of some blocks, of which a fragment of the last one is in hand."""
        word = word << (self.own * 2)
        word = reduce.across_lanes(word, _QUAD, ops.or_)
        byte = word >> (self.own * BYTE)
        byte = arith.TruncIOp(ir.IntegerType.get_signless(8), byte).result
        # The fragment is at 8 * (blocks - 1) + 2 * own of the word, the byte at 8 * own.
        number = fragment.column.number - BYTE * (blocks - 1)
        number = number + self.own * (BYTE - 2)
        whole = replace(fragment, column=replace(fragment.column, number=number, width=BYTE))
        has_byte = self.own < blocks if blocks < _QUAD else None
        self.target.store_byte(tile.at(whole), byte, ops.both(whole.inside, has_byte))
