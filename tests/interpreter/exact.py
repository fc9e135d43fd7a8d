"""Rounding by integer arithmetic, and bit patterns worth trying: what results are checked against.

Nothing here uses the interpreter's own code.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Float:
    """A format: significand bits with the hidden one, exponent of the least normal, largest."""

    bits: int
    precision: int
    min_exponent: int
    largest: Fraction
    nan: int
    infinite: bool = True


F64 = Float(64, 53, -1022, Fraction(math.ldexp(2.0 - 2.0**-52, 1023)), 0x7FFFFFFFFFFFFFFF)
F32 = Float(32, 24, -126, Fraction(2**24 - 1) * 2**104, 0x7FFFFFFF)
F16 = Float(16, 11, -14, Fraction(65504), 0x7FFF)
BF16 = Float(16, 8, -126, Fraction(2**8 - 1) * 2**120, 0x7FFF)
E4M3 = Float(8, 4, -6, Fraction(448), 0x7F, infinite=False)
E5M2 = Float(8, 3, -14, Fraction(57344), 0x7F)


def round_fraction(x: Fraction, to: Float, mode: str = "rn", satfinite: bool = False) -> float:
    """x rounded once; overflow gives infinity (NaN where there is none) or the largest."""
    if x == 0:
        return 0.0
    exponent = _floor_log2(abs(x))
    quantum = Fraction(2) ** (max(exponent, to.min_exponent) - to.precision + 1)
    out = _integer(x / quantum, mode) * quantum
    if abs(out) > to.largest:
        sign = 1 if x > 0 else -1
        stays = mode == "rz" or (mode == "rm" and x > 0) or (mode == "rp" and x < 0)
        if stays or satfinite:
            return sign * float(to.largest)
        return sign * (math.inf if to.infinite else math.nan)
    # Every result is a number of the format, so this conversion is exact.
    return math.copysign(float(out), float(1 if x > 0 else -1))


def _floor_log2(x: Fraction) -> int:
    guess = x.numerator.bit_length() - x.denominator.bit_length()
    return guess if Fraction(2) ** guess <= x else guess - 1


def _integer(x: Fraction, mode: str) -> int:
    floor = x.numerator // x.denominator
    rest = x - floor
    if mode == "rn":
        return floor + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and floor % 2 == 1))
    if mode == "rna":
        away = floor + 1 if rest > 0 else floor
        if rest == Fraction(1, 2):
            return away if x > 0 else floor
        return floor + (rest > Fraction(1, 2))
    if mode == "rz":
        return floor if x > 0 or rest == 0 else floor + 1
    return floor if mode == "rm" else floor + (rest > 0)


def bits_of(value: float, to: Float) -> int:
    """Bits of a number of the format, or of its canonical NaN."""
    if math.isnan(value):
        return to.nan
    if to.bits == 64:
        return struct.unpack("<Q", struct.pack("<d", value))[0]
    if to.bits == 32:
        return struct.unpack("<I", struct.pack("<f", value))[0]
    if to is F16:
        return struct.unpack("<H", struct.pack("<e", value))[0]
    if to is BF16:
        return struct.unpack("<I", struct.pack("<f", value))[0] >> 16
    return _small_bits(value, to)


def _small_bits(value: float, to: Float) -> int:
    sign = 0x80 if math.copysign(1.0, value) < 0 else 0
    stored = to.precision - 1
    if math.isinf(value):
        return sign | 0x7C
    magnitude = Fraction(abs(value))
    if magnitude == 0:
        return sign
    exponent = max(_floor_log2(magnitude), to.min_exponent)
    units = magnitude / Fraction(2) ** (exponent - stored)
    assert units.denominator == 1
    if units.numerator < 1 << stored:
        return sign | units.numerator
    return sign | ((exponent - to.min_exponent + 1) << stored) | (units.numerator - (1 << stored))


def one_nan(bits: Array, of: Float) -> Array:
    """Bits with every NaN made the one that `bits_of` gives, where its payload does not count."""
    infinity = ((1 << (of.bits - of.precision)) - 1) << (of.precision - 1)
    magnitude = bits & bits.dtype.type((1 << (of.bits - 1)) - 1)
    return np.where(magnitude > infinity, bits.dtype.type(of.nan), bits)


def reference(
    function: Callable[..., Fraction | float],
    *inputs: Array,
    to: Float,
    mode: str = "rn",
    satfinite: bool = False,
) -> Array:
    """Lane by lane: a Fraction is rounded, a float (a zero, NaN or infinity) taken as it is."""
    out = np.zeros(inputs[0].size, f"u{to.bits // 8}")
    for lane in range(out.size):
        value = function(*(float(a[lane]) for a in inputs))
        if isinstance(value, Fraction) and value != 0:
            value = round_fraction(value, to, mode, satfinite)
        out[lane] = bits_of(float(value), to)
    return out


def patterns(rng: np.random.Generator, bits: int, count: int) -> Array:
    """Bit patterns of a float format: anything, special values, nearby exponents, few digits."""
    dtype = np.dtype(f"u{bits // 8}")
    stored = {64: 52, 32: 23, 16: 10}[bits]
    anything = rng.integers(0, 2**bits, count, dtype=dtype, endpoint=False)
    bias = (1 << (bits - stored - 2)) - 1
    exponent = (bias + rng.integers(-3, 4, count)).astype(dtype) << dtype.type(stored)
    near = (
        anything & dtype.type(~(((1 << (bits - 1 - stored)) - 1) << stored) & (2**bits - 1))
    ) | exponent
    # Few digits make ties, and exact results, likely.
    few = near & dtype.type((2**bits - 1) ^ ((1 << (stored * 2 // 3)) - 1))
    tiny = anything & dtype.type((1 << (bits - 1)) | ((1 << (stored + 2)) - 1))
    top = ((1 << (bits - 1 - stored)) - 1) << stored
    specials = np.array(
        [0, 1 << (bits - 1), top, top | 1 << (bits - 1), top | 1, top | 1 << (stored - 1),
         1, (1 << stored) - 1, 1 << stored, top - 1, (1 << (bits - 1)) | 1, bias << stored],
        dtype,
    )  # fmt: skip
    kinds = np.stack([anything, near, few, tiny, rng.choice(specials, count), near, few])
    return kinds[rng.integers(0, kinds.shape[0], count), np.arange(count)]
