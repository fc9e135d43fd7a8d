"""mbarrier objects in shared memory: phases, arrivals and transaction bytes.

A phase completes when no arrival and no transaction byte is pending; the next one begins at
once.  A wait by parity asks for the phase before the current one: it holds while the current
phase has the other parity, so a thread two phases ahead is told of a stale one, as on the device.
Whoever sees a phase complete has seen what those who arrived did before (PTX ISA, "Parallel
Synchronization and Communication Instructions: mbarrier").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .arena import BARRIER, UNWRITTEN
from .memory import Fail
from .ptxtypes import Array

if TYPE_CHECKING:
    from .machine import Machine

SIZE = 8
MOST_ARRIVALS = (1 << 20) - 1
MOST_BYTES = (1 << 20) - 1


class Mbarrier:
    """One object.

    expected: arrivals of a phase.  pending: those still missing in the current one.
    bytes: transaction bytes still missing.  phase: number of the current phase.
    clock, done: what the arrivals have seen, now and at the end of the last phase.
    made_by: row and epoch of the initialisation.  fenced: whether the initialisation is known
    to the cluster and to the asynchronous proxy.
    """

    __slots__ = (
        *("offset", "expected", "pending", "bytes", "phase", "clock", "done"),
        *("made_by", "lane", "fenced", "waiting"),
    )

    def __init__(self, offset: int, count: int, made_by: tuple[int, int], lane: int):
        self.offset = offset
        self.expected = self.pending = count
        self.bytes = 0
        self.phase = 0
        self.clock: Array | None = None
        self.done: Array | None = None
        self.made_by = made_by
        self.lane = lane
        self.fenced = False
        self.waiting: set[int] = set()

    def describe(self) -> str:
        return (
            f"the mbarrier at shared address 0x{self.offset:x}: phase {self.phase}, "
            f"{self.pending} of {self.expected} arrivals and {self.bytes} bytes pending"
        )


class Mbarriers:
    """The objects of all resident CTAs, by byte index of the arena of shared memory."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self.objects: dict[int, Mbarrier] = {}

    # Life ---------------------------------------------------------------------------------

    def init(self, index: int, offset: int, count: int, lane: int, fail: Fail) -> None:
        """Make an object; `offset` is its address in its CTA."""
        if not 1 <= count <= MOST_ARRIVALS:
            raise fail(f"gets a count of {count}; 1 to {MOST_ARRIVALS} is possible", 0)
        if index in self.objects:
            raise fail("already holds an mbarrier", 0)
        machine = self.machine
        row = int(machine.lane_clock[lane])
        races, at = machine.shared.races, np.array([index])
        machine.shared.refuse_in_flight(at, SIZE, fail)
        if races is not None:
            races.write(at, SIZE, np.array([row]), fail)
        epoch = 0 if races is None else int(races.clocks[row, row % races.members])
        self.objects[index] = Mbarrier(offset, count, (row, epoch), lane)
        machine.shared.arena.set_states(at, SIZE, BARRIER)

    def invalidate(self, index: int, lane: int, fail: Fail) -> None:
        """End an object's life."""
        if self.of(index, lane, fail).waiting:
            raise fail("is invalidated while threads wait at it", 0)
        del self.objects[index]
        self.machine.shared.arena.set_states(np.array([index]), SIZE, UNWRITTEN)

    def of(self, index: int, lane: int, fail: Fail) -> Mbarrier:
        """The object at a byte index, for thread `lane`."""
        found = self.objects.get(index)
        if found is None:
            raise fail("holds no initialised mbarrier", 0)
        races = self.machine.shared.races
        if races is not None:
            row, (maker, epoch) = int(self.machine.lane_clock[lane]), found.made_by
            if races.clocks[row, maker % races.members] < epoch:
                raise fail("race: the mbarrier's initialisation is not ordered before this use", 0)
        return found

    def fence(self, lanes: Array) -> None:
        """Threads `lanes` make their initialisations known (fence.mbarrier_init)."""
        known = set(lanes.tolist())
        for barrier in self.objects.values():
            if barrier.lane in known:
                barrier.fenced = True

    # Arrivals -----------------------------------------------------------------------------

    def arrive(self, barrier: Mbarrier, count: int, lane: int, release: bool, fail: Fail) -> int:
        """A thread arrives `count` times; returns the phase that it arrived in."""
        if not 1 <= count <= barrier.pending:
            what = f"gets {count} arrivals, but {barrier.pending} of {barrier.expected} are pending"
            raise fail(what, 0)
        if release:
            self._release(barrier, int(self.machine.lane_clock[lane]))
        phase = barrier.phase
        barrier.pending -= count
        self.machine.events += 1
        self._complete(barrier)
        return phase

    def expect(self, barrier: Mbarrier, count: int, fail: Fail) -> None:
        """The current phase waits for `count` more bytes (fewer, if negative)."""
        barrier.bytes += count
        if abs(barrier.bytes) > MOST_BYTES:
            raise fail(f"has {barrier.bytes} transaction bytes; {MOST_BYTES} are possible", 0)
        self.machine.events += 1

    def complete_bytes(
        self, barrier: Mbarrier, count: int, clock: Array | None, fail: Fail
    ) -> None:
        """`count` bytes have arrived, with what `clock` tells."""
        self.expect(barrier, -count, fail)
        self._merge(barrier, clock)
        self._complete(barrier)

    def _release(self, barrier: Mbarrier, row: int) -> None:
        races = self.machine.shared.races
        if races is not None:
            self._merge(barrier, races.clocks[row])
            races.advance(np.array([row]))

    def _merge(self, barrier: Mbarrier, clock: Array | None) -> None:
        if clock is not None:
            known = barrier.clock
            barrier.clock = clock.copy() if known is None else np.maximum(known, clock)

    def _complete(self, barrier: Mbarrier) -> None:
        if barrier.pending or barrier.bytes:
            return
        barrier.phase += 1
        barrier.pending = barrier.expected
        barrier.done = barrier.clock
        self.machine.wake(barrier.waiting)
        barrier.waiting.clear()

    # Waits --------------------------------------------------------------------------------

    def acquire(self, barrier: Mbarrier, lane: int) -> None:
        """A thread has seen that the last phase is complete."""
        races = self.machine.shared.races
        if races is not None and barrier.done is not None:
            races.acquire(int(self.machine.lane_clock[lane]), barrier.done)

    def sleep(self, row: int, barriers: list[Mbarrier]) -> None:
        """A row waits until a phase of one of these completes."""
        for barrier in barriers:
            barrier.waiting.add(row)
        what = f"warp {self.machine.row_name(row)} waits at {barriers[0].describe()}"
        self.machine.sleep(row, what, times_out=True)
