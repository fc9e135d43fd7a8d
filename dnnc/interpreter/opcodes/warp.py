"""Instructions by which the lanes of a warp talk: shfl, vote, match, redux, elect, bar.warp.

Their lane mask must name lanes that execute the instruction together with the others: a lane
that is named but stands elsewhere is an error (lanes that have exited are let off).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .. import floats
from ..decode import OWN, PRED, Decoder, Read, Run, Slot, decodes
from ..geometry import WARP
from ..ptx import Immediate, Instruction
from ..ptxtypes import TYPES, Array, PtxType
from .bits import shadow_or_zero, source_slot

if TYPE_CHECKING:
    from ..machine import Machine

_U32 = TYPES["u32"]
_LANE = np.arange(WARP)
_EVERY_LANE = np.uint32(0xFFFFFFFF)


def _members(m: Machine, instruction: Instruction, mask: Array) -> Array:
    """Lanes [rows, 32] that take part; mask: the member mask of each lane, or of all.

    Errors: a lane of the mask that is elsewhere, an executing lane that is not in its own mask.
    """
    active = m.active_lanes()
    if not np.count_nonzero(mask != _EVERY_LANE):
        if m.mask is None:
            return active
        wanted = np.logical_or.reduce(active, axis=1, keepdims=True)
    else:
        mask = m.warp_lanes(mask)
        named = (mask[:, :, None] >> _LANE.astype(np.uint32)) & np.uint32(1) != 0
        outside = active & ~named[:, _LANE, _LANE]
        if np.count_nonzero(outside):
            lane = int(outside.reshape(-1).argmax())
            raise m.fail(instruction, "the lane is not in its own member mask", lane)
        # Only the masks of executing lanes count; all lanes are compared at once.
        wanted = (named & active[:, :, None]).any(axis=1)
    missing = wanted & m.live_lanes() & ~active
    if np.count_nonzero(missing):
        lane = int(missing.reshape(-1).argmax())
        raise m.fail(instruction, "the lane is in the member mask, but it is elsewhere", lane)
    return wanted & active


def _require_clean(m: Machine, instruction: Instruction, slot: Slot | None) -> None:
    if slot is not None:
        m.require_clean(instruction, slot, "a member mask or lane number")


# shfl -------------------------------------------------------------------------------------


@decodes("shfl.sync")
def shuffle(d: Decoder) -> Run:
    """shfl.sync.mode.b32 d|p, a, b, c, membermask: a from another lane."""
    d.take("sync")
    mode = d.choose(("up", "down", "bfly", "idx"))
    of = d.only_type()
    d.expect(5)
    first, second = d.pair(d.operands[0])
    read = d.read(d.operands[1], of)
    source = source_slot(d, d.operands[1])
    b, c, mask = (d.read(operand, _U32) for operand in d.operands[2:5])
    controls = [source_slot(d, operand) for operand in d.operands[2:5]]
    write, predicate = d.write(first, of), d.write(second, PRED)
    targets = [source_slot(d, first), source_slot(d, second)]
    instruction = d.instruction
    known = None
    if all(isinstance(operand, Immediate) for operand in d.operands[2:4]):
        step, bounds = (d.constant(operand, _U32)[None] for operand in d.operands[2:4])
        known = _partner(mode, step, bounds)
    # A lane without a partner that executes gets poison, so this may poison by itself.
    d.poison, d.ends_segment = OWN, True

    def run(m: Machine) -> None:
        for slot in controls:
            _require_clean(m, instruction, slot)
        members = _members(m, instruction, mask(m))
        at, valid = known or _partner(mode, m.warp_lanes(b(m)), m.warp_lanes(c(m)))
        values = m.warp_lanes(read(m))
        chosen = (at + np.arange(0, values.size, WARP)[:, None]).reshape(-1)
        write(m, values.reshape(-1).take(chosen))
        if targets[1] is not None:
            predicate(m, np.broadcast_to(valid, values.shape).reshape(-1))
        moved = None
        if np.count_nonzero(members) < members.size or (
            source is not None and source.key in m.shadow
        ):
            moved = shadow_or_zero(m, source, of).take(chosen)
            absent = ~members.reshape(-1).take(chosen)
            moved = np.where(absent, ~np.zeros_like(moved), moved)
        if targets[0] is not None:
            m.set_shadow(
                targets[0], moved if moved is not None and np.count_nonzero(moved) else None
            )
        if targets[1] is not None:
            m.set_shadow(targets[1], None)

    return run


def _partner(mode: str, b: Array, c: Array) -> tuple[Array, Array]:
    """The lane that each lane reads [rows, 32], and whether it is within its segment."""
    lane = _LANE.astype(np.int64)
    step = (b & np.uint32(31)).astype(np.int64)
    clamp = (c & np.uint32(31)).astype(np.int64)
    segment = ((c >> np.uint32(8)) & np.uint32(31)).astype(np.int64)
    lowest = lane & segment
    highest = lowest | (clamp & ~segment)
    if mode == "up":
        at = lane - step
        valid = at >= highest
    elif mode == "down":
        at = lane + step
        valid = at <= highest
    elif mode == "bfly":
        at = lane ^ step
        valid = at <= highest
    else:
        at = lowest | (step & ~segment)
        valid = at <= highest
    return np.where(valid, at, lane), valid


# Votes ------------------------------------------------------------------------------------


def _collective(
    d: Decoder,
    sources: list[tuple[Read, Slot | None]],
    mask: tuple[Read, Slot | None] | None,
    function: Callable[[Machine, Array, list[Array]], list[Array]],
    targets: list[tuple[Slot | None, Callable[[Machine, Array], None]]],
) -> Run:
    """An instruction whose result depends on all members of a warp.

    function: (machine, members, values [rows, 32] of each source) -> values of each target.
    Poison in any member reaches every lane of its warp.
    """
    d.poison = OWN
    instruction = d.instruction

    def run(m: Machine) -> None:
        members = m.active_lanes()
        if mask is not None:
            _require_clean(m, instruction, mask[1])
            members = _members(m, instruction, mask[0](m))
        bad = np.zeros(members.shape[0], bool)
        for _, slot in sources:
            bits = None if slot is None else m.shadow_of(slot)
            if bits is not None:
                bad |= ((bits.reshape(-1, WARP) != 0) & members).any(axis=1)
        values = [m.warp_lanes(read(m)) for read, _ in sources]
        outputs = function(m, members, values)
        for (slot, write), value in zip(targets, outputs, strict=True):
            write(m, np.broadcast_to(value, members.shape).reshape(-1))
            if slot is not None and (m.shadow or np.count_nonzero(bad)):
                _poison_rows(m, slot, bad)

    return run


def _poison_rows(m: Machine, slot: Slot, bad: Array) -> None:
    if not np.count_nonzero(bad):
        m.set_shadow(slot, None)
        return
    dtype = np.dtype(bool) if slot.width == 1 else np.dtype(f"uint{slot.width}")
    ones = np.array(-1).astype(dtype)
    m.set_shadow(slot, np.where(np.repeat(bad, WARP), ones, np.zeros_like(ones)))


def _mask_operand(d: Decoder) -> tuple[Read, Slot | None]:
    operand = d.operands[-1]
    return d.read(operand, _U32), source_slot(d, operand)


def _bits_of(members: Array) -> Array:
    """Lane sets [rows, 32] as words [rows, 1]."""
    return (
        (members.astype(np.uint64) << _LANE.astype(np.uint64))
        .sum(axis=1)[:, None]
        .astype(np.uint32)
    )


def _target(
    d: Decoder, operand: object, of: PtxType
) -> tuple[Slot | None, Callable[[Machine, Array], None]]:
    write = d.write(operand, of)  # pyright: ignore[reportArgumentType]
    return source_slot(d, operand), write  # pyright: ignore[reportArgumentType]


@decodes("vote.sync")
def vote(d: Decoder) -> Run:
    """vote.sync.{all,any,uni}.pred p, a, mask; vote.sync.ballot.b32 d, a, mask."""
    d.take("sync")
    mode = d.choose(("all", "any", "uni", "ballot"))
    of = d.only_type()
    source = d.operands[1]
    read = d.read(source, PRED)
    slot = d.reads[-1] if d.reads else None
    mask = _mask_operand(d)

    def function(m: Machine, members: Array, values: list[Array]) -> list[Array]:
        del m
        yes = values[0] & members
        if mode == "ballot":
            return [_bits_of(yes)]
        everyone = np.all(values[0] | ~members, axis=1, keepdims=True)
        someone = np.any(yes, axis=1, keepdims=True)
        return [{"all": everyone, "any": someone, "uni": everyone | ~someone}[mode]]

    return _collective(d, [(read, slot)], mask, function, [_target(d, d.operands[0], of)])


@decodes("activemask")
def active_mask(d: Decoder) -> Run:
    of = d.only_type()
    return _collective(
        d, [], None, lambda m, members, values: [_bits_of(members)], [_target(d, d.operands[0], of)]
    )


@decodes("match.any.sync", "match.all.sync")
def match(d: Decoder) -> Run:
    """match.any: lanes with an equal value; match.all d|p: all members if they are equal."""
    everyone = d.choose(("any", "all")) == "all"
    d.take("sync")
    of = d.only_type()
    first, second = d.pair(d.operands[0])
    read, slot = d.read(d.operands[1], of), source_slot(d, d.operands[1])
    mask = _mask_operand(d)

    def function(m: Machine, members: Array, values: list[Array]) -> list[Array]:
        del m
        equal = (values[0][:, :, None] == values[0][:, None, :]) & members[:, None, :]
        words = (equal.astype(np.uint64) << _LANE.astype(np.uint64)).sum(axis=2).astype(np.uint32)
        if not everyone:
            return [words, members]
        agree = words == _bits_of(members)
        return [np.where(agree, words, np.uint32(0)), agree]

    targets = [_target(d, first, _U32), _target(d, second, PRED)]
    return _collective(d, [(read, slot)], mask, function, targets)


@decodes("redux.sync")
def reduce(d: Decoder) -> Run:
    """redux.sync.op d, a, mask: the members' values reduced, given to all of them."""
    d.take("sync")
    name = d.choose(("add", "min", "max", "and", "or", "xor"))
    absolute, nan = d.take("abs"), d.take("NaN")
    of = d.only_type()
    read, slot = d.read(d.operands[1], of), source_slot(d, d.operands[1])
    mask = _mask_operand(d)

    def function(m: Machine, members: Array, values: list[Array]) -> list[Array]:
        del m
        value = np.abs(values[0]) if absolute else values[0]
        if of.kind == "f":
            return [_reduce_floats(value, members, name, nan)]
        return [_INTEGER_REDUCTIONS[name](value, members)[:, None]]

    return _collective(d, [(read, slot)], mask, function, [_target(d, d.operands[0], of)])


def _reduce_floats(value: Array, members: Array, name: str, nan: bool) -> Array:
    larger = name == "max"
    extreme = {
        (True, True): floats.maximum_nan,
        (True, False): floats.maximum,
        (False, True): floats.minimum_nan,
        (False, False): floats.minimum,
    }[larger, nan]
    # Those who are left out take the value of some member.
    some = np.take_along_axis(value, members.argmax(axis=1)[:, None], axis=1)
    kept = np.where(members, value, some)
    out = kept[:, 0].copy()
    for lane in range(1, WARP):
        out = extreme(out, kept[:, lane].copy())
    return out[:, None]


_INTEGER_REDUCTIONS: dict[str, Callable[[Array, Array], Array]] = {
    "add": lambda a, members: np.where(members, a, 0).sum(axis=1, dtype=a.dtype),
    "min": lambda a, members: np.where(members, a, np.iinfo(a.dtype).max).min(axis=1),
    "max": lambda a, members: np.where(members, a, np.iinfo(a.dtype).min).max(axis=1),
    "and": lambda a, members: np.bitwise_and.reduce(np.where(members, a, ~a.dtype.type(0)), axis=1),
    "or": lambda a, members: np.bitwise_or.reduce(np.where(members, a, 0), axis=1),
    "xor": lambda a, members: np.bitwise_xor.reduce(np.where(members, a, 0), axis=1),
}


@decodes("elect.sync")
def elect(d: Decoder) -> Run:
    """elect.sync d|p, mask: p is true in one lane, here the lowest; d is its number."""
    first, second = d.pair(d.operands[0])
    mask = _mask_operand(d)

    def function(m: Machine, members: Array, values: list[Array]) -> list[Array]:
        del m, values
        leader = members.argmax(axis=1)[:, None].astype(np.uint32)
        return [leader, _LANE == leader]

    return _collective(d, [], mask, function, [_target(d, first, _U32), _target(d, second, PRED)])


@decodes("bar.warp.sync")
def warp_barrier(d: Decoder) -> Run:
    """The lanes of the mask must be here together; memory is in order inside a warp anyway."""
    d.take("warp")
    return _collective(d, [], _mask_operand(d), lambda m, members, values: [], [])
