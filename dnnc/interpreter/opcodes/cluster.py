"""mapa, the cluster's barrier, and setmaxnreg."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..cluster import ClusterMisuse
from ..decode import OWN, Control, Decoder, Run, controls, decodes
from ..geometry import WARP
from ..memory import SHARED_WINDOW
from ..ptx import Address, Immediate, Instruction, Symbol
from ..ptxtypes import TYPES, Array
from ..registers import LEAST, MOST, STEP
from .control import guard_slot, taken_lanes
from .mbarrier import hopper_of, stand_or_go
from .spaces import thread_numbers

if TYPE_CHECKING:
    from ..machine import Machine


@decodes("mapa")
def map_address(d: Decoder) -> Run:
    """mapa{.shared::cluster}.u32/u64 d, a, rank: a's counterpart in another CTA."""
    generic = not d.take("shared::cluster")
    of = d.only_type()
    d.expect(3)
    source = d.operands[1]
    if isinstance(source, Symbol):
        source = Address(source, 0)
    read, rank = d.read(source, of), d.read(d.operands[2], TYPES["u32"])
    write, instruction = d.write(d.operands[0], of), d.instruction
    window = np.int64(SHARED_WINDOW if generic else 0)
    # Addresses must be known.
    d.strict.extend(d.reads)

    def run(m: Machine) -> None:
        where = m.at(read(m).astype(np.int64), None) - window
        ranks = m.at(rank(m), None).astype(np.int64)
        if m.mask is not None:
            ranks = np.where(m.mask, ranks, 0)
        fail = m.failing(instruction, where, None)
        found = hopper_of(m).clusters.map(where, ranks, fail)
        write(m, (found + window).astype(of.dtype))

    return run


@decodes("barrier.cluster.arrive")
def arrive(d: Decoder) -> Run:
    d.take("cluster")
    d.take("arrive")
    relaxed = d.choose(("release", "relaxed")) == "relaxed"
    aligned = d.take("aligned")
    d.finish()
    d.ends_segment = True
    instruction = d.instruction

    def run(m: Machine) -> None:
        if aligned:
            m.converged_rows(instruction)
        lanes = thread_numbers(m, m.active())
        clusters, races = hopper_of(m).clusters, m.shared.races
        rows = m.lane_clock[lanes]
        clocks = None if races is None else clusters.released(rows, relaxed)
        try:
            clusters.arrive(lanes, clocks)
        except ClusterMisuse as misuse:
            raise m.fail(instruction, str(misuse), int(lanes[0]) - m.lanes.start) from misuse
        if races is not None:
            races.advance(np.unique(rows))

    return run


@controls("barrier.cluster.wait")
def wait(d: Decoder) -> Control:
    d.take("cluster")
    d.take("wait")
    d.take("acquire")
    aligned = d.take("aligned")
    d.finish()
    guard, instruction = guard_slot(d), d.instruction

    def control(m: Machine, pc: int) -> int:
        taken, some = taken_lanes(m, pc, guard)
        if not some:
            return m.go(pc + 1)
        outer, m.mask = m.mask, taken
        if aligned:
            m.converged_rows(instruction)
        lanes = thread_numbers(m, m.active())
        stays = _wait(m, instruction, lanes)
        m.mask = outer
        return stand_or_go(m, pc, stays)

    return control


def _wait(m: Machine, instruction: Instruction, lanes: Array) -> Array:
    """Let the threads pass that may; returns the rows that wait."""
    clusters = hopper_of(m).clusters
    try:
        passed = clusters.passed(lanes)
    except ClusterMisuse as misuse:
        raise m.fail(instruction, str(misuse), int(lanes[0]) - m.lanes.start) from misuse
    stays = np.unique(lanes[~passed] // WARP)
    moves = lanes[~np.isin(lanes // WARP, stays)]
    if moves.size:
        clusters.leave(moves)
    for row in stays.tolist():
        clusters.sleep(row)
    return stays


@decodes("setmaxnreg")
def set_registers(d: Decoder) -> Run:
    """setmaxnreg.{inc,dec}.sync.aligned.u32 n: only the sum over the CTA is checked."""
    increase = d.choose(("inc", "dec")) == "inc"
    d.take("sync")
    d.take("aligned")
    d.only_type()
    operand = d.operands[0]
    if not isinstance(operand, Immediate):
        raise d.error("the number of registers must be a constant")
    count = operand.value
    if count % STEP or not LEAST <= count <= MOST:
        raise d.error(f"{count} registers; multiples of {STEP} from {LEAST} to {MOST} are possible")
    d.poison, d.ends_segment = OWN, True
    instruction = d.instruction

    def run(m: Machine) -> None:
        if not {"reqntid", "maxntid"} & set(m.program.limits):
            raise m.fail(instruction, "needs a kernel with .reqntid or .maxntid")
        rows = np.flatnonzero(m.converged_rows(instruction)) + m.low
        wrong = hopper_of(m).registers.set(rows, count, increase)
        if wrong:
            raise m.fail(instruction, wrong)

    return run
