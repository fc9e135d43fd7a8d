# pyright: basic
"""A tensor in the order F16x16 (`dialect/orders`), as the target of what its matrices hold.

A lane has 8 elements of a tile of 16 x 16 as sums of tensor cores: two neighbours of each of two
rows, 8 apart, in each of two blocks of 8 columns.  They are 16 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...dialect.tensor import packed_strides
from ...expr import Expr
from .. import ops
from ..ops import Number
from ..walk import index
from ..walk.index import Coordinate, Index
from .tensors import MAX_ACCESS_BYTES, GlobalTensor, offset_bits, register_type

TILE = 16


@dataclass(eq=False)
class TiledTensor(GlobalTensor):
    """dims: of the matrices, [.., M, N], whose coordinates are given."""

    dims: tuple[Expr, ...] = ()

    def store_tile(self, at: Sequence[Coordinate], parts: Sequence[Any], condition: Any) -> None:
        """Writes a lane's part of a tile.

        at: of its first element.  parts: neighbours, of the upper row's two blocks of columns, then
        of the lower row's.
        """
        first = self._offset(at)
        with ops.if_(condition):
            element = register_type(self.tensor.type)
            address = ops.gep(self.pointer, first.base, element)
            ops.store(address, ops.concat(parts), MAX_ACCESS_BYTES)

    def _offset(self, at: Sequence[Coordinate]) -> Index:
        """The offset of up to two neighbours, the first in an even column."""
        bits = offset_bits(self.tensor)
        n = self.dims[-1]
        batch = index.offset(
            self.kernel, at[:-2], self.dims[:-2], packed_strides(self.dims)[:-2], bits=bits
        )
        row, column = (coordinate.index() for coordinate in at[-2:])
        i, j = row.base, column.base
        rows, columns = i >> 4, j >> 4
        inner = _sum(
            (i & 7) * 32, (j & 6) * 4,
            (i & 8) >> 1, (j & 8) >> 2,
        )  # fmt: skip
        if bits == 64:
            rows, columns, inner = map(ops.to_i64, (rows, columns, inner))
        tile = rows * self.kernel.size(n // TILE, bits) + columns
        assert column.is_consecutive, "neighbours, as an even number of keys gives them"
        return Index(_sum(batch.base, tile * (TILE * TILE), inner), 1, 2)


def _sum(*terms: Number) -> Number:
    total: Number = 0
    for term in terms:
        total = total + term
    return total
