"""Logic, shifts and bit fields (PTX ISA, "Logic and Shift Instructions" and bit counts)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..decode import Decoder, PoisonRule, Run, Slot, decodes
from ..ptx import Immediate, Operand, Register
from ..ptxtypes import TYPES, Array, PtxType
from .elementwise import by_ufunc, elementwise

if TYPE_CHECKING:
    from ..machine import Machine


@decodes("and", "or", "xor")
def logic(d: Decoder) -> Run:
    of = d.only_type()
    name = d.opcode[0]
    ufunc = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[name]
    run = by_ufunc(d, ufunc, of)
    d.poison = _logic_poison(d, of, name)
    return run


def _logic_poison(d: Decoder, of: PtxType, name: str) -> PoisonRule:
    """Bits that a clean 0 (and) or 1 (or) of the other operand settles are not poisoned."""
    values = [d.read(operand, of) for operand in d.operands[1:3]]
    slots = [source_slot(d, operand) for operand in d.operands[1:3]]

    def rule(m: Machine) -> list[Array | None]:
        (a, b) = (shadow_or_zero(m, slot, of) for slot in slots)
        if name == "xor":
            return [a | b]
        x, y = (value(m).view(of.unsigned) for value in values)
        if name == "or":
            x, y = ~x, ~y
        return [(a & b) | (a & y) | (b & x)]

    return rule


def source_slot(d: Decoder, operand: Operand) -> Slot | None:
    """The slot of a register operand, None for a constant."""
    return d.slot(operand) if isinstance(operand, Register) else None


def shadow_or_zero(m: Machine, slot: Slot | None, of: PtxType) -> Array:
    """The poisoned bits of an operand in the gang's lanes, zeros where it is clean."""
    bits = None if slot is None else m.shadow_of(slot)
    if bits is None:
        return np.zeros(m.lanes.stop - m.lanes.start, of.unsigned)
    return bits


@decodes("not")
def complement(d: Decoder) -> Run:
    of = d.only_type()
    slot = source_slot(d, d.operands[1])
    d.poison = lambda m: [shadow_or_zero(m, slot, of)]
    return elementwise(d, np.invert, of)


@decodes("cnot")
def logical_not(d: Decoder) -> Run:
    of = d.only_type()
    return elementwise(d, lambda a: (a == 0).astype(a.dtype), of)


@decodes("lop3")
def lop3(d: Decoder) -> Run:
    """d = the truth table `immLut` of three operands, bit by bit."""
    of = d.only_type()
    d.expect(5)
    table = int(d.constant(d.operands[4], TYPES["u32"])[0])
    a, b, c = (d.read(operand, of) for operand in d.operands[1:4])
    write = d.write(d.operands[0], of)

    def run(m: Machine) -> None:
        x, y, z = a(m), b(m), c(m)
        out = np.zeros(np.broadcast_shapes(x.shape, y.shape, z.shape), of.dtype)
        for row in range(8):
            if table >> row & 1:
                out |= (x if row & 4 else ~x) & (y if row & 2 else ~y) & (z if row & 1 else ~z)
        write(m, out)

    return run


# Shifts -----------------------------------------------------------------------------------


@decodes("shl", "shr")
def shift(d: Decoder) -> Run:
    """Amounts beyond the width shift everything out."""
    of = d.only_type()
    d.expect(3)
    function = _left if d.opcode[0] == "shl" else _right
    a, amount = d.read(d.operands[1], of), d.read(d.operands[2], TYPES["u32"])
    write = d.write(d.operands[0], of)
    slots = [source_slot(d, operand) for operand in d.operands[1:3]]

    def rule(m: Machine) -> list[Array | None]:
        bits = shadow_or_zero(m, slots[0], of).view(of.dtype)
        out = function(bits, amount(m)).view(of.unsigned)
        if slots[1] is not None and (unknown := m.shadow_of(slots[1])) is not None:
            out = np.where(unknown != 0, ~np.zeros_like(out), out)
        return [out]

    d.poison = rule
    if isinstance(d.operands[2], Immediate) and 0 <= d.operands[2].value < of.width:
        shift = np.left_shift if function is _left else np.right_shift
        by = of.dtype.type(d.operands[2].value)
        return lambda m: write(m, shift(a(m), by))
    return lambda m: write(m, function(a(m), amount(m)))


def _left(a: Array, amount: Array) -> Array:
    width = 8 * a.dtype.itemsize
    if int(amount.max()) < width:
        return a << amount.astype(a.dtype)
    return np.where(amount < width, a << np.minimum(amount, width - 1).astype(a.dtype), 0)


def _right(a: Array, amount: Array) -> Array:
    width = 8 * a.dtype.itemsize
    if int(amount.max()) < width:
        return a >> amount.astype(a.dtype)
    shifted = a >> np.minimum(amount, width - 1).astype(a.dtype)
    return shifted if a.dtype.kind == "i" else np.where(amount < width, shifted, a.dtype.type(0))


@decodes("shf")
def funnel_shift(d: Decoder) -> Run:
    """shf.l: upper word of {b, a} << c; shf.r: lower word of {b, a} >> c."""
    left = d.choose(("l", "r")) == "l"
    wrap = d.choose(("wrap", "clamp")) == "wrap"
    of = d.only_type()

    def function(a: Array, b: Array, c: Array) -> Array:
        amount = (c & np.uint32(31) if wrap else np.minimum(c, np.uint32(32))).astype(np.uint64)
        both = (b.astype(np.uint64) << np.uint64(32)) | a
        moved = (both << amount) >> np.uint64(32) if left else both >> amount
        return moved.astype(np.uint32)

    return elementwise(d, function, of)


# Fields and counts ------------------------------------------------------------------------


@decodes("bfe")
def extract(d: Decoder) -> Run:
    """The field of `len` bits from `pos` on, its sign bit spread for signed types."""
    of = d.only_type()
    a = d.read(d.operands[1], of)
    pos, length = (d.read(operand, TYPES["u32"]) for operand in d.operands[2:4])
    write = d.write(d.operands[0], of)
    width = of.width

    def run(m: Machine) -> None:
        first = (pos(m) & np.uint32(0xFF)).astype(np.int64)
        count = (length(m) & np.uint32(0xFF)).astype(np.int64)
        value = a(m)
        bits = value.view(of.unsigned)
        low = np.minimum(first, width - 1).astype(of.unsigned)
        field = np.where(first < width, bits >> low, of.unsigned.type(0))
        keep = np.minimum(count, width)
        mask = _mask(keep, of.unsigned)
        out = field & mask
        if of.kind == "s":
            top = np.minimum(first + count - 1, width - 1).clip(0).astype(of.unsigned)
            negative = (count > 0) & (((bits >> top) & of.unsigned.type(1)) != 0)
            # Bits of the field beyond the top of the word are copies of the sign too.
            valid = _mask(np.clip(np.minimum(keep, width - first), 0, width), of.unsigned)
            out = np.where(negative, (field & valid) | ~valid, out)
        write(m, out.view(of.dtype))

    return run


def _mask(count: Array, dtype: np.dtype[np.generic]) -> Array:
    """Words with the lowest `count` bits set, count up to their width."""
    width = 8 * dtype.itemsize
    full: Array = np.array(-1).astype(dtype)
    shifted = full >> np.minimum(width - count, width - 1).astype(dtype)
    return np.where(count > 0, shifted, dtype.type(0))


@decodes("bfi")
def insert(d: Decoder) -> Run:
    """b with the field of `len` bits from `pos` on replaced by the low bits of a."""
    of = d.only_type()
    a, b = (d.read(operand, of) for operand in d.operands[1:3])
    pos, length = (d.read(operand, TYPES["u32"]) for operand in d.operands[3:5])
    write = d.write(d.operands[0], of)
    slots = [source_slot(d, operand) for operand in d.operands[1:5]]

    def place(m: Machine) -> tuple[Array, Array]:
        return pos(m) & np.uint32(0xFF), length(m) & np.uint32(0xFF)

    def rule(m: Machine) -> list[Array | None]:
        """The poison of the result: none where the field replaces it, all for an unknown field."""
        inserted, kept = (shadow_or_zero(m, slot, of) for slot in slots[:2])
        out = _inserted(inserted, kept, *place(m), of)
        for slot in slots[2:]:
            if slot is not None and (unknown := m.shadow_of(slot)) is not None:
                out = np.where(unknown != 0, ~of.unsigned.type(0), out)
        return [out]

    d.poison = rule
    return lambda m: write(m, _inserted(a(m), b(m), *place(m), of))


def _inserted(a: Array, b: Array, first: Array, count: Array, of: PtxType) -> Array:
    first, count = first.astype(np.int64), count.astype(np.int64)
    start = np.minimum(first, of.width - 1).astype(of.unsigned)
    field = _mask(np.minimum(count, of.width), of.unsigned)
    mask = np.where(first < of.width, field << start, of.unsigned.type(0))
    return (b & ~mask) | ((a << start) & mask)


@decodes("prmt")
def permute(d: Decoder) -> Run:
    """Bytes of {b, a} chosen by the nibbles of c; bit 3 of a nibble spreads the byte's sign."""
    of = d.only_type()
    d.expect(4)
    a, b, c = (d.read(operand, of) for operand in d.operands[1:4])
    write = d.write(d.operands[0], of)
    slots = [source_slot(d, operand) for operand in d.operands[1:4]]

    def rule(m: Machine) -> list[Array | None]:
        low, high = (shadow_or_zero(m, slot, of) for slot in slots[:2])
        out = _permute(low, high, c(m))
        if slots[2] is not None and (unknown := m.shadow_of(slots[2])) is not None:
            out = np.where(unknown != 0, np.uint32(0xFFFFFFFF), out)
        return [out]

    d.poison = rule
    return lambda m: write(m, _permute(a(m), b(m), c(m)))


def _permute(a: Array, b: Array, c: Array) -> Array:
    if c.size == 1 and not int(c[0]) & 0x8888:
        at = [int(c[0]) >> 4 * byte & 7 for byte in range(4)]
        pairs = np.stack(np.broadcast_arrays(a, b), axis=-1).astype("<u4", copy=False)
        return pairs.view(np.uint8)[:, at].copy().view("<u4").reshape(-1)
    both = (b.astype(np.uint64) << np.uint64(32)) | a
    out = np.zeros(np.broadcast_shapes(both.shape, c.shape), np.uint32)
    for byte in range(4):
        nibble = (c >> np.uint32(4 * byte)) & np.uint32(0xF)
        at = ((nibble & np.uint32(7)) * np.uint32(8)).astype(np.uint64)
        chosen = ((both >> at) & np.uint64(0xFF)).astype(np.uint32)
        spread = np.where(chosen & np.uint32(0x80), np.uint32(0xFF), np.uint32(0))
        value = np.where(nibble & np.uint32(8), spread, chosen)
        out |= value << np.uint32(8 * byte)
    return out


@decodes("popc", "clz", "bfind", "brev")
def count_bits(d: Decoder) -> Run:
    shift_amount = d.take("shiftamt")
    of = d.only_type()
    name = d.opcode[0]
    if name == "brev":
        return elementwise(d, _reverse, of)
    counts: dict[str, Callable[[Array], Array]] = {
        "popc": lambda a: np.unpackbits(a[:, None].view(np.uint8), axis=1).sum(axis=1),
        "clz": lambda a: of.width - _bit_length(a),
        "bfind": lambda a: _find(a, shift_amount),
    }
    function = counts[name]
    return elementwise(d, lambda a: function(a).astype(np.uint32), of, TYPES["u32"])


def _bit_length(a: Array) -> Array:
    """Position of the highest set bit plus one, 0 for zero."""
    bits = a.view(np.dtype(f"u{a.dtype.itemsize}")).astype(np.uint64)
    length = np.zeros(bits.shape, np.int64)
    for step in (32, 16, 8, 4, 2, 1):
        big = bits >> np.uint64(step) != 0
        length += np.where(big, step, 0)
        bits = np.where(big, bits >> np.uint64(step), bits)
    return length + (bits != 0)


def _find(a: Array, shift_amount: bool) -> Array:
    """The highest bit that is not the sign; all ones when there is none."""
    bits = np.where(a < 0, ~a, a) if a.dtype.kind == "i" else a
    at = _bit_length(bits) - 1
    if shift_amount:
        return np.where(at < 0, -1, 8 * a.dtype.itemsize - 1 - at)
    return at


def _reverse(a: Array) -> Array:
    raw = np.ascontiguousarray(a)[:, None].view(np.uint8)[:, ::-1]
    flipped = np.packbits(np.unpackbits(raw, axis=1).reshape(*raw.shape, 8)[..., ::-1], axis=-1)
    return np.ascontiguousarray(flipped.reshape(raw.shape)).view(a.dtype).reshape(-1)


@decodes("bmsk")
def bit_mask(d: Decoder) -> Run:
    """A mask of b bits from bit a on."""
    wrap = d.choose(("clamp", "wrap")) == "wrap"
    of = d.only_type()

    def function(a: Array, b: Array) -> Array:
        first = (a & np.uint32(31) if wrap else np.minimum(a, np.uint32(32))).astype(np.uint64)
        count = (b & np.uint32(31) if wrap else np.minimum(b, np.uint32(32))).astype(np.uint64)
        one = np.uint64(1)
        return ((((one << count) - one) << first) & np.uint64(0xFFFFFFFF)).astype(np.uint32)

    return elementwise(d, function, of)


@decodes("szext")
def sign_zero_extend(d: Decoder) -> Run:
    """The low b bits of a, extended by sign or zero to the word."""
    wrap = d.choose(("clamp", "wrap")) == "wrap"
    of = d.only_type()
    a = d.read(d.operands[1], of)
    b = d.read(d.operands[2], TYPES["u32"])
    write = d.write(d.operands[0], of)

    def run(m: Machine) -> None:
        count = b(m)
        count = (count & np.uint32(31)) if wrap else np.minimum(count, np.uint32(32))
        drop = (np.uint32(32) - count).astype(np.uint64)
        wide = a(m).astype(np.int64) if of.kind == "s" else a(m).astype(np.uint64)
        shifted = wide << (drop + np.uint64(32)).astype(wide.dtype)
        kept = shifted >> (drop + np.uint64(32)).astype(wide.dtype)
        write(m, np.where(count == 0, 0, kept).astype(of.dtype))

    return run
