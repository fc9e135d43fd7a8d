# pyright: basic
"""Ping-pong of warpgroups: one multiplies while others do something else.

`TilePingPong`: each has tiles of its own.

    warpgroup 0    multiply 0 | epilogue 0 | multiply 2 | epilogue 2 ...
    warpgroup 1               | multiply 1 | epilogue 1 | multiply 3 ...

`StepPingPong`: each has a part of every tile; one starts a step's products while the others are at
what lies between products, as a softmax.

    warpgroup 0    start products | between       | start products | ...
    warpgroup 1                   | start products| between        | ...

Those with tiles of their own share a ring of stages, of which each lets the others' uses go by
without looking.  A barrier tells a stage's last phase from the one before only (`mbarrier`), so
that who comes too early would take a stage of two rounds ago for its own: each waits until the one
before it has seen its last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...mlir import nvvm
from ...target import WARP_THREADS
from .. import ops
from ..memory.smem import byte_pointer
from . import mbarrier
from .pipeline import Cursor
from .wgmma import WARPGROUP_THREADS

_WARPS = WARPGROUP_THREADS // WARP_THREADS


@dataclass(frozen=True)
class TilePingPong:
    """Ping-pong of so many warpgroups; barriers: memory of `barrier_bytes`."""

    warpgroups: int
    barriers: Any

    @staticmethod
    def barrier_bytes(warpgroups: int) -> int:
        return warpgroups * mbarrier.BYTES

    def make(self) -> None:
        """Initialise the barriers; one thread does."""
        for i in range(self.warpgroups):
            mbarrier.make(self._barrier(i), _WARPS)

    def first(self, own: Any) -> Any:
        """The phase that a warpgroup's first `wait` takes: the first has nobody to wait for."""
        return ops.select(own.eq(0), ops.const(1), ops.const(0))

    def wait(self, own: Any, phase: Any) -> None:
        """Waits until a warpgroup may multiply; phase: 0 and 1 alternately."""
        mbarrier.wait(self._barrier(own), phase)

    def end(self, own: Any, lane: Any) -> None:
        """Give up the turn, as every warp does after its last stage's wait; lane: of the thread."""
        following = own + 1
        wraps = following.eq(self.warpgroups)
        with ops.if_(lane.eq(0)):
            mbarrier.arrive(self._barrier(ops.select(wraps, ops.const(0), following)))

    def _barrier(self, own: Any) -> Any:
        return byte_pointer(self.barriers, own * mbarrier.BYTES)


def later(cursor: Cursor, uses: Any, stages: int) -> Cursor:
    """The place in a ring so many uses after another."""
    place = cursor.stage + uses
    rounds = place // stages
    return Cursor(place % stages, cursor.phase ^ (rounds & 1))


@dataclass(frozen=True)
class StepPingPong:
    """Ping-pong of so many warpgroups; one alone never waits.

    own: this one's number.  first_barrier: the first of as many named barriers.
    """

    warpgroups: int
    own: Any
    first_barrier: int

    def begin(self) -> None:
        """Give the first warpgroup its first turn, which no other gives."""
        if self.warpgroups > 1:
            with ops.if_(self.own.eq(0)):
                self._give(0)

    def wait(self) -> None:
        """Waits until this warpgroup may start products."""
        if self.warpgroups > 1:
            nvvm.barrier(
                barrier_id=self._barrier(self.own),
                number_of_threads=ops.const(2 * WARPGROUP_THREADS),
            )

    def end(self) -> None:
        """Lets the next warpgroup start its products."""
        if self.warpgroups > 1:
            following = self.own + 1
            is_last = following.eq(self.warpgroups)
            self._give(ops.select(is_last, 0, following))

    def finish(self) -> None:
        """Take the turn that the last warpgroup left for the first, when the last step is done."""
        if self.warpgroups > 1:
            with ops.if_(self.own.eq(0)):
                self.wait()

    def _give(self, own: Any) -> None:
        nvvm.barrier_arrive(ops.const(2 * WARPGROUP_THREADS), barrier_id=self._barrier(own))

    def _barrier(self, own: Any) -> Any:
        return ops.value_of(own + self.first_barrier)
