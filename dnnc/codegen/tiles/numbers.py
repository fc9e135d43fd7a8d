# pyright: basic
"""TileNumbers: the tiles that a block goes through, one after the other, by their numbers.

    static    first, first + step, ...
    snake     first, 2 * step - 1 - first, 2 * step + first, ...: where tiles become shorter, who
              has the longest one of a round has the shortest one of the next
    dynamic   its first, then the next number that no block has, once it is free: `TileRing`

Every role of a block (loading, multiplying) goes through the same tiles by a loop of its own.
Where a table says which tile a number stands for, the search in it begins at the tile before's
entry.  The taking thread may search for all roles, once the tile before is under way, and hand
them the words that it found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .. import ops
from ..hopper.pipeline import Cursor
from ..hopper.tile_ring import TileRing
from ..state import chosen, loop, repeat

# body(number or tile, record) gives the next record: see `codegen.state`.
Body = Callable[[Any, Any], Any]
# find(number, near) gives (words that say where the tile is, where the search for the next begins).
Find = Callable[[Any, Any], tuple[list[Any], Any]]


@dataclass(frozen=True)
class _Taken:
    """number: of the tile, taken from the ring.  here: the place of the next one there."""

    number: Any
    here: Cursor
    own: Any


@dataclass(frozen=True)
class _Searched:
    """near: where the search for the next tile begins."""

    near: Any
    own: Any


@dataclass(frozen=True)
class _Handed:
    """words: of the tile, the first of which is negative where there is none.  here: the place of
    the next one in the ring."""

    words: Sequence[Any]
    here: Cursor
    near: Any
    own: Any


@dataclass(frozen=True)
class _Snake:
    """step: to the next tile, of a snake."""

    number: Any
    step: Any
    own: Any


@dataclass(frozen=True)
class TileNumbers:
    """first: the block's first tile.  end: of all.  step: to its next one, where there is no ring.

    takes: whether this thread takes numbers for the ring; others read them, as whole warps.
    is_snake: see the file's docstring.
    """

    first: Any
    end: Any
    step: Any
    ring: TileRing | None = None
    takes: bool = False
    is_snake: bool = False

    def each(self, state: Any, body: Body) -> Any:
        """Runs body(number, record), which gives the next record, and gives the last one; state:
        the first one."""
        if self.is_snake:
            return self._each_in_snake(state, body)
        if self.ring is None:
            return loop(self.first, self.end, self.step, state=state)(body)
        return self._each_taken(self.ring, state, body)

    def each_found(
        self, state: Any, find: Callable[[Any, Any], tuple[Any, Any]], body: Body
    ) -> Any:
        """Runs body(tile, record) for the tiles that a table finds, and gives the last record.

        find(number, near) gives (the tile, where the search for the next one begins).
        """

        def one(number: Any, now: _Searched) -> _Searched:
            tile, near = find(number, now.near)
            return _Searched(near, body(tile, now.own))

        return self.each(_Searched(0, state), one).own

    def each_handed(self, state: Any, find: Find, count: int, body: Body) -> Any:
        """`each_found`, of tiles that `count` words stand for, the first of which is never
        negative: with a ring the taking thread searches for all roles, but for the first tile."""
        ring = self.ring
        if ring is None:
            return self.each_found(state, find, body)

        def found(number: Any, near: Any) -> tuple[list[Any], Any]:
            none = ([-1] * count, near)
            return chosen(number < self.end, none, lambda: find(number, near), lambda: none)

        words, near = found(self.first, 0)

        @repeat(lambda now: now.words[0] >= 0, state=_Handed(words, Cursor(), near, state))
        def end(now: _Handed) -> _Handed:
            if self.takes:
                number = ring.taken()  # on its way while the tile is loaded
                own = body(now.words, now.own)
                words, near = found(number, now.near)
                return _Handed(words, ring.put(now.here, words), near, own)
            own = body(now.words, now.own)
            words, here = ring.read_words(now.here, count, is_warp=True)
            return _Handed([ops.from_lane(word, 0) for word in words], here, now.near, own)

        return end.own

    def _each_in_snake(self, state: Any, body: Body) -> Any:
        rounds = self.step * 2  # of two rounds
        start = _Snake(self.first, rounds - 1 - self.first * 2, state)

        @repeat(lambda now: now.number < self.end, state=start)
        def end(now: _Snake) -> _Snake:
            own = body(now.number, now.own)
            return _Snake(now.number + now.step, rounds - now.step, own)

        return end.own

    def _each_taken(self, ring: TileRing, state: Any, body: Body) -> Any:
        @repeat(lambda now: now.number < self.end, state=_Taken(self.first, Cursor(), state))
        def end(now: _Taken) -> _Taken:
            if self.takes:
                number, here = ring.take(now.here)
                return _Taken(number, here, body(now.number, now.own))
            own = body(now.number, now.own)
            number, here = ring.read(now.here, is_warp=True)
            return _Taken(ops.from_lane(number, 0), here, own)

        return end.own


def entry_of(number: Any, near: Any, end_of: Callable[[Any], Any]) -> Any:
    """The entry of a table that has a tile.

    near: that of a tile before it, where the search begins.  end_of: entry -> tiles up to its end.
    """
    return repeat(lambda at: end_of(at) < number + 1, state=near)(lambda at: at + 1)
