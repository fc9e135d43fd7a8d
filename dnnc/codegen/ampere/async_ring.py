# pyright: basic
"""AsyncRing: a ring of stages that all threads of a block fill by `cp.async`, and all read.

use i   wait until its stage is there; barrier; start the copies of use i + stages - 1 into
        the stage that use i - 1 has read; read the stage

A ring of one stage is filled when all have left it, and waited for at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import ops
from ..memory import smem


@dataclass(frozen=True)
class Slots:
    """Offsets of stages: of the one that is read, and of the one that is filled meanwhile."""

    read: Any
    filled: Any


@dataclass(frozen=True)
class AsyncRing:
    """stage_bytes: of a stage.  Each use is one `cp.async` group, committed by all threads even
    where it has no copies."""

    stages: int
    stage_bytes: int

    @property
    def bytes(self) -> int:
        return self.stages * self.stage_bytes

    def first(self) -> Slots:
        """The slots of the first use, before which `stages - 1` uses have been committed."""
        return Slots(0, (self.stages - 1) * self.stage_bytes)

    def wait(self) -> None:
        """Waits until the next stage is there for all threads, and all have left the one before."""
        smem.wait(self.stages - 2)
        ops.barrier()

    def advance(self, slots: Slots, load: Callable[[Any], None]) -> Any:
        """The next stage, which is there for all threads; load(offset) starts the copies of the use
        `stages - 1` further on, and commits them."""
        if self.stages == 1:
            ops.barrier()  # all have left the stage
            load(0)
            smem.wait(0)
            ops.barrier()
            return 0
        self.wait()
        load(slots.filled)
        return slots.read

    def next(self, slots: Slots) -> Slots:
        """The slots of the use that follows."""
        if self.stages == 1:
            return slots
        return Slots(self._after(slots.read), self._after(slots.filled))

    def _after(self, offset: Any) -> Any:
        """The offset of the following stage, the first after the last."""
        moved = offset + self.stage_bytes
        return ops.select(moved.eq(self.bytes), ops.const(0), moved)
