"""The asynchronous copies of `cp.async`: global to shared memory, behind the issuer's back.

From its issue to the matching wait of the issuing thread, a copy's destination is IN_FLIGHT:
poison to readers, and out of bounds to writers.  The source is read either at the issue or at
the wait, as the seed decides, so that a kernel which overwrites it in between gives itself away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .arena import CLEAN, IN_FLIGHT
from .failure import InterpreterError
from .geometry import WARP
from .memory import Fail
from .ptxtypes import TYPES, Array

if TYPE_CHECKING:
    from .machine import Machine

_NONE = -1
_FIRST_DEPTH = 8
_LARGEST = 16
_BYTE = TYPES["u8"].code
# Elements in which a copy's bytes are read: a whole number of these for 4, 8 and 16 bytes.
_WORD = TYPES["u32"].code


def at_some(fail: Fail, some: Array) -> Fail:
    """A `Fail` for accesses that are some of another's."""

    def fail_at(reason: str, position: int) -> InterpreterError:
        return fail(reason, int(some[position]))

    return fail_at


class AsyncCopies:
    """Copies under way of all resident threads.

    Each warp has a ring of `depth` entries, one an instruction it issued; the arrays are
    [depth, lanes].  group: the commit group of the copy, _NONE for a lane without one.
    committed: how many groups each thread has committed.
    """

    def __init__(self, machine: Machine):
        self.machine = machine
        lanes = machine.lane_count
        self.committed = np.zeros(lanes, np.int64)
        self.head = np.zeros(lanes // WARP, np.int64)
        self.tail = np.zeros(lanes // WARP, np.int64)
        self._resize(_FIRST_DEPTH, lanes)

    def _resize(self, depth: int, lanes: int) -> None:
        self.depth = depth
        self.group = np.full((depth, lanes), _NONE, np.int64)
        self.target = np.zeros((depth, lanes), np.int64)
        self.source = np.zeros((depth, lanes), np.uint64)
        self.wanted = np.zeros((depth, lanes), np.int32)
        self.size = np.zeros((depth, lanes), np.int32)
        self.late = np.zeros((depth, lanes), bool)
        self.data = np.zeros((depth, lanes, _LARGEST), np.uint8)
        self.state = np.zeros((depth, lanes, _LARGEST), np.uint8)

    def _grow(self) -> None:
        old = self.__dict__.copy()
        order = (self.head[:, None] + np.arange(self.depth)) % self.depth
        lanes = self.group.shape[1]
        self._resize(2 * old["depth"], lanes)
        by_lane = np.repeat(order, WARP, axis=0).T
        for name in ("group", "target", "source", "wanted", "size", "late", "data", "state"):
            getattr(self, name)[: old["depth"]] = old[name][by_lane, np.arange(lanes)]
        self.tail -= self.head
        self.head[:] = 0

    def issue(
        self,
        target: Array,
        source: Array,
        size: int,
        wanted: Array,
        lanes: Array,
        fail_target: Fail,
        fail_source: Fail,
    ) -> None:
        """Threads lanes[k] (numbers in the batch) copy wanted[k] of `size` bytes, the rest zeros.

        target: byte indices in the shared arena, checked.  source: global addresses.
        """
        machine = self.machine
        shared = machine.shared
        rows = lanes // WARP
        shared.refuse_in_flight(target, size, fail_target)
        if machine.hopper is not None:
            machine.hopper.proxy.refuse_read(target, size, fail_target)
        if shared.races is not None:
            shared.races.write(target, size, machine.lane_clock[lanes], fail_target)
        self._refuse_overlap(target, size, fail_target)
        shared.arena.set_states(target, size, IN_FLIGHT)
        warps = np.unique(rows)
        if np.count_nonzero((self.tail - self.head)[warps] == self.depth):
            self._grow()
        slot = (self.tail % self.depth)[rows]
        # Also a late copy reads its source here, so that a bad address shows at the instruction.
        data, state = self._fetch(source, size, wanted, fail_source)
        if machine.global_races is not None and (some := np.flatnonzero(wanted)).size:
            readers = machine.lane_clock[lanes[some]]
            machine.global_races.read(source[some], size, readers, at_some(fail_source, some))
        self.group[slot, lanes] = self.committed[lanes]
        self.target[slot, lanes] = target
        self.source[slot, lanes] = source
        self.wanted[slot, lanes] = wanted
        self.size[slot, lanes] = size
        self.data[slot, lanes, :size] = data
        self.state[slot, lanes, :size] = state
        late = machine.numpy_rng.random(self.head.size) < 0.5
        self.late[slot, lanes] = late[rows]
        self.tail[warps] += 1

    def _refuse_overlap(self, target: Array, size: int, fail: Fail) -> None:
        if np.count_nonzero(np.diff(np.sort(target)) < size):
            order = np.argsort(target)
            second = order[1:][np.diff(target[order]) < size]
            raise fail("is the target of two lanes of one copy", int(second[0]))

    def _fetch(
        self, source: Array, size: int, wanted: Array, fail: Fail
    ) -> tuple[Array, Array | int]:
        """Bytes [k, size] and their states; bytes from wanted[k] on are zeros and not read."""
        if int(wanted.min()) == size:
            words, states = self.machine.memory.load(source, size, _WORD, size // 4, fail)
            data = words.view(np.uint8).reshape(-1, size)
            return data, CLEAN if states is None else states
        data = np.zeros((source.size, size), np.uint8)
        state = np.zeros((source.size, size), np.uint8)
        for byte in range(int(wanted.max())):
            some = np.flatnonzero(wanted > byte)
            address = source[some] + np.uint64(byte)

            values, states = self.machine.memory.load(address, 1, _BYTE, 1, at_some(fail, some))
            data[some, byte] = values
            if states is not None:
                state[some, byte] = states[:, 0]
        return data, state

    def commit(self, lanes: Array) -> None:
        """Threads `lanes` close their open group."""
        self.committed[lanes] += 1

    def wait(self, lanes: Array, pending: int, fail: Fail) -> None:
        """Threads `lanes` wait until at most `pending` of their newest groups are under way."""
        groups = self.group[:, lanes]
        done = (groups != _NONE) & (groups < self.committed[lanes] - pending)
        slot, which = np.nonzero(done)
        if slot.size:
            self._complete(slot, lanes[which], fail)
        self._retire(np.unique(lanes // WARP))

    def _complete(self, slot: Array, lanes: Array, fail: Fail) -> None:
        machine = self.machine
        late = np.flatnonzero(self.late[slot, lanes])
        for size in np.unique(self.size[slot, lanes]).tolist():
            again = late[self.size[slot[late], lanes[late]] == size]
            if again.size:
                at = slot[again], lanes[again]
                data, state = self._fetch(self.source[at], size, self.wanted[at], fail)
                self.data[(*at, slice(0, size))] = data
                self.state[(*at, slice(0, size))] = state
            those = np.flatnonzero(self.size[slot, lanes] == size)
            at = slot[those], lanes[those]
            target = self.target[at]
            machine.shared.arena.store(
                target, size, self.data[at][:, :size], self.state[at][:, :size]
            )
            if machine.hopper is not None:
                # Such a copy is an ordinary write: the asynchronous proxy learns of it by a fence.
                machine.hopper.proxy.wrote(target, size, lanes[those])
            if machine.shared.races is not None:
                machine.shared.races.complete(target, size, machine.lane_clock[lanes[those]])
        self.group[slot, lanes] = _NONE

    def _retire(self, rows: Array) -> None:
        """Free the entries at the head of these warps' rings that no lane uses any more."""
        by_row = self.group.reshape(self.depth, -1, WARP)
        while rows.size:
            rows = rows[self.head[rows] < self.tail[rows]]
            idle = (by_row[self.head[rows] % self.depth, rows] == _NONE).all(axis=1)
            rows = rows[idle]
            self.head[rows] += 1
