# pyright: basic
"""RowExchange: a value of each row, combined over the blocks of a cluster that share the rows.

    each block:  writes its part to every block; tells them; waits for all; combines, in the order
                 of the blocks

Parts of a tile lie in one of two buffers, alternately, so that a block may run ahead into the next
tile: it comes to the same buffer again only after all have told it of the tile between.
Source: PTX ISA, "Cluster of Cooperative Thread Arrays"; "mapa".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...mlir import nvvm
from .. import ops
from ..hopper import mbarrier
from ..memory.smem import byte_pointer

_SLOT = 8  # bytes of a value
_WARPS = 4  # of a warpgroup
_ROWS = 32  # of a warpgroup that exchange together: eight of a warp, in its quads


@dataclass(frozen=True)
class RowExchange:
    """The exchanges of one warpgroup with those of its place in the other blocks.

    blocks: that share the rows.  count: exchanges of a tile.  memory: !llvm.ptr<3>, of `bytes`.
    barriers: !llvm.ptr<3> of `count` barriers.
    """

    blocks: int
    count: int
    memory: Any
    barriers: Any

    @staticmethod
    def bytes(blocks: int, count: int) -> int:
        return 2 * count * blocks * _ROWS * _SLOT

    @staticmethod
    def barrier_bytes(count: int) -> int:
        return count * mbarrier.BYTES

    def make(self) -> None:
        """Makes the barriers, by one thread: every warp of every block arrives."""
        for i in range(self.count):
            mbarrier.make(self._barrier(i), self.blocks * _WARPS)

    def combine(
        self,
        number: int,
        value: Any,
        parity: Any,
        thread: Any,
        rank: Any,
        combine: Callable[[Any, Any], Any],
    ) -> Any:
        """A row's value of all blocks, in every thread of its quad; value: this block's.

        number: of the exchange in the tile.  parity: of the tile, 0 and 1 alternately.
        thread: of the warpgroup.  rank: of this block among those that share the rows.
        """
        lane = thread & 31
        row = thread // 4
        own = self._place(number, parity, rank, row)
        with ops.if_((lane & 3).eq(0)):
            for block in range(self.blocks):
                ops.store(mbarrier.remote(own, block), value, _size(value))
        nvvm.bar_warp_sync(ops.const(-1))
        with ops.if_(lane < self.blocks):
            mbarrier.publish_to(self._barrier(number), lane)
        mbarrier.wait_for_cluster(self._barrier(number), parity)
        total = None
        for block in range(self.blocks):
            part = ops.load(self._place(number, parity, block, row), value.type, _size(value))
            total = part if total is None else combine(total, part)
        return total

    def _barrier(self, number: int) -> Any:
        return byte_pointer(self.barriers, number * mbarrier.BYTES)

    def _place(self, number: int, parity: Any, block: Any, row: Any) -> Any:
        buffer = parity * self.count + number
        slot = (buffer * self.blocks + block) * _ROWS + row
        return byte_pointer(self.memory, slot * _SLOT)


def _size(value: Any) -> int:
    return ops.element_of(value.type).width // 8
