# pyright: basic
"""Where the rows of Q, K and V lie in global memory: addresses for `PaddedRows.copy`.

A row that is past the end has the address of the last one, of which nothing is then read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..codegen import ops
from ..codegen.index import Coordinate, Index
from ..codegen.kernel import Kernel
from ..codegen.loops import coordinates_of
from ..codegen.memory import GlobalTensor, offset_bits, register_type
from ..codegen.padded_rows import Source
from ..dialect.tensor import Tensor
from ..expr import Expr
from .sdpa_schedule import QueryTile, Schedule


@dataclass
class QueryRows:
    """Those of a tile.

    axes: of the tensor: of a head's elements, of queries.
    """

    kernel: Kernel
    tensor: Tensor
    axes: tuple[int, int]
    schedule: Schedule

    def tile(self, tile: QueryTile) -> Source:
        elements, queries = self.axes
        source = GlobalTensor(self.kernel, self.tensor)

        def address(row: Any, column: Any) -> tuple[Any, Any]:
            number = ops.add(tile.row, row)
            place = self.schedule.row(tile, number)
            own = {queries: place.query, elements: Index(column)}
            at = coordinates_of(self.tensor.rank, place.batch, own)
            return source.address(at), self.schedule.inside(number)

        return address


@dataclass
class KeyRows:
    """Keys or values of a tensor in memory.

    axes: of a head's elements, of keys.  size: of the latter.  step: keys of a block.
    """

    kernel: Kernel
    tensor: Tensor
    axes: tuple[int, int]
    size: Expr
    step: int

    def head(self, batch: Mapping[int, Coordinate]) -> HeadRows:
        """Those of a head, by its coordinates."""
        at = coordinates_of(self.tensor.rank, batch)
        return HeadRows(self, GlobalTensor(self.kernel, self.tensor).address(at))


@dataclass
class HeadRows:
    """start: the address of the head's first row."""

    rows: KeyRows
    start: Any

    def block(self, first: Any) -> Source:
        """Of the keys from number `first` on."""
        r = self.rows
        size, element = r.kernel.size(r.size), register_type(r.tensor.type)
        is_whole = r.size.known_divisor() % r.step == 0

        def address(row: Any, column: Any) -> tuple[Any, Any]:
            number = ops.add(first, row)
            kept = number if is_whole else ops.minimum(number, ops.sub(size, 1))
            place = ops.add(self._offset(kept), column)
            exists = None if is_whole else ops.less(number, size)
            return ops.gep(self.start, place, element), exists

        return address

    def _offset(self, row: Any) -> Any:
        """Elements to a row, in 32 bits where that is enough."""
        r = self.rows
        stride = r.tensor.layout[r.axes[1]]
        if offset_bits(r.tensor) == 32:
            return ops.mul(row, r.kernel.size(stride))
        if stride.bounds()[1] < 1 << 31:  # a product of 32 bits by 32
            return ops.mul(ops.to_i64(row), ops.to_i64(r.kernel.size(stride)))
        return ops.mul(ops.to_i64(row), r.kernel.size(stride, 64))
