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

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from ...codegen import ops
from ...codegen.hopper.cluster import Cluster
from ...codegen.hopper.pipeline import Cursor
from ...codegen.hopper.tile_ring import TileRing
from ...codegen.kernel import Kernel
from ...codegen.state import loop, repeat
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


# body(place, record) gives the next record: see `codegen.state`.
Body = Callable[[TilePlace, Any], Any]


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

    def each(self, state: Any, body: Body, role: Role, own: Any = None) -> None:
        """Runs body(place, record), which gives the next record, for this block's tiles.

        state: the first record.  own: the consumer warpgroup whose tiles are meant, where each has
        some; None: all tiles.
        """
        if self.tiling.streams:
            self._each_streamed(state, body)
        elif self.tiling.is_dynamic:
            self._each_dynamic(state, body, role)
        elif self.groups:
            self._each_of_groups(self.groups, state, body)
        else:
            self._each_static(state, body, own if self.tiling.takes_turns else None)

    def _each_static(self, state: Any, body: Body, own: Any) -> None:
        number, count = self.cluster.number(), self.cluster.count()
        if own is not None:
            number = number + own * count
            count = count * self.tiling.consumers

        @loop(number, self.count(), count, state=state)
        def _(number: Any, now: Any) -> Any:
            return body(self._at(number), now)

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
        row, column = row * t.rows, column * t.columns
        end = self.steps_of(batch) if self.steps_of else self.end_step
        return TilePlace(row, column, batch, self.first_step, end)

    # ---- groups

    def _each_of_groups(self, groups: GroupTable, state: Any, body: Body) -> None:
        first, count, step = self.cluster.number(), self.count(), self.cluster.count()

        @loop(first, count, step, state=(0, state))
        def _(number: Any, now: Any) -> Any:
            group, own = now
            found = groups.place(number, group)
            return found.group, body(self._in_group(found), own)

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
        row = row + ops.select(is_across, 0, self.rank)
        column = column + ops.select(is_across, self.rank, 0)
        t = self.tiling
        place = TilePlace(row * t.rows, column * t.columns, {}, self.first_step, self.end_step)
        return replace(place, is_across=is_across)

    # ---- stream-K

    def _each_streamed(self, state: Any, body: Body) -> None:
        """A run may begin and end inside a tile: blocks that have a tile's steps in part leave
        their sums to the one that has its beginning (`codegen.hopper.stream_sum`)."""
        steps, tiles = self.end_step, self.count()
        block, blocks = ops.block_id(), self.cluster.count()
        # A run is at least a tile long where there are as many tiles as blocks.
        rounds = ops.maximum(0, tiles // blocks - 1)
        whole = rounds * blocks
        units = (tiles - whole) * steps
        run = (units + (blocks - 1)) // blocks
        begin = ops.minimum(block * run, units)
        length = ops.minimum(run, units - begin)
        before = rounds * steps
        total = before + length

        @repeat(lambda now: now[0] < total, state=(0, state))
        def _(now: Any) -> Any:
            done, own = now
            is_whole = done < before
            unit = begin + (done - before)
            tile = unit // steps
            first = ops.select(is_whole, 0, unit - tile * steps)
            left = ops.select(is_whole, steps, total - done)
            end = ops.minimum(steps, first + left)
            number = ops.select(is_whole, block + done // steps * blocks, whole + tile)
            end_unit = (tile + 1) * steps - 1
            last = ops.select(is_whole, block, end_unit // run)
            place = replace(self._at(number), first_step=first, end_step=end, last_block=last)
            following = body(place, own)
            return done + (end - first), following

    # ---- tiles that are taken when a block is free

    def _each_dynamic(self, state: Any, body: Body, role: Role) -> None:
        tiles, ring = self.count(), self.ring
        assert ring is not None

        @repeat(lambda now: now[0] < tiles, state=(self.cluster.number(), Cursor(), state))
        def _(now: Any) -> Any:
            number, cursor, own = now
            if role == Role.TAKER:  # others may read it while this tile is loaded
                following, cursor = ring.take(cursor)
                own = body(self._at(number), own)
            else:
                own = body(self._at(number), own)
                following, cursor = ring.read(cursor, is_warp=role == Role.WARPS)
            return following, cursor, own


# ---- what consumer warpgroups have of a tile


def own_part(tiling: Tiling, place: TilePlace, own: Any) -> TilePlace:
    """A consumer warpgroup's part of a tile."""
    return place.moved(*(own * step for step in tiling.part_step))


def has_epilogue(tiling: Tiling, place: TilePlace) -> Any:
    """Whether a warpgroup's part of a tile has an epilogue here: it has rows of its group, and its
    beginning along k.  None: always."""
    if tiling.streams:
        return place.first_step.eq(0)
    if place.end is None or tiling.swaps or tiling.splits > 1:
        return None
    return place.row < place.end
