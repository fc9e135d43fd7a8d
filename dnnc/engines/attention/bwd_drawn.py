# pyright: basic
"""Dropout masks that attention's gradient draws, a bit of a register for each score of a thread.

A counter of Philox gives four words, of four neighbouring keys of a query (`dialect.ops.rng`).  A
thread has one of these keys, and three threads the others: of each 8 queries they have four
counters, of two queries and of keys 8 apart.  Each thread draws the words of one counter, and all
exchange bits.  Bits are drawn ahead of a block's products, so that the generator's registers are
free when the products' sums take them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.attention.gradient_region import GradientRegion
from ...codegen.hopper import wgmma
from ...codegen.kernel import Kernel
from ...codegen.scalars.matching import body_of
from ...codegen.walk.index import Index
from ...codegen.walk.region_walk import Walk
from ...mlir import arith, ir
from ...target import WARP_THREADS
from .bwd_schedule import GradientSchedule, KeyTile
from .schedule import QueryTile

_RUN = 4  # elements whose numbers come from one counter
_WORD_BITS = 32
_ROW_LANES = 4  # lanes that have the same key
# Bits of four are a matrix, [threads][keys], which two exchanges transpose: (distance of threads,
# bits that a thread keeps of those below the diagonal).
_EXCHANGES = ((2, 0x33333333), (1, 0x55555555))


@dataclass(frozen=True)
class DrawnMask:
    """value: the SSA tensor of the scores' dims, of zeros and ones.  own: the number of the
    thread's warpgroup among those that have different keys."""

    kernel: Kernel
    parts: GradientRegion
    schedule: GradientSchedule
    value: Any
    own: Any

    @staticmethod
    def all_of(
        kernel: Kernel, parts: GradientRegion, schedule: GradientSchedule, own: Any
    ) -> list[DrawnMask]:
        return [DrawnMask(kernel, parts, schedule, value, own) for value in parts.drawn]

    def load(self, tile: KeyTile, head: QueryTile, first: Any, thread: Any) -> list[Any]:
        """Bits of a block's scores, in the order of a thread's accumulators; first: of the block's
        queries."""
        region = self.parts.region
        walk = Walk(self.kernel, region.leaves(self.kernel), region.symbols)
        down, right = wgmma.AccumulatorLayout.origin(thread)
        key = tile.key + self.own * wgmma.M + down
        if self.schedule.keys.known_divisor() % _RUN:
            return self._of_each(walk, head, first + right, key)
        member = (thread >> 2) & (_RUN - 1)
        start = key - member + (member >> 1) * 8
        query = first + right + (member & 1)
        words: list[Any] = []
        for j in range(self._columns):
            at = [*self._entry(head), Index.of(query + 8 * j), Index(start, 1, _RUN)]
            _put(words, 4 * j, _as_bits(self._drawn(walk, at, _RUN)))
        return [_exchanged(word, thread, member) for word in words]

    def _of_each(self, walk: Walk, head: QueryTile, query: Any, key: Any) -> list[Any]:
        """Bits that each thread draws itself: counters have keys of two queries."""
        words: list[Any] = []
        for j in range(self._columns):
            for half in (0, 1):
                at = [*self._entry(head), Index(query + 8 * j, 1, 2), Index.of(key + 8 * half)]
                _put(words, 4 * j + 2 * half, _as_bits(self._drawn(walk, at, 2)))
        return words

    def _drawn(self, walk: Walk, at: Sequence[Any], width: int) -> Any:
        """Whether neighbours are ones, i1."""
        operation = self.value.owner
        operands = walk.operands(operation, at, width)
        return walk.body(operation, operands, at, width, _drawn_by(operation))

    @property
    def _columns(self) -> int:
        """Blocks of 8 queries whose scores are made at once."""
        t = self.schedule.tiling
        return getattr(t, "at_once", t.queries) // 8

    @staticmethod
    def _entry(head: QueryTile) -> list[Any]:
        return [head.batch[0], head.batch[1]]

    def pair(self, words: Sequence[Any], j: int, half: int) -> Any:
        """Two neighbours of the thread's queries, of a key; as `GradientWalk.words` counts."""
        word, bit = divmod(4 * j + 2 * half, _WORD_BITS)
        type_ = self.value.type.element_type
        one = arith.ConstantOp(type_, ir.FloatAttr.get(type_, 1.0)).result
        found: list[Any] = []
        for i in (0, 1):
            is_one = (words[word] & ops.const(ops.signed(1 << (bit + i)))).ne(0)
            found.append(arith.SelectOp(is_one, one, ops.zeros(type_)).result)
        return ops.from_elements(found)


def _drawn_by(operation: Any) -> Any:
    """The i1 that the body of a generic of zeros and ones converts."""
    value = body_of(operation)[-1].results[0]
    while value.type != ops.i1_type():
        value = value.owner.operands[0]
    return value


def _as_bits(drawn: Any) -> Any:
    """A few i1 as the low bits of an i32."""
    found = None
    for i, is_one in enumerate(ops.elements(drawn)):
        bit = ops.select(is_one, 1 << i, 0)
        found = bit if found is None else found | bit
    return found


def _put(words: list[Any], place: int, bits: Any) -> None:
    """Adds bits at a place of words that grow."""
    word, shift = divmod(place, _WORD_BITS)
    moved = bits << shift if shift else bits
    if word == len(words):
        words.append(moved)
    else:
        words[word] = words[word] | moved


def _exchanged(word: Any, thread: Any, member: Any) -> Any:
    """The bits of the thread's own key, of four counters; word: of four keys of its counter."""
    lane = thread & (WARP_THREADS - 1)
    for distance, below in _EXCHANGES:
        other = ops.from_lane(word, lane ^ (distance * _ROW_LANES))
        first = (word & below) | ((other & below) << distance)
        second = ((other >> distance) & below) | (word & ops.signed(below << distance & 0xFFFFFFFF))
        word = ops.select((member & distance).ne(0), second, first)
    return word
