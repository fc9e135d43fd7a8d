"""A kernel made ready to run.

Decoding depends on nothing of the launch, so a module keeps the programs of its kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from . import opcodes
from .decode import Control, Decoder, Run, Slot, Step
from .failure import failure
from .inline import Layout, lay_out
from .order import Code, blocks_of, reorder, successors_of, targets
from .ptx import Module


@dataclass
class Program:
    """A decoded kernel.

    params: bytes of each parameter.  steps: one a pc.  stops[pc]: where the segment that begins
    at pc ends.  controls: the pcs that decide what comes next.  leaders: where branches go.
    touches: keys of the registers that a step reads or writes.  codes: the register views in
    use.  granule: the narrowest access to shared memory.  copies: whether there are asynchronous
    copies.  unwritten: registers that may be read before they are written.  limits: performance
    directives of the kernel.
    """

    name: str
    layout: Layout
    params: Sequence[int]
    steps: list[Step]
    stops: list[int]
    controls: dict[int, Control]
    leaders: frozenset[int]
    touches: list[frozenset[int]]
    codes: frozenset[int]
    granule: int | None
    copies: bool
    unwritten: tuple[Slot, ...]
    limits: Mapping[str, tuple[int, ...]]
    segments: dict[int, list[Run]] = field(default_factory=dict[int, list[Run]])

    def segment(self, pc: int) -> list[Run]:
        """The closures from pc to the end of its segment."""
        found = self.segments.get(pc)
        if found is None:
            found = self.segments[pc] = [step.run for step in self.steps[pc : self.stops[pc]]]
        return found


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
    return Program(
        kernel,
        layout,
        [param.nbytes for param in function.params],
        steps,
        _stops(steps, leaders),
        {pc: step.control for pc, step in enumerate(steps) if step.control is not None},
        leaders,
        [step.touches for step in steps],
        frozenset(decoder.codes),
        min(decoder.smem_widths, default=None),
        any(step.instruction.opcode[:2] == ("cp", "async") for step in steps),
        _unwritten(steps, layout.code),
        function.limits,
    )


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
