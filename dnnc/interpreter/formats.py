"""Floating formats narrower than float64, and the rounding of exact values to them.

A value travels as float64: every number of these formats is one exactly.  A result that
float64 cannot hold exactly must be handed over *rounded to odd* (`floats.to_odd`), so that the
second rounding, here, still gives what one rounding of the exact value would give
(Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from .ptxtypes import Array

# Rounding modes of PTX: nearest even, to zero, down, up, nearest with ties away.
ROUND: dict[str, Callable[[Array], Array]] = {
    "rn": np.rint,
    "rz": np.trunc,
    "rm": np.floor,
    "rp": np.ceil,
    "rna": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
}


@dataclass(frozen=True)
class Format:
    """A floating format.

    bits: storage.  precision: significand bits with the hidden one.  min_exponent: exponent of
    the least normal number.  largest: the largest finite number.  nan: canonical NaN's bits.
    has_infinity: e4m3 has none, its overflow is NaN.
    """

    name: str
    bits: int
    precision: int
    min_exponent: int
    largest: float
    nan: int
    has_infinity: bool = True

    @property
    def unsigned(self) -> np.dtype[Any]:
        return np.dtype(f"uint{self.bits}")


F32 = Format("f32", 32, 24, -126, float(np.finfo(np.float32).max), 0x7FFFFFFF)
TF32 = Format("tf32", 32, 11, -126, float.fromhex("0x1.ffcp127"), 0x7FFFE000)
F16 = Format("f16", 16, 11, -14, 65504.0, 0x7FFF)
BF16 = Format("bf16", 16, 8, -126, float.fromhex("0x1.fep127"), 0x7FFF)
E4M3 = Format("e4m3", 8, 4, -6, 448.0, 0x7F, has_infinity=False)
E5M2 = Format("e5m2", 8, 3, -14, 57344.0, 0x7F)
FORMATS = {row.name: row for row in (F32, TF32, F16, BF16, E4M3, E5M2)}


def round_to(
    x: Array, fmt: Format, mode: str = "rn", satfinite: bool = False, ftz: bool = False
) -> Array:
    """x (float64, exact or rounded to odd) rounded to numbers of `fmt`, still as float64.

    Overflow gives infinity, or the largest number where the mode rounds towards it or where
    `satfinite` asks.  ftz: a subnormal result becomes a zero of its sign.
    """
    exponent = np.frexp(x)[1] - 1
    shift = fmt.precision - 1 - np.maximum(exponent, fmt.min_exponent)
    out = np.ldexp(ROUND[mode](np.ldexp(x, shift)), -shift)
    out = np.where(np.isfinite(x), np.copysign(out, x), x)
    over = np.abs(out) > fmt.largest
    if np.count_nonzero(over):
        limit = _overflow(x, fmt, mode, satfinite)
        out = np.where(over, np.copysign(limit, x), out)
    if ftz:
        out = np.where(np.abs(out) < 2.0**fmt.min_exponent, np.copysign(0.0, out), out)
    return out


def _overflow(x: Array, fmt: Format, mode: str, satfinite: bool) -> Array:
    """The magnitude that a value beyond the largest number becomes."""
    towards_zero = {
        "rz": np.ones(x.shape, bool),
        "rm": x > 0,
        "rp": x < 0,
    }.get(mode, np.zeros(x.shape, bool))
    if satfinite:
        return np.full(x.shape, fmt.largest)
    beyond = np.inf if fmt.has_infinity else np.nan
    return np.where(towards_zero & np.isfinite(x), fmt.largest, beyond)


def encode(x: Array, fmt: Format) -> Array:
    """Bits (unsigned, `fmt.bits` wide) of float64 values that are numbers of `fmt`."""
    is_nan = np.isnan(x)
    if fmt is F16:
        bits = x.astype(np.float16).view(np.uint16)
    elif fmt is E4M3:
        bits = x.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    elif fmt is E5M2:
        bits = x.astype(ml_dtypes.float8_e5m2).view(np.uint8)
    else:
        bits = x.astype(np.float32).view(np.uint32)
        if fmt is BF16:
            bits = (bits >> np.uint32(16)).astype(np.uint16)
    return np.where(is_nan, fmt.unsigned.type(fmt.nan), bits) if np.count_nonzero(is_nan) else bits


def _table(dtype: Any) -> Array:
    return np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)


_E4M3_VALUES = _table(ml_dtypes.float8_e4m3fn)
_E5M2_VALUES = _table(ml_dtypes.float8_e5m2)


def decode(bits: Array, fmt: Format) -> Array:
    """float32 values of bits of a narrower format.  tf32 ignores the low 13 bits."""
    if fmt is F16:
        return bits.view(np.float16).astype(np.float32)
    if fmt is BF16:
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if fmt is TF32:
        return (bits & np.uint32(0xFFFFE000)).view(np.float32)
    values = _E4M3_VALUES if fmt is E4M3 else _E5M2_VALUES
    return values.take(bits)


def bf16_bits(x: Array) -> Array:
    """bf16 bits of float32 values, to nearest even: the conversion that kernels do most."""
    bits = x.view(np.uint32)
    bump = ((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)
    out = ((bits + bump) >> np.uint32(16)).astype(np.uint16)
    square = x.dot(x)
    if square != square:
        out = np.where(np.isnan(x), np.uint16(BF16.nan), out)
    return out


def f16_bits(x: Array) -> Array:
    """f16 bits of float32 or float64 values, to nearest even, NaN canonical."""
    out = x.astype(np.float16).view(np.uint16)
    square = x.dot(x)
    if square != square:
        out = np.where(np.isnan(x), np.uint16(F16.nan), out)
    return out
