"""f16 and bf16 arithmetic, alone and in packed pairs.

Values are widened to float32, where products are exact, and results are rounded once: what
float32 cannot hold exactly is rounded to odd in float64 first.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .. import floats
from ..decode import Decoder, PoisonRule, Run
from ..formats import BF16, F16, Format, bf16_bits, decode, encode, f16_bits, round_to
from ..ptxtypes import TYPES, Array, PtxType
from .bits import shadow_or_zero, source_slot
from .elementwise import elementwise

_SIGN = np.uint16(0x8000)


def format_of(of: PtxType) -> Format:
    return BF16 if of.name.startswith("bf16") else F16


def narrow(x: Array, fmt: Format) -> Array:
    """Bits of float32 or float64 values (exact, or rounded to odd) to nearest even."""
    if fmt is F16:
        return f16_bits(x)
    return bf16_bits(x) if x.dtype == np.float32 else encode(round_to(x, BF16), BF16)


def on_bits(d: Decoder, function: Callable[..., Array], of: PtxType) -> Run:
    """`op d, a, ...` by a function of uint16 bits, applied to both halves of a packed pair."""
    bits = TYPES[f"b{of.width}"]
    if of.width == 16:
        return elementwise(d, function, bits)

    def packed(*sources: Array) -> Array:
        size = max(source.size for source in sources)
        halves = [np.ascontiguousarray(np.broadcast_to(s, size)).view(np.uint16) for s in sources]
        return function(*halves).view(np.uint32)

    run = elementwise(d, packed, bits)
    d.poison = _halves_poison(d)
    return run


def _halves_poison(d: Decoder) -> PoisonRule:
    """Poison goes from half to half."""
    of = TYPES["b32"]
    slots = [source_slot(d, operand) for operand in d.operands[1:]]

    def rule(m: object) -> list[Array | None]:
        out = np.uint32(0)
        for slot in slots:
            out = out | shadow_or_zero(m, slot, of)  # pyright: ignore[reportArgumentType]
        bad = np.ascontiguousarray(out).view(np.uint16) != 0
        return [np.where(bad, np.uint16(0xFFFF), np.uint16(0)).view(np.uint32)]

    return rule


def _flush(x: Array, fmt: Format) -> Array:
    """float32 values with those subnormal in the format made zeros of their sign."""
    tiny = np.abs(x) < np.float32(2.0**fmt.min_exponent)
    return np.where(tiny, np.copysign(np.float32(0), x), x)


def arithmetic(d: Decoder, of: PtxType) -> Run:
    """add, sub, mul.  float32 has more than twice the digits, so rounding twice is harmless."""
    fmt = format_of(of)
    # But a product of bf16 may be subnormal in float32, which has no spare digits then.
    exact = np.float64 if d.opcode[0] == "mul" and fmt is BF16 else np.float32
    d.take("rn")
    ftz, sat = d.take("ftz"), d.take("sat")
    d.finish()
    ufunc = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[d.opcode[0]]

    def function(a: Array, b: Array) -> Array:
        x, y = decode(a, fmt), decode(b, fmt)
        if ftz:
            x, y = _flush(x, fmt), _flush(y, fmt)
        out = ufunc(x, y, dtype=exact)
        if ftz:
            out = _flush(decode(narrow(out, fmt), fmt), fmt)
        return narrow(floats.saturate(out) if sat else out, fmt)

    return on_bits(d, function, of)


def fused(d: Decoder, of: PtxType) -> Run:
    fmt = format_of(of)
    d.take("rn")
    ftz, sat, relu = d.take("ftz"), d.take("sat"), d.take("relu")
    d.finish()
    d.expect(4)

    def function(a: Array, b: Array, c: Array) -> Array:
        x, y, z = (decode(bits, fmt) for bits in (a, b, c))
        if ftz:
            x, y, z = (_flush(value, fmt) for value in (x, y, z))
        product, wide = np.multiply(x, y, dtype=np.float64), z.astype(np.float64)
        out = product + wide
        out = np.where(np.isfinite(out), floats.add_odd(product, wide), out)
        if ftz:
            out = _flush(decode(narrow(out, fmt), fmt), fmt)
        if sat:
            out = floats.saturate(out)
        if relu:
            out = np.where(np.isnan(out), out, np.maximum(out, 0) + 0.0)
        return narrow(out, fmt)

    return on_bits(d, function, of)


def approximate(d: Decoder, of: PtxType, exact: Callable[[Array], Array]) -> Run:
    """ex2 and tanh: the nearest number."""
    fmt = format_of(of)

    def function(a: Array) -> Array:
        return narrow(exact(decode(a, fmt).astype(np.float64)), fmt)

    return on_bits(d, function, of)


def min_max(d: Decoder, of: PtxType) -> Run:
    fmt = format_of(of)
    ftz, nan, xorsign = d.take("ftz"), d.take("NaN"), d.take("xorsign")
    absolute = d.take("abs")
    d.finish()
    larger = d.opcode[0] == "max"
    if larger:
        extreme = floats.maximum_nan if nan else floats.maximum
    else:
        extreme = floats.minimum_nan if nan else floats.minimum

    def function(a: Array, b: Array) -> Array:
        x, y = decode(a, fmt), decode(b, fmt)
        if ftz:
            x, y = _flush(x, fmt), _flush(y, fmt)
        out = narrow(extreme(np.abs(x), np.abs(y)) if absolute else extreme(x, y), fmt)
        return np.where(out == fmt.nan, out, out | ((a ^ b) & _SIGN)) if xorsign else out

    return on_bits(d, function, of)


def sign_operation(d: Decoder, of: PtxType) -> Run:
    """abs and neg change the sign bit alone, but make a NaN canonical."""
    fmt = format_of(of)
    infinity = np.uint16(0x7F80 if fmt is BF16 else 0x7C00)
    absolute = d.opcode[0] == "abs"

    def function(a: Array) -> Array:
        magnitude = a & ~_SIGN
        out = magnitude if absolute else a ^ _SIGN
        return np.where(magnitude > infinity, np.uint16(fmt.nan), out)

    return on_bits(d, function, of)
