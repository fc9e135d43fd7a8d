"""The units of sm_90 that work beside the threads, for kernels that use any of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .async_stores import AsyncStores
from .cluster import Clusters
from .geometry import WARP
from .mbarrier import Mbarriers
from .proxy import AsyncProxy
from .ptx import Instruction
from .ptxtypes import Array
from .registers import RegisterPool
from .tma import BulkCopies
from .wgmma import Warpgroups

if TYPE_CHECKING:
    from .machine import Machine


class Hopper:
    """mbarriers, bulk copies, asynchronous stores, warpgroups, clusters and the register pool of
    the resident CTAs."""

    def __init__(self, machine: Machine):
        self.machine = machine
        nbytes, granule = machine.shared.arena.data.size, machine.program.needs.granule or 16
        self.proxy = AsyncProxy(nbytes, granule, machine.lane_count)
        self.mbarriers = Mbarriers(machine)
        self.clusters = Clusters(machine)
        self.bulk = BulkCopies(machine, self.proxy, self.mbarriers)
        self.stores = AsyncStores(machine, self.proxy, self.mbarriers)
        self.warpgroups = Warpgroups(machine, self.proxy)
        self.registers = RegisterPool(machine)

    def progress(self) -> None:
        """Do what is due of what goes on behind the threads' backs."""
        self.bulk.progress()
        self.stores.progress()

    def hurry(self) -> bool:
        """Nobody can run: let something that is late happen.  False when there is nothing."""
        if self.stores.stores and not (self.bulk.loads and self.machine.rng.random() < 0.5):
            return self.stores.hurry()
        return self.bulk.hurry()

    def exit(self, instruction: Instruction, rows: Array) -> None:
        """Warps (positions in the machine's rows) exit: nothing of theirs may be under way."""
        machine = self.machine
        self.warpgroups.exit(instruction, rows)
        machine.events += 1
        lanes = (rows[:, None] * WARP + np.arange(WARP)).reshape(-1)
        exited = machine.barriers.exited.copy()
        clocks = machine.row_clock[rows]
        warps = machine.geometry.warps
        exited[clocks // warps, clocks % warps] = True
        for cta in np.unique(clocks // warps).tolist():
            if exited[cta].all():
                self.bulk.exit(instruction, int(cta))
                self.stores.exit(instruction, int(cta))
                self.registers.exit(instruction, int(cta))
        self.clusters.exit(lanes)
