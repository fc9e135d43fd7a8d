# pyright: basic
"""Where the rows of Q, K and V lie in global memory: what `PaddedRows.copy` copies.

Of a row that does not exist nothing is read; its address is that of one that does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.attention.gradient_region import GradientRegion
from ...codegen.attention.region import AttentionRegion
from ...codegen.attention.sources import Source
from ...codegen.kernel import Kernel
from ...codegen.memory.tensors import GlobalTensor, offset_bits, register_type
from ...codegen.walk.index import Coordinate, Index
from ...codegen.walk.loops import coordinates_of
from ...dialect.tensor import Tensor
from ...expr import Expr
from .entry import Entry, cut_length, packed_entry, read
from .schedule import QueryTile, Schedule


@dataclass(frozen=True)
class QueryRows:
    """The queries of a tile.

    axes: of a head's elements, of queries.  entry: of the batch, where they are packed.
    """

    schedule: Schedule
    source: Source
    axes: tuple[int, int]
    tile: QueryTile
    entry: Entry

    @staticmethod
    def of(schedule: Schedule, source: Source, axes: tuple[int, int], tile: QueryTile) -> QueryRows:
        entry = Entry()
        if source.kind == "packed":
            batch = tile.batch[0].index().base
            entry = packed_entry(schedule.kernel, schedule.parts.region, source, batch, axes[1])
        return QueryRows(schedule, source, axes, tile, entry)

    def find(self, row: Any) -> Any:
        return None

    def address(self, row: Any, column: Any, found: Any) -> tuple[Any, Any]:
        tensor = self.source.tensor
        number = self.tile.row + row
        place, exists = self.schedule.row(self.tile, number), self.schedule.inside(number)
        query, batch = place.query.base, dict(place.batch)
        if self.entry.length is not None:
            is_there = query < self.entry.length
            query = ops.select(is_there, self.entry.first + query, 0)
            exists, batch = ops.both(exists, is_there), {**batch, 0: Index.of(0)}
        own = {self.axes[1]: Index(query), self.axes[0]: Index(column)}
        at = coordinates_of(tensor.rank, batch, own)
        return GlobalTensor(self.schedule.kernel, tensor).address(at), exists


@dataclass(frozen=True)
class Keys:
    """Keys or values.  axes: of a head's elements, of keys.  size: of the latter.  step: of a
    block."""

    kernel: Kernel
    parts: AttentionRegion | GradientRegion
    source: Source
    axes: tuple[int, int]
    size: Expr
    step: int

    def head(self, batch: Mapping[int, Coordinate]) -> HeadKeys | PagedKeys:
        """The keys of a head, by its coordinates."""
        tensor = self.source.tensor
        if self.source.kind == "paged":
            return PagedKeys.of(self, batch)
        if self.source.kind == "packed":
            own = {1: batch.get(1, Index.of(0))}
            start = GlobalTensor(self.kernel, tensor).address(coordinates_of(tensor.rank, own))
            return HeadKeys(self, start, self.entry(batch))
        start = GlobalTensor(self.kernel, tensor).address(coordinates_of(tensor.rank, batch))
        return HeadKeys(self, start, self.cut(batch) if self.source.kind == "cut" else Entry())

    def entry(self, batch: Mapping[int, Coordinate]) -> Entry:
        """The keys of a packed entry; of the length, no more than the scores have."""
        number = batch.get(0, Index.of(0)).index().base
        found = packed_entry(self.kernel, self.parts.region, self.source, number, self.axes[1])
        return Entry(ops.minimum(found.length, self.kernel.size(self.size)), found.first)

    def cut(self, batch: Mapping[int, Coordinate]) -> Entry:
        """The keys in place, zeros past a length."""
        rank = self.source.tensor.rank - 2
        numbers = [batch.get(axis, Index.of(0)).index().base for axis in range(rank)]
        length = cut_length(self.kernel, self.parts.region, self.source, numbers)
        return Entry(ops.minimum(length, self.kernel.size(self.size)))

    def pointer(self, start: Any, offset: Any) -> Any:
        """The address of the element `offset` after the one at `start`."""
        return ops.gep(start, offset, register_type(self.source.tensor.type))

    def times_stride(self, number: Any, axis: int) -> Any:
        """Elements to an entry of an axis, in 32 bits where that is enough."""
        tensor = self.source.tensor
        stride = tensor.layout[axis]
        if offset_bits(tensor) == 32:
            return number * self.kernel.size(stride)
        if stride.bounds()[1] < 1 << 31:  # a product of 32 bits by 32
            return ops.to_i64(number) * ops.to_i64(self.kernel.size(stride))
        return ops.to_i64(number) * self.kernel.size(stride, 64)


@dataclass(frozen=True)
class HeadKeys:
    """The keys of a head, one after the other.

    start: the address of the head's first row.  entry: which of them are the tile's; none: all.
    first: a block's first key.
    """

    keys: Keys
    start: Any
    entry: Entry
    first: Any = 0

    def block(self, first: Any) -> HeadKeys:
        """From a key on."""
        return HeadKeys(self.keys, self.start, self.entry, first)

    @property
    def is_cut_within_size(self) -> bool:
        """Whether rows are missing past a length, and none of a block past the tensor's end."""
        k = self.keys
        return k.source.kind == "cut" and k.size.known_divisor() % k.step == 0

    def uncut(self) -> HeadKeys:
        """The keys of a block that the length leaves whole."""
        return HeadKeys(self.keys, self.start, Entry(), self.first)

    def find(self, row: Any) -> Any:
        return None

    def address(self, row: Any, column: Any, found: Any) -> tuple[Any, Any]:
        k = self.keys
        place, exists = self._place(self.first + row)
        offset = k.times_stride(place, k.axes[1]) + _like(column, k.source.tensor)
        return k.pointer(self.start, offset), exists

    def _place(self, number: Any) -> tuple[Any, Any]:
        """(row of the tensor, whether it is there) of a key."""
        k = self.keys
        if self.entry.length is not None:
            exists = number < self.entry.length
            first = self.entry.first
            there = number if first is None else first + number
            return ops.select(exists, there, 0), exists
        if k.size.known_divisor() % k.step == 0:
            return number, None
        size = k.kernel.size(k.size)
        return ops.minimum(number, size - 1), number < size


@dataclass(frozen=True)
class PagedKeys:
    """The keys of a head, in blocks of a cache that a table names.

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
        at = coordinates_of(source.tensor.rank, {1: batch.get(1, Index.of(0))})
        start = GlobalTensor(keys.kernel, source.tensor).address(at)
        entry = batch.get(0, Index.of(0)).index().base
        length = ops.to_i32(read(keys.kernel, keys.parts.region, source.values[0], entry))
        length = ops.minimum(length, keys.kernel.size(keys.size))
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
        return self._look_up(self.first + row) if self.page is None else self.page

    def address(self, row: Any, column: Any, found: Any) -> tuple[Any, Any]:
        k, number = self.keys, self.first + row
        inside = k.times_stride(number % self.size, k.axes[1])
        inside = inside + _like(column, k.source.tensor)
        offset = k.times_stride(found, 0) + inside
        return k.pointer(self.start, offset), number < self.length

    def _look_up(self, number: Any) -> Any:
        """The block of the cache that has a key; of keys past the length, which are not read, of
        the first of all, or block 0 where there is none."""
        k = self.keys
        is_there = number < self.length
        page = ops.select(is_there, number // self.size, 0)
        found = read(k.kernel, k.parts.region, k.source.values[1], self.batch, 0, page)
        return ops.select(is_there, found, 0)


def _like(column: Any, tensor: Tensor) -> Any:
    """A number of elements in the bits of offsets."""
    return column if offset_bits(tensor) == 32 else ops.to_i64(column)
