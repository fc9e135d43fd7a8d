# pyright: basic
"""Which tiles of the product a block of matmul_sm90 works on, one after the other.

    static    tiles number, number + blocks, ...                          (number: of the cluster)
    snake     the same, every second round backwards, of tiles that become shorter
    grouped   the same, of tiles whose number and places are in a table of groups

Every role of a block (loading, multiplying) goes through the same tiles by a loop of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ...codegen import ops
from ...codegen.hopper.cluster import Cluster
from ...codegen.kernel import Kernel
from ...codegen.tiles.groups import GroupTable, GroupTile
from ...codegen.tiles.numbers import TileNumbers
from ...codegen.tiles.schedule import TileOrder, TilePlace
from ...codegen.walk.index import Index
from ...codegen.walk.loops import Loops
from ...expr import Expr
from .matrices_sm90 import Batch
from .tile_sm90 import Tiling

# body(place, record) gives the next record: see `codegen.state`.
Body = Callable[[TilePlace, Any], Any]


@dataclass
class Tiles:
    """See the file's docstring.

    first_step, end_step: the k panels of a whole tile that this block multiplies.
    steps_of: see `Matrices`.
    """

    kernel: Kernel
    tiling: Tiling
    order: TileOrder
    batch: Loops
    cluster: Cluster
    rank: Any
    groups: GroupTable | None
    first_step: Any
    end_step: Any
    steps_of: Callable[[Batch], Any] | None = None

    @property
    def most(self) -> Expr:
        """Tiles of clusters, at most."""
        return self.groups.most if self.groups else self.order.tiles

    def count(self) -> Any:
        """Tiles of clusters; of groups, once their table is made."""
        return self.groups.tiles() if self.groups else self.kernel.size(self.order.tiles)

    def each(self, state: Any, body: Body, own: Any = None) -> None:
        """Runs body(place, record), which gives the next record, for this block's tiles.

        state: the first record.  own: the consumer warpgroup whose tiles are meant, where each has
        some; None: all tiles.
        """
        if self.groups:
            self._each_of_groups(self.groups, state, body)
        else:
            self._each_static(state, body, own if self.tiling.block.is_ping_pong else None)

    def _each_static(self, state: Any, body: Body, own: Any) -> None:
        number, count = self.cluster.number(), self.cluster.count()
        if own is None:
            numbers = TileNumbers(number, self.count(), count, is_snake=self.tiling.grid.is_snake)
            numbers.each(state, lambda number, now: body(self._at(number), now))
            return
        assert self.tiling.block.consumers == 2, "two warpgroups ping-pong"
        other = count * 2 - 1 - number * 2 if self.tiling.grid.is_snake else count

        def tile(number: Any, now: Any) -> Any:
            place = self._at(number)
            if self.steps_of:
                ahead = ops.select(own.eq(0), other, count * 2 - other)
                place = replace(place, next_steps=self._at(number + ahead).steps)
            return body(place, now)

        first, step = number + own * other, count * self.tiling.block.consumers
        TileNumbers(first, self.count(), step).each(state, tile)

    def first_steps(self) -> Any:
        """The k panels of this block's first tile."""
        if self.steps_of is None:
            return self.end_step - self.first_step
        return self._at(self.cluster.number()).steps

    def _at(self, number: Any) -> TilePlace:
        """The place of a tile by its number."""
        matrix, row, column = self.order.place(self.kernel, number)
        batch = self.batch.coordinates(self.kernel, matrix) if self.batch.groups else {}
        return self._place(row, column, batch)

    def _place(self, row: Any, column: Any, batch: Any) -> TilePlace:
        """This block's place in a tile of its cluster."""
        row = row * self.cluster.rows + self.cluster.row(self.rank)
        column = column * self.cluster.columns + self.cluster.column(self.rank)
        t = self.tiling
        row, column = row * t.block.rows, column * t.block.columns
        end = self.steps_of(batch) if self.steps_of else self.end_step
        return TilePlace(row, column, batch, self.first_step, end)

    # ---- groups

    def _each_of_groups(self, groups: GroupTable, state: Any, body: Body) -> None:
        first, count, step = self.cluster.number(), self.count(), self.cluster.count()

        def find(number: Any, group: Any) -> tuple[TilePlace, Any]:
            found = groups.place(number, group)
            return self._in_group(found), found.group

        TileNumbers(first, count, step).each_found(state, find, body)

    def _in_group(self, found: GroupTile) -> TilePlace:
        swaps = self.tiling.block.swaps
        row, column = (found.side, found.tile) if swaps else (found.tile, found.side)
        if found.is_across is None:
            place = self._place(row, column, {})
        else:
            place = self._place_of_pair(row, column, found.is_across)
        moved = place.moved(0, found.first) if swaps else place.moved(found.first)
        return replace(moved, b_batch={0: Index(found.group)}, end=found.end)

    def _place_of_pair(self, row: Any, column: Any, is_across: Any) -> TilePlace:
        """This block's place, of two tiles beside each other of which the first one's is given."""
        row = row + ops.select(is_across, 0, self.rank)
        column = column + ops.select(is_across, self.rank, 0)
        t = self.tiling
        place = TilePlace(
            row * t.block.rows, column * t.block.columns, {}, self.first_step, self.end_step
        )
        return replace(place, is_across=is_across)


# ---- what consumer warpgroups have of a tile


def own_part(tiling: Tiling, place: TilePlace, own: Any) -> TilePlace:
    """A consumer warpgroup's part of a tile."""
    return place.moved(*(own * step for step in tiling.block.part_step))


def has_epilogue(tiling: Tiling, place: TilePlace) -> Any:
    """Whether a warpgroup's part of a tile has rows of its group.  None: always."""
    if place.end is None or tiling.block.swaps or tiling.grid.splits > 1:
        return None
    return place.row < place.end
