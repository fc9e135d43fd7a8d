"""Loads and stores of every memory space (PTX ISA, "Data Movement": ld, st).

Cache, eviction and prefetch modifiers mean nothing here; neither do ordering ones, because
every store is visible at once.  An access by a generic address goes where its window says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..arena import CLEAN
from ..decode import OWN, Decoder, Run, Slot, decodes
from ..ptx import Address, Operand, Sink, Symbol
from ..ptxtypes import TYPES, UNSIGNED_OF_WIDTH, Array, PtxType
from .bits import source_slot
from .move import halves
from .spaces import FETCH, PUT, Access

if TYPE_CHECKING:
    from ..machine import Machine

SPACES = ("global", "shared", "local", "param", "const", "shared::cta", "shared::cluster")
_ORDER = ("weak", "relaxed", "acquire", "release", "volatile", "mmio")
_HINTS = (
    *("ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "unified", "gpu", "cta", "cluster", "sys"),
    *("L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last"),
    *("L1::no_allocate", "L2::evict_normal", "L2::evict_first", "L2::evict_last"),
    *("L2::64B", "L2::128B", "L2::256B"),
)
LANES = {"v2": 2, "v4": 4, "v8": 8}


def take_hints(d: Decoder) -> None:
    """Use up the modifiers that do not change what an access does."""
    while d.take(*_HINTS):
        pass


def take_order(d: Decoder, order: str) -> str:
    """The order between CTAs of an access, whose scope is used up: a narrow one gives none."""
    scope = d.choose(("cta", "cluster", "gpu", "sys"))
    return "relaxed" if order != "weak" and scope in ("cta", "cluster") else order


def _access(d: Decoder) -> Access:
    order = take_order(d, d.choose(_ORDER, "weak"))
    space = d.choose(SPACES, "generic").removesuffix("::cta")
    if "nc" in d.opcode:
        order = "nc"
    take_hints(d)
    has_policy = d.take("L2::cache_hint")
    count = LANES.get(d.choose(tuple(LANES)), 1)
    if d.take("b128"):
        # Two 64-bit halves each; only one 128-bit register fits the widest access we know.
        if count != 1:
            raise d.error("vectors of b128 are not modelled")
        of, count = TYPES["b64"], 2
    else:
        of = d.take_type()
    d.finish()
    d.expect(3 if has_policy else 2)
    size = of.width // 8 * count
    if size > 32:
        raise d.error(f"an access of {size} bytes")
    if space in ("shared", "shared::cluster", "generic"):
        d.smem_widths.add(size)
    if space in ("global", "generic"):
        d.gmem_widths.add(size)
    return Access(d.instruction, space, of, count, size, order)


def _registers(d: Decoder, operand: Operand, access: Access) -> tuple[Operand, ...]:
    if d.opcode[-1] == "b128":
        return halves(d, operand)
    return d.vector(operand, access.count)


# Loads ------------------------------------------------------------------------------------


@decodes("ld", "ldu")
def load(d: Decoder) -> Run:
    access = _access(d)
    targets = _registers(d, d.operands[0], access)
    where = d.operands[1]
    space, address = d.address(where, access.space)
    if space == "param" and isinstance(where, Address) and isinstance(where.base, Symbol):
        return _load_parameter(d, access, targets, d.place(where.base.name).offset + where.offset)
    slots = [None if isinstance(t, Sink) else _target(d, t, access.of) for t in targets]
    d.poison, d.ends_segment = OWN, True
    fetch = FETCH.get(space)
    if fetch is None:
        raise d.error(f"loads from {space} memory are not modelled")
    of = access.of

    def run(m: Machine) -> None:
        active = m.active()
        where = m.at(address(m), active)
        values, states = fetch(m, access, where, active)
        for at, target in enumerate(slots):
            if target is None:
                continue
            slot, code = target
            m.put(slot, code, values if access.count == 1 else values[:, at], active)
            if states is not None or m.shadow:
                m.put_shadow(slot, _shadow(states, at, of, slot), active)

    return run


def _target(d: Decoder, operand: Operand, of: PtxType) -> tuple[Slot, int]:
    """The slot of a destination that may be wider than the type, and the view to fill it by."""
    slot = d.slot(operand)
    if slot.width < of.width or slot.width == 128:
        raise d.error(f"a register of {slot.width} bits for type {of.name}")
    d.writes.append(slot)
    code = of.code
    if slot.width != of.width:
        code = TYPES[f"{'s' if of.kind == 's' else 'u'}{slot.width}"].code
    d.codes.add(code)
    return slot, code


def _shadow(states: Array | None, at: int, of: PtxType, slot: Slot) -> Array | None:
    """Poisoned bits of element `at`, from the states [k, size] of the access's bytes."""
    if states is None:
        return None
    width = of.width // 8
    bad = states[:, at * width : (at + 1) * width] != CLEAN
    if not np.count_nonzero(bad):
        return None
    raw = np.where(bad, np.uint8(0xFF), np.uint8(0))
    bits = np.ascontiguousarray(raw).view(UNSIGNED_OF_WIDTH[of.width]).reshape(-1)
    if slot.width != of.width:
        # A narrow poisoned value poisons the whole of a wider register.
        ones = np.array(-1).astype(UNSIGNED_OF_WIDTH[slot.width])
        return np.where(bits != 0, ones, np.zeros_like(ones))
    return bits


def _load_parameter(d: Decoder, access: Access, targets: tuple[Operand, ...], offset: int) -> Run:
    """A kernel parameter by name is the same for every lane, and never poisoned."""
    writes = [d.write(target, access.of, wide=True) for target in targets]
    width = access.of.width // 8
    spans = [(write, slice(offset + at * width, offset + (at + 1) * width))
             for at, write in enumerate(writes)]  # fmt: skip
    dtype = access.of.dtype

    def run(m: Machine) -> None:
        for write, span in spans:
            write(m, m.params.data[span].view(dtype))

    return run


# Stores -----------------------------------------------------------------------------------


@decodes("st")
def store(d: Decoder) -> Run:
    access = _access(d)
    space, address = d.address(d.operands[0], access.space)
    sources = _registers(d, d.operands[1], access)
    reads = [d.read(source, access.of, wide=True) for source in sources]
    slots = [source_slot(d, source) for source in sources]
    d.poison, d.ends_segment = OWN, True
    put = PUT.get(space)
    if put is None:
        raise d.error(f"stores to {space} memory are not modelled")
    dtype, of = access.of.dtype, access.of

    def run(m: Machine) -> None:
        active = m.active()
        where = m.at(address(m), active)
        if len(reads) == 1:
            values = np.ascontiguousarray(m.at(reads[0](m), active))
        else:
            values = np.empty((where.size, len(reads)), dtype)
            for at, read in enumerate(reads):
                values[:, at] = m.at(read(m), active)
        states = states_of(m, slots, of, active, where.size) if m.shadow else None
        put(m, access, where, active, values, states)

    return run


def states_of(
    m: Machine, slots: list[Slot | None], of: PtxType, active: Array | None, count: int
) -> Array | None:
    """States [k, size] of the bytes that registers with poison are stored to."""
    parts: list[Array] = []
    found = False
    for slot in slots:
        bits = None if slot is None else m.shadow_of(slot)
        if bits is None:
            parts.append(np.zeros((count, of.width // 8), np.uint8))
            continue
        narrow = np.ascontiguousarray(m.at(bits, active).astype(of.unsigned))
        parts.append((narrow[:, None].view(np.uint8) != 0).astype(np.uint8))
        found = found or bool(np.count_nonzero(parts[-1]))
    return np.concatenate(parts, axis=1) if found else None
