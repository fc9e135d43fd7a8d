"""Shared memory as the asynchronous proxy sees it: what TMA and wgmma may read, and are reading.

What a thread writes by ordinary stores reaches the asynchronous proxy after that thread's
`fence.proxy.async`; until then an asynchronous access to it is a failure.  Bytes that such a read
may still be looking at (until the wait that covers it) must not be written.
"""

from __future__ import annotations

import numpy as np

from .memory import Fail
from .ptxtypes import Array
from .races import granules_of

_NOBODY = -1


class AsyncProxy:
    """nbytes: of the arena of shared memory.  granule: the narrowest access."""

    def __init__(self, nbytes: int, granule: int, lanes: int):
        self.shift = granule.bit_length() - 1
        count = (nbytes >> self.shift) + 1
        self._writer = np.full(count, _NOBODY, np.int32)
        self._when = np.zeros(count, np.int32)
        self._reading = np.zeros(count, np.int16)
        self._fences = np.zeros(lanes, np.int32)

    def wrote(self, index: Array, size: int, lanes: Array) -> None:
        """Threads lanes[k] wrote `size` bytes at byte indices [k] by ordinary stores."""
        granules = granules_of(index, size, self.shift)
        self._writer[granules] = lanes[:, None]
        self._when[granules] = self._fences[lanes][:, None]

    def arrived(self, index: Array, size: int) -> None:
        """An asynchronous copy wrote these bytes."""
        self._writer[granules_of(index, size, self.shift)] = _NOBODY

    def fence(self, lanes: Array) -> None:
        """Threads `lanes` executed a proxy fence."""
        self._fences[lanes] += 1

    def require_fenced(self, index: Array, size: int, fail: Fail) -> None:
        """Fail where the last ordinary write of these bytes was not followed by a fence."""
        granules = granules_of(index, size, self.shift)
        writer = self._writer[granules]
        bad = (writer != _NOBODY) & (self._when[granules] >= self._fences[writer])
        if np.count_nonzero(bad):
            what = "was written by a thread that executed no fence.proxy.async since"
            raise fail(what, int(bad.any(axis=1).argmax()))

    def begin_read(self, index: Array, size: int) -> None:
        """An asynchronous read of these bytes (each named once) has been issued."""
        self._reading[granules_of(index, size, self.shift)] += 1

    def end_read(self, index: Array, size: int) -> None:
        """The read has been waited for."""
        self._reading[granules_of(index, size, self.shift)] -= 1

    def refuse_read(self, index: Array, size: int, fail: Fail) -> None:
        """Fail where somebody writes what an asynchronous read may still be looking at."""
        busy = self._reading[granules_of(index, size, self.shift)]
        if np.count_nonzero(busy):
            bad = int(busy.any(axis=1).argmax())
            raise fail("is written while an asynchronous read of it is in flight", bad)
