"""Data races in global memory: between warps of a launch, and with the launches before it.

`races` has those in shared memory.

Each granule that the launch wrote keeps the last plain write and the last strong one (atomics,
volatile and relaxed stores): a warp of the grid and its epoch.  A plain access races with a write
whose epoch the accessing warp has not seen; a strong access with a plain write.  What a warp has
seen goes from CTA to CTA by release and acquire (PTX ISA, "Memory Consistency Model"):

    st.release, red.release, ...      the word's clock takes the warp's
    fence, then a strong write        the word's clock takes what the warp had seen at the fence
    ld.acquire, atom.acquire, ...     the warp's clock takes the word's
    a strong read, then a fence       the same, at the fence

The asynchronous proxy sees an ordinary write after a proxy fence that lies between them.  What a
bulk store writes is seen by nobody until its thread has waited for it.

A programmatic launch may begin before those ahead of it end: what they wrote is seen by who waited
for them (griddepcontrol.wait), and by whom they tell.

Not watched: writes to what another CTA or launch may still be reading; strong writes but the last
one of a place; releases of scope `cta` or `cluster`, which count as relaxed; kernels whose CTAs
acquire, in grids of more than MOST_WARPS warps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .geometry import Geometry
from .memory import REGION_BITS, Fail, Memory
from .ptxtypes import Array
from .races import Races

if TYPE_CHECKING:
    from .program import Needs

# Clocks know each warp of a grid in which CTAs acquire.
MOST_WARPS = 4096
RELEASES, ACQUIRES = ("release", "acq_rel", "sc"), ("acquire", "acq_rel", "sc")

# A stamp: epoch, whether the asynchronous proxy wrote, warp.
_UNIT = 1 << 26
_WARP_MASK = _UNIT - 1
_EPOCH = 27
# The stamp of what a launch before wrote, which may still be running.
_EARLIER = 1 << _EPOCH | _UNIT | _WARP_MASK
# The epoch of a bulk store that nobody has waited for.
_NEVER = 1 << 35


class _Shadow(NamedTuple):
    """Stamps of the granules of an allocation."""

    writes: Array
    strong: Array


class Watch:
    """Watches the global memory of a plan's launches, one after the other."""

    def __init__(self) -> None:
        self._last: GlobalRaces | None = None

    def begin(
        self, geometry: Geometry, memory: Memory, needs: Needs, programmatic: bool
    ) -> GlobalRaces | None:
        """The watch on a launch; None where clocks would be too long."""
        before, self._last = self._last, None
        if needs.acquires and geometry.ctas * geometry.warps > MOST_WARPS:
            return None
        self._last = GlobalRaces(geometry, memory, needs.global_granule, needs.acquires)
        if programmatic and before is not None:
            self._last.follow(before)
        return self._last


class GlobalRaces:
    """Remembers what the warps of a launch wrote to global memory.

    granule: the narrowest access.  acquires: whether some instruction acquires.  Warps of the grid
    are numbered as they are seated: batch after batch, in `Races`' order.
    """

    def __init__(self, geometry: Geometry, memory: Memory, granule: int, acquires: bool):
        self.geometry = geometry
        self.memory = memory
        self.shift = granule.bit_length() - 1
        self.columns = geometry.ctas * geometry.warps if acquires else 0
        self.shadows: dict[int, _Shadow] = {}
        self.seats: list[int] = []
        self.base = 0
        # Address of a word -> the clock that who acquires it takes.
        self.words: dict[int, Array] = {}
        # By warp: what it had seen at its last fence, what it takes at its next one.
        self.fenced: dict[int, Array] = {}
        self.pending: dict[int, Array] = {}

    def follow(self, before: GlobalRaces) -> None:
        """This launch may begin before that one ends, or those that it followed."""
        for number, shadow in before.shadows.items():
            first = np.flatnonzero(shadow.writes | shadow.strong) << before.shift
            made = self._shadow(number, creates=True)
            assert made is not None
            # Where this launch's granules are narrower, one of that one is several.
            for offset in range(0, 1 << before.shift, 1 << self.shift):
                granules = (first + offset) >> self.shift
                made.writes[granules[granules < made.writes.size]] = _EARLIER

    def wait_for_earlier(self, rows: Array) -> None:
        """Warps `rows` wait until the launches before have ended (griddepcontrol.wait)."""
        self.races.clocks[rows, self.races.earlier] = 1

    def seat(self, ctas: Sequence[int], races: Races) -> None:
        """A batch of CTAs begins."""
        self.base = len(self.seats) * self.geometry.warps
        self.seats += ctas
        self.races = races
        self.fenced.clear()
        self.pending.clear()

    # Accesses -----------------------------------------------------------------------------

    def read(self, address: Array, size: int, rows: Array, fail: Fail, order: str = "weak") -> None:
        """Warps rows[k] read `size` bytes at addresses [k] (uint64).

        order: of the load; "nc" for one of memory that nobody writes meanwhile.
        """
        for shadow, granules, at in self._shadowed(address, size):
            self._check(shadow, granules, rows[at], at, "a read", fail, order)
        if self.columns and order not in ("weak", "nc"):
            self._take_words(address, rows, order)

    def write(
        self, address: Array, size: int, rows: Array, fail: Fail, order: str = "weak"
    ) -> None:
        """Warps rows[k] write `size` bytes at addresses [k] (uint64)."""
        for shadow, granules, at in self._shadowed(address, size, creates=True):
            self._check(shadow, granules, rows[at], at, "a write", fail, order)
            stamps = shadow.writes if order == "weak" else shadow.strong
            stamps[granules] = self._stamps(rows[at])[:, None]
        if self.columns and order != "weak":
            self._tell_words(address, rows, order, updates=False)

    def update(self, address: Array, size: int, rows: Array, fail: Fail, order: str) -> None:
        """Warps rows[k] do an atomic operation on `size` bytes at addresses [k] (uint64)."""
        for shadow, granules, at in self._shadowed(address, size, creates=True):
            self._check(shadow, granules, rows[at], at, "an atomic", fail, order)
            shadow.strong[granules] = self._stamps(rows[at])[:, None]
        if self.columns:
            self._take_words(address, rows, order)
            self._tell_words(address, rows, order, updates=True)

    def fence(self, rows: Array) -> None:
        """Warps `rows` executed a fence of the device's or the system's scope."""
        if not self.columns:
            return
        for row in np.unique(rows).tolist():
            taken = self.pending.pop(row, None)
            if taken is not None:
                self._acquire(row, taken)
            self.fenced[row] = self._told(row)
        self.races.advance(np.unique(rows))

    # Bulk copies: rows of `nbytes` at addresses [k] ----------------------------------------

    def copy_from(self, starts: Array, nbytes: int, row: int, fail: Fail) -> None:
        """Warp `row` issues a bulk load of them."""
        for shadow, granules in self._of_rows(starts, nbytes):
            self._check_copy(shadow, granules, row, "a bulk load", fail)

    def copy_to(self, starts: Array, nbytes: int, row: int, fail: Fail, adds: bool = False) -> None:
        """Warp `row` issues a bulk store to them."""
        for shadow, granules in self._of_rows(starts, nbytes, creates=True):
            kind = "a bulk addition" if adds else "a bulk store"
            self._check_copy(shadow, granules, row, kind, fail, adds)
            stamps = shadow.strong if adds else shadow.writes
            stamps[granules] = self._never(row)

    def copied(self, starts: Array, nbytes: int, row: int) -> None:
        """Warp `row` has waited for a bulk store."""
        mine = self._never(row)
        now = int(self._stamps(np.array([row]))[0]) | _UNIT
        for shadow, granules in self._of_rows(starts, nbytes):
            for stamps in shadow:
                stamps[granules[stamps.take(granules) == mine]] = now

    def _of_rows(
        self, starts: Array, nbytes: int, creates: bool = False
    ) -> Iterator[tuple[_Shadow, Array]]:
        """The granules [k, g] that lie wholly inside rows of one allocation."""
        number = int(starts[0]) >> REGION_BITS
        shadow = self._shadow(number, creates)
        if shadow is None:
            return
        first = starts.astype(np.int64) - (number << REGION_BITS)
        low = -(-first >> self.shift)
        count = int((first[0] + nbytes) >> self.shift) - int(low[0])
        yield shadow, low[:, None] + np.arange(count)

    def _check_copy(
        self, shadow: _Shadow, granules: Array, row: int, kind: str, fail: Fail, adds: bool = False
    ) -> None:
        rows = np.full(granules.shape[0], row)
        for stamps in (shadow.writes,) if adds else shadow:
            found = stamps.take(granules)
            if np.count_nonzero(found):
                bad = self._unseen(found, rows, by_unit=True)
                if np.count_nonzero(bad):
                    at = np.argwhere(bad)[0]
                    raise self._race(int(found[at[0], at[1]]), kind, row, fail, 0, True)

    # Checks -------------------------------------------------------------------------------

    def _shadow(self, number: int, creates: bool) -> _Shadow | None:
        found = self.shadows.get(number)
        if found is None and creates:
            count = (self.memory.window_bytes(number) >> self.shift) + 1
            found = _Shadow(np.zeros(count, np.int64), np.zeros(count, np.int64))
            self.shadows[number] = found
        return found

    def _shadowed(
        self, address: Array, size: int, creates: bool = False
    ) -> Iterator[tuple[_Shadow, Array, Array | slice]]:
        """(stamps, granules [k, g], positions) of the allocations that were written."""
        if not creates and not self.shadows:
            return
        spacing = np.uint64(REGION_BITS)
        low, high = int(address.min()) >> REGION_BITS, int(address.max()) >> REGION_BITS
        for number in [low] if low == high else np.unique(address >> spacing).tolist():
            shadow = self._shadow(number, creates)
            if shadow is None:
                continue
            at = slice(None) if low == high else np.flatnonzero(address >> spacing == number)
            first = address[at].view(np.int64) - (number << REGION_BITS) >> self.shift
            yield shadow, first[:, None] + np.arange(max(size >> self.shift, 1)), at

    def _check(
        self,
        shadow: _Shadow,
        granules: Array,
        rows: Array,
        at: Array | slice,
        kind: str,
        fail: Fail,
        order: str,
    ) -> None:
        for stamps in shadow if order in ("weak", "nc") else (shadow.writes,):
            found = stamps.take(granules)
            if not np.count_nonzero(found):
                continue
            bad = found != 0 if order == "nc" else self._unseen(found, rows)
            if not np.count_nonzero(bad):
                continue
            k, g = np.argwhere(bad)[0].tolist()
            position = k if isinstance(at, slice) else int(at[k])
            if order == "nc":
                what = "is read as what nobody writes meanwhile (.nc), but this launch, or one"
                what += " before it that may still run, wrote it"
                raise fail(what, position)
            raise self._race(int(found[k, g]), kind, int(rows[k]), fail, position)

    def _unseen(self, stamps: Array, rows: Array, by_unit: bool = False) -> Array:
        """Which stamps [k, g] warps rows[k] have not seen; by_unit: the asynchronous proxy."""
        races = self.races
        epochs, warps = stamps >> _EPOCH, stamps & _WARP_MASK
        inside = warps - self._first_of(rows)[:, None]
        is_ours = (inside >= 0) & (inside < races.members)
        clocks = races.clocks.reshape(-1)
        start = rows[:, None] * races.width
        # What the proxy wrote itself is known to it without a fence.
        fenced = by_unit & (stamps & _UNIT == 0)
        ours = np.where(is_ours, inside, 0) + np.where(fenced, races.full, 0)
        is_earlier = warps == _WARP_MASK
        theirs = np.where(is_earlier, races.earlier, 0)
        if self.columns:
            grid = np.where(fenced, races.grid + self.columns, races.grid) + warps
            theirs = np.where(is_earlier, theirs, grid)
        known = is_ours | is_earlier | (self.columns > 0)
        seen = np.where(known, clocks.take(start + np.where(is_ours, ours, theirs)), 0)
        return epochs > seen

    def _race(
        self, stamp: int, kind: str, row: int, fail: Fail, position: int, by_unit: bool = False
    ) -> Exception:
        warp, epoch = stamp & _WARP_MASK, stamp >> _EPOCH
        warps = self.geometry.warps
        if stamp == _EARLIER:
            what = "a launch before wrote it, which may still run: no griddepcontrol.wait"
            return fail(f"race in global memory: {kind}, and {what}", position)
        cta = self.geometry.coordinates(self.seats[warp // warps])
        who = f"warp {warp % warps} of CTA {cta}"
        if epoch == _NEVER:
            what = f"{who} has a bulk store to it that it did not wait for"
        elif warp // warps == (self.base + row) // warps:
            what = f"{who} wrote it, with no barrier between them"
        else:
            what = f"{who} wrote it, with no release and acquire between them"
        if by_unit and epoch != _NEVER and not stamp & _UNIT:
            what += " that a fence.proxy.async goes with"
        return fail(f"race in global memory: {kind}, and {what}", position)

    def _stamps(self, rows: Array) -> Array:
        own = self.races.clocks[rows, rows % self.races.members].astype(np.int64)
        return own << _EPOCH | rows + self.base

    def _never(self, row: int) -> int:
        return _NEVER << _EPOCH | _UNIT | row + self.base

    def _first_of(self, rows: Array) -> Array:
        """The first warp of each one's cluster."""
        return self.base + rows // self.races.members * self.races.members

    # Release and acquire ------------------------------------------------------------------

    def _told(self, row: int) -> Array:
        """Epochs that a warp has seen: of launches before, the grid, and it before proxy fences."""
        races, first = self.races, int(self._first_of(np.array([row]))[0])
        clock = races.clocks[row]
        told = clock[races.earlier :].copy()
        for part, start in enumerate(races.local_parts):
            own = told[1 + part * self.columns + first :][: races.members]
            np.maximum(own, clock[start : start + races.members], out=own)
        return told

    def _acquire(self, row: int, told: Array) -> None:
        races, first = self.races, int(self._first_of(np.array([row]))[0])
        clock = races.clocks[row]
        np.maximum(clock[races.earlier :], told, out=clock[races.earlier :])
        for part, start in enumerate(races.local_parts):
            own = clock[start : start + races.members]
            theirs = told[1 + part * self.columns + first :][: races.members]
            np.maximum(own, theirs, out=own)

    def _take_words(self, address: Array, rows: Array, order: str) -> None:
        if not self.words:
            return
        for word, row in {*zip(address.tolist(), rows.tolist(), strict=True)}:
            told = self.words.get(word)
            if told is None:
                continue
            if order in ACQUIRES:
                self._acquire(row, told)
            else:
                known = self.pending.get(row)
                self.pending[row] = told if known is None else np.maximum(known, told)

    def _tell_words(self, address: Array, rows: Array, order: str, updates: bool) -> None:
        """updates: an atomic operation, which goes on with what was released before."""
        if order not in RELEASES and not self.fenced and (updates or not self.words):
            return
        for word, row in {*zip(address.tolist(), rows.tolist(), strict=True)}:
            told = self._told(row) if order in RELEASES else self.fenced.get(row)
            known = self.words.get(word) if updates else None
            if told is None:
                if not updates:
                    self.words.pop(word, None)
                continue
            self.words[word] = told if known is None else np.maximum(told, known)
        if order in RELEASES:
            self.races.advance(np.unique(rows))
