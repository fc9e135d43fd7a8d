"""atom and red: read-modify-write of global and shared memory.

Lanes that meet at one address go one after the other, in random order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .. import floats
from ..arena import CLEAN, Arena
from ..decode import OWN, Decoder, Run, Write, decodes
from ..formats import BF16, F16, decode
from ..memory import SHARED_WINDOW, WINDOW_SHIFT, Fail
from ..ptxtypes import TYPES, Array, PtxType
from .access import take_hints, take_order
from .half import narrow
from .spaces import Access, clock_rows, shared_index, thread_numbers

if TYPE_CHECKING:
    from ..machine import Machine

# old, operand, second operand -> new
Update = Callable[[Array, Array, Array], Array]

_OPERATIONS: dict[str, Update] = {
    "and": lambda old, b, c: old & b,
    "or": lambda old, b, c: old | b,
    "xor": lambda old, b, c: old ^ b,
    "exch": lambda old, b, c: b,
    "cas": lambda old, b, c: np.where(old == b, c, old),
    "inc": lambda old, b, c: np.where(old >= b, old.dtype.type(0), old + old.dtype.type(1)),
    "dec": lambda old, b, c: np.where((old == 0) | (old > b), b, old - old.dtype.type(1)),
}
_LANES = {"v2": 2, "v4": 4, "v8": 8}


@decodes("atom", "red")
def atomic(d: Decoder) -> Run:
    """atom.op d, [a], b{, c}: d is the old value; red.op [a], b."""
    order = take_order(d, d.choose(("relaxed", "acquire", "release", "acq_rel"), "relaxed"))
    space = d.choose(("global", "shared", "shared::cta"), "generic").removesuffix("::cta")
    name = d.choose(("add", "min", "max", *_OPERATIONS))
    take_hints(d)
    noftz = d.take("noftz")
    count = _LANES.get(d.choose(tuple(_LANES)), 1)
    of = d.take_type()
    d.finish()
    returns = d.opcode[0] == "atom"
    first = 1 if returns else 0
    d.expect(first + (3 if name == "cas" else 2))
    if space in ("shared", "generic"):
        d.smem_widths.add(of.width // 8)
    space, address = d.address(d.operands[first], space)
    viewed = _viewed(of)
    sources = [
        [d.read(item, viewed) for item in d.vector(operand, count)]
        for operand in d.operands[first + 1 :]
    ]
    # What is stored must not be poisoned.
    d.strict.extend(d.reads)
    targets = d.vector(d.operands[0], count) if returns else ()
    writes = [d.write(target, viewed) for target in targets]
    update = _update(d, name, of, flushes=space == "global" and not noftz)
    d.poison, d.ends_segment = OWN, True
    size = of.width // 8
    access = Access(d.instruction, space, viewed, 1, size, order)
    if space in ("global", "generic"):
        d.gmem_widths.add(size)

    def run(m: Machine) -> None:
        active = m.active()
        where = m.at(address(m), active)
        for at in range(count):
            operands = [m.at(source[at](m), active) for source in sources]
            old = _apply(m, access, where + np.int64(at * size), active, operands, update)
            if returns:
                _spread(m, writes[at], old, active)
        for slot in step_writes:
            m.set_shadow(slot, None)

    step_writes = tuple(d.writes)
    return run


def _viewed(of: PtxType) -> PtxType:
    """The type that the memory is viewed as: packed and narrow floats as their bits."""
    return TYPES[f"b{of.width}"] if of.name in ("f16", "bf16", "f16x2", "bf16x2") else of


def _spread(m: Machine, write: Write, old: Array, active: Array | None) -> None:
    if active is None:
        write(m, old)
        return
    full = np.zeros(m.lanes.stop - m.lanes.start, old.dtype)
    full[active] = old
    write(m, full)


def _update(d: Decoder, name: str, of: PtxType, flushes: bool) -> Update:
    if name in _OPERATIONS:
        if of.kind == "f" and name not in ("exch", "cas"):
            raise d.error(f"atomic {name} of type {of.name}")
        return _OPERATIONS[name]
    if of.kind != "f":
        ufunc = {"add": np.add, "min": np.minimum, "max": np.maximum}[name]
        return lambda old, b, c: ufunc(old, b)
    combine = {"add": _add, "min": floats.minimum, "max": floats.maximum}[name]
    if of.name == "f32" and flushes and name == "add":
        # Atomic addition to global memory flushes subnormals, that to shared memory does not.
        return lambda old, b, c: floats.flush(_add(floats.flush(old), floats.flush(b)))
    if of.name in ("f32", "f64"):
        return lambda old, b, c: combine(old, b)
    fmt = BF16 if of.name.startswith("bf16") else F16

    def halves(old: Array, b: Array, c: Array) -> Array:
        del c
        x, y = (decode(np.ascontiguousarray(v).view(np.uint16), fmt) for v in (old, b))
        return narrow(combine(x, y), fmt).view(old.dtype)

    return halves


def _add(a: Array, b: Array) -> Array:
    return floats.canonical(a + b)


def _apply(
    m: Machine,
    access: Access,
    where: Array,
    active: Array | None,
    operands: list[Array],
    update: Update,
) -> Array:
    """Update memory lane by lane, lanes of different addresses together; returns old values."""
    old = np.empty(where.size, access.of.dtype)
    fail = m.failing(access.instruction, where, active)
    for arena, index, places in _find(m, access, where, active, fail):
        order = m.numpy_rng.permutation(index.size)
        if index.size > 1:
            order = order[np.argsort(index[order], kind="stable")]
        ordered = index[order]
        starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        lengths = np.diff(np.append(starts, ordered.size))
        b = operands[0]
        c = operands[1] if len(operands) > 1 else b
        # Round k does the k-th lane of every address that has so many.
        for turn in range(int(lengths.max())):
            chosen = order[starts[lengths > turn] + turn]
            lanes = places[chosen]
            values, states = arena.load(index[chosen], access.size, access.of.code, 1)
            if states is not None:
                bad = int((states != CLEAN).any(axis=1).argmax())
                raise fail("is updated before it was written", int(lanes[bad]))
            old[lanes] = values
            arena.store(index[chosen], access.size, update(values, b[lanes], c[lanes]))
    return old


def _find(
    m: Machine, access: Access, where: Array, active: Array | None, fail: Fail
) -> list[tuple[Arena, Array, Array]]:
    """(arena, byte indices, their positions in `where`) of each allocation that is addressed."""
    everywhere = np.arange(where.size)
    space = access.space
    if space == "generic":
        is_shared = int(where[0]) >> WINDOW_SHIFT == SHARED_WINDOW >> WINDOW_SHIFT
        space = "shared" if is_shared else "global"
        # Lanes of other windows are then out of bounds of this one.
        where = where - np.int64(SHARED_WINDOW) if is_shared else where
    if space == "shared":
        index = shared_index(m, access, where, active)
        if m.shared.races is not None:
            m.shared.races.atomic(index, access.size, clock_rows(m, active), fail)
        m.shared.refuse_in_flight(index, access.size, fail)
        if m.hopper is not None:
            m.hopper.proxy.refuse_read(index, access.size, fail)
            m.hopper.proxy.wrote(index, access.size, thread_numbers(m, active))
        return [(m.shared.arena, index, everywhere)]
    found = m.memory.locate(where.view(np.uint64), access.size, fail)
    parts = [(*found, everywhere)] if isinstance(found, tuple) else found
    for region, _, places in parts:
        if region.read_only:
            raise fail("is in constant memory", int(places[0]))
    if m.global_races is not None:
        m.global_races.update(
            where.view(np.uint64), access.size, clock_rows(m, active), fail, access.order
        )
    return [(region.arena, index, places) for region, index, places in parts]
