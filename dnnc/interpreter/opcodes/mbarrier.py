"""mbarrier operations, and the fences towards the asynchronous proxy.

A wait blocks its warp until a phase completes.  When nobody else can run, and something has
happened since the last time, waits time out: `try_wait` and `test_wait` then give false.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..decode import OWN, PRED, Control, Decoder, Run, controls, decodes
from ..geometry import WARP
from ..mbarrier import SIZE, Mbarrier
from ..memory import SHARED_WINDOW, Fail
from ..ptx import Address, Operand, Sink
from ..ptxtypes import TYPES, Array
from .control import guard_slot, taken_lanes
from .spaces import Access, shared_index, thread_numbers

if TYPE_CHECKING:
    from ..hopper import Hopper
    from ..machine import Machine

_SPACES = ("shared", "shared::cta", "shared::cluster")
_LEAVE = -1
_U32, _U64 = TYPES["u32"], TYPES["u64"]
# A state is its phase with this bit, so that other numbers are recognised as none.
_STATE = 1 << 62
# How often a wait that could block gives up at once.
_IMPATIENCE = {"try_wait": 0.05, "test_wait": 0.3}


def hopper_of(m: Machine) -> Hopper:
    assert m.hopper is not None
    return m.hopper


def shared_place(
    d: Decoder, operand: Operand, space: str, size: int
) -> Callable[[Machine, Array | None], tuple[Array, Array, Fail]]:
    """A closure that gives (addresses in the cluster, byte indices in the arena, fail)."""
    space = space.removesuffix("::cta")
    kind, read = d.address(operand, space or "generic")
    access = Access(d.instruction, kind, TYPES["b64"], 1, size)

    def place(m: Machine, active: Array | None) -> tuple[Array, Array, Fail]:
        where = m.at(read(m), active)
        fail = m.failing(d_instruction, where, active)
        if kind == "generic":
            outside = (where >> 60) != SHARED_WINDOW >> 60
            if np.count_nonzero(outside):
                raise fail("is not in shared memory", int(outside.argmax()))
            where = where - np.int64(SHARED_WINDOW)
        return where, shared_index(m, access, where, active), fail

    d_instruction = d.instruction
    return place


def _memory_order(d: Decoder) -> bool:
    """Takes the semantics and scope; whether they order other memory accesses."""
    order = d.choose(("relaxed", "acquire", "release"))
    d.choose(("cta", "cluster"))
    return order != "relaxed"


def at_position(fail: Fail, position: int) -> Fail:
    """A `Fail` that always names one of the instruction's accesses."""
    return lambda reason, _: fail(reason, position)


@decodes("mbarrier.init", "mbarrier.inval")
def make(d: Decoder) -> Run:
    name = d.choose(("init", "inval"))
    space = d.choose(_SPACES)
    d.take("b64")
    d.finish()
    d.expect(2 if name == "init" else 1)
    place = shared_place(d, d.operands[0], space, SIZE)
    count = d.read(d.operands[1], _U32) if name == "init" else None
    d.strict.extend(d.reads)
    d.poison, d.ends_segment = OWN, True

    def run(m: Machine) -> None:
        active = m.active()
        where, index, fail = place(m, active)
        objects, lanes = hopper_of(m).mbarriers, thread_numbers(m, active)
        counts = None if count is None else m.at(count(m), active)
        for k, at in enumerate(index.tolist()):
            if counts is None:
                objects.invalidate(at, int(lanes[k]), at_position(fail, k))
            else:
                objects.init(at, int(where[k]), int(counts[k]), int(lanes[k]), at_position(fail, k))

    return run


@decodes("mbarrier.arrive", "mbarrier.arrive_drop", "mbarrier.expect_tx", "mbarrier.complete_tx")
def arrive(d: Decoder) -> Run:
    """mbarrier.arrive{.expect_tx} {state,} [a]{, count}, and the operations on bytes alone."""
    drops = d.take("arrive_drop")
    arrives = d.take("arrive") or drops
    kind = d.choose(("expect_tx", "complete_tx"))
    d.take("noComplete")
    release = _memory_order(d)
    space = d.choose(_SPACES)
    d.take("b64")
    d.finish()
    operands = list(d.operands)
    state = operands.pop(0) if not isinstance(operands[0], Address) else Sink()
    if len(operands) not in (1, 2) or (kind and len(operands) == 1):
        raise d.error(f"{len(operands)} operands")
    place = shared_place(d, operands[0], space, SIZE)
    number = d.read(operands[1], _U32) if len(operands) == 2 else None
    d.strict.extend(d.reads)
    slot = None if isinstance(state, Sink) else d.slot(state)
    if slot is not None:
        d.writes.append(slot)
        d.codes.add(_U64.code)
    d.poison, d.ends_segment = OWN, True

    def run(m: Machine) -> None:
        active = m.active()
        _, index, fail = place(m, active)
        objects, lanes = hopper_of(m).mbarriers, thread_numbers(m, active)
        numbers = np.ones(index.size, np.int64)
        if number is not None:
            numbers = m.at(number(m), active).astype(np.int64)
        states = np.zeros(index.size, np.uint64)
        for k, (at, lane, value) in enumerate(
            zip(index.tolist(), lanes.tolist(), numbers.tolist(), strict=True)
        ):
            fail_k = at_position(fail, k)
            barrier = objects.of(at, lane, fail_k)
            if kind == "expect_tx":
                objects.expect(barrier, value, fail_k)
            elif kind == "complete_tx":
                objects.complete_bytes(barrier, value, None, fail_k)
            if arrives:
                count = 1 if kind else value
                barrier.expected -= count if drops else 0
                states[k] = _STATE | objects.arrive(barrier, count, lane, release, fail_k)
        if slot is not None:
            m.put(slot, _U64.code, states, active)
            m.put_shadow(slot, None, active)

    return run


@controls("mbarrier.try_wait", "mbarrier.test_wait")
def wait(d: Decoder) -> Control:
    """p, [a], state or parity{, time}: whether a phase is complete."""
    name = d.choose(("try_wait", "test_wait"))
    parity = d.take("parity")
    acquire = _memory_order(d)
    space = d.choose(_SPACES)
    d.take("b64")
    d.finish()
    d.expect(3, 4)
    place = shared_place(d, d.operands[1], space, SIZE)
    asked = d.read(d.operands[2], _U32 if parity else _U64)
    sources = (*d.strict, *d.reads)
    result = d.slot(d.operands[0])
    d.writes.append(result)
    d.codes.add(PRED.code)
    guard, instruction = guard_slot(d), d.instruction

    def control(m: Machine, pc: int) -> int:
        taken, some = taken_lanes(m, pc, guard)
        if not some:
            return m.go(pc + 1)
        outer, m.mask = m.mask, taken
        for slot in sources:
            m.require_clean(instruction, slot, "the operand of a wait")
        active = m.active()
        _, index, fail = place(m, active)
        lanes = thread_numbers(m, active)
        found = _objects(m, index, lanes, fail)
        done = _done(found, m.at(asked(m), active), parity, fail)
        rows = lanes // WARP
        stays = _sleep(m, found, done, rows, _IMPATIENCE[name])
        moves = ~np.isin(rows, stays)
        if acquire:
            _acquire(m, found, done & moves, lanes)
        moving = np.arange(m.lanes.stop - m.lanes.start) if active is None else active
        m.put(result, PRED.code, done[moves], moving[moves])
        if m.shadow:
            m.put_shadow(result, None, moving[moves])
        m.mask = outer
        return stand_or_go(m, pc, stays)

    return control


def stand_or_go(m: Machine, pc: int, stays: Array) -> int:
    """The gang goes on, but for the rows `stays`, which sleep where they are."""
    if stays.size == 0:
        return m.go(pc + 1)
    m.send(pc)
    going = np.ones(m.lanes.stop - m.lanes.start, bool) if m.mask is None else m.mask.copy()
    going.reshape(-1, WARP)[stays - m.low] = False
    m.send(pc + 1, going)
    return _LEAVE


def _objects(m: Machine, index: Array, lanes: Array, fail: Fail) -> list[Mbarrier]:
    """The object that each thread waits at; threads of one clock know the same of it."""
    known: dict[tuple[int, int], Mbarrier] = {}
    places = list(zip(index.tolist(), m.lane_clock[lanes].tolist(), strict=True))
    for k, place in enumerate(places):
        if place not in known:
            lane = int(lanes[k])
            known[place] = hopper_of(m).mbarriers.of(place[0], lane, at_position(fail, k))
    return [known[place] for place in places]


def _done(found: list[Mbarrier], asked: Array, parity: bool, fail: Fail) -> Array:
    """Whether the phase that each thread asks for is complete."""
    if parity:
        if np.count_nonzero(asked > 1):
            k = int((asked > 1).argmax())
            raise fail(f"is asked for parity {asked[k]}", k)
        return np.array([barrier.phase & 1 for barrier in found]) != asked
    out = np.zeros(len(found), bool)
    for k, (barrier, value) in enumerate(zip(found, asked.tolist(), strict=True)):
        phase = value & ~_STATE
        if not value & _STATE or phase > barrier.phase or barrier.phase - phase > 1:
            raise fail("is asked for a state that is none of its last two phases", k)
        out[k] = barrier.phase != phase
    return out


def _sleep(m: Machine, found: list[Mbarrier], done: Array, rows: Array, impatience: float) -> Array:
    """Put to sleep the rows with a thread that must wait; returns them."""
    if np.count_nonzero(done) == done.size:
        m.timed_out.difference_update(rows.tolist())
        return np.zeros(0, np.int64)
    stays: list[int] = []
    for row in np.unique(rows[~done]).tolist():
        if row in m.timed_out:
            m.timed_out.discard(row)
        elif m.rng.random() >= impatience:
            missing = [found[k] for k in np.flatnonzero((rows == row) & ~done).tolist()]
            hopper_of(m).mbarriers.sleep(row, missing)
            stays.append(row)
    return np.array(stays, np.int64)


def _acquire(m: Machine, found: list[Mbarrier], done: Array, lanes: Array) -> None:
    seen: set[tuple[int, int]] = set()
    rows = (lanes // WARP).tolist()
    for k in np.flatnonzero(done).tolist():
        key = id(found[k]), rows[k]
        if key not in seen:
            seen.add(key)
            hopper_of(m).mbarriers.acquire(found[k], int(lanes[k]))


# Fences -----------------------------------------------------------------------------------


@decodes("fence.mbarrier_init")
def fence_init(d: Decoder) -> Run:
    """fence.mbarrier_init.release.cluster: initialisations are known to the cluster."""
    d.take("mbarrier_init")
    d.take("release")
    d.take("cluster")
    d.finish()
    d.ends_segment = True

    def run(m: Machine) -> None:
        if m.hopper is not None:
            lanes = thread_numbers(m, m.active())
            m.hopper.mbarriers.fence(lanes)
            m.hopper.clusters.fence(lanes)

    return run


@decodes("fence.proxy")
def fence_proxy(d: Decoder) -> Run:
    """fence.proxy.async{.space}: ordinary accesses are known to the asynchronous proxy."""
    d.take("proxy")
    if not d.take("async"):
        raise d.error("only the asynchronous proxy is modelled")
    space = d.choose((*_SPACES, "global"))
    d.finish()
    d.ends_segment = True

    def run(m: Machine) -> None:
        if m.hopper is None:
            return
        lanes = thread_numbers(m, m.active())
        if space != "global":
            m.hopper.proxy.fence(lanes)
            m.hopper.mbarriers.fence(lanes)
        if m.shared.races is not None:
            m.shared.races.fence_proxy(m.lane_clock[lanes], space)

    return run
