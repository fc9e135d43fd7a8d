# pyright: basic
"""OperandFragments: the first operand of a warpgroup product, computed in its threads' registers.

    a stage holds a tile of what g1 reads, as TMA brought it   [rows][k], k contiguous
    each thread takes the elements of its fragments            (row, 2 neighbours of k) at a time
    and walks g1 on them; `wgmma` reads the result where it is

Elements of 16 bits lie in registers as those of an accumulator do (`wgmma.OperandLayout`), so a
tile is taken as an epilogue takes a residual, k for columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...mlir import arith, llvm
from .. import ops
from ..memory import smem
from ..walk.index import Coordinate, Index
from ..walk.region_walk import InHand, Walk
from . import wgmma
from .staged_load import StagedLoad
from .staged_operand import StagedOperand

_PAIR = 2


@dataclass
class OperandFragments:
    """The fragments of one tile of the product.

    operand: whose stages hold raw tiles.  batch: of its matrix.  first: the first row of the
    warpgroup's tile.  blocks: of 64 rows.  thread: of the warpgroup.
    """

    operand: StagedOperand
    batch: Mapping[int, Coordinate]
    first: Any
    blocks: int
    thread: Any

    def __post_init__(self) -> None:
        o = self.operand
        self.taken = InHand()
        leaves: dict[Any, Any] = o.region.leaves(o.kernel)
        leaves[o.raw_argument] = self.taken
        self.walk = Walk(o.kernel, leaves, o.region.symbols)
        down, self.right = wgmma.AccumulatorLayout.origin(self.thread)
        self.rows = [
            [self._row(self.first + down + (block * wgmma.M + 8 * half))
             for half in (0, 1)]
            for block in range(self.blocks)
        ]  # fmt: skip
        for rows in self.rows:
            for row in rows:
                self._load_what_k_does_not_change(row)

    def _row(self, row: Any) -> Index:
        """Kept inside the tensor: what is computed past its end is not stored."""
        last = self.operand.kernel.size(self.operand.size) - 1
        return Index(ops.minimum(row, last))

    def _load_what_k_does_not_change(self, row: Index) -> None:
        """Once a tile, before the loop over k."""
        o = self.operand
        whole = tuple(("loop", axis) for axis in range(len(o.tile.dims)))
        at = o.tile.coordinates(self.batch, row, Index.of(0))
        for leaf, access in o.region.accesses(o.value, whole):
            kinds = {place[0] for place in access}
            if "other" in kinds or ("loop", o.tile.depth) in access:
                continue
            places = [at[p[1]] if p[0] == "loop" else Index.of(0) for p in access]
            self.walk.value(leaf, places, 1)

    def take(self, stage: Any, own_row: Any, first_k: Any) -> list[list[Any]]:
        """[block of rows][4 words of each step of k] of a stage, i32.

        own_row: of the warpgroup in the tile.  first_k: of the stage.
        """
        o = self.operand
        found = []
        for block in range(self.blocks):
            row = own_row + block * wgmma.M
            place = smem.address(o.slot(stage)) + row * o.box.row_bytes
            pairs = StagedLoad(o.box).take(place, self.thread)
            found.append(self._words(pairs, block, first_k))
        return found

    def _words(self, pairs: Sequence[Sequence[Any]], block: int, first_k: Any) -> list[Any]:
        walk = self.walk.branch()
        found = []
        for i, halves in enumerate(pairs):
            k, inside = self._k(first_k + self.right + 8 * i)
            for half, pair in enumerate(halves):
                self.taken.current = pair
                o = self.operand
                at = o.tile.coordinates(self.batch, self.rows[block][half], k)
                value = walk.value(o.value, at, _PAIR)
                if inside is not None:
                    mask = ops.splat(inside, _PAIR)
                    value = arith.SelectOp(mask, value, ops.zeros(value.type)).result
                found.append(llvm.BitcastOp(ops.i32_type(), value).result)
        return found

    def _k(self, k: Any) -> tuple[Index, Any]:
        """(coordinates of a pair, whether it is inside; None: always); k is a multiple of 2."""
        size = self.operand.k_size
        if size.known_divisor() % self.operand.panels.k == 0:
            return Index(k, 1, _PAIR), None
        limit = self.operand.kernel.size(size)
        return Index(ops.minimum(k, limit - _PAIR), 1, _PAIR), k < limit
