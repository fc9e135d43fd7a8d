# pyright: basic
"""Turns: warpgroups that go through tiles by turns, and multiply one after the other.

    warpgroup 0    multiply 0 | epilogue 0 | multiply 2 | epilogue 2 ...
    warpgroup 1               | multiply 1 | epilogue 1 | multiply 3 ...

They share a ring of stages, of which each lets the others' uses go by without looking.  A barrier
tells a stage's last phase from the one before only (`mbarrier`), so that who comes too early would
take a stage of two rounds ago for its own: each waits until the one before it has seen its last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...target import WARP_THREADS
from .. import ops
from ..memory.smem import byte_pointer
from . import mbarrier
from .pipeline import Cursor
from .wgmma import WARPGROUP_THREADS

_WARPS = WARPGROUP_THREADS // WARP_THREADS


@dataclass(frozen=True)
class Turns:
    """Turns of so many warpgroups; barriers: memory of `barrier_bytes`."""

    warpgroups: int
    barriers: Any

    @staticmethod
    def barrier_bytes(warpgroups: int) -> int:
        return warpgroups * mbarrier.BYTES

    def make(self) -> None:
        """By one thread."""
        for i in range(self.warpgroups):
            mbarrier.make(self._barrier(i), _WARPS)

    def first(self, own: Any) -> Any:
        """The phase that a warpgroup's first `wait` takes: the first has nobody to wait for."""
        return ops.select(own.eq(0), ops.const(1), ops.const(0))

    def wait(self, own: Any, turn: Any) -> None:
        """Waits for a warpgroup's turn, which is 0 and 1 alternately."""
        mbarrier.wait(self._barrier(own), turn)

    def end(self, own: Any, lane: Any) -> None:
        """By every warp, once it has waited for its last stage; lane: of the thread."""
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
