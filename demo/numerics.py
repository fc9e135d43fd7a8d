"""16-bit numbers as bits, so that nothing but NumPy is needed, and how far off a result is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any

# The unit roundoff of each data type.
UNIT = {"f16": 2.0**-11, "bf16": 2.0**-8}


def bits_of(array: Array, dtype: str) -> Array:
    """Numbers rounded to f16 or bf16, as uint16."""
    from dnnc import dtypes
    from dnnc.rounding import round_to

    return round_to(np.asarray(array, np.float64), dtypes.of(dtype)).view(np.uint16)


def values_of(bits: Array, dtype: str) -> Array:
    """The numbers of such bits, as float64; integers are what they are."""
    if bits.dtype.kind == "i":
        return bits
    if dtype == "f16":
        return bits.view(np.float16).astype(np.float64)
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


@dataclass(frozen=True)
class Verdict:
    """error: ||y - exact|| / ||exact||.  bound: the largest that is allowed.

    element_error: the largest error of an element, as a share of its row's largest magnitude;
    at most eight times the bound is allowed.
    """

    error: float
    bound: float
    element_error: float

    @property
    def is_good(self) -> bool:
        return self.error <= self.bound and self.element_error <= 8 * self.bound


def judge(y: Array, exact: Array, bound: float) -> Verdict:
    """Compares a result with float64; a NaN in it is no good."""
    off = np.abs(y - exact)
    rows = np.max(np.abs(exact), axis=-1, keepdims=True)
    error = np.linalg.norm(off) / np.linalg.norm(exact)
    return Verdict(float(error), bound, float(np.max(off / rows)))
