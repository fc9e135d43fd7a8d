# pyright: basic
"""Which blocks of keys a mask of blocks, one bit each, lets a tile of queries see.

A tile and a block of keys lie inside one block of the mask where their sizes divide its own: then a
bit says all of their scores.  Else the bits of all that they meet are joined by or, and scores of
blocks that are multiplied still look at their own bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.attention.mask_conditions import Blocks
from ...codegen.value import wrapped
from ...codegen.walk.index import Coordinate, Index
from ...codegen.walk.region_walk import Walk
from ...dialect.ops.block_mask_load import BITS
from ...mlir import arith


@dataclass(frozen=True)
class TileBits:
    """masks: all of them have to let a score be seen.  queries, keys: of a tile.  begins_anywhere:
    whether tiles begin at other rows than multiples of their size."""

    masks: Sequence[Blocks]
    queries: int
    keys: int
    begins_anywhere: bool

    @property
    def is_aligned(self) -> bool:
        """Whether no block of a mask ends inside a tile."""
        return not self.begins_anywhere and all(
            mask.rows % self.queries == 0 and mask.columns % self.keys == 0 for mask in self.masks
        )

    def any(
        self, walk: Walk, batch: Mapping[int, Coordinate], rows: tuple[Any, Any], block: Any,
        end: Any,
    ) -> Any:  # fmt: skip
        """Whether any score of rows, first to last, and a block of keys may be seen, i1.

        end: the last key that there is.
        """
        found = None
        for mask in self.masks:
            bits = self._bits(mask, walk, batch, rows, block, end)
            found = ops.both(found, ops.compare("ne", bits & 1, 0))
        return found

    def _bits(
        self, mask: Blocks, walk: Walk, batch: Mapping[int, Coordinate], rows: tuple[Any, Any],
        block: Any, end: Any,
    ) -> Any:  # fmt: skip
        """A number whose last bit is that of the blocks that are met, joined by or."""
        first = block * self.keys
        last = ops.minimum(first + (self.keys - 1), end)
        found: Any = None
        for row in _met(*rows, mask.rows, self.queries, self.begins_anywhere):
            for column in _met(first, last, mask.columns, self.keys, False):
                byte = self._byte(mask, walk, batch, row, column // BITS)
                bit = byte >> (column % BITS)
                found = bit if found is None else found | bit
        return found

    def _byte(
        self, mask: Blocks, walk: Walk, batch: Mapping[int, Coordinate], row: Any, column: Any
    ) -> Any:
        """An element of a mask, i32."""
        heads = [Index.of(0) if one else batch[axis] for axis, one in enumerate(mask.shared)]
        value = walk.value(mask.mask, [*heads, Index.of(row), Index.of(column)], 1)
        return wrapped(arith.ExtUIOp(ops.i32_type(), value))


def _met(first: Any, last: Any, size: int, extent: int, begins_anywhere: bool) -> list[Any]:
    """Blocks of a mask that `extent` neighbours, first to last, may meet; some of them twice."""
    start = first // size
    if size % extent == 0 and not begins_anywhere:
        return [start]
    end = last // size
    return [ops.minimum(start + i, end) for i in range((extent - 2) // size + 2)]
