"""A kernel made ready to run.

Decoding depends on nothing of the launch, so a module keeps the programs of its kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from . import opcodes
from .decode import Control, Decoder, Run, Slot, Step
from .failure import failure
from .geometry import WARP
from .global_races import ACQUIRES
from .inline import Layout, lay_out
from .order import Code, blocks_of, reorder, successors_of, targets
from .ptx import Module

if TYPE_CHECKING:
    from .machine import Machine


@dataclass(frozen=True)
class Flow:
    """The order of steps.

    stops[pc]: where the segment that begins at pc ends.  controls: the pcs that decide what comes
    next.  leaders: where branches go.
    """

    stops: list[int]
    controls: dict[int, Control]
    leaders: frozenset[int]


@dataclass(frozen=True)
class Needs:
    """The parts of a machine that a kernel uses.

    codes: the register views.  granule: the narrowest access to shared memory, global_granule to
    global memory.  copies: whether there are asynchronous copies.  asynchronous: whether there is
    TMA, wgmma, an mbarrier or a cluster barrier.  unwritten: registers that may be read before
    they are written.  acquires: whether a CTA may acquire what another released.
    """

    codes: frozenset[int]
    granule: int | None
    global_granule: int
    copies: bool
    asynchronous: bool
    unwritten: tuple[Slot, ...]
    acquires: bool


@dataclass
class Program:
    """A decoded kernel.

    params: bytes of each parameter.  steps: one a pc.
    touches: keys of the registers that a step reads or writes.  checks: what to run
    before the steps that touch registers of wgmma.  limits: performance directives of the kernel.
    """

    name: str
    layout: Layout
    params: Sequence[int]
    steps: list[Step]
    flow: Flow
    touches: list[frozenset[int]]
    checks: dict[int, Run]
    needs: Needs
    limits: Mapping[str, tuple[int, ...]]
    segments: dict[int, list[Run]] = field(default_factory=dict[int, list[Run]])
    touched_from: dict[int, frozenset[int]] = field(default_factory=dict[int, frozenset[int]])

    def segment(self, pc: int) -> list[Run]:
        """The closures from pc to the end of its segment."""
        found = self.segments.get(pc)
        if found is None:
            found = [self.run_of(at) for at in range(pc, self.flow.stops[pc])]
            self.segments[pc] = found
        return found

    def touched(self, pc: int) -> frozenset[int]:
        """The registers that the steps of the segment from pc on touch.

        Where none of them is poisoned, none gets to be but by its last step.
        """
        found = self.touched_from.get(pc)
        if found is None:
            found = frozenset[int]().union(*self.touches[pc : self.flow.stops[pc]])
            self.touched_from[pc] = found
        return found

    def run_of(self, pc: int) -> Run:
        """The closure of a step, with a check where it touches registers of wgmma."""
        check, run = self.checks.get(pc), self.steps[pc].run
        if check is None:
            return run

        def go(m: Machine) -> None:
            check(m)
            run(m)

        return go


def _check(step: Step, fragile: frozenset[int]) -> Run:
    """Check ahead of a step that none of the wgmma registers it touches is in flight."""
    reads = frozenset(slot.key for slot in step.reads) & fragile
    writes = frozenset(slot.key for slot in step.writes) & fragile
    instruction = step.instruction

    def check(m: Machine) -> None:
        assert m.hopper is not None
        groups = m.hopper.warpgroups
        if writes or np.count_nonzero(groups.busy[m.low : m.high]):
            rows = np.flatnonzero(m.active_lanes().any(axis=1))
            bad = groups.touch(m.low, rows, reads, writes)
            if bad is not None:
                what = "touches a register of a wgmma that is in flight"
                raise m.fail(instruction, what, bad * WARP)

    return check


def program_of(module: Module, kernel: str) -> Program:
    """The program of a kernel, decoded at the first call."""
    found = module.programs.get(kernel)
    if found is None:
        found = module.programs[kernel] = _build(module, kernel)
    return found


def _build(module: Module, kernel: str) -> Program:
    function = module.function(kernel)
    if not function.is_kernel:
        raise failure(f"{kernel!r} is a device function", "launch")
    opcodes.load()
    layout = lay_out(module, function)
    layout.code = reorder(layout.code)
    decoder = Decoder(kernel)
    steps = [decoder.step(instruction, scope) for instruction, scope in layout.code]
    leaders = _leaders(layout.code)
    controls = {pc: step.control for pc, step in enumerate(steps) if step.control is not None}
    needs = Needs(
        frozenset(decoder.codes),
        min(decoder.smem_widths, default=None),
        min(decoder.gmem_widths, default=16),
        any(_is_copy(step.instruction.opcode) for step in steps),
        any(_is_asynchronous(step.instruction.opcode) for step in steps),
        _unwritten(steps, layout.code),
        any(_acquires(step.instruction.opcode) for step in steps),
    )
    return Program(
        kernel,
        layout,
        [param.nbytes for param in function.params],
        steps,
        Flow(_stops(steps, leaders), controls, leaders),
        [step.touches for step in steps],
        _checks(steps, decoder.fragile),
        needs,
        function.limits,
    )


def _is_copy(opcode: tuple[str, ...]) -> bool:
    return opcode[:2] == ("cp", "async") and opcode[2:3] != ("bulk",)


def _is_asynchronous(opcode: tuple[str, ...]) -> bool:
    """Whether the machine needs what `hopper` holds."""
    if opcode[0] in ("mbarrier", "wgmma", "mapa", "setmaxnreg"):
        return True
    return opcode[:2] == ("barrier", "cluster") or (opcode[0] == "cp" and "bulk" in opcode)


def _acquires(opcode: tuple[str, ...]) -> bool:
    """Whether it may take from global memory what another CTA released."""
    if opcode[0] == "membar":
        return True
    return opcode[0] in ("ld", "atom", "fence") and not {*ACQUIRES}.isdisjoint(opcode)


def _checks(steps: list[Step], fragile: set[int]) -> dict[int, Run]:
    if not fragile:
        return {}
    return {
        pc: _check(step, frozenset(fragile))
        for pc, step in enumerate(steps)
        if step.instruction.opcode[0] != "wgmma" and not step.touches.isdisjoint(fragile)
    }


def _leaders(code: Code) -> frozenset[int]:
    return frozenset(pc for instruction, scope in code for pc in targets(instruction, scope))


def _stops(steps: list[Step], leaders: frozenset[int]) -> list[int]:
    """Where each segment ends: at a control, before a leader, after a step that says so."""
    stops = list(range(len(steps)))
    for pc in range(len(steps) - 2, -1, -1):
        if steps[pc].control is None:
            follows = pc + 1
            ends = steps[pc].ends_segment or follows in leaders
            stops[pc] = follows if ends else stops[follows]
    return stops


def _unwritten(steps: list[Step], code: Code) -> tuple[Slot, ...]:
    """Registers live at the entry: on some path they are read before any write.

    Sets of registers are integers with a bit for each key.  A guarded write leaves the old value
    in some lanes, so it ends no life.
    """
    blocks = blocks_of(code)
    successors = successors_of(code, blocks)
    slots: dict[int, Slot] = {}
    used: dict[int, int] = {}
    killed: dict[int, int] = {}
    for start, end in blocks.items():
        use = kill = 0
        for step in steps[start:end]:
            reads = step.reads if step.guard is None else (*step.reads, step.guard[0])
            for slot in reads:
                slots[slot.key] = slot
                use |= (1 << slot.key) & ~kill
            if step.guard is None:
                for slot in step.writes:
                    kill |= 1 << slot.key
        used[start], killed[start] = use, kill
    live = dict.fromkeys(blocks, 0)
    changed = True
    while changed:
        changed = False
        for start in reversed(blocks):
            after = 0
            for follow in successors[start]:
                after |= live[follow]
            before = used[start] | (after & ~killed[start])
            if before != live[start]:
                live[start], changed = before, True
    return tuple(slot for key, slot in slots.items() if live[0] >> key & 1)
