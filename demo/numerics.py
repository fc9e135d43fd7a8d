"""16-bit numbers as bits, so that nothing but NumPy is needed, and how far off a result may be."""

from __future__ import annotations

from collections.abc import Sequence
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
    """The numbers of such bits, as float64."""
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


def bound_of(depth: int, terms: Array, exact: Array, dtype: str) -> float:
    """The data type's unit, and 2**-23 for every 16 terms that f32 sums up (docs/numerics.md).

    depth: of the sums.  terms [..., M, N]: what an element is made of, without signs.
    """
    size = np.linalg.norm(terms) / np.linalg.norm(exact)
    return UNIT[dtype] + 2.0**-23 * max(1, depth / 16) * float(size)


def product_terms(x: Array, w: Array) -> Array:
    """What x @ w sums up."""
    return np.abs(x) @ np.abs(w)


def norm_terms(added: Sequence[Array], scale: Array, bias: Array) -> Array:
    """What the layer norm of a sum is made of: its elements, their mean, and the bias.

    added [..., M, N]: what is summed up before.
    """
    size = np.sum(np.abs(added), axis=0)
    deviation = np.std(np.sum(added, axis=0), axis=-1, keepdims=True)
    distance = (size + np.mean(size, axis=-1, keepdims=True)) / deviation
    return distance * np.abs(scale) + np.abs(bias)


def judge(y: Array, exact: Array, bound: float) -> Verdict:
    """Compares a result with float64; a NaN in it is no good."""
    off = np.abs(y - exact)
    rows = np.max(np.abs(exact), axis=-1, keepdims=True)
    error = np.linalg.norm(off) / np.linalg.norm(exact)
    return Verdict(float(error), bound, float(np.max(off / rows)))
