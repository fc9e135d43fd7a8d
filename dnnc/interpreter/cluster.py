"""Clusters: addresses of each other's shared memory, and the cluster's own barrier.

In the window `shared::cluster` the executing CTA's shared memory has its own addresses; that of
the CTA of rank r lies (r + 1) << 24 above them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .geometry import WARP
from .memory import Fail
from .ptxtypes import Array

if TYPE_CHECKING:
    from .machine import Machine

RANK_SHIFT = 24
_OFFSET = np.int64((1 << RANK_SHIFT) - 1)


class ClusterMisuse(Exception):
    """Threads used the cluster's barrier in a way that the hardware does not define."""


class Clusters:
    """The clusters of the batch; a CTA's cluster is its number // size.

    phase: of each cluster's barrier.  target: the phase that a thread waits for (0: it has not
    arrived since its last wait).
    """

    def __init__(self, machine: Machine):
        self.machine = machine
        self.size = machine.cluster_ctas
        self.cluster_of_lane = machine.lane_cta // self.size
        count = int(self.cluster_of_lane.max()) + 1
        self.phase = np.zeros(count, np.int64)
        self.target = np.zeros(machine.lane_count, np.int64)
        self.arrived = np.zeros(machine.lane_count, bool)
        self.gone = machine.lane_thread >= machine.geometry.threads
        self.waiting: dict[int, set[int]] = {}
        races = machine.shared.races
        width = 0 if races is None else races.width
        self._clock = np.zeros((count, width), np.int32)
        self._done = np.zeros((count, width), np.int32)
        # What each row's last fence of mbarrier initialisations tells with a relaxed arrival.
        self._fenced = np.zeros((machine.row_pc.size, width), np.int32)

    # Addresses ----------------------------------------------------------------------------

    def split(self, where: Array, cta: Array, fail: Fail) -> tuple[Array, Array]:
        """Cluster addresses [k] by threads of CTAs [k] as addresses in a CTA, and that CTA."""
        rank = where >> RANK_SHIFT
        if not np.count_nonzero(rank):
            return where, cta
        bad = (rank < 0) | (rank > self.size)
        if np.count_nonzero(bad):
            raise fail(f"is in no CTA of the cluster of {self.size}", int(bad.argmax()))
        owner = np.where(rank > 0, cta // self.size * self.size + rank - 1, cta)
        gone = self.machine.barriers.exited[owner].all(axis=1) & (owner != cta)
        if np.count_nonzero(gone):
            raise fail("is in the shared memory of a CTA that has exited", int(gone.argmax()))
        return where & _OFFSET, owner

    def map(self, where: Array, rank: Array, fail: Fail) -> Array:
        """Addresses of the same variables in the CTAs of these ranks."""
        bad = rank >= self.size
        if np.count_nonzero(bad):
            raise fail(f"has no counterpart: the cluster has {self.size} CTAs", int(bad.argmax()))
        return (where & _OFFSET) | ((rank + 1) << RANK_SHIFT)

    def fence(self, lanes: Array) -> None:
        """Threads `lanes` fence their mbarrier initialisations."""
        races = self.machine.shared.races
        if races is not None:
            rows = np.unique(self.machine.lane_clock[lanes])
            self._fenced[rows] = races.clocks[rows]

    def released(self, rows: Array, relaxed: bool) -> Array:
        """The clocks that arrivals of these rows tell.

        A relaxed one tells of what its thread fenced; that this is more than the mbarriers'
        initialisation is not looked into.
        """
        races = self.machine.shared.races
        assert races is not None
        return self._fenced[rows] if relaxed else races.clocks[rows]

    # The barrier --------------------------------------------------------------------------

    def arrive(self, lanes: Array, clocks: Array | None) -> None:
        """Threads arrive.  clocks: what each one's arrival tells; None: nothing."""
        if np.count_nonzero(self.target[lanes] != 0):
            raise ClusterMisuse("a thread arrives twice without a wait in between")
        clusters = self.cluster_of_lane[lanes]
        self.arrived[lanes] = True
        self.target[lanes] = self.phase[clusters] + 1
        if clocks is not None:
            np.maximum.at(self._clock, clusters, clocks)
        self.machine.events += 1
        self._open(clusters)

    def exit(self, lanes: Array) -> None:
        """Threads have exited: nobody waits for them any more."""
        self.gone[lanes] = True
        self._open(self.cluster_of_lane[lanes])

    def _open(self, clusters: Array) -> None:
        for cluster in np.unique(clusters).tolist():
            ours = self.cluster_of_lane == cluster
            here = self.arrived & ours
            if not np.count_nonzero(here) or np.count_nonzero(ours & ~here & ~self.gone):
                continue
            self.phase[cluster] += 1
            self.arrived[ours] = False
            self._done[cluster] = self._clock[cluster]
            self.machine.wake(self.waiting.pop(cluster, ()))

    def passed(self, lanes: Array) -> Array:
        """Which of these threads may leave the barrier; they all have arrived."""
        if np.count_nonzero(self.target[lanes] == 0):
            raise ClusterMisuse("a thread waits that has not arrived")
        return self.phase[self.cluster_of_lane[lanes]] >= self.target[lanes]

    def leave(self, lanes: Array) -> None:
        """Threads leave the barrier and know what the others did before it."""
        self.target[lanes] = 0
        races = self.machine.shared.races
        if races is None:
            return
        rows = self.machine.lane_clock[lanes]
        for row, cluster in {
            *zip(rows.tolist(), self.cluster_of_lane[lanes].tolist(), strict=True)
        }:
            races.acquire(row, self._done[cluster])
        races.advance(np.unique(rows))

    def sleep(self, row: int) -> None:
        """A row waits at the barrier of its cluster."""
        cluster = int(self.cluster_of_lane[row * WARP])
        self.waiting.setdefault(cluster, set()).add(row)
        name = self.machine.row_name(row)
        self.machine.sleep(row, f"warp {name} waits at the cluster's barrier")
