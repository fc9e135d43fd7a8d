# pyright: basic
"""Which tiles of the product a block of matmul_sm90 works on, one after the other.

    static    tiles number, number + blocks, ...                          (number: of the cluster)
    grouped   the same, of tiles whose number and places are in a table of groups
    streamed  some whole rounds like static; the steps of all tiles that are left are cut into one
              run for each block, so that all end together (stream-K)
    dynamic   like static, but every tile after the first is the next that no block has taken

Every role of a block (loading, multiplying) goes through the same tiles by a loop of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from ...codegen import ops
from ...codegen.hopper.cluster import Cluster
from ...codegen.hopper.pipeline import Cursor
from ...codegen.hopper.tile_ring import TileRing
from ...codegen.kernel import Kernel
from ...codegen.tiles.groups import GroupTable, GroupTile
from ...codegen.tiles.schedule import TileOrder, TilePlace
from ...codegen.walk.index import Index
from ...codegen.walk.loops import Loops
from ...expr import Expr
from .matrices_sm90 import Batch
from .tile_sm90 import Tiling


class Role(Enum):
    """Who goes through the tiles: the thread that takes dynamic ones for its block, another
    thread, or whole warps."""

    TAKER = auto()
    THREAD = auto()
    WARPS = auto()


# body(place, carried) gives the next carried values.
Body = Callable[[TilePlace, Sequence[Any]], Sequence[Any]]


@dataclass
class Tiles:
    """See the file's docstring.

    first_step, end_step: the k panels of a whole tile that this block multiplies.
    ring: the numbers of dynamic tiles.  steps_of: see `Matrices`.
    """

    kernel: Kernel
    tiling: Tiling
    order: TileOrder
    batch: Loops
    cluster: Cluster
    rank: Any
    groups: GroupTable | None
    ring: TileRing | None
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

    def each(self, carried: Sequence[Any], body: Body, role: Role, own: Any = None) -> None:
        """body(place, carried) gives the next carried values, for this block's tiles.

        own: the consumer warpgroup whose tiles are meant, where each has some; None: all tiles.
        """
        if self.tiling.streams:
            self._each_streamed(carried, body)
        elif self.tiling.is_dynamic:
            self._each_dynamic(carried, body, role)
        elif self.groups:
            self._each_of_groups(self.groups, carried, body)
        else:
            self._each_static(carried, body, own if self.tiling.takes_turns else None)

    def _each_static(self, carried: Sequence[Any], body: Body, own: Any) -> None:
        number, count = self.cluster.number(), self.cluster.count()
        if own is not None:
            number = ops.add(number, ops.mul(own, count))
            count = ops.mul(count, self.tiling.consumers)
        ops.for_(number, self.count(), count, carried, lambda i, c: body(self._at(i), c))

    def _at(self, number: Any) -> TilePlace:
        """The place of a tile by its number."""
        matrix, row, column = self.order.place(self.kernel, number)
        batch = self.batch.coordinates(self.kernel, matrix) if self.batch.groups else {}
        return self._place(row, column, batch)

    def _place(self, row: Any, column: Any, batch: Any) -> TilePlace:
        """This block's place in a tile of its cluster."""
        row = ops.add(ops.mul(row, self.cluster.rows), self.cluster.row(self.rank))
        column = ops.add(ops.mul(column, self.cluster.columns), self.cluster.column(self.rank))
        t = self.tiling
        row, column = ops.mul(row, t.rows), ops.mul(column, t.columns)
        end = self.steps_of(batch) if self.steps_of else self.end_step
        return TilePlace(row, column, batch, self.first_step, end)

    # ---- groups

    def _each_of_groups(self, groups: GroupTable, carried: Sequence[Any], body: Body) -> None:
        def one(number: Any, carried: Sequence[Any]) -> Sequence[Any]:
            group, *carried = carried
            found = groups.place(number, group)
            return [found.group, *body(self._in_group(found), carried)]

        start = [ops.const(0), *carried]
        ops.for_(self.cluster.number(), self.count(), self.cluster.count(), start, one)

    def _in_group(self, found: GroupTile) -> TilePlace:
        swaps = self.tiling.swaps
        row, column = (found.side, found.tile) if swaps else (found.tile, found.side)
        if found.is_across is None:
            place = self._place(row, column, {})
        else:
            place = self._place_of_pair(row, column, found.is_across)
        moved = place.moved(0, found.first) if swaps else place.moved(found.first)
        return replace(moved, b_batch={0: Index(found.group)}, end=found.end)

    def _place_of_pair(self, row: Any, column: Any, is_across: Any) -> TilePlace:
        """This block's place, of two tiles beside each other of which the first one's is given."""
        row = ops.add(row, ops.select(is_across, 0, self.rank))
        column = ops.add(column, ops.select(is_across, self.rank, 0))
        t = self.tiling
        place = TilePlace(
            ops.mul(row, t.rows), ops.mul(column, t.columns), {}, self.first_step, self.end_step
        )
        return replace(place, is_across=is_across)

    # ---- stream-K

    def _each_streamed(self, carried: Sequence[Any], body: Body) -> None:
        """A run may begin and end inside a tile: blocks that have a tile's steps in part leave
        their sums to the one that has its beginning (`codegen.hopper.stream_sum`)."""
        steps, tiles = self.end_step, self.count()
        block, blocks = ops.block_id(), self.cluster.count()
        # A run is at least a tile long where there are as many tiles as blocks.
        rounds = ops.maximum(0, ops.sub(ops.div(tiles, blocks), 1))
        whole = ops.mul(rounds, blocks)
        units = ops.mul(ops.sub(tiles, whole), steps)
        run = ops.div(ops.add(units, ops.sub(blocks, 1)), blocks)
        begin = ops.minimum(ops.mul(block, run), units)
        length = ops.minimum(run, ops.sub(units, begin))
        before = ops.mul(rounds, steps)
        total = ops.add(before, length)

        def one(carried: Sequence[Any]) -> Sequence[Any]:
            done, *carried = carried
            is_whole = ops.less(done, before)
            unit = ops.add(begin, ops.sub(done, before))
            tile = ops.div(unit, steps)
            first = ops.select(is_whole, 0, ops.sub(unit, ops.mul(tile, steps)))
            left = ops.select(is_whole, steps, ops.sub(total, done))
            end = ops.minimum(steps, ops.add(first, left))
            number = ops.select(
                is_whole, ops.add(block, ops.mul(ops.div(done, steps), blocks)),
                ops.add(whole, tile),
            )  # fmt: skip
            end_unit = ops.sub(ops.mul(ops.add(tile, 1), steps), 1)
            last = ops.select(is_whole, block, ops.div(end_unit, run))
            place = replace(self._at(number), first_step=first, end_step=end, last_block=last)
            following = body(place, carried)
            return [ops.add(done, ops.sub(end, first)), *following]

        start = [ops.const(0), *carried]
        ops.while_(start, lambda c: ops.less(c[0], total), one)

    # ---- tiles that are taken when a block is free

    def _each_dynamic(self, carried: Sequence[Any], body: Body, role: Role) -> None:
        tiles, ring = self.count(), self.ring
        assert ring is not None

        def one(carried: Sequence[Any]) -> Sequence[Any]:
            number, stage, phase, *carried = carried
            cursor = Cursor(stage, phase)
            if role == Role.TAKER:  # others may read it while this tile is loaded
                following, cursor = ring.take(cursor)
                carried = body(self._at(number), carried)
            else:
                carried = body(self._at(number), carried)
                following, cursor = ring.read(cursor, is_warp=role == Role.WARPS)
            return [following, *cursor.values, *carried]

        start = [ops.value_of(self.cluster.number()), *Cursor().values, *carried]
        ops.while_(start, lambda c: ops.less(c[0], tiles), one)


# ---- what consumer warpgroups have of a tile


def own_part(tiling: Tiling, place: TilePlace, own: Any) -> TilePlace:
    """A consumer warpgroup's part of a tile."""
    return place.moved(*(ops.mul(own, step) for step in tiling.part_step))


def has_epilogue(tiling: Tiling, place: TilePlace) -> Any:
    """Whether a warpgroup's part of a tile has an epilogue here: it has rows of its group, and its
    beginning along k.  None: always."""
    if tiling.streams:
        return ops.compare("eq", place.first_step, 0)
    if place.end is None or tiling.swaps or tiling.splits > 1:
        return None
    return ops.less(place.row, place.end)


def chosen(
    condition: Any,
    carried: Sequence[Any],
    then: Callable[[], Sequence[Any]],
    other: Callable[[], Sequence[Any]],
) -> Sequence[Any]:
    """The next carried values: from `then` where a condition holds, or is None."""
    if condition is None:
        return then()
    return ops.either(condition, [value.type for value in carried], then, other)
