"""setmaxnreg: the registers that the warps of a CTA share out among themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .failure import failure
from .geometry import WARP
from .ptx import Instruction
from .ptxtypes import Array

if TYPE_CHECKING:
    from .machine import Machine

# Of an SM.
REGISTERS = 1 << 16
LEAST, MOST, STEP = 24, 256, 8


class RegisterPool:
    """Registers a thread of each row, as the kernel starts and as `setmaxnreg` changes them."""

    def __init__(self, machine: Machine):
        self.machine = machine
        threads = machine.geometry.warps * WARP
        at_entry = min(REGISTERS // threads // STEP * STEP, MOST - 1)
        self.of_row = np.full(machine.row_pc.size, at_entry)
        self.pool = at_entry * threads
        self.changed = False

    def set(self, rows: Array, count: int, increase: bool) -> str:
        """Rows ask for `count` registers; returns what is wrong with that, or nothing."""
        self.changed = True
        wrong = self.of_row[rows] > count if increase else self.of_row[rows] < count
        had = int(self.of_row[rows][wrong.argmax()])
        self.of_row[rows] = count
        if np.count_nonzero(wrong):
            return f"the warp has {had} registers already"
        return ""

    def exit(self, instruction: Instruction, cta: int) -> None:
        """All changes of a CTA are made: they must fit what it was launched with.

        An increase beyond that waits for ever.
        """
        if not self.changed:
            return
        ours = self.machine.row_cta == cta
        total = int(self.of_row[ours].sum()) * WARP
        if total > self.pool:
            what = f"setmaxnreg: the warps ask for {total} registers; they started with {self.pool}"
            raise failure(what, f"kernel {self.machine.program.name!r}, line {instruction.line}")
