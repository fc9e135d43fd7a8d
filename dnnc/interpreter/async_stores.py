"""Asynchronous stores: values on their way to shared memory of the cluster, with their bytes.

A place is IN_FLIGHT from the issue until the value arrives, at a time that the seed decides, as
with bulk loads.  Then its bytes count at an mbarrier beside it.  For the race detector the store is
its thread's, at its issue; whoever waits at the mbarrier has seen it, and what that thread did
before (PTX ISA, "st.async").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .arena import IN_FLIGHT
from .failure import InterpreterError
from .memory import Fail
from .ptx import Instruction
from .ptxtypes import Array
from .tma import due

if TYPE_CHECKING:
    from .machine import Machine
    from .mbarrier import Mbarrier, Mbarriers
    from .proxy import AsyncProxy


@dataclass(eq=False)
class AsyncStore:
    """index: [1], the byte index in the arena.  seen: the clock of its thread at the issue."""

    index: Array
    size: int
    values: Array
    states: Array | None
    cta: int
    barrier: Mbarrier
    due: float
    seen: Array | None
    fail: Fail


class AsyncStores:
    """The asynchronous stores under way to the resident CTAs."""

    def __init__(self, machine: Machine, proxy: AsyncProxy, mbarriers: Mbarriers):
        self.machine = machine
        self.proxy = proxy
        self.mbarriers = mbarriers
        self.stores: list[AsyncStore] = []

    def progress(self) -> None:
        """Do what is due."""
        now = self.machine.steps
        for store in [store for store in self.stores if store.due <= now]:
            self._arrive(store)

    def hurry(self) -> bool:
        """Nobody can run: do one of the stores that are late.  False when there are none."""
        if not self.stores:
            return False
        self._arrive(self.stores[self.machine.rng.randrange(len(self.stores))])
        return True

    def exit(self, instruction: Instruction, cta: int) -> None:
        """A CTA gives its shared memory back: nothing may be on its way there."""
        if any(store.cta == cta for store in self.stores):
            what = "the CTA exits while an asynchronous store to it is in flight"
            raise self.machine.fail(instruction, what)

    def issue(
        self,
        instruction: Instruction,
        index: int,
        size: int,
        values: Array,
        states: Array | None,
        barrier: Mbarrier,
        lane: int,
        fail: Fail,
    ) -> None:
        """Issue a store by thread `lane`."""
        machine, at = self.machine, np.array([index])
        shared, row = machine.shared, int(machine.lane_clock[lane])
        if not barrier.fenced:
            raise fail("counts at an mbarrier that no fence.mbarrier_init made known", 0)
        self.proxy.refuse_read(at, size, fail)
        shared.refuse_in_flight(at, size, fail)
        seen = None
        if shared.races is not None:
            shared.races.write(at, size, np.array([row]), fail)
            seen = shared.races.clocks[row].copy()
            shared.races.advance(np.array([row]))
        shared.arena.set_states(at, size, IN_FLIGHT)
        machine.events += 1

        def late(reason: str, _: int) -> InterpreterError:
            return machine.fail(instruction, f"its value {reason}")

        cta = index // shared.stride
        made = AsyncStore(at, size, values, states, cta, barrier, due(machine), seen, late)
        self.stores.append(made)

    def _arrive(self, store: AsyncStore) -> None:
        self.stores.remove(store)
        arena = self.machine.shared.arena
        arena.store(store.index, store.size, store.values, store.states)
        self.proxy.arrived(store.index, store.size)
        self.mbarriers.complete_bytes(store.barrier, store.size, store.seen, store.fail)
