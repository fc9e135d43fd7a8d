"""mma.sync: matrix products of a warp, D = A B + C (PTX ISA, "Warp Level Matrix Instructions").

One formula gives every fragment layout.  With e elements a register, g = lane // 4 and
t = lane % 4, element i of register r is

    A [16, K]   row g + 8 * (r % 2),  column 4 * e * (r // 2) + e * t + i
    B [K, 8]    row 4 * e * r + e * t + i,  column g
    C [16, 8]   row g + 8 * r,  column 2 * t + i        (two elements for each r)

so that m16n8k16 of f16 (e = 2) has four registers of A and two of B, and m16n8k8 of tf32
(e = 1) likewise.

Numerics: products are exact; they are summed with C in float64 and the sum is rounded once.
The hardware sums in a narrower form, in an order that it does not tell.  Integer sums are exact
and wrap, or saturate with `.satfinite`.  tf32 operands lose their 13 low bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .. import floats
from ..decode import Decoder, Read, Run, Slot, decodes
from ..formats import F16, FORMATS, decode, f16_bits
from ..geometry import WARP
from ..ptx import Operand
from ..ptxtypes import TYPES, Array, PtxType
from .bits import shadow_or_zero, source_slot

if TYPE_CHECKING:
    from ..machine import Machine

_B32 = TYPES["b32"]
# Operand type -> elements a register, and the K of the shapes m16n8kK that exist.
_SHAPES: dict[str, tuple[int, tuple[int, ...]]] = {
    "f16": (2, (8, 16)),
    "bf16": (2, (8, 16)),
    "tf32": (1, (4, 8)),
    "s8": (4, (16, 32)),
    "u8": (4, (16, 32)),
    "e4m3": (4, (16, 32)),
    "e5m2": (4, (16, 32)),
}


@dataclass(frozen=True, slots=True)
class _Form:
    """An mma: K, and the types of A, B and the accumulator (f32, f16 or s32)."""

    k: int
    a: PtxType
    b: PtxType
    accumulator: PtxType
    satfinite: bool

    @property
    def elements(self) -> int:
        return _SHAPES[self.a.name][0]

    @property
    def k_halves(self) -> int:
        """Registers of B; A has twice as many."""
        return self.k // (4 * self.elements)


def _form(d: Decoder) -> _Form:
    d.take("sync")
    d.take("aligned")
    shape = d.choose(tuple(f"m16n8k{k}" for k in (4, 8, 16, 32)))
    row, column = d.take("row"), d.take("col")
    satfinite = d.take("satfinite")
    types = [d.take_type() for _ in range(4)]
    d.finish()
    result, a, b, c = types
    known = a.name in _SHAPES and shape and int(shape[6:]) in _SHAPES[a.name][1]
    families = {"s8": "integer", "u8": "integer", "e4m3": "fp8", "e5m2": "fp8"}
    same = families.get(a.name, a.name) == families.get(b.name, b.name)
    accumulators = {"integer": ("s32",), "f16": ("f32", "f16"), "fp8": ("f32", "f16")}
    fits = result.name in accumulators.get(families.get(a.name, a.name), ("f32",))
    if not (known and same and fits and result == c and row and column):
        raise d.error("this shape and these types are not modelled")
    return _Form(int(shape[6:]), a, b, result, satfinite)


@decodes("mma.sync")
def mma(d: Decoder) -> Run:
    form = _form(d)
    packed = form.accumulator.name == "f16"
    view = _B32 if packed else form.accumulator
    accumulators = 2 if packed else 4
    a = _registers(d, d.operands[1], 2 * form.k_halves)
    b = _registers(d, d.operands[2], form.k_halves)
    c = [(d.read(x, view), source_slot(d, x)) for x in d.vector(d.operands[3], accumulators)]
    targets = [d.slot(x) for x in d.vector(d.operands[0], accumulators)]
    d.writes.extend(targets)
    d.codes.add(view.code)
    instruction = d.instruction

    def rule(m: Machine) -> list[Array | None]:
        bad = _poisoned(m, form, a, b, c, packed)
        return [np.ascontiguousarray(bad[:, at]).reshape(-1) for at in range(accumulators)]

    d.poison = rule

    def run(m: Machine) -> None:
        _, active = m.full_rows(instruction)
        left = _a_matrix(_fragment(m, a, active), form)
        right = _b_matrix(_fragment(m, b, active), form)
        total = left @ right
        total += _accumulator(m, [read for read, _ in c], active, packed)
        out = _result(total, form, packed)
        for at, slot in enumerate(targets):
            m.put(slot, view.code, out[:, at].reshape(-1), active)

    return run


_Register = tuple[Read, "Slot | None"]


def _registers(d: Decoder, operand: Operand, count: int) -> list[_Register]:
    items = d.vector(operand, count)
    return [(d.read(item, _B32), source_slot(d, item)) for item in items]


def _fragment(m: Machine, registers: list[_Register], active: Array | None) -> Array:
    """Registers as [rows, lanes, registers] of 32 bits."""
    values = [m.at(read(m), active).reshape(-1, WARP) for read, _ in registers]
    out = np.empty((*values[0].shape, len(values)), np.uint32)
    for at, value in enumerate(values):
        out[:, :, at] = value
    return out


_ELEMENT = {
    **{name: np.dtype(np.uint16) for name in ("f16", "bf16")},
    **{name: np.dtype(np.uint8) for name in ("u8", "e4m3", "e5m2")},
    **{"s8": np.dtype(np.int8), "tf32": np.dtype(np.uint32)},
}


def _values(registers: Array, of: PtxType) -> Array:
    """Registers [..., r] (contiguous) as float64 elements [..., r * e]; integers are exact too."""
    if of.name == "f16":
        return registers.view(np.float16).astype(np.float64)
    items = registers.view(_ELEMENT[of.name])
    if of.name in ("s8", "u8"):
        return items.astype(np.float64)
    return decode(items, FORMATS[of.name]).astype(np.float64)


def _a_matrix(fragment: Array, form: _Form) -> Array:
    """[n, 32, 2 * halves] registers of A as [n, 16, K]."""
    n, halves = fragment.shape[0], form.k_halves
    registers = fragment.reshape(n, 8, 4, halves, 2)
    # n, g, t, half of K, half of the rows -> n, half of the rows, g, half of K, t
    ordered = registers.transpose(0, 4, 1, 3, 2).reshape(n, 16, 4 * halves)
    return _values(ordered, form.a)


def _b_matrix(fragment: Array, form: _Form) -> Array:
    """[n, 32, halves] registers of B as [n, K, 8]."""
    n, halves = fragment.shape[0], form.k_halves
    registers = fragment.reshape(n, 8, 4, halves)
    # n, g, t, half of K -> n, g, half of K, t; the elements then make up a row of B transposed.
    ordered = registers.transpose(0, 1, 3, 2).reshape(n, 8, 4 * halves)
    return _values(ordered, form.b).transpose(0, 2, 1)


def _accumulator(m: Machine, reads: list[Read], active: Array | None, packed: bool) -> Array:
    """C as float64 [n, 16, 8]."""
    values = [m.at(read(m), active).reshape(-1, WARP) for read in reads]
    stacked = np.stack(values, axis=2)
    if packed:
        pairs = decode(np.ascontiguousarray(stacked).view(np.uint16), F16)
    else:
        pairs = stacked
    return _c_matrix(pairs).astype(np.float64)


def _c_matrix(items: Array) -> Array:
    """[n, 32, 4] elements of C as [n, 16, 8]."""
    n = items.shape[0]
    # n, g, t, half of the rows, element -> n, half of the rows, g, t, element
    return items.reshape(n, 8, 4, 2, 2).transpose(0, 3, 1, 2, 4).reshape(n, 16, 8)


def _c_lanes(matrix: Array) -> Array:
    """[n, 16, 8] as registers [n, 4, 32], one element each."""
    n = matrix.shape[0]
    # n, half of the rows, g, t, element -> n, half of the rows, element, g, t
    return matrix.reshape(n, 2, 8, 4, 2).transpose(0, 1, 4, 2, 3).reshape(n, 4, WARP)


def _result(total: Array, form: _Form, packed: bool) -> Array:
    """float64 [n, 16, 8] as the registers of D, [n, 4 or 2, 32]."""
    lanes = _c_lanes(total)
    if form.accumulator.name == "s32":
        exact = lanes.astype(np.int64)
        if form.satfinite:
            exact = np.clip(exact, np.iinfo(np.int32).min, np.iinfo(np.int32).max)
        return exact.astype(np.int32)
    if not packed:
        return floats.canonical(lanes.astype(np.float32).reshape(-1)).reshape(lanes.shape)
    bits = f16_bits(lanes.reshape(-1)).reshape(-1, 2, 2, WARP).astype(np.uint32)
    return bits[:, :, 0] | (bits[:, :, 1] << np.uint32(16))


def _poisoned(
    m: Machine,
    form: _Form,
    a: list[_Register],
    b: list[_Register],
    c: list[_Register],
    packed: bool,
) -> Array:
    """Poison of D [rows of the gang, registers, 32]: of its row of A, column of B, element of C."""

    def bits(registers: list[_Register]) -> Array:
        parts = [shadow_or_zero(m, slot, _B32).reshape(-1, WARP) for _, slot in registers]
        return np.stack(parts, axis=2)

    item = _ELEMENT[form.a.name]

    def bad_items(registers: list[_Register], dtype: np.dtype[np.generic]) -> Array:
        fragment = bits(registers)
        return (fragment.view(dtype) != 0).reshape(*fragment.shape, -1)

    n = bits(a).shape[0]
    halves, elements = form.k_halves, form.elements
    in_a = bad_items(a, item).reshape(n, 8, 4, halves, 2, elements)
    in_b = bad_items(b, item).reshape(n, 8, 4, halves, elements)
    rows = np.any(in_a.transpose(0, 4, 1, 3, 2, 5).reshape(n, 16, -1), axis=2)
    columns = np.any(in_b, axis=(2, 3, 4))
    own = bad_items(c, np.dtype(np.uint16 if packed else np.uint32))
    bad = _c_lanes(_c_matrix(own.reshape(n, WARP, 4)) | rows[:, :, None] | columns[:, None, :])
    if not packed:
        return np.where(bad, np.uint32(0xFFFFFFFF), np.uint32(0))
    pairs = np.where(bad, np.uint32(0xFFFF), np.uint32(0)).reshape(n, 2, 2, WARP)
    return pairs[:, :, 0] | (pairs[:, :, 1] << np.uint32(16))
