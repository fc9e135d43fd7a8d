"""cp.async: asynchronous copies from global to shared memory, in commit groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..decode import OWN, PRED, Decoder, Run, Slot, decodes
from ..memory import Fail
from ..ptx import Immediate, Instruction, Register
from ..ptxtypes import TYPES, Array
from .access import take_hints
from .bits import source_slot
from .spaces import Access, shared_index, thread_numbers

if TYPE_CHECKING:
    from ..copies import AsyncCopies
    from ..machine import Machine


def copies_of(m: Machine) -> AsyncCopies:
    assert m.copies is not None
    return m.copies


def _late_failure(m: Machine, instruction: Instruction) -> Fail:
    """For a source that is read at the wait: its addresses were found good at the issue."""
    return lambda reason, position: m.fail(instruction, f"source of copy {position} {reason}")


@decodes("cp.async.ca", "cp.async.cg")
def copy_async(d: Decoder) -> Run:
    """cp.async.{ca,cg}.shared.global [to], [from], size{, src-size | ignore-src}{, policy}."""
    d.take("async")
    level = d.choose(("ca", "cg"))
    d.take("shared", "shared::cta")
    d.take("global")
    take_hints(d)
    has_policy = d.take("L2::cache_hint")
    d.finish()
    operands = list(d.operands[: len(d.operands) - has_policy])
    size = operands[2].value if isinstance(operands[2], Immediate) else 0
    if size not in ((16,) if level == "cg" else (4, 8, 16)) or len(operands) > 4:
        raise d.error(f"a copy of {size} bytes with {len(operands)} operands")
    d.smem_widths.add(size)
    _, target = d.address(operands[0], "shared")
    _, source = d.address(operands[1], "global")
    wanted = _wanted(d, size)
    d.gmem_widths.add(4)
    access = Access(d.instruction, "shared", TYPES["b32"], size // 4, size)
    d.poison, d.ends_segment = OWN, True

    instruction = d.instruction

    def run(m: Machine) -> None:
        active = m.active()
        to, where = m.at(target(m), active), m.at(source(m), active)
        count = wanted(m, active, to.size)
        index = shared_index(m, access, to, active)
        fail_source = m.failing(instruction, where, active)
        if int(np.bitwise_or.reduce(where)) & (size - 1):
            bad = int((where & (size - 1) != 0).argmax())
            raise fail_source(f"is not a multiple of the copy's size, {size} bytes", bad)
        fail_target = m.failing(instruction, to, active)
        lanes = thread_numbers(m, active)
        copies_of(m).issue(
            index, where.view(np.uint64), size, count, lanes, fail_target, fail_source
        )

    return run


def _wanted(d: Decoder, size: int) -> Callable[[Machine, Array | None, int], Array]:
    """A closure that gives how many source bytes each active lane copies."""
    has_policy = "L2::cache_hint" in d.opcode
    operands = d.operands[:-1] if has_policy else d.operands
    if len(operands) == 3:
        return lambda m, active, count: np.full(count, size, np.int32)
    operand = operands[3]
    slot: Slot | None = source_slot(d, operand)
    if slot is not None:
        d.strict.append(slot)
    ignores = isinstance(operand, Register) and slot is not None and slot.width == 1
    read = d.read(operand, PRED if ignores else TYPES["u32"])

    def wanted(m: Machine, active: Array | None, count: int) -> Array:
        del count
        value = m.at(read(m), active)
        if ignores:
            return np.where(value, 0, size).astype(np.int32)
        return np.minimum(value, size).astype(np.int32)

    return wanted


@decodes("cp.async.commit_group")
def commit_group(d: Decoder) -> Run:
    d.ends_segment = True
    return lambda m: copies_of(m).commit(thread_numbers(m, m.active()))


@decodes("cp.async.wait_group")
def wait_group(d: Decoder) -> Run:
    operand = d.operands[0]
    if not isinstance(operand, Immediate):
        raise d.error("the number of groups must be a constant")
    pending, instruction = operand.value, d.instruction
    d.poison, d.ends_segment = OWN, True

    def run(m: Machine) -> None:
        copies_of(m).wait(thread_numbers(m, m.active()), pending, _late_failure(m, instruction))

    return run


@decodes("cp.async.wait_all")
def wait_all(d: Decoder) -> Run:
    instruction = d.instruction
    d.poison, d.ends_segment = OWN, True

    def run(m: Machine) -> None:
        lanes = thread_numbers(m, m.active())
        copies_of(m).commit(lanes)
        copies_of(m).wait(lanes, 0, _late_failure(m, instruction))

    return run
