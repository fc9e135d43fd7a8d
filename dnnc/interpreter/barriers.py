"""CTA barriers: who has arrived, who waits, and the order they make.

Every CTA has 16.  A barrier without a thread count waits for all warps that have not exited.
"""

from __future__ import annotations

import numpy as np

from .ptxtypes import Array
from .races import Races

COUNT = 16
# Thread count of a barrier whose users gave none, and of one that nobody has arrived at.
ALL = 0
_IDLE = -1


class BarrierMisuse(Exception):
    """A warp used a barrier in a way that the hardware does not define."""


class Barriers:
    """Barriers of the resident CTAs.  Warps are numbered as in `Races`: cta * warps + warp."""

    def __init__(self, ctas: int, warps: int, races: Races | None):
        self.warps = warps
        self.races = races
        self.exited = np.zeros((ctas, warps), bool)
        self._arrived = np.zeros((ctas, COUNT, warps), bool)
        # Arrived first without waiting, and then again to wait: both count.
        self._twice = np.zeros((ctas, COUNT, warps), bool)
        self._waiting = np.zeros((ctas, COUNT, warps), bool)
        self._threads = np.full((ctas, COUNT), _IDLE)
        # Clocks of those who arrived without waiting: they run on, so theirs are kept here.
        self._passed_by: dict[tuple[int, int], Array] = {}

    def arrive(self, rows: Array, number: int, threads: int, waits: bool) -> Array:
        """Warps `rows` arrive at barrier `number`, which counts `threads` (ALL: no number given).

        Returns the warps that this releases.  Errors: `BarrierMisuse`.
        """
        ctas, warps = rows // self.warps, rows % self.warps
        if threads == ALL and waits:
            self._enter(ctas, number, warps, threads, waits)
            return self._open_full(ctas, number)
        # One by one: the barrier may fill up, and open, before the last of these has arrived.
        released = [np.zeros(0, np.int64)]
        for k in range(rows.size):
            one = slice(k, k + 1)
            self._enter(ctas[one], number, warps[one], threads, waits)
            if not waits and self.races is not None:
                self._pass_by(int(rows[k]), (int(ctas[k]), number))
            released.append(self._open_full(ctas[one], number))
        return np.concatenate(released)

    def _enter(self, ctas: Array, number: int, warps: Array, threads: int, waits: bool) -> None:
        known = self._threads[ctas, number]
        if np.count_nonzero((known != threads) & (known != _IDLE)):
            raise BarrierMisuse(f"others use barrier {number} with another thread count")
        again = self._arrived[ctas, number, warps]
        waited = self._waiting[ctas, number, warps] | self._twice[ctas, number, warps]
        if np.count_nonzero(again & waited) or (
            np.count_nonzero(again) and (not waits or threads == ALL)
        ):
            raise BarrierMisuse(f"the warp arrives at barrier {number} twice before it completes")
        self._threads[ctas, number] = threads
        self._twice[ctas, number, warps] = again
        self._arrived[ctas, number, warps] = True
        self._waiting[ctas, number, warps] = waits

    def _pass_by(self, row: int, key: tuple[int, int]) -> None:
        assert self.races is not None
        clock = self.races.clocks[row]
        met = self._passed_by.get(key)
        self._passed_by[key] = clock.copy() if met is None else np.maximum(met, clock)
        self.races.advance(np.array([row]))

    def exit(self, rows: Array) -> Array:
        """Warps have exited: barriers without a count no longer wait for them.

        Returns the warps that this releases.
        """
        ctas = rows // self.warps
        self.exited[ctas, rows % self.warps] = True
        released = [np.zeros(0, np.int64)]
        for number in np.flatnonzero((self._threads[ctas] == ALL).any(axis=0)):
            waited = ctas[self._threads[ctas, number] == ALL]
            released.append(self._open_full(waited, int(number)))
        return np.concatenate(released)

    def _open_full(self, ctas: Array, number: int) -> Array:
        """Open the barriers `number` of these CTAs that are full; the warps that waited there."""
        ctas = np.unique(ctas)
        arrived = self._arrived[ctas, number]
        threads = self._threads[ctas, number]
        count = arrived.sum(axis=1) + self._twice[ctas, number].sum(axis=1)
        everyone = (arrived | self.exited[ctas]).all(axis=1)
        full = np.where(threads == ALL, everyone, count * 32 >= threads)
        ctas = ctas[full]
        waiting = self._waiting[ctas, number]
        if self.races is not None and ctas.size:
            self._order(ctas, number, waiting)
        self._arrived[ctas, number] = False
        self._twice[ctas, number] = False
        self._waiting[ctas, number] = False
        self._threads[ctas, number] = _IDLE
        which, warps = np.nonzero(waiting)
        return ctas[which] * self.warps + warps

    def _order(self, ctas: Array, number: int, waiting: Array) -> None:
        """Everything before the barrier happens before what the waiting warps do next."""
        assert self.races is not None
        clocks = self.races.clocks.reshape(-1, self.warps, self.races.width)
        # Who waits has not run since it arrived, so its clock still is that of its arrival.
        met = (clocks[ctas] * waiting[:, :, None]).max(axis=1)
        for k, cta in enumerate(ctas.tolist()):
            passed = self._passed_by.pop((cta, number), None)
            if passed is not None:
                met[k] = np.maximum(met[k], passed)
        which, warps = np.nonzero(waiting)
        rows = ctas[which] * self.warps + warps
        self.races.clocks[rows] = np.maximum(self.races.clocks[rows], met[which])
        self.races.advance(rows)

    def describe(self) -> str:
        """Which barriers are waited at, for the message about a deadlock."""
        parts: list[str] = []
        for cta, number in np.argwhere(self._threads != _IDLE).tolist():
            arrived = np.flatnonzero(self._arrived[cta, number]).tolist()
            threads = int(self._threads[cta, number])
            needed = f"{threads} threads" if threads else "all warps"
            parts.append(f"barrier {number} of resident CTA {cta} has warps {arrived} of {needed}")
        return "; ".join(parts[:4])
