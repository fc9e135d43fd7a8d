# pyright: basic
"""Weights in memory in the order F16x16 (`dialect.orders`), as threads of attention's gradient
take them.

A lane's 16 bytes of a tile of 16 x 16 are what it has of the sums of a product [queries, keys],
so one access loads them, ahead of that product.  Of a product [keys, queries] a lane has each 8 x 8
of them transposed, which `movmatrix` exchanges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.ampere import mma
from ...codegen.attention.gradient_region import GradientRegion
from ...codegen.kernel import Kernel
from ...codegen.memory.tensors import MAX_ACCESS_BYTES, GlobalTensor, offset_bits, register_type
from ...codegen.memory.tiled_tensor import TILE
from ...dialect.tensor import Tensor
from ...expr import Expr
from ...mlir import llvm
from ...target import WARP_THREADS
from .bwd_schedule import GradientSchedule, KeyTile
from .schedule import QueryTile

_LANE_ELEMENTS = 8  # of a tile
_WORDS = 4


@dataclass(frozen=True)
class StoredWeights:
    """value: the SSA tensor of the scores' dims.  tensor: in memory.  of_keys: whether a thread's
    own rows are keys."""

    kernel: Kernel
    schedule: GradientSchedule
    value: Any
    tensor: Tensor
    of_keys: bool

    @staticmethod
    def all_of(
        kernel: Kernel, parts: GradientRegion, schedule: GradientSchedule, *, of_keys: bool
    ) -> list[StoredWeights]:
        """All that lie so, at addresses of 16 bytes."""
        return [
            StoredWeights(kernel, schedule, value, tensor, of_keys)
            for value, tensor in parts.stored
            if tensor.alignment >= MAX_ACCESS_BYTES
        ]

    def load(self, tile: KeyTile, head: QueryTile, first: Any, thread: Any) -> list[Any]:
        """A thread's words of each tile of 16 x 16 of a block; first: of the block's others."""
        s = self.schedule
        own = (tile.key >> 4) + (thread >> 5)
        own = self._inside(own, s.keys, is_cut=s.has_tail)
        found: list[Any] = []
        for number in range(s.tiling.queries // TILE):
            other = self._inside((first >> 4) + number, s.queries, is_cut=s.has_row_tail)
            i, j = (other, own) if self.of_keys else (own, other)
            found.append(self._words(head, i, j, thread))
        return found

    def _inside(self, block: Any, size: Expr, *, is_cut: bool) -> Any:
        """A block of 16, or the last one in place of those past it."""
        return ops.minimum(block, self.kernel.size(size // TILE) - 1) if is_cut else block

    def _words(self, head: QueryTile, i: Any, j: Any, thread: Any) -> Any:
        """The lane's words of tile (i, j) of a head."""
        s, bits = self.schedule, offset_bits(self.tensor)
        queries, keys = (s.queries, s.keys) if self.of_keys else (s.keys, s.queries)
        wide = ops.to_i64 if bits == 64 else ops.value_of
        row = wide(head.head) * self.kernel.size(queries // TILE, bits) + wide(i)
        place = row * self.kernel.size(keys // TILE, bits) + wide(j)
        lane = (thread & (WARP_THREADS - 1)) * _LANE_ELEMENTS
        pointer = GlobalTensor(self.kernel, self.tensor).pointer
        address = ops.gep(
            pointer, place * (TILE * TILE) + wide(lane), register_type(self.tensor.type)
        )
        return ops.load(address, ops.vector_type(ops.i32_type(), _WORDS), MAX_ACCESS_BYTES)

    def pair(self, words: Sequence[Any], j: int, half: int) -> Any:
        """Two neighbours of the thread's others, of an own row; as `GradientWalk.words` counts."""
        # Words of a tile: [half of its rows][half of its columns]
        place = 2 * (j % 2) + half if self.of_keys else 2 * half + j % 2
        word = ops.elements(words[j // 2])[place]
        if self.of_keys:
            word = mma.transposed(word)
        type_ = ops.vector_type(register_type(self.tensor.type), 2)
        return llvm.BitcastOp(type_, word).result
