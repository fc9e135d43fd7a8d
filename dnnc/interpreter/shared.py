"""Shared memory of the resident CTAs, and the private memory of their threads."""

from __future__ import annotations

import numpy as np

from .arena import BARRIER, IN_FLIGHT, Arena
from .memory import Fail
from .ptxtypes import Array
from .races import Races

# Shared variables start here: address 0 belongs to nobody, as on the hardware.
SHARED_BASE = 1024


def _largest(addresses: Array) -> int:
    """The largest address, where negative ones count as huge."""
    unsigned = addresses.view(np.uint64)
    return int(unsigned[unsigned.argmax()])


class SharedMemory:
    """`nbytes` bytes for each resident CTA, in one arena.

    granule: the kernel's narrowest access, None to leave races unwatched (one warp a CTA).
    grid: warps that `GlobalRaces` has columns for in clocks, None where it does not watch.
    Addresses are those of the CTA's own window; `cta` tells whose, one for each address.
    """

    def __init__(
        self,
        ctas: int,
        warps: int,
        nbytes: int,
        granule: int | None,
        cluster: int = 1,
        asynchronous: bool = False,
        grid: int | None = None,
    ):
        self.nbytes = nbytes
        self.stride = -(-nbytes // 64) * 64
        self.arena = Arena(ctas * self.stride)
        watched = granule is not None and warps * cluster > 1 and nbytes > 0
        self.races = None
        if watched or grid is not None:
            # A granule that nobody uses keeps what is kept about the rest of memory small.
            whole, granule = ctas * self.stride, granule or 64
            self.races = Races(ctas, warps, whole, granule, cluster, asynchronous, grid)

    def locate(self, address: Array, size: int, cta: Array, fail: Fail) -> Array:
        """Byte indices in the arena.  Errors through `fail`: out of bounds, misaligned."""
        relative = address - SHARED_BASE
        if _largest(relative) + size > self.nbytes:
            bad = (relative < 0) | (relative + size > self.nbytes)
            size_text = f"the {self.nbytes} bytes of shared memory from 0x{SHARED_BASE:x} on"
            raise fail(f"is outside {size_text}", int(bad.argmax()))
        if int(np.bitwise_or.reduce(relative)) & (size - 1):
            bad = (relative & (size - 1)) != 0
            raise fail(f"is not a multiple of the access size, {size} bytes", int(bad.argmax()))
        return relative + cta * self.stride

    def store(
        self,
        index: Array,
        size: int,
        values: Array,
        states: Array | None,
        rows: Array,
        strong: bool,
        fail: Fail,
    ) -> None:
        """Write accesses [k, ...] by warps rows[k].  Bytes in flight may not be written.

        strong: a volatile or relaxed store, which races with no other of its kind.
        """
        if self.races is not None:
            watch = self.races.atomic if strong else self.races.write
            watch(index, size, rows, fail)
        self.refuse_in_flight(index, size, fail)
        self.arena.store(index, size, values, states)
        if strong:
            return
        if (bad := self.arena.disagreement(index, size, values)) is not None:
            raise fail("gets different values from several lanes of one store", bad)

    def refuse_in_flight(self, index: Array, size: int, fail: Fail) -> None:
        """Fail where an asynchronous copy is on its way to these bytes."""
        states = self.arena.states(index, size)
        busy = states >= IN_FLIGHT
        if np.count_nonzero(busy):
            bad = int(busy.any(axis=1).argmax())
            if np.count_nonzero(states[bad] == BARRIER):
                raise fail("is written over an mbarrier", bad)
            raise fail("is written while an asynchronous copy to it is in flight", bad)


class PrivateMemory:
    """`nbytes` bytes for each thread: local variables and the parameters of calls."""

    def __init__(self, threads: int, nbytes: int):
        self.nbytes = nbytes
        self.stride = -(-nbytes // 64) * 64
        self.arena = Arena(threads * self.stride)

    def locate(self, address: Array, size: int, thread: Array, fail: Fail) -> Array:
        """Byte indices in the arena.  Errors through `fail`: out of bounds, misaligned."""
        if _largest(address) + size > self.nbytes:
            bad = (address < 0) | (address + size > self.nbytes)
            raise fail(f"is outside the {self.nbytes} bytes of the frame", int(bad.argmax()))
        if int(np.bitwise_or.reduce(address)) & (size - 1):
            bad = (address & (size - 1)) != 0
            raise fail(f"is not a multiple of the access size, {size} bytes", int(bad.argmax()))
        return address + thread * self.stride
