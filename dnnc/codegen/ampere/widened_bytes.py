# pyright: basic
"""Fragments of `mma.sync` of f16 made of bytes of fp8, which f16 holds all of.

`ldmatrix` moves 16-bit elements, each of which is two bytes here.  Of a chunk of 16 bytes along k,
lane 4i + q has those from 4q on, of row i.  As f16 they are the two words of a step of 16:

    word 0, k 2q and 2q + 1           bytes 4q,     4q + 1
    word 1, k 8 + 2q and 9 + 2q       bytes 4q + 2, 4q + 3

The order of k is another, and the same for A and B.  Where k is rows (`transposed`), lane 4i + q
has columns 2i and 2i + 1 of rows 2q and 2q + 1, which are split into a fragment of the even columns
and one of the odd: a lane's sums of both are four neighbours (`transposed_bytes.quads`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...mlir import nvvm
from .. import ops
from ..scalars.byte_math import f16_words

_EVEN_THEN_ODD = 0x3120  # bytes of rows 2q and 2q + 1, of column 2i, then of column 2i + 1


def a_steps(words: Sequence[Any], kind: str) -> list[list[Any]]:
    """Registers of A of two steps, from those of a load of two chunks.  kind: of the bytes."""
    found = []
    for chunk in (words[:2], words[2:]):
        (up, up_more), (down, down_more) = (f16_words(word, kind) for word in chunk)
        found.append([up, down, up_more, down_more])
    return found


def b_steps(words: Sequence[Any], kind: str) -> list[list[Any]]:
    """Registers of B, of 16 columns that are rows of memory, of two steps."""
    wide = [f16_words(word, kind) for word in words]
    return [[*wide[step], *wide[step + 2]] for step in (0, 1)]


def b_transposed(words: Sequence[Any], kind: str) -> list[Any]:
    """Registers of B of one step, whose k is rows of memory: of the even and of the odd columns of
    a chunk, then of the next."""
    found = []
    for chunk in (words[:2], words[2:]):
        (even, odd), (even_more, odd_more) = (f16_words(_by_columns(word), kind) for word in chunk)
        found += [even, even_more, odd, odd_more]
    return found


def a_of_quads(words: Sequence[Any], kind: str) -> list[Any]:
    """Registers of A of one step.  words: of a lane's upper and lower row, four bytes each, of the
    columns 2q, 2q + 1, 8 + 2q and 9 + 2q of 16 that an accumulator has."""
    (up, up_more), (down, down_more) = (f16_words(word, kind) for word in words)
    return [up, down, up_more, down_more]


def _by_columns(word: Any) -> Any:
    return nvvm.prmt(word, ops.const(_EVEN_THEN_ODD), nvvm.PermuteMode.DEFAULT, hi=word)
