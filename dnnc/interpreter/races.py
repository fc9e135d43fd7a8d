"""Data races in shared memory, found with a vector clock a warp.

clocks[w][u] is the last epoch of warp u whose accesses happen before what warp w does now.  A
warp starts in its epoch 1; every arrival at a barrier ends an epoch, and whoever waits there
takes over the clocks of all who arrived.  Each granule of shared memory keeps the last write
(a warp and its epoch) and, for every warp, the epoch of its last read and last atomic.  An
access races with an earlier one of another warp whose epoch the accessing warp has not seen.
(Flanagan and Freund, "FastTrack", 2009, without its compression of the reads.)

The warps of a cluster see each other's shared memory, so clocks run over all of them.  The
asynchronous proxy has a clock of its own behind theirs: what a bulk copy wrote is seen by those
who waited at an mbarrier since the copy was done.

A bulk copy that writes what ordinary loads read has to come after a proxy fence, and that after the
loads: barriers alone order no accesses of two proxies (PTX ISA, "Proxy-preserved base causality
order").  So a clock has more columns, which the same waits take over: the epochs of each warp that
lie before a fence.  A narrow fence, `.shared::cta`, is one for the own CTA's memory, a wide one for
that of the cluster, a full one for global memory, too (see `global_races`).

Lanes of one warp are taken as ordered: lock step inside a warp is not questioned here.
The granule is the narrowest access of the kernel to shared memory, so no two neighbours share one.
"""

from __future__ import annotations

import numpy as np

from .memory import Fail
from .ptxtypes import Array

# A write's stamp is its epoch times 1024 plus its warp; a cluster has at most 512 warps.
_WARP_BITS = 10
_WARP_MASK = (1 << _WARP_BITS) - 1


def granules_of(index: Array, size: int, shift: int) -> Array:
    """[k, g]: the granules, of 2**shift bytes, of `size` bytes at byte indices [k]."""
    first = index >> shift
    return first[:, None] + np.arange(max(size >> shift, 1))


class Races:
    """Clocks and stamps of the resident CTAs.

    nbytes: shared memory of all of them together, byte indices run over it.  Warps are numbered
    cta * warps + warp ("rows of clocks").  cluster: CTAs of a cluster, neighbours in that order.
    asynchronous: whether there are bulk copies.  grid: see `SharedMemory`.
    """

    def __init__(
        self,
        ctas: int,
        warps: int,
        nbytes: int,
        granule: int,
        cluster: int = 1,
        asynchronous: bool = False,
        grid: int | None = None,
    ):
        self.warps = warps
        self.members = warps * cluster
        # Columns: warps, copies, epochs before narrow fences, wide ones, those of all memory.
        self.narrow = self.members + 1
        self.wide = self.narrow + self.members
        self.full = self.wide + self.members
        # Then for global memory: the launches before; where CTAs acquire, the warps of the grid,
        # and their epochs before fences.
        self.local_parts = (0, self.full) if asynchronous else (0,)
        self.earlier = self.full + self.members if asynchronous else self.members
        self.grid = self.earlier + 1
        self.width = self.earlier if grid is None else self.grid + grid * len(self.local_parts)
        self.copies_done = np.zeros(ctas // cluster, np.int32)
        self.shift = granule.bit_length() - 1
        granules = nbytes >> self.shift
        self.writes = np.zeros(granules, np.int32)
        self.reads = np.zeros((granules, self.members), np.int32)
        # The reads by ordinary loads alone.
        self.loads = np.zeros_like(self.reads) if asynchronous else None
        self.atomics: Array | None = None
        self.clocks = np.zeros((ctas * warps, self.width), np.int32)
        own = np.arange(ctas * warps)
        self.clocks[own, own % self.members] = 1

    def advance(self, rows: Array) -> None:
        """End the epoch of these warps."""
        self.clocks[rows, rows % self.members] += 1

    def read(self, index: Array, size: int, rows: Array, fail: Fail, by_unit: bool = False) -> None:
        """Warps rows[k] read `size` bytes at byte indices [k].

        by_unit: the asynchronous proxy reads for them.
        """
        granules = granules_of(index, size, self.shift)
        self._after_writes(granules, rows, fail)
        if self.atomics is not None:
            self._after_all(self.atomics, granules, rows, "a read", "an atomic", fail)
        columns, epochs = (rows % self.members)[:, None], self._own(rows)[:, None]
        self.reads[granules, columns] = epochs
        if self.loads is not None and not by_unit:
            self.loads[granules, columns] = epochs

    def write(self, index: Array, size: int, rows: Array, fail: Fail) -> None:
        """Warps rows[k] write `size` bytes at byte indices [k]."""
        granules = granules_of(index, size, self.shift)
        self._after_writes(granules, rows, fail, "a write")
        self._after_all(self.reads, granules, rows, "a write", "a read", fail)
        if self.atomics is not None:
            self._after_all(self.atomics, granules, rows, "a write", "an atomic", fail)
        stamps = self._stamps(rows)[:, None]
        self.writes[granules] = stamps
        lost = self.writes.take(granules) != stamps
        if np.count_nonzero(lost):
            # Two warps executed this very store to one place at once.
            raise self._race(granules, lost, rows, self.writes, "a write", "a write", fail)

    def atomic(self, index: Array, size: int, rows: Array, fail: Fail) -> None:
        """Warps rows[k] do an atomic (or volatile) access: atomics do not race with each other."""
        granules = granules_of(index, size, self.shift)
        self._after_writes(granules, rows, fail, "an atomic")
        self._after_all(self.reads, granules, rows, "an atomic", "a read", fail)
        if self.atomics is None:
            self.atomics = np.zeros_like(self.reads)
        self.atomics[granules, (rows % self.members)[:, None]] = self._own(rows)[:, None]

    def complete(self, index: Array, size: int, rows: Array) -> None:
        """Asynchronous copies into these bytes are done, as of now, for their issuers rows[k]."""
        self.writes[granules_of(index, size, self.shift)] = self._stamps(rows)[:, None]

    def copy(self, index: Array, size: int, row: int, cta: int, fail: Fail) -> None:
        """Warp `row` issues a bulk copy that writes `size` bytes at byte indices [k] of a CTA."""
        self.write(index, size, np.full(index.size, row), fail)
        assert self.loads is not None
        clock = self.clocks[row]
        ended = clock[self.wide : self.full].copy()
        own = self._warps_of(cta)
        ended[own] = clock[self.narrow : self.wide][own]
        granules = granules_of(index, size, self.shift)
        bad = self.loads.take(granules, axis=0) > ended
        if np.count_nonzero(bad):
            at = np.argwhere(bad)[0]
            who = self._name(int(at[2]), cta)
            what = f"is copied to after {who} read it with no fence.proxy.async since"
            raise fail(what, int(at[0]))

    def fence_proxy(self, rows: Array, space: str) -> None:
        """Warps `rows` executed a proxy fence.  space: of the memory it is for, empty for all."""
        if self.loads is None:
            return
        for row in np.unique(rows).tolist():
            clock = self.clocks[row]
            seen = clock[: self.members]
            if space == "shared::cta":
                own = self._warps_of(row // self.warps)
                clock[self.narrow : self.wide][own] = seen[own]
            elif space != "global":
                clock[self.narrow : self.wide] = clock[self.wide : self.full] = seen
            if space in ("", "global"):
                clock[self.full : self.full + self.members] = seen
                seen_of_grid, fenced = clock[self.grid :].reshape(2, -1)
                fenced[:] = seen_of_grid  # none of either, where global memory is not watched
        self.advance(np.unique(rows))

    def arrive_copy(self, index: Array, size: int, cta: int) -> Array:
        """A bulk copy into these bytes of a CTA is done; returns the clock that shows it."""
        group = cta * self.warps // self.members
        self.copies_done[group] += 1
        epoch = int(self.copies_done[group])
        self.writes[granules_of(index, size, self.shift)] = (epoch << _WARP_BITS) | self.members
        clock = np.zeros(self.width, np.int32)
        clock[self.members] = epoch
        return clock

    def still_reading(self, index: Array, size: int, rows: Array) -> None:
        """Warps rows[k] have read these bytes until now, behind their own backs."""
        granules = granules_of(index, size, self.shift)
        self.reads[granules, (rows % self.members)[:, None]] = self._own(rows)[:, None]

    def acquire(self, row: int, clock: Array) -> None:
        """Warp `row` has seen what this clock tells."""
        np.maximum(self.clocks[row], clock, out=self.clocks[row])

    def _own(self, rows: Array) -> Array:
        return self.clocks[rows, rows % self.members]

    def _stamps(self, rows: Array) -> Array:
        return (self._own(rows) << _WARP_BITS) | (rows % self.members).astype(np.int32)

    def _after_writes(self, granules: Array, rows: Array, fail: Fail, kind: str = "a read") -> None:
        stamps = self.writes.take(granules)
        if not np.count_nonzero(stamps):
            return
        seen = self.clocks.reshape(-1).take(rows[:, None] * self.width + (stamps & _WARP_MASK))
        bad = (stamps >> _WARP_BITS) > seen
        if np.count_nonzero(bad):
            raise self._race(granules, bad, rows, self.writes, kind, "a write", fail)

    def _after_all(
        self, epochs: Array, granules: Array, rows: Array, kind: str, other: str, fail: Fail
    ) -> None:
        """Every warp's epoch at these granules has been seen (its own always has)."""
        bad = (
            epochs.take(granules, axis=0) > self.clocks.take(rows, axis=0)[:, None, : self.members]
        )
        if np.count_nonzero(bad):
            raise self._race(granules, bad, rows, None, kind, other, fail)

    def _race(
        self,
        granules: Array,
        bad: Array,
        rows: Array,
        stamps: Array | None,
        kind: str,
        other: str,
        fail: Fail,
    ) -> Exception:
        at = np.argwhere(bad)[0]
        if stamps is not None:
            warp = int(stamps[granules[at[0], at[1]]]) & _WARP_MASK
        else:
            warp = int(at[2])
        who = self._name(warp, int(rows[at[0]]) // self.warps)
        return fail(
            f"race: {kind} by warp {int(rows[at[0]]) % self.warps} and {other} by {who} "
            "with no barrier between them",
            int(at[0]),
        )

    def _name(self, column: int, cta: int) -> str:
        """A column of the clocks for people, as a CTA sees it."""
        if column == self.members:
            return "an asynchronous copy"
        own = column in range(self.members)[self._warps_of(cta)]
        return f"warp {column % self.warps}" + ("" if own else " of another CTA")

    def _warps_of(self, cta: int) -> slice:
        """The columns of a CTA's warps."""
        first = cta * self.warps % self.members
        return slice(first, first + self.warps)
