# pyright: basic
"""Where the rows of Q, K and V lie in global memory: what `PaddedRows.copy` copies.

Of a row that does not exist nothing is read; its address is that of one that does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..codegen import ops
from ..codegen.attention_region import Source
from ..codegen.index import Coordinate, Index
from ..codegen.kernel import Kernel
from ..codegen.loops import coordinates_of
from ..codegen.memory import GlobalTensor, offset_bits, register_type
from ..dialect.tensor import Tensor
from ..expr import Expr
from .sdpa_schedule import QueryTile, Schedule


@dataclass(frozen=True)
class QueryRows:
    """The queries of a tile.  axes: of a head's elements, of queries."""

    schedule: Schedule
    tensor: Tensor
    axes: tuple[int, int]
    tile: QueryTile

    def find(self, row: Any) -> Any:
        return None

    def address(self, row: Any, column: Any, found: Any) -> tuple[Any, Any]:
        elements, queries = self.axes
        number = ops.add(self.tile.row, row)
        place = self.schedule.row(self.tile, number)
        own = {queries: place.query, elements: Index(column)}
        at = coordinates_of(self.tensor.rank, place.batch, own)
        source = GlobalTensor(self.schedule.kernel, self.tensor)
        return source.address(at), self.schedule.inside(number)


@dataclass(frozen=True)
class Keys:
    """Keys or values.  axes: of a head's elements, of keys.  size: of the latter.  step: of a
    block."""

    kernel: Kernel
    source: Source
    axes: tuple[int, int]
    size: Expr
    step: int

    def head(self, batch: Mapping[int, Coordinate]) -> HeadKeys | PagedKeys:
        """Those of a head, by its coordinates."""
        if self.source.kind == "paged":
            return PagedKeys.of(self, batch)
        at = coordinates_of(self.source.tensor.rank, batch)
        return HeadKeys(self, GlobalTensor(self.kernel, self.source.tensor).address(at))

    def pointer(self, start: Any, offset: Any) -> Any:
        """So many elements on."""
        return ops.gep(start, offset, register_type(self.source.tensor.type))

    def times_stride(self, number: Any, axis: int) -> Any:
        """Elements to an entry of an axis, in 32 bits where that is enough."""
        tensor = self.source.tensor
        stride = tensor.layout[axis]
        if offset_bits(tensor) == 32:
            return ops.mul(number, self.kernel.size(stride))
        if stride.bounds()[1] < 1 << 31:  # a product of 32 bits by 32
            return ops.mul(ops.to_i64(number), ops.to_i64(self.kernel.size(stride)))
        return ops.mul(ops.to_i64(number), self.kernel.size(stride, 64))


@dataclass(frozen=True)
class HeadKeys:
    """Those of a head, in place.  start: the address of its first.  first: a block's first key."""

    keys: Keys
    start: Any
    first: Any = 0

    def block(self, first: Any) -> HeadKeys:
        """From a key on."""
        return HeadKeys(self.keys, self.start, first)

    def find(self, row: Any) -> Any:
        return None

    def address(self, row: Any, column: Any, found: Any) -> tuple[Any, Any]:
        k = self.keys
        number, size = ops.add(self.first, row), k.kernel.size(k.size)
        is_whole = k.size.known_divisor() % k.step == 0
        kept = number if is_whole else ops.minimum(number, ops.sub(size, 1))
        offset = ops.add(k.times_stride(kept, k.axes[1]), _like(column, k.source.tensor))
        return k.pointer(self.start, offset), None if is_whole else ops.less(number, size)


@dataclass(frozen=True)
class PagedKeys:
    """Those of a head, in blocks of a cache that a table names.

    start: the address of the head's first element in block 0.  batch: the entry.  length: its keys,
    all others are zeros.  page: the block of the table that holds all of the block that is copied,
    None: rows look up their own.
    """

    keys: Keys
    start: Any
    batch: Any
    length: Any
    first: Any = 0
    page: Any = None

    @staticmethod
    def of(keys: Keys, batch: Mapping[int, Coordinate]) -> PagedKeys:
        source = keys.source
        assert source.lengths is not None, "a cache has lengths"
        at = coordinates_of(source.tensor.rank, {1: batch.get(1, Index.of(0))})
        start = GlobalTensor(keys.kernel, source.tensor).address(at)
        entry = batch.get(0, Index.of(0)).index().base
        length = GlobalTensor(keys.kernel, source.lengths).load(_place(source.lengths, entry), 1)
        length = ops.minimum(ops.to_i32(length), keys.kernel.size(keys.size))
        return PagedKeys(keys, start, entry, length)

    @property
    def size(self) -> int:
        """Keys of a page."""
        return self.keys.source.tensor.shape[self.keys.axes[1]].constant or 1

    def block(self, first: Any) -> PagedKeys:
        """From a key on, a multiple of the keys of a step."""
        made = PagedKeys(self.keys, self.start, self.batch, self.length, first)
        page = made._look_up(first) if self.size % self.keys.step == 0 else None
        return PagedKeys(self.keys, self.start, self.batch, self.length, first, page)

    def find(self, row: Any) -> Any:
        """The page of a row."""
        return self._look_up(ops.add(self.first, row)) if self.page is None else self.page

    def address(self, row: Any, column: Any, found: Any) -> tuple[Any, Any]:
        k, number = self.keys, ops.add(self.first, row)
        inside = k.times_stride(ops.rem(number, self.size), k.axes[1])
        inside = ops.add(inside, _like(column, k.source.tensor))
        offset = ops.add(k.times_stride(found, 0), inside)
        return k.pointer(self.start, offset), ops.less(number, self.length)

    def _look_up(self, number: Any) -> Any:
        """The block of the cache that has a key; of keys past the length, which are not read, of
        the first of all, or block 0 where there is none."""
        table = self.keys.source.index
        assert table is not None, "a cache has a table"
        is_there = ops.less(number, self.length)
        page = ops.select(is_there, ops.div(number, self.size), 0)
        found = GlobalTensor(self.keys.kernel, table).load(_place(table, self.batch, page), 1)
        return ops.select(is_there, found, 0)


def _place(tensor: Tensor, batch: Any, page: Any = 0) -> list[Coordinate]:
    """[batch, 0, page, 0]"""
    return coordinates_of(tensor.rank, {0: Index(batch), 2: Index(page)})


def _like(column: Any, tensor: Tensor) -> Any:
    """A number of elements in the bits of offsets."""
    return column if offset_bits(tensor) == 32 else ops.to_i64(column)
