"""Loads and stores by memory space: how the accesses of a gang reach their bytes.

A generic address goes where its window says; lanes of one access may go to different spaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..memory import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW_SHIFT
from ..ptx import Instruction
from ..ptxtypes import VIEWS, Array, PtxType

if TYPE_CHECKING:
    from ..machine import Machine


@dataclass(frozen=True, slots=True)
class Access:
    """The elements that a load or store moves: `count` of type `of`, `size` bytes in all.

    order: "weak", or that of accesses which do not race with each other, like "relaxed"; "nc" is
    weak, and of memory that nobody writes meanwhile.
    """

    instruction: Instruction
    space: str
    of: PtxType
    count: int
    size: int
    order: str = "weak"

    @property
    def strong(self) -> bool:
        return self.order not in ("weak", "nc")


# Addresses [k] (int64) of the active lanes (positions in the gang, None: all).
Fetch = Callable[["Machine", Access, Array, "Array | None"], "tuple[Array, Array | None]"]
Put = Callable[["Machine", Access, Array, "Array | None", Array, "Array | None"], None]


def thread_numbers(m: Machine, active: Array | None) -> Array:
    """Numbers in the batch of the active lanes."""
    lanes = np.arange(m.lanes.start, m.lanes.stop)
    return lanes if active is None else lanes[active]


def shared_index(m: Machine, access: Access, where: Array, active: Array | None) -> Array:
    """Byte indices in the arena of shared memory."""
    fail = m.failing(access.instruction, where, active)
    cta = m.at(m.lane_cta[m.lanes], active)
    if m.hopper is not None and access.space != "shared":
        where, cta = m.hopper.clusters.split(where, cta, fail)
    return m.shared.locate(where, access.size, cta, fail)


def clock_rows(m: Machine, active: Array | None) -> Array:
    """The warps of the active lanes, as `Races` numbers them."""
    return m.at(m.lane_clock[m.lanes], active)


# Loads: values [k, count] ([k] for one) and states [k, size], None when all are clean ---------


def _fetch_global(
    m: Machine, access: Access, where: Array, active: Array | None
) -> tuple[Array, Array | None]:
    fail = m.failing(access.instruction, where, active)
    address = where.view(np.uint64)
    found = m.memory.load(address, access.size, access.of.code, access.count, fail)
    if m.global_races is not None:
        m.global_races.read(address, access.size, clock_rows(m, active), fail, access.order)
    return found


def _fetch_shared(
    m: Machine, access: Access, where: Array, active: Array | None
) -> tuple[Array, Array | None]:
    index = shared_index(m, access, where, active)
    if m.shared.races is not None:
        fail = m.failing(access.instruction, where, active)
        watch = m.shared.races.atomic if access.strong else m.shared.races.read
        watch(index, access.size, clock_rows(m, active), fail)
    return m.shared.arena.load(index, access.size, access.of.code, access.count)


def _fetch_frame(
    m: Machine, access: Access, where: Array, active: Array | None
) -> tuple[Array, Array | None]:
    fail = m.failing(access.instruction, where, active)
    index = m.private.locate(where, access.size, thread_numbers(m, active), fail)
    return m.private.arena.load(index, access.size, access.of.code, access.count)


def _fetch_param(
    m: Machine, access: Access, where: Array, active: Array | None
) -> tuple[Array, Array | None]:
    """Kernel parameters by a register: each lane may read another one."""
    fail = m.failing(access.instruction, where, active)
    nbytes = m.program.layout.param_bytes
    bad = (where < 0) | (where + access.size > nbytes) | (where % access.size != 0)
    if np.count_nonzero(bad):
        reason = f"is outside the {nbytes} bytes of parameters, or misaligned"
        raise fail(reason, int(bad.argmax()))
    return m.params.load(where, access.size, access.of.code, access.count)


def _fetch_generic(
    m: Machine, access: Access, where: Array, active: Array | None
) -> tuple[Array, Array | None]:
    shape = (where.size,) if access.count == 1 else (where.size, access.count)
    values = np.zeros(shape, VIEWS[access.of.code])
    states = np.zeros((where.size, access.size), np.uint8)
    for space, positions, inside, lanes in _by_window(m, access, where, active):
        part, part_states = FETCH[space](m, access, inside, lanes)
        values[positions] = part
        if part_states is not None:
            states[positions] = part_states
    return values, states if np.count_nonzero(states) else None


FETCH: dict[str, Fetch] = {
    "global": _fetch_global,
    "const": _fetch_global,
    "shared": _fetch_shared,
    "shared::cluster": _fetch_shared,
    "frame": _fetch_frame,
    "param": _fetch_param,
    "generic": _fetch_generic,
}

# Stores: values [k, count], states [k, size] or None when all are clean -----------------------


def _put_global(
    m: Machine,
    access: Access,
    where: Array,
    active: Array | None,
    values: Array,
    states: Array | None,
) -> None:
    fail = m.failing(access.instruction, where, active)
    if states is not None:
        raise fail("in global memory gets a poisoned value", int(states.any(axis=1).argmax()))
    address = where.view(np.uint64)
    m.memory.store(address, access.size, values, fail, access.strong)
    if m.global_races is not None:
        m.global_races.write(address, access.size, clock_rows(m, active), fail, access.order)


def _put_shared(
    m: Machine,
    access: Access,
    where: Array,
    active: Array | None,
    values: Array,
    states: Array | None,
) -> None:
    index = shared_index(m, access, where, active)
    fail = m.failing(access.instruction, where, active)
    if m.hopper is not None:
        m.hopper.proxy.refuse_read(index, access.size, fail)
        m.hopper.proxy.wrote(index, access.size, thread_numbers(m, active))
    m.shared.store(index, access.size, values, states, clock_rows(m, active), access.strong, fail)


def _put_frame(
    m: Machine,
    access: Access,
    where: Array,
    active: Array | None,
    values: Array,
    states: Array | None,
) -> None:
    fail = m.failing(access.instruction, where, active)
    index = m.private.locate(where, access.size, thread_numbers(m, active), fail)
    m.private.arena.store(index, access.size, values, states)


def _put_generic(
    m: Machine,
    access: Access,
    where: Array,
    active: Array | None,
    values: Array,
    states: Array | None,
) -> None:
    for space, positions, inside, lanes in _by_window(m, access, where, active):
        if space not in PUT:
            raise m.failing(access.instruction, where, active)("is read only", int(positions[0]))
        part = None if states is None else states[positions]
        part = None if part is None or not np.count_nonzero(part) else part
        PUT[space](m, access, inside, lanes, values[positions], part)


PUT: dict[str, Put] = {
    "global": _put_global,
    "shared": _put_shared,
    "shared::cluster": _put_shared,
    "frame": _put_frame,
    "generic": _put_generic,
}

# Generic addresses ------------------------------------------------------------------------

_WINDOWS = {"global": 0, "shared": SHARED_WINDOW, "frame": LOCAL_WINDOW, "param": PARAM_WINDOW}
_SPACES = {window >> WINDOW_SHIFT: space for space, window in _WINDOWS.items()}


def _by_window(
    m: Machine, access: Access, where: Array, active: Array | None
) -> Iterator[tuple[str, Array, Array, Array]]:
    """The lanes of each space: positions among the addresses, addresses in the space, lanes."""
    lanes = np.arange(m.lanes.stop - m.lanes.start) if active is None else active
    windows = where.view(np.uint64) >> np.uint64(WINDOW_SHIFT)
    for number in np.unique(windows).tolist():
        positions = np.flatnonzero(windows == number)
        space = _SPACES.get(number)
        if space is None:
            raise m.failing(access.instruction, where, active)("is nowhere", int(positions[0]))
        yield space, positions, where[positions] - np.int64(_WINDOWS[space]), lanes[positions]
