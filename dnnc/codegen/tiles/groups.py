# pyright: basic
"""Rows in groups whose bounds are on the device, and the tiles of each group.

Which tiles there are is known once the bounds have been read, so each block makes a table of them
in shared memory before it begins:

    firsts[g]   the first row of group g; firsts[groups]: the number of rows
    tiles[g]    how many tiles the groups before g have

Bounds outside the rows are cut to them.  Where bounds do not ascend, groups overlap: a row of two
groups is written by both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...expr import Expr, ceildiv
from ...mlir import nvvm
from ...target import WARP_THREADS
from .. import ops
from ..kernel import Kernel
from ..memory.smem import byte_pointer
from ..state import loop
from ..value import wrapped
from .numbers import entry_of
from .schedule import in_groups

_ENTRY = 4  # bytes


@dataclass(frozen=True)
class GroupTile:
    """A tile of a group.  tile, side: along the rows, and along the other side of the product.
    first, end: rows of the group.  is_across: whether the other block's tile, of two that go
    together, is the next one along the other side, and not along the rows; None: there are none."""

    group: Any
    tile: Any
    side: Any
    first: Any
    end: Any
    is_across: Any = None


@dataclass(frozen=True)
class GroupTable:
    """See the file's docstring.

    memory: !llvm.ptr<3>, of `bytes`.  room: for so many groups.  groups, rows: how many.
    tile_rows: of a tile.  sides: tiles along the other side, each of which every group has.
    together: tiles of a group that follow each other before the next side.
    in_pairs: what is numbered are two tiles, of the two blocks of a cluster.  They follow each
    other along the rows; those of a group's last row of tiles, where it is one too many for that,
    along the other side.  Of 128 rows a tile and 64 groups of 512 rows in the mean, tiles that were
    cut to whole pairs along the rows were an eighth more.
    """

    kernel: Kernel
    memory: Any
    room: int
    groups: Expr
    rows: Expr
    tile_rows: int
    sides: Expr
    together: int
    in_pairs: bool = False

    @staticmethod
    def bytes(room: int) -> int:
        return -(-2 * (room + 1) * _ENTRY // 16) * 16

    def _first(self, group: Any) -> Any:
        return byte_pointer(self.memory, group * _ENTRY)

    def _tiles(self, group: Any) -> Any:
        return byte_pointer(self.memory, (group + (self.room + 1)) * _ENTRY)

    # ---- the table

    def fill(self, first_of: Callable[[Any], Any]) -> None:
        """Write the table; the block's first warp does.

        first_of: the first row of a group, from memory.
        """
        lane = ops.thread_id() & (WARP_THREADS - 1)
        groups, rows = self.kernel.size(self.groups), self.kernel.size(self.rows)

        def start(group: Any) -> Any:
            found = first_of(ops.minimum(group, groups - 1))
            inside = ops.maximum(0, ops.minimum(found, rows))
            return ops.select(group < groups, inside, rows)

        def chunk(base: Any, before: Any) -> Any:
            group = base + lane
            first, after = start(group), start(group + 1)
            count = ops.ceildiv(ops.maximum(0, after - first), self.tile_rows)
            until = running_sum(self._numbers(count), lane) + before
            with ops.if_(group < groups):
                ops.store(self._first(group + 1), after, _ENTRY)
                ops.store(self._tiles(group + 1), until, _ENTRY)
            return from_lane(until, ops.const(WARP_THREADS - 1), nvvm.ShflKind.idx)

        with ops.if_(lane.eq(0)):
            ops.store(self._first(0), ops.value_of(start(ops.const(0))), _ENTRY)
            ops.store(self._tiles(0), ops.const(0), _ENTRY)
        loop(0, groups, WARP_THREADS, state=0)(chunk)

    def _numbers(self, count: Any) -> Any:
        """How many numbers a group has, of so many tiles along the rows."""
        sides = self.kernel.size(self.sides)
        if not self.in_pairs:
            return count * sides
        across = (count & 1) * ops.ceildiv(sides, 2)
        return (count >> 1) * sides + across

    # ---- what the table says

    @property
    def most(self) -> Expr:
        """The numbers of all groups, at most: each group has one tile that is not full."""
        tiles = (self.rows // self.tile_rows + self.groups) * self.sides
        # Of an odd number of sides, a group's last pair may be half a one.
        return ceildiv(tiles + self.groups, 2) if self.in_pairs else tiles

    def tiles(self) -> Any:
        """How many numbers there are."""
        return self._load(self._tiles(self.kernel.size(self.groups)))

    def place(self, number: Any, group: Any) -> GroupTile:
        """A tile by its number; group: that of a tile before it, where the search begins."""
        group = entry_of(number, group, lambda at: self._load(self._tiles(at + 1)))
        first, end = self._load(self._first(group)), self._load(self._first(group + 1))
        inside = number - self._load(self._tiles(group))
        count = ops.ceildiv(end - first, self.tile_rows)
        sides = self.kernel.size(self.sides)
        if not self.in_pairs:
            return GroupTile(group, *in_groups(inside, count, sides, self.together), first, end)
        pairs = count >> 1
        along = pairs * sides
        is_across = along < inside + 1
        # Of what lies across this place is not looked at, but divisions by 0 have no result.
        own = ops.select(is_across, 0, inside)
        pair, side = in_groups(own, ops.maximum(pairs, 1), sides, self.together)
        tile = ops.select(is_across, count - 1, pair * 2)
        side = ops.select(is_across, (inside - along) * 2, side)
        return GroupTile(group, tile, side, first, end, is_across)

    def _load(self, pointer: Any) -> Any:
        return ops.load(pointer, ops.i32_type(), _ENTRY)


def running_sum(value: Any, lane: Any) -> Any:
    """The running sum of the lanes up to this one."""
    distance = 1
    while distance < WARP_THREADS:
        before = from_lane(value, ops.const(distance), nvvm.ShflKind.up)
        value = value + ops.select(lane < distance, 0, before)
        distance *= 2
    return value


def from_lane(value: Any, lane: Any, kind: Any) -> Any:
    clamp = 0 if kind == nvvm.ShflKind.up else WARP_THREADS - 1
    return wrapped(nvvm.shfl_sync(ops.const(-1), value, lane, ops.const(clamp), kind))
