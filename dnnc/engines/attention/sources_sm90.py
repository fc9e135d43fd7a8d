# pyright: basic
"""Rows of queries, keys and values by TMA: in place, in pages, or packed.

A box has all rows of a tile where they follow each other in memory.  Of pages a box has the rows
of one.  Rows that are looked up end with their entry, and values in place may be cut at a length,
past which memory holds anything: nothing is read that is not the entry's.  A tile or a page that
has the end inside comes by boxes of powers of two, up to seven of its rows and as many of zeros;
every other one is one box.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...codegen import ops
from ...codegen.attention.mask_conditions import FAR
from ...codegen.attention.sources import Source
from ...codegen.hopper import tma, wgmma
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.region import Region
from ...codegen.state import each
from ...dialect.tensor import Tensor
from ...expr import Expr
from .entry import Entry, cut_length, first_row, read
from .pattern import group_size
from .schedule import Packing, QueryTile

LEAST_BLOCK = wgmma.ATOM_ROWS  # rows of a page
UNROLLED_PANELS = 2  # of more, coordinates would not fit the producer's registers

Place = Mapping[int, Any]  # axis of the tensor -> i32 coordinate


@dataclass
class Rows:
    """The rows of an operand, by tiles of `rows` of them.

    axes: of elements and of rows.  batch: the scores' axes of heads.  panels: of 128 bytes.
    ends: whether rows past an entry's end are zeros; else they are what follows.
    """

    kernel: Kernel
    region: Region
    source: Source
    axes: tuple[int, int]
    batch: tuple[Expr, ...]
    rows: int
    panels: int
    ends: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        pairs = zip(self.source.batch, self.batch, strict=True)
        self.groups = [group_size(own, whole) or 0 for own, whole in pairs]
        self.boxes = self._boxes()
        self.maps = [tma.map_argument(self.kernel, box) for box in self.boxes]

    def _boxes(self) -> list[tma.Box]:
        """The boxes that copies move, that of all rows of a tile, or of a page, first."""
        height = min(self.rows, self.page) if self.source.kind == "paged" else self.rows
        box = tma.Box(self.tensor, self.axes, (self.panel, height))
        return tma.with_parts(box) if self.source.kind and self.ends else [box]

    @property
    def tensor(self) -> Tensor:
        return self.source.tensor

    @property
    def panel(self) -> int:
        """Elements of a panel's row."""
        return wgmma.ROW_BYTES * 8 // self.tensor.type.bits

    @property
    def page(self) -> int:
        return self.tensor.shape[self.axes[1]].constant or 1

    def prefetch(self) -> None:
        for map_ in self.maps:
            tma.prefetch(map_)

    # ---- a tile's entry of the batch

    def entry(self, tile: QueryTile) -> Entry:
        if not self.source.kind:
            return Entry()
        if self.source.kind == "cut":
            return Entry(self._cut_length(tile))
        batch = self._number(tile, 0)
        length = self._read(self.source.values[0], batch)
        if self.source.kind == "paged":
            return Entry(length)
        return Entry(length, self._first(batch))

    def _cut_length(self, tile: QueryTile) -> Any:
        """Far where all rows of the tensor are kept: past its end a box has zeros anyway."""
        batch = [self._number(tile, axis) for axis in range(len(self.batch))]
        length = cut_length(self.kernel, self.region, self.source, batch)
        is_whole = length >= self._past()
        return ops.select(is_whole, ops.const(FAR), length)

    def _number(self, tile: QueryTile, axis: int) -> Any:
        """A tile's coordinate along an axis of heads of the operand."""
        group = self.groups[axis]
        return tile.batch[axis].index().base // group if group else 0

    def _read(self, value: Any, *at: Any) -> Any:
        """An integer of an SSA tensor, as i32."""
        return ops.to_i32(read(self.kernel, self.region, value, *at))

    def _first(self, batch: Any) -> Any:
        """The packed row where an entry begins."""
        return first_row(self.kernel, self.region, self.source, batch, self.axes[1])

    # ---- copies

    def load(self, slot: Any, barrier: Any, tile: QueryTile, entry: Entry, row: Any) -> None:
        """Starts the copies of the rows from `row` on, by one thread."""
        if not self.source.kind:
            self._whole(slot, barrier, tile, {self.axes[1]: row})
            return
        height = self.boxes[0].extents[1]

        def one(number: Any) -> None:
            first = row + number * height
            place = self._at(tile, entry, first)
            target = smem.byte_pointer(slot, number * (height * wgmma.ROW_BYTES))
            if not self.ends:
                self._whole(target, barrier, tile, place)
                return
            valid = ops.minimum(ops.maximum(entry.length - first, 0), height)
            is_there = ops.less(0, valid)
            chosen = ops.select(is_there, place[self.axes[1]], self._past())
            ops.if_else(
                ops.both(is_there, valid < height),
                lambda: self._cut(target, barrier, tile, place, valid),
                lambda: self._whole(target, barrier, tile, {**place, self.axes[1]: chosen}),
            )

        _repeat(self.rows // height, 1, one)

    def _whole(self, slot: Any, barrier: Any, tile: QueryTile, rows: Place) -> None:
        self._copy(0, slot, barrier, {**self._heads(tile), **rows})

    def _heads(self, tile: QueryTile) -> Place:
        if self.source.is_gathered:
            return {0: 0, 1: self._number(tile, 1)}
        return {axis: self._number(tile, axis) for axis in range(len(self.batch))}

    def _copy(self, which: int, slot: Any, barrier: Any, place: Place) -> None:
        """Copies every panel, by one of the boxes."""
        box, map_ = self.boxes[which], self.maps[which]

        def one(panel: Any) -> None:
            at = {**place, box.axes[0]: panel * self.panel}
            corner = [ops.value_of(at[axis]) for axis in box.map_axes]
            target = smem.byte_pointer(slot, panel * (self.rows * wgmma.ROW_BYTES))
            tma.load(target, map_, corner, barrier)

        _repeat(self.panels, UNROLLED_PANELS, one)

    def _at(self, tile: QueryTile, entry: Entry, row: Any) -> dict[int, Any]:
        """Where a row lies; past the entry's end in page 0, whatever the table holds."""
        if self.source.kind == "cut":
            return {self.axes[1]: row}
        if self.source.kind == "packed":
            return {self.axes[1]: entry.first + row}
        page = row // self.page
        is_there = row < entry.length
        kept = ops.select(is_there, page, 0)
        block = self._read(self.source.values[1], self._number(tile, 0), 0, kept)
        return {0: ops.select(is_there, block, 0), self.axes[1]: row - page * self.page}

    def _cut(self, slot: Any, barrier: Any, tile: QueryTile, place: Place, valid: Any) -> None:
        """A box of which the first `valid` rows are kept, some but not all; zeros after them."""
        place = {**self._heads(tile), **place}
        row, height = place[self.axes[1]], self.boxes[0].extents[1]

        def kept(which: int, first: Any) -> None:
            target = smem.byte_pointer(slot, first * wgmma.ROW_BYTES)
            self._copy(which, target, barrier, {**place, self.axes[1]: row + first})

        def zeros(which: int, first: Any) -> None:
            target = smem.byte_pointer(slot, (valid + first) * wgmma.ROW_BYTES)
            self._copy(which, target, barrier, {**place, self.axes[1]: self._past()})

        tma.move_rows(self.boxes, valid, kept)
        tma.move_rows(self.boxes, height - valid, zeros)

    def _past(self) -> Any:
        """A row past the tensor's end, where TMA finds zeros."""
        return self.kernel.size(self.tensor.shape[self.axes[1]])


@dataclass
class SharedQueries(Rows):
    """Queries of heads that share keys, as the rows of one tile: a box of heads and queries.

    A tile begins at a multiple of its rows, which heads divide, or which divides heads.
    """

    packing: Packing

    def _boxes(self) -> list[tma.Box]:
        heads = min(self.packing.heads, self.rows)
        axes = (self.axes[0], self.packing.axis, self.axes[1])
        return [tma.Box(self.tensor, axes, (self.panel, heads, self.rows // heads))]

    def load(self, slot: Any, barrier: Any, tile: QueryTile, entry: Entry, row: Any) -> None:
        heads, axis = self.packing.heads, self.packing.axis
        query = row // heads
        first = tile.batch[axis].index().base * heads + (row - query * heads)
        place = {**self._heads(tile), axis: first, self.axes[1]: query}
        self._copy(0, slot, barrier, place)


def _repeat(count: int, unrolled: int, body: Callable[[Any], None]) -> None:
    """body(0), body(1), ...; of more than `unrolled` as a loop."""
    if count <= unrolled:
        for number in range(count):
            body(number)
        return
    each(0, count)(body)
