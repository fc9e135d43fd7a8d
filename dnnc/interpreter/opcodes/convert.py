"""cvt: conversions between integers and floats of every width (PTX ISA, "cvt").

Every source value is an integer, or a float that float64 holds exactly; it is rounded once to
the destination.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from .. import floats
from ..decode import Decoder, Run, Slot, decodes
from ..formats import (
    BF16,
    F16,
    F32,
    FORMATS,
    ROUND,
    TF32,
    Format,
    bf16_bits,
    decode,
    encode,
    f16_bits,
    round_to,
)
from ..ptxtypes import TYPES, Array, PtxType
from .bits import shadow_or_zero, source_slot
from .elementwise import elementwise

if TYPE_CHECKING:
    from ..machine import Machine

_FLOAT_MODES = ("rn", "rz", "rm", "rp", "rna")
_INTEGER_MODES = ("rni", "rzi", "rmi", "rpi")
_PACKED = ("f16x2", "bf16x2", "e4m3x2", "e5m2x2")
Function = Callable[[Array], Array]


@decodes("cvt")
def convert(d: Decoder) -> Run:
    if d.take("pack"):
        return _pack_integers(d)
    mode = d.choose((*_INTEGER_MODES, *_FLOAT_MODES))
    ftz, sat, relu = d.take("ftz"), d.take("sat"), d.take("relu")
    satfinite = d.take("satfinite")
    result, source = d.take_type(), d.take_type()
    d.finish()
    if result.name in _PACKED or source.name in _PACKED:
        return _packed(d, result, source, mode or "rn", relu, satfinite)
    if result.kind != "f" and source.kind != "f":
        return _integer_to_integer(d, result, source, sat)
    if relu and result.kind != "f":
        raise d.error(".relu is for floats")
    if result.kind != "f":
        function = _float_to_integer(result, source, mode or "rzi", ftz)
    elif source.kind != "f":
        function = _integer_to_float(result, mode or "rn", sat)
    else:
        function = _float_to_float(d, result, source, mode, ftz, sat, relu, satfinite)
    read = d.read(d.operands[1], _bits(source), wide=True)
    write = d.write(d.operands[0], _bits(result), wide=True)
    return lambda m: write(m, function(read(m)))


def _bits(of: PtxType) -> PtxType:
    """The view that a conversion works on: bits for f16, whose NumPy arithmetic is slow."""
    return TYPES["b16"] if of.name == "f16" else of


# Integers ---------------------------------------------------------------------------------


def _integer_to_integer(d: Decoder, result: PtxType, source: PtxType, sat: bool) -> Run:
    def function(a: Array) -> Array:
        if sat:
            limits = np.iinfo(result.dtype)
            a = _clip(a, limits.min, limits.max)
        return a.astype(result.dtype)

    read = d.read(d.operands[1], source, wide=True)
    slot = source_slot(d, d.operands[1])
    write = d.write(d.operands[0], result, wide=True)
    width = d.writes[-1].width if d.writes else result.width

    def rule(m: Machine) -> list[Array | None]:
        # Poisoned bits travel with their values: a poisoned sign poisons what it is spread to.
        bits = shadow_or_zero(m, slot, TYPES[f"u{slot.width}"]) if slot is not None else None
        if bits is None:
            return [None]
        kept = bits.astype(source.unsigned).view(source.dtype).astype(result.dtype)
        if sat:
            kept = np.where(kept != 0, np.array(-1).astype(result.dtype), kept)
        wide = TYPES[f"{'s' if result.kind == 's' else 'u'}{width}"]
        return [kept.astype(wide.dtype).view(wide.unsigned)]

    d.poison = rule
    return lambda m: write(m, function(read(m)))


def _clip(a: Array, low: int, high: int) -> Array:
    """Integers clamped to a range that their own type may not reach."""
    limits = np.iinfo(a.dtype)
    return np.clip(a, max(low, int(limits.min)), min(high, int(limits.max)))


def _pack_integers(d: Decoder) -> Run:
    """cvt.pack.sat.{u8,s8,u16,s16}.s32{.b32}: a and b saturated, above the low part of c."""
    d.take("sat")
    result, source = d.take_type(), d.take_type()
    with_c = d.take("b32")
    d.finish()
    d.expect(4 if with_c else 3)
    limits = np.iinfo(result.dtype)
    keep = result.width
    low = np.uint32((1 << keep) - 1)

    def clamp(a: Array) -> Array:
        return np.clip(a.view(source.dtype), limits.min, limits.max).astype(np.uint32) & low

    def function(a: Array, b: Array, *rest: Array) -> Array:
        pair = (clamp(a) << np.uint32(keep)) | clamp(b)
        return pair | (rest[0] << np.uint32(2 * keep)) if rest else pair

    return elementwise(d, function, TYPES["b32"])


def _float_to_integer(result: PtxType, source: PtxType, mode: str, ftz: bool) -> Function:
    """Rounded, then clamped to the type; NaN gives 0, or the top bit for 64-bit types."""
    to_integer = ROUND[mode[:2]]
    limits = np.iinfo(result.dtype)
    # Both are powers of two or zero (or just below one), so float64 holds the exclusive limits.
    low, beyond = float(limits.min), float(int(limits.max) + 1)
    special = source.name == "f64" or result.width == 64
    nan = result.unsigned.type(1 << (result.width - 1) if special else 0).view(result.dtype)

    def function(a: Array) -> Array:
        x = _widen(a, source, ftz)
        rounded = to_integer(x)
        inside = (rounded >= low) & (rounded < beyond)
        out = np.where(inside, rounded, 0.0).astype(result.dtype)
        if np.count_nonzero(inside) == inside.size:
            return out
        ends = np.where(rounded < 0, *(result.dtype.type(end) for end in (limits.min, limits.max)))
        return np.where(np.isnan(x), nan, np.where(inside, out, ends))

    return function


def _widen(a: Array, source: PtxType, ftz: bool = False) -> Array:
    """Values of a float type as float64."""
    if source.name == "f64":
        return a
    if source.name == "f32":
        return (floats.flush(a) if ftz else a).astype(np.float64)
    return decode(a, FORMATS[source.name]).astype(np.float64)


def _integer_to_float(result: PtxType, mode: str, sat: bool) -> Function:
    def function(a: Array) -> Array:
        if mode == "rn" and result.name in ("f32", "f64"):
            out = a.astype(result.dtype)
            return floats.saturate(out) if sat else out
        x = _exact_or_odd(a)
        if result.name == "f64":
            return _directed_integer(a, mode)
        fmt = FORMATS[result.name]
        rounded = round_to(x, fmt, mode)
        return encode(floats.saturate(rounded) if sat else rounded, fmt).view(_bits(result).dtype)

    return function


def _exact_or_odd(a: Array) -> Array:
    """Integers as float64, rounded to odd where they have more than 53 digits."""
    x = a.astype(np.float64)
    if a.dtype.itemsize < 8:
        return x
    # The difference is small and exact, once 2**64 and 2**63 are out of the way.
    top = float(int(np.iinfo(a.dtype).max) + 1)
    back = np.where(x >= top, 0.0, x).astype(a.dtype)
    difference = np.where(x >= top, -(np.iinfo(a.dtype).max - a + 1).astype(np.float64), 0.0)
    with_sign = (a - back).view(np.int64).astype(np.float64)
    return floats.to_odd(x, np.where(x >= top, difference, with_sign))


def _directed_integer(a: Array, mode: str) -> Array:
    """64-bit integers to float64 in mode rz, rm or rp, one by one."""
    every = np.ones(a.shape, bool)
    return floats.directed64(a.astype(np.float64), every, lambda k: Fraction(int(a[k])), mode)


# Floats -----------------------------------------------------------------------------------


def _float_to_float(
    d: Decoder,
    result: PtxType,
    source: PtxType,
    mode: str,
    ftz: bool,
    sat: bool,
    relu: bool,
    satfinite: bool,
) -> Function:
    if mode in _INTEGER_MODES or (result.name == source.name and not mode):
        return _integral(result, source, mode, ftz, sat)
    if result.name == "f64":
        return lambda a: floats.canonical(_clamped(_widen(a, source, ftz), sat, relu))
    fmt = FORMATS[result.name]
    widening = result.name == "f32" and source.name in ("f16", "bf16")
    if widening and not (ftz or sat or relu):
        return _widened32(FORMATS[source.name])
    if mode in ("", "rn") and not (ftz or sat or relu or satfinite):
        if fmt is F32:
            return lambda a: a.astype(np.float32)
        if fmt is F16 and source.name in ("f32", "f64"):
            return f16_bits
        if fmt is BF16 and source.name == "f32":
            return bf16_bits
    if fmt is TF32 and mode == "rna" and not (ftz or sat or relu or satfinite):
        return _tf32_away
    if not mode and not widening:
        raise d.error("a narrowing conversion needs a rounding mode")

    def function(a: Array) -> Array:
        x = _clamped(_widen(a, source, ftz), sat, relu)
        rounded = round_to(x, fmt, mode or "rn", satfinite, ftz and fmt is F32)
        return encode(rounded, fmt).view(_bits(result).dtype)

    return function


def _widened32(fmt: Format) -> Function:
    """f16 to float32 makes NaNs canonical; bf16 is the upper half of a float32, NaN or not."""
    if fmt is BF16:
        return lambda a: decode(a, fmt)
    return lambda a: floats.canonical(decode(a, fmt))


def _tf32_away(a: Array) -> Array:
    """float32 to tf32, ties away from zero: half a unit added to the bits, the rest cut off."""
    bits = a.view(np.uint32)
    half = np.where(np.isfinite(a), np.uint32(0x1000), np.uint32(0))
    return (bits + half) & np.uint32(0xFFFFE000)


def _clamped(x: Array, sat: bool, relu: bool) -> Array:
    """float64 values clamped to [0, 1] (`.sat`, NaN to 0) or to at least 0 (`.relu`, NaN stays)."""
    if sat:
        return floats.saturate(x)
    return np.where(np.isnan(x) | (x > 0), x, 0.0) if relu else x


def _integral(result: PtxType, source: PtxType, mode: str, ftz: bool, sat: bool) -> Function:
    """Decoder for one type, or another, after rounding to an integral value (`cvt.rni.f32.f32`)."""
    to_integer: Function = ROUND[mode[:2]] if mode else (lambda x: x)

    def function(a: Array) -> Array:
        x = _widen(a, source, ftz)
        out = np.where(np.isfinite(x), np.copysign(to_integer(x), x), x)
        out = floats.canonical(floats.saturate(out) if sat else out)
        if result.name == "f64":
            return out
        fmt = FORMATS[result.name]
        return encode(round_to(out, fmt), fmt).view(_bits(result).dtype)

    return function


# Packed pairs -----------------------------------------------------------------------------


def _packed(
    d: Decoder, result: PtxType, source: PtxType, mode: str, relu: bool, satfinite: bool
) -> Run:
    """A pair of results: `cvt.f16x2.f32 d, a, b` puts a in the upper half, b in the lower."""
    if result.name in _PACKED and source.name == "f32":
        d.expect(3)
        convert_one = _narrow_function(_element(result), mode, relu, satfinite)
        high, low = (d.read(operand, source) for operand in d.operands[1:3])
        write = d.write(d.operands[0], TYPES[f"b{result.width}"])
        slots = [source_slot(d, operand) for operand in d.operands[1:3]]
        d.poison = lambda m: [_pair_poison(m, slots, result)]
        return lambda m: write(m, _join(convert_one(high(m)), convert_one(low(m))))
    if result.name in _PACKED and source.name in _PACKED:
        return _repacked(d, result, source, mode, relu, satfinite)
    raise d.error(f"conversion of {source.name} to {result.name}")


def _element(of: PtxType) -> Format:
    return FORMATS[of.name.removesuffix("x2")]


def _narrow_function(fmt: Format, mode: str, relu: bool, satfinite: bool) -> Function:
    # fp8 conversions saturate, said or not.
    satfinite = satfinite or fmt.bits == 8
    if mode == "rn" and not relu and not satfinite:
        return f16_bits if fmt is F16 else bf16_bits

    def function(a: Array) -> Array:
        x = _clamped(a.astype(np.float64), False, relu)
        return encode(round_to(x, fmt, mode, satfinite), fmt)

    return function


def _join(high: Array, low: Array) -> Array:
    """Two arrays of n-bit words as one of 2n-bit words."""
    wide = np.dtype(f"u{2 * low.dtype.itemsize}")
    return (high.astype(wide) << wide.type(8 * low.dtype.itemsize)) | low


def _pair_poison(m: Machine, slots: list[Slot | None], result: PtxType) -> Array:
    half = result.width // 2
    unsigned = np.dtype(f"uint{half}")
    ones = np.array(-1).astype(unsigned)
    parts = [
        np.where(shadow_or_zero(m, slot, TYPES["b32"]) != 0, ones, unsigned.type(0))
        for slot in slots
    ]
    return _join(parts[0], parts[1])


def _repacked(
    d: Decoder, result: PtxType, source: PtxType, mode: str, relu: bool, satfinite: bool
) -> Run:
    """fp8 pairs to f16 or bf16 pairs and back."""
    d.expect(2)
    wide = TYPES[f"b{source.width}"]
    item = np.dtype(f"uint{source.width // 2}")
    fmt_in, fmt_out = _element(source), _element(result)
    narrow = _narrow_function(fmt_out, mode, relu, satfinite)

    def function(a: Array) -> Array:
        values = decode(np.ascontiguousarray(a).view(item), fmt_in)
        return narrow(values).view(np.dtype(f"uint{result.width}"))

    return elementwise(d, function, wide, TYPES[f"b{result.width}"])
