"""Branches, exits and CTA barriers: what ends a segment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..barriers import ALL, COUNT, BarrierMisuse
from ..decode import PRED, Control, Decoder, Slot, controls
from ..geometry import WARP
from ..order import targets
from ..ptx import Instruction
from ..ptxtypes import TYPES, Array

if TYPE_CHECKING:
    from ..machine import Machine

# As in `machine`, which imports the programs that these decoders make.
_EXITED = np.iinfo(np.int32).max
_LEAVE = -1


def guard_slot(d: Decoder) -> tuple[Slot, bool] | None:
    guard = d.instruction.guard
    return None if guard is None else (d.slot(guard.register), guard.negated)


def taken_lanes(m: Machine, pc: int, guard: tuple[Slot, bool] | None) -> tuple[Array | None, bool]:
    """The active lanes (bool, None: all of the gang) whose guard allows; whether that is some."""
    if guard is None:
        return m.mask, True
    slot, negated = guard
    if m.shadow:
        m.require_clean(m.program.steps[pc].instruction, slot, "the predicate of a branch")
    taken = np.not_equal(m.views[PRED.code][slot.number][m.lanes], negated)
    if m.mask is not None:
        taken &= m.mask
    count = np.count_nonzero(taken)
    if count == taken.size:
        return None, True
    return taken, bool(count > 0)


@controls("bra")
def branch(d: Decoder) -> Control:
    d.take("uni")
    d.finish()
    (target,) = targets(d.instruction, d.scope)
    return _jump(d, target)


def _jump(d: Decoder, target: int) -> Control:
    guard = guard_slot(d)

    def control(m: Machine, pc: int) -> int:
        taken, some = taken_lanes(m, pc, guard)
        if not some:
            return m.go(pc + 1)
        if taken is None or taken is m.mask:
            return m.go(target)
        m.send(pc + 1)
        m.send(target, taken)
        return m.meet()

    return control


@controls("brx.idx")
def branch_indexed(d: Decoder) -> Control:
    """Each lane goes to the label of its index."""
    d.take("idx", "uni")
    d.take("uni")
    d.finish()
    if d.instruction.guard is not None:
        raise d.error("a guarded brx.idx is not modelled")
    table = np.array(targets(d.instruction, d.scope), np.int32)
    slot = d.slot(d.operands[0])
    read = d.read(d.operands[0], TYPES["u32"])
    instruction = d.instruction

    def control(m: Machine, pc: int) -> int:
        m.require_clean(instruction, slot, "the index of a branch")
        index = read(m)
        bad = index >= table.size if m.mask is None else (index >= table.size) & m.mask
        if np.count_nonzero(bad):
            raise m.fail(
                instruction, f"index {index[bad][0]} of {table.size} labels", int(bad.argmax())
            )
        m.send(table[np.minimum(index, table.size - 1)])
        return m.meet()

    return control


@controls("ret")
def ret(d: Decoder) -> Control:
    d.take("uni")
    d.finish()
    if d.scope.inlined:
        (target,) = targets(d.instruction, d.scope)
        return _jump(d, target)
    return _exit(d)


@controls("exit")
def exit_thread(d: Decoder) -> Control:
    d.finish()
    return _exit(d)


def _exit(d: Decoder) -> Control:
    guard = guard_slot(d)

    def control(m: Machine, pc: int) -> int:
        taken, some = taken_lanes(m, pc, guard)
        if not some:
            return m.go(pc + 1)
        m.send(pc + 1)
        m.send(_EXITED, taken)
        gone = (m.lane_pc[m.lanes].reshape(-1, WARP) == _EXITED).all(axis=1)
        if m.members is not None:
            gone &= m.members
        rows = np.flatnonzero(gone) + m.low
        if m.hopper is not None and rows.size:
            m.hopper.exit(m.program.steps[pc].instruction, rows)
        _release(m, m.barriers.exit(m.row_clock[rows]))
        return m.meet()

    return control


@controls("trap")
def trap(d: Decoder) -> Control:
    d.finish()
    guard = guard_slot(d)

    def control(m: Machine, pc: int) -> int:
        taken, some = taken_lanes(m, pc, guard)
        if not some:
            return m.go(pc + 1)
        lane = 0 if taken is None else int(taken.argmax())
        raise m.fail(m.program.steps[pc].instruction, "the kernel trapped", lane)

    return control


def _release(m: Machine, clock_rows: Array) -> None:
    """Let the warps run that a barrier has released."""
    m.blocked[m.row_of_clock[clock_rows]] = False


# Barriers ---------------------------------------------------------------------------------


@controls("bar.sync", "bar.arrive", "bar.cta", "barrier.sync", "barrier.arrive", "barrier.cta")
def barrier(d: Decoder) -> Control:
    """bar and barrier, `.sync` and `.arrive`: a warp takes part as a whole.

    `barrier` without `.aligned` lets lanes arrive apart; that is not modelled and refused.
    """
    d.take("cta")
    kind = d.choose(("sync", "arrive"))
    d.take("aligned")
    d.finish()
    if not kind:
        raise d.error("only .sync and .arrive are modelled")
    d.expect(1, 2)
    number = d.read(d.operands[0], TYPES["u32"])
    threads = d.read(d.operands[1], TYPES["u32"]) if len(d.operands) == 2 else None
    if kind == "arrive" and threads is None:
        raise d.error("an arrival needs a thread count")
    sources = tuple(d.reads)
    guard = guard_slot(d)
    instruction = d.instruction

    def control(m: Machine, pc: int) -> int:
        for slot in sources:
            m.require_clean(instruction, slot, "the operand of a barrier")
        outer = m.mask
        taken, some = taken_lanes(m, pc, guard)
        if not some:
            return m.go(pc + 1)
        m.mask = taken
        rows = np.flatnonzero(m.converged_rows(instruction))
        first = m.active_lanes()[rows].argmax(axis=1)
        numbers = m.warp_lanes(number(m))[rows, first]
        counts = np.full(rows.size, ALL)
        if threads is not None:
            counts = m.warp_lanes(threads(m))[rows, first]
        m.mask = outer
        m.send(pc + 1)
        if kind == "sync":
            m.blocked[m.low + rows] = True
        _arrive(m, instruction, rows, numbers, counts, kind == "sync")
        return _LEAVE if kind == "sync" else m.meet()

    return control


def _arrive(
    m: Machine, instruction: Instruction, rows: Array, numbers: Array, counts: Array, waits: bool
) -> None:
    """Rows of the gang arrive, those of one barrier and count together."""
    bad = (numbers >= COUNT) | (counts % WARP != 0)
    if np.count_nonzero(bad):
        at = int(bad.argmax())
        what = f"barrier {numbers[at]} with {counts[at]} threads; there are {COUNT}, of whole warps"
        raise m.fail(instruction, what, int(rows[at]) * WARP)
    for number, count in {(int(n), int(c)) for n, c in zip(numbers, counts, strict=True)}:
        ours = rows[(numbers == number) & (counts == count)]
        try:
            released = m.barriers.arrive(m.row_clock[m.low + ours], number, count, waits)
        except BarrierMisuse as misuse:
            raise m.fail(instruction, str(misuse), int(ours[0]) * WARP) from misuse
        _release(m, released)
