"""Conversions between data types on the host: the one statement of how dnnc rounds.

Rules (docs/numerics.md): to a float type, to nearest even, overflow to infinity, fp8 saturates
(NaN stays NaN); from float to an integer type, to nearest even, saturating, NaN becomes 0;
between integer types, saturating; to boolean, "is not 0"; from boolean, 0 or 1.
INT32 arithmetic wraps modulo 2**32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .dtypes import DType, i32

Array = Any


def round_to(array: Array, dtype: DType) -> Array:
    """`array` (float64, int64 or bool) as the NumPy array of `dtype`."""
    array = np.asarray(array)
    with np.errstate(all="ignore"):
        if dtype.kind == "b":
            return array != 0
        if dtype.is_float:
            return _to_float(np.asarray(array, dtype=np.float64), dtype)
        return _to_integer(array, dtype)


def stored(array: Array, dtype: DType) -> Array:
    """`array` of any type as the NumPy array of `dtype`; one of that type stays, infinities too."""
    array = np.asarray(array)
    return array if array.dtype == dtype.numpy else round_to(widen(array), dtype)


def widen(array: Array) -> Array:
    """A stored array as float64, int64 or bool, exactly."""
    array = np.asarray(array)
    if array.dtype == bool:
        return array
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    return array.astype(np.float64)


def to_int32_saturated(array: Array) -> Array:
    """An operand of INT32 arithmetic: converted as to a tensor of that type."""
    return widen(round_to(array, i32))


def to_int32_wrapped(array: Array) -> Array:
    """Values as int64 in the range of int32: floats rounded and saturated, integers wrapped."""
    array = np.asarray(array)
    if array.dtype.kind == "f":
        return _float_to_int(array, -(2**31), 2**31 - 1)
    wide = array.astype(np.int64)
    return ((wide + 2**31) & 0xFFFFFFFF) - 2**31


def _to_float(array: Array, dtype: DType) -> Array:
    target = dtype.numpy
    if dtype.bits == 8:
        import ml_dtypes

        largest = float(ml_dtypes.finfo(target).max)
        array = np.clip(array, -largest, largest)  # leaves NaN alone
    if dtype.bits < 32 and dtype.name != "f16":
        # ml_dtypes converts from float32; rounding to odd first makes the second step exact.
        return _round_to_odd(array).astype(target)
    return array.astype(target)


def _round_to_odd(array: Array) -> Array:
    """float64 -> float32 so that rounding once more gives the correctly rounded result."""
    nearest = array.astype(np.float32)
    inexact = np.isfinite(nearest) & (nearest.astype(np.float64) != array)
    bits = nearest.view(np.int32).copy()
    grew = np.abs(nearest.astype(np.float64)) > np.abs(array)
    even = (bits & 1) == 0
    bits = np.where(inexact & even, np.where(grew, bits - 1, bits + 1), bits).astype(np.int32)
    return bits.view(np.float32)


def _to_integer(array: Array, dtype: DType) -> Array:
    info = np.iinfo(dtype.numpy)
    if array.dtype.kind == "f":
        return _float_to_int(array, info.min, info.max).astype(dtype.numpy)
    return np.clip(array.astype(np.int64), info.min, info.max).astype(dtype.numpy)


def _float_to_int(array: Array, low: int, high: int) -> Array:
    """Rounded to nearest even, saturated, NaN as 0, in int64."""
    with np.errstate(all="ignore"):
        rounded = np.rint(np.asarray(array, dtype=np.float64))
        inside = np.where(np.isnan(rounded), 0.0, np.clip(rounded, float(low), float(high)))
        # float64 can't hold 2**63 - 1: what reaches 2**63 is the largest integer.
        over = inside >= 2.0**63
        return np.where(over, high, np.where(over, 0, inside).astype(np.int64))
