"""ldmatrix, stmatrix and movmatrix: 8x8 matrices of 16-bit elements, spread over a warp.

Lane l holds the elements (l // 4, 2 * (l % 4)) and the next one of each matrix, in one 32-bit
register; transposed, (2 * (l % 4), l // 4) and the one below.  Lanes 8j to 8j + 7 give the
addresses of the eight rows of matrix j, 16 bytes each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..arena import CLEAN
from ..decode import OWN, Decoder, Read, Run, Slot, decodes
from ..geometry import WARP
from ..ptx import Operand
from ..ptxtypes import TYPES, Array
from .bits import shadow_or_zero, source_slot
from .spaces import FETCH, PUT, Access

if TYPE_CHECKING:
    from ..machine import Machine

_B32 = TYPES["b32"]
_ROW_BYTES = 16
_COUNTS = {"x1": 1, "x2": 2, "x4": 4}


def _shape(d: Decoder) -> tuple[int, bool, str]:
    """How many matrices, whether transposed, and the space."""
    d.take("sync")
    d.take("aligned")
    shape = d.choose(("m8n8", "m16n16", "m8n16", "m16n8"))
    count = _COUNTS.get(d.choose(tuple(_COUNTS)), 0)
    transposed = d.take("trans")
    space = d.choose(("shared", "shared::cta"), "generic").removesuffix("::cta")
    of = d.take_type()
    d.finish()
    if shape != "m8n8" or of.name != "b16" or count == 0:
        raise d.error("only m8n8 with b16 elements is modelled")
    return count, transposed, space


def _to_lanes(rows: Array, transposed: bool) -> Array:
    """Matrices [n, count, 8 rows, 8 elements] (16 bits) as registers [n, count, 32]."""
    if transposed:
        rows = rows.transpose(0, 1, 3, 2)
    packed = np.ascontiguousarray(rows).view(np.uint32)
    return packed.reshape(*rows.shape[:2], WARP)


def _to_rows(lanes: Array, transposed: bool) -> Array:
    """Registers [n, count, 32] as matrices [n, count, 8 rows, 8 elements]."""
    rows = np.ascontiguousarray(lanes).view(np.uint16).reshape(*lanes.shape[:2], 8, 8)
    return rows.transpose(0, 1, 3, 2) if transposed else rows


def _addresses(
    m: Machine, access: Access, read: Read, base: Slot | None, rows: Array, count: int
) -> tuple[Array, Array]:
    """The row addresses, and the lanes (positions in the gang) that give them."""
    lanes = (rows[:, None] * WARP + np.arange(8 * count)).reshape(-1)
    bits = None if base is None else m.shadow_of(base)
    if bits is not None and np.count_nonzero(bits[lanes]):
        lane = int(lanes[(bits[lanes] != 0).argmax()])
        raise m.fail(access.instruction, "poison reaches an address", lane)
    return m.at(read(m), lanes), lanes


def _operands(d: Decoder, matrices: Operand, where: Operand) -> _Matrices:
    count, transposed, space = _shape(d)
    items = d.vector(matrices, count)
    space, read = d.address(where, space)
    # Only the lanes that give an address are looked at.
    base = d.strict.pop() if d.strict else None
    d.smem_widths.add(_ROW_BYTES)
    d.codes.add(_B32.code)
    d.poison, d.ends_segment = OWN, True
    access = Access(d.instruction, space, _B32, 4, _ROW_BYTES)
    return _Matrices(count, transposed, items, access, read, base)


class _Matrices(NamedTuple):
    """The base of ldmatrix and stmatrix.  items: the registers, one a matrix."""

    matrices: int
    transposed: bool
    items: tuple[Operand, ...]
    access: Access
    read: Read
    base: Slot | None


@decodes("ldmatrix")
def load_matrix(d: Decoder) -> Run:
    count, transposed, items, access, read, base = _operands(d, d.operands[0], d.operands[1])
    slots = [d.slot(item) for item in items]
    d.writes.extend(slots)
    fetch = FETCH[access.space]

    def run(m: Machine) -> None:
        rows, active = m.full_rows(access.instruction)
        where, lanes = _addresses(m, access, read, base, rows, count)
        values, states = fetch(m, access, where, lanes)
        shape = (rows.size, count, 8, 8)
        out = _to_lanes(values.view(np.uint16).reshape(shape), transposed)
        shadow = None
        if states is not None:
            bits = np.where(states != CLEAN, np.uint8(0xFF), np.uint8(0)).view(np.uint16)
            shadow = _to_lanes(bits.reshape(shape), transposed)
        for at, slot in enumerate(slots):
            m.put(slot, _B32.code, out[:, at].reshape(-1), active)
            if shadow is not None or m.shadow:
                m.put_shadow(slot, None if shadow is None else shadow[:, at].reshape(-1), active)

    return run


@decodes("stmatrix")
def store_matrix(d: Decoder) -> Run:
    count, transposed, items, access, read, base = _operands(d, d.operands[1], d.operands[0])
    reads = [d.read(item, _B32) for item in items]
    slots = [source_slot(d, item) for item in items]
    put = PUT[access.space]

    def run(m: Machine) -> None:
        rows, active = m.full_rows(access.instruction)
        where, lanes = _addresses(m, access, read, base, rows, count)

        def in_rows(registers: list[Array]) -> Array:
            lanes_of = [m.at(register, active).reshape(-1, WARP) for register in registers]
            return _to_rows(np.stack(lanes_of, axis=1), transposed).reshape(-1, 8)

        values = in_rows([read_one(m) for read_one in reads])
        states = None
        if m.shadow:
            bits = in_rows([shadow_or_zero(m, slot, _B32) for slot in slots])
            bad = np.ascontiguousarray(bits).view(np.uint8) != 0
            states = bad.astype(np.uint8) if np.count_nonzero(bad) else None
        put(m, access, where, lanes, np.ascontiguousarray(values), states)

    return run


@decodes("movmatrix")
def transpose_matrix(d: Decoder) -> Run:
    """movmatrix.sync.aligned.m8n8.trans.b16 d, a."""
    d.modifiers.append("x1")
    _, transposed, _ = _shape(d)
    if not transposed:
        raise d.error("only .trans exists")
    read = d.read(d.operands[1], _B32)
    source = source_slot(d, d.operands[1])
    target = d.slot(d.operands[0])
    d.writes.append(target)
    d.poison = OWN
    instruction = d.instruction

    def run(m: Machine) -> None:
        _, active = m.full_rows(instruction)
        m.put(target, _B32.code, _transpose(m.at(read(m), active)), active)
        if m.shadow:
            bits = _transpose(m.at(shadow_or_zero(m, source, _B32), active))
            m.put_shadow(target, bits if np.count_nonzero(bits) else None, active)

    return run


def _transpose(registers: Array) -> Array:
    lanes = registers.reshape(-1, 1, WARP)
    return _to_lanes(_to_rows(lanes, transposed=True), transposed=False).reshape(-1)
