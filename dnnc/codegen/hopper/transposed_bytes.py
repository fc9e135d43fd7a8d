# pyright: basic
"""TransposedBytes: a tile of bytes [k][n] in shared memory, made into the [n][k] that `wgmma`
takes.

Products of 8 bits read their second operand along k.  A tile whose n is contiguous is transposed by
a few warps: `ldmatrix` that transposes hands a lane pairs of neighbours in n of two neighbours in
k, byte permutations split the pairs, `stmatrix` writes them.

    lane 4i + q has k = 2q, 2q + 1 of n = 2i, 2i + 1    k0n0 k0n1 k1n0 k1n1
    and the same of k + 8                               k8n0 k8n1 k9n0 k9n1
    which become the words                              k0n0 k1n0 k8n0 k9n0
    and                                                 k0n1 k1n1 k8n1 k9n1

A word's four bytes follow each other in the transposed tile.  So the order of k is not kept, nor,
by `TransposedBytes`, that of n:

    place 4q + e of each 16 of k holds k = 8 (e / 2) + 2q + e % 2
    row 8b + i of each 16 of n   holds n = 2i + b

The first is the order in which a lane has what a product of [64, k] left in its accumulators, 16
columns of which are thus, converted and packed by fours, the first operand of the next product
(`wgmma.OperandLayout`).  By the second, accumulators of rows 8b + i hold four neighbours of n
(`quads`), and no two rows that are written together share banks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .. import ops
from ..ampere import mma
from ..memory.smem import CHUNK_BYTES, pointer_to
from ..state import each
from .staged_store import store_matrices
from .wgmma import ROW_BYTES

K = 32  # of a step
N = 16
_ATOM = 8  # rows, after which the swizzle repeats


@dataclass(frozen=True)
class TransposedBytes:
    """keys: k, a multiple of 32.  width: n, a multiple of 16.

    source: panels of 128 n, [k][128 bytes]; target: panels of 128 k, [n][128 bytes]; both in the
    128-byte swizzle.
    """

    keys: int
    width: int

    def __post_init__(self) -> None:
        assert self.keys % K == 0 and self.width % N == 0, f"{self} has parts of steps"

    @property
    def panels(self) -> int:
        """Panels of the target."""
        return -(-self.keys // ROW_BYTES)

    @property
    def panel_bytes(self) -> int:
        return self.width * ROW_BYTES

    @property
    def bytes(self) -> int:
        return self.panels * self.panel_bytes

    def run(self, source: Any, target: Any, warp: Any, warps: int, lane: Any) -> None:
        """Transposes bytes, by so many warps; source, target: i32 addresses, multiples of 1024."""
        inner = lane & (_ATOM - 1)
        # Lane 8m + j names row j of matrix m: k = 8m + j of a step, all in one chunk of n.
        rows = source + lane * ROW_BYTES
        # And row j of matrix m of the target: n = 8 (m % 2) + j, chunk m / 2 of the step's two.
        place = ((lane >> 4) ^ inner) << 4
        lines = target + ((lane & (N - 1)) * ROW_BYTES + place)

        @each(warp, self.width // N, warps)
        def _(block: Any) -> None:
            panel, chunk = block >> 3, block & 7
            swizzled = (chunk ^ inner) * CHUNK_BYTES
            start = rows + (panel * (self.keys * ROW_BYTES) + swizzled)
            line = lines + block * (N * ROW_BYTES)
            for first in range(0, self.keys // K, 4):
                steps = range(first, min(first + 4, self.keys // K))
                loaded = [
                    mma.load_matrices(pointer_to(start + step * K * ROW_BYTES), transposed=True)
                    for step in steps
                ]
                for step, words in zip(steps, loaded, strict=True):
                    panel_start = line + step // 4 * self.panel_bytes
                    there = panel_start ^ (step % 4 * 2 * CHUNK_BYTES)
                    store_matrices(there, mma.split_bytes(words), "row")


PANEL = 64  # k and n of a panel of `TransposedPanels`
PANEL_BYTES = PANEL * PANEL


@dataclass(frozen=True)
class TransposedPanels:
    """count: panels of 64 n and 64 k, one after the other.

    source: [k][64 bytes of n]; target: [n][64 bytes of k]; both in the 64-byte swizzle.  The order
    of n is kept.  Rows 2i of n lie in one half of the banks, rows 2i + 1 in the other: lanes of i
    from 4 on write their odd n while the others write their even ones.
    """

    count: int

    def run(self, source: Any, target: Any, warp: Any, warps: int, lane: Any) -> None:
        """Transposes bytes, by so many warps; source, target: i32 addresses, multiples of 1024."""
        inner, matrix = lane & (_ATOM - 1), lane >> 3
        # Lane 8m + j names row j of matrix m: k = 8m + j of a half, all in one chunk of n.
        rows, swizzle = source + lane * PANEL, (lane >> 1) & 3
        # And of the target row i of matrix m: n = 2i or 2i + 1, chunk m / 2 of the half's two.
        own = inner * 2 + ((matrix & 1) ^ (inner >> 2))
        lines = target + (own * PANEL + (((matrix >> 1) ^ (inner & 3)) << 4))
        is_low = lane < 4 * _ATOM // 2
        even, odd = ops.const(mma.EVEN), ops.const(mma.ODD)
        selectors = (ops.select(is_low, even, odd), ops.select(is_low, odd, even))

        def some(first: Any, count: int) -> None:
            """Transposes some blocks of 16 n, `warps` apart."""
            blocks = [first + i * warps for i in range(count)]
            starts = [
                rows + ((block >> 2) * PANEL_BYTES + (((block & 3) ^ swizzle) << 4))
                for block in blocks
            ]
            loaded = [
                mma.load_matrices(pointer_to(start + half * K * PANEL), transposed=True)
                for start in starts
                for half in _HALVES
            ]
            places = [(lines + block * (N * PANEL), half) for block in blocks for half in _HALVES]
            for (line, half), words in zip(places, loaded, strict=True):
                there = line ^ (half * 2 * CHUNK_BYTES)
                store_matrices(there, mma.split_bytes(words, selectors), "row")

        in_rounds(self.count * (PANEL // N), warp, warps, _TOGETHER, some)


def in_rounds(
    count: int, warp: Any, warps: int, together: int, some: Callable[[Any, int], None]
) -> None:
    """Does `count` pieces of work by warps, each every so many-th one.

    some(first, n): does n pieces, `warps` apart, whose loads are under way together; n is at most
    `together`.
    """
    step = warps * together
    whole = count // step * step
    if whole:

        @each(0, whole, step)
        def _(i: Any) -> None:
            some(i + warp, together)

    every = (count - whole) // warps  # that each warp has
    if every:
        some(warp + whole, every)
    last = whole + every * warps
    if last < count:
        with ops.if_(warp < count - last):
            some(warp + last, 1)


_HALVES = range(PANEL // K)
_TOGETHER = 4  # blocks of 16 n: a load waits long beside products, which read shared memory, too


def quads(sums: Sequence[Any]) -> list[list[Any]]:
    """[16 columns after 16 columns, upper and lower row alternately] of four neighbours of a
    thread.

    sums: accumulators of a product with transposed bytes.  Those of thread t begin at column
    16 j + 4 (t % 4).
    """
    found = []
    for place in range(0, len(sums), 8):
        for half in (0, 2):
            even, odd = (sums[place + half + part : place + half + part + 2] for part in (0, 4))
            found.append([even[0], odd[0], even[1], odd[1]])
    return found
