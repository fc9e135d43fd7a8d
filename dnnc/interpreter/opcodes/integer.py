"""Integer arithmetic (PTX ISA, "Integer Arithmetic Instructions" and "Extended-Precision").

add, sub, mul and the like also exist for floats: the decoders here hand those on by type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..decode import OWN, PRED, Decoder, Run, Scope, decodes
from ..ptxtypes import TYPES, Array, PtxType
from . import floating
from .elementwise import by_ufunc, elementwise

if TYPE_CHECKING:
    from ..machine import Machine


@decodes("add", "sub")
def add_sub(d: Decoder) -> Run:
    if d.take("cc"):
        return _add_carry(d, subtract=d.opcode[0] == "sub", carry_in=False, carry_out=True)
    of = d.take_type()
    if of.kind == "f":
        return floating.arithmetic(d, of)
    ufunc = np.add if d.opcode[0] == "add" else np.subtract
    if d.take("sat"):
        return _saturating(d, ufunc, of)
    d.finish()
    if of.name in ("u16x2", "s16x2"):
        return elementwise(d, _halves(ufunc), of)
    return by_ufunc(d, ufunc, of)


@decodes("addc", "subc")
def add_sub_carry(d: Decoder) -> Run:
    return _add_carry(d, d.opcode[0] == "subc", carry_in=True, carry_out=d.take("cc"))


def _saturating(d: Decoder, ufunc: np.ufunc, of: PtxType) -> Run:
    d.finish()
    if of.name != "s32":
        raise d.error(".sat is for s32")
    limits = np.iinfo(np.int32)

    def function(a: Array, b: Array) -> Array:
        exact = ufunc(a.astype(np.int64), b)
        return np.clip(exact, limits.min, limits.max).astype(np.int32)

    return elementwise(d, function, of)


def _halves(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """A function of 16-bit lanes on packed pairs (wrapping, so the sign does not matter)."""

    def packed(a: Array, b: Array) -> Array:
        return np.asarray(_pairs(function, a, b))

    return packed


def _pairs(function: Callable[[Array, Array], Array], a: Array, b: Array) -> Array:
    a, b = np.broadcast_arrays(a, b)
    wide_a = np.ascontiguousarray(a).view(np.uint16)
    return function(wide_a, np.ascontiguousarray(b).view(np.uint16)).view(np.uint32)


def _add_carry(d: Decoder, subtract: bool, carry_in: bool, carry_out: bool) -> Run:
    """add.cc, addc, sub.cc, subc: for subtraction the flag is the borrow."""
    of = d.only_type()
    dtype = of.unsigned
    unsigned = TYPES[f"u{of.width}"]
    a, b = d.read(d.operands[1], unsigned), d.read(d.operands[2], unsigned)
    get, put = _carry_access(d, carry_in, carry_out)
    write = d.write(d.operands[0], unsigned)

    def run(m: Machine) -> None:
        x, y, carry = a(m), b(m), get(m).astype(dtype)
        if subtract:
            first = x - y
            out = first - carry
            flag = (x < y) | (first < carry)
        else:
            first = x + y
            out = first + carry
            flag = (first < x) | (out < first)
        write(m, out)
        put(m, flag)

    return run


def _carry_access(
    d: Decoder, carry_in: bool, carry_out: bool
) -> tuple[Callable[[Machine], Array], Callable[[Machine, Array], None]]:
    """Closures that read the carry flag (False when there is none to read) and set it."""
    slot = d.scope.slots[Scope.CARRY]
    d.codes.add(PRED.code)
    code, index = PRED.code, slot.number
    none = np.zeros(1, bool)
    if carry_in:
        d.reads.append(slot)
    if carry_out:
        d.writes.append(slot)

    def get(m: Machine) -> Array:
        return m.views[code][index][m.lanes] if carry_in else none

    def put(m: Machine, flag: Array) -> None:
        if not carry_out:
            return
        out = m.views[code][index][m.lanes]
        if m.mask is None:
            out[...] = flag
        else:
            np.copyto(out, flag, where=m.mask)

    return get, put


# Products ---------------------------------------------------------------------------------


@decodes("mul", "mul24")
def mul(d: Decoder) -> Run:
    part = d.choose(("lo", "hi", "wide"))
    of = d.take_type()
    if of.kind == "f":
        return floating.arithmetic(d, of)
    d.finish()
    if d.opcode[0] == "mul24":
        raise d.error("24-bit products are not modelled")
    if part == "lo":
        return by_ufunc(d, np.multiply, of)
    if part == "hi":
        return elementwise(d, high_product, of)
    wide = TYPES[f"{of.name[0]}{2 * of.width}"]
    dtype = wide.dtype
    return elementwise(d, lambda a, b: np.multiply(a, b, dtype=dtype), of, wide)


@decodes("mad", "madc")
def mad(d: Decoder) -> Run:
    part = d.choose(("lo", "hi", "wide"))
    carry_out = d.take("cc")
    if carry_out or d.opcode[0] == "madc":
        return _mad_carry(d, part, d.opcode[0] == "madc", carry_out)
    of = d.take_type()
    if of.kind == "f":
        return floating.fused(d, of)
    sat = d.take("sat")
    d.finish()
    d.expect(4)
    wide = TYPES[f"{of.name[0]}{2 * of.width}"] if part == "wide" else of
    a, b = d.read(d.operands[1], of), d.read(d.operands[2], of)
    c = d.read(d.operands[3], wide)
    write = d.write(d.operands[0], wide)
    if sat:
        limits = np.iinfo(np.int32)
        if part != "hi" or of.name != "s32":
            raise d.error(".sat is for .hi.s32")
        return lambda m: write(
            m,
            np.clip(high_product(a(m), b(m)).astype(np.int64) + c(m), limits.min, limits.max),
        )
    dtype = wide.dtype
    if part == "hi":
        return lambda m: write(m, high_product(a(m), b(m)) + c(m))
    return lambda m: write(m, np.multiply(a(m), b(m), dtype=dtype) + c(m))


def _mad_carry(d: Decoder, part: str, carry_in: bool, carry_out: bool) -> Run:
    of = d.only_type()
    signed_or_not = TYPES[f"{of.name[0]}{of.width}"]
    unsigned = TYPES[f"u{of.width}"]
    a, b = d.read(d.operands[1], signed_or_not), d.read(d.operands[2], signed_or_not)
    c = d.read(d.operands[3], unsigned)
    get, put = _carry_access(d, carry_in, carry_out)
    write = d.write(d.operands[0], unsigned)
    dtype = unsigned.dtype

    def run(m: Machine) -> None:
        x, y, z, carry = a(m), b(m), c(m), get(m).astype(dtype)
        product = (high_product(x, y) if part == "hi" else x * y).view(dtype)
        first = product + z
        out = first + carry
        write(m, out)
        put(m, (first < product) | (out < first))

    return run


def high_product(a: Array, b: Array) -> Array:
    """The upper half of the product of two integers of one type."""
    width = 8 * a.dtype.itemsize
    if width < 64:
        wide = np.dtype(f"{a.dtype.kind}{a.dtype.itemsize * 2}")
        return (np.multiply(a, b, dtype=wide) >> wide.type(width)).astype(a.dtype)
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    ua, ub = a.view(np.uint64), b.view(np.uint64)
    a_low, a_high, b_low, b_high = ua & mask, ua >> half, ub & mask, ub >> half
    low, mid1, mid2 = a_low * b_low, a_high * b_low, a_low * b_high
    carry = ((low >> half) + (mid1 & mask) + (mid2 & mask)) >> half
    out = a_high * b_high + (mid1 >> half) + (mid2 >> half) + carry
    if a.dtype.kind == "i":
        # A negative factor counts as 2**64 too much in the unsigned product.
        out = out - np.where(a < 0, ub, np.uint64(0)) - np.where(b < 0, ua, np.uint64(0))
    return out.view(a.dtype)


@decodes("sad")
def sad(d: Decoder) -> Run:
    of = d.only_type()
    return elementwise(d, lambda a, b, c: c + (np.maximum(a, b) - np.minimum(a, b)), of)


@decodes("dp4a", "dp2a")
def dot_product(d: Decoder) -> Run:
    """dp4a: four byte products; dp2a: two 16-bit lanes of a with the low or high bytes of b."""
    half = d.choose(("lo", "hi"))
    a_type, b_type = d.take_type(), d.take_type()
    d.finish()
    bits = TYPES["b32"]
    a, b, c = (d.read(operand, bits) for operand in d.operands[1:4])
    write = d.write(d.operands[0], bits)
    a_item = np.dtype(f"{'i' if a_type.kind == 's' else 'u'}{1 if d.opcode[0] == 'dp4a' else 2}")
    b_item = np.dtype(f"{'i' if b_type.kind == 's' else 'u'}1")
    chosen = {"": slice(0, 4), "lo": slice(0, 2), "hi": slice(2, 4)}[half]

    def run(m: Machine) -> None:
        x, y = np.broadcast_arrays(a(m), b(m))
        xs = np.ascontiguousarray(x)[:, None].view(a_item).astype(np.int64)
        ys = np.ascontiguousarray(y)[:, None].view(b_item).astype(np.int64)[:, chosen]
        total = (xs * ys).sum(axis=1) + c(m).astype(np.int64)
        write(m, total.astype(np.uint32))

    return run


# Quotients --------------------------------------------------------------------------------


@decodes("div", "rem")
def divide(d: Decoder) -> Run:
    of = d.take_type()
    if of.kind == "f":
        return floating.divide(d, of)
    d.finish()
    function = _quotient if d.opcode[0] == "div" else _remainder
    a, b = d.read(d.operands[1], of), d.read(d.operands[2], of)
    write = d.write(d.operands[0], of)
    slot = d.writes[-1]
    sources = tuple(d.reads)
    # Division by zero gives a value that the ISA leaves open: poison.
    d.poison, d.ends_segment = OWN, True
    width = of.width

    def run(m: Machine) -> None:
        x, y = a(m), b(m)
        bad = y == 0
        for source in sources:
            bits = m.shadow_of(source)
            if bits is not None:
                bad = bad | (bits != 0)
        write(m, function(x, np.where(y == 0, y.dtype.type(1), y)))
        if slot.key in m.shadow or np.count_nonzero(bad):
            ones = np.array(-1).astype(f"uint{width}")
            m.set_shadow(slot, np.where(bad, ones, np.zeros_like(ones)))

    return run


def _remainder(a: Array, b: Array) -> Array:
    return np.fmod(a, b)


def _quotient(a: Array, b: Array) -> Array:
    # Towards zero; the remainder has the sign of the dividend, so this division is exact.
    return (a - np.fmod(a, b)) // b


# Selection and sign -----------------------------------------------------------------------


@decodes("min", "max")
def min_max(d: Decoder) -> Run:
    of = d.take_type()
    if of.kind == "f":
        return floating.min_max(d, of)
    relu = d.take("relu")
    d.finish()
    ufunc = np.minimum if d.opcode[0] == "min" else np.maximum
    if of.name in ("u16x2", "s16x2"):
        item = np.int16 if of.name[0] == "s" else np.uint16

        def halves(a: Array, b: Array) -> Array:
            out = ufunc(a.view(item), b.view(item))
            return (np.maximum(out, item(0)) if relu else out).view(np.uint16)

        return elementwise(d, _halves(halves), of)
    if relu:
        return elementwise(d, lambda a, b: np.maximum(ufunc(a, b), a.dtype.type(0)), of)
    return by_ufunc(d, ufunc, of)


@decodes("abs")
def absolute(d: Decoder) -> Run:
    return _of_sign(d, np.abs)


@decodes("neg")
def negate(d: Decoder) -> Run:
    return _of_sign(d, np.negative)


def _of_sign(d: Decoder, ufunc: np.ufunc) -> Run:
    ftz = d.take("ftz")
    of = d.take_type()
    if of.kind == "f":
        return floating.sign_operation(d, of, ftz)
    d.finish()
    return elementwise(d, ufunc, of)
