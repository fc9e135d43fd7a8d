# pyright: basic
"""Random values for a plan's tensors as bytes of its layouts; needs NumPy alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..dialect.json_form import from_json
from ..dialect.reference import drawn
from ..dtypes import DType
from ..plan.plan import Plan

Array = Any

# Bytes from 0x20 and 0x30 to 0x3F are 0.125 to 1.9 in e4m3, and in e5m2.
_FP8_LEAST = {"f8E4M3FN": 0x20, "f8E5M2": 0x30}


def of_plan(plan: Plan, sizes: Mapping[str, int], seed: int = 0) -> Iterator[tuple[int, Any]]:
    """(uid, contiguous bytes as an array, or the number of a by-value tensor) of each tensor.

    Floats lie in -2 to 2 (fp8: 0.125 to 1.9 and their negatives), integers in 0 to 9; where an
    operation restricts its operand, as offsets of groups, values suit it.  A peer tensor is zero.
    """
    graph, rng = from_json(dict(plan.graph)), np.random.default_rng(seed)
    restricted = {t.uid: drawn(graph, t, rng, sizes) for t in graph.inputs}
    for record in plan.tensors:
        dtype, values = dtypes.of(record.dtype), restricted.get(record.uid)
        if record.is_by_value:
            if record.value is None:
                yield record.uid, 1 if values is None else np.asarray(values).reshape(()).item()
            continue
        dims, strides = (
            [plan.expression(text).evaluate(sizes) for text in texts]
            for texts in (record.dims, record.strides)
        )
        count = 1 + sum((n - 1) * s for n, s in zip(dims, strides, strict=True)) if all(dims) else 0
        if record.is_peer:
            yield record.uid, np.zeros(dtype.storage_bytes(count), np.uint8)
        elif values is None or dtype.kind == "b":
            yield record.uid, _random(rng, count, dtype)
        else:
            yield record.uid, _laid_out(np.broadcast_to(values, dims), strides, count, dtype)


def _random(rng: np.random.Generator, count: int, dtype: DType) -> Array:
    """Random values of `count` elements, as they lie in memory."""
    if dtype.kind == "b":
        return rng.integers(0, 256, dtype.storage_bytes(count), np.uint8)
    if dtype.is_fp8:
        bits = rng.integers(_FP8_LEAST[dtype.name], 0x40, count, np.uint8)
        return bits | rng.integers(0, 2, count, np.uint8) << 7
    if dtype.is_integer:
        return rng.integers(0, 10, count).astype(dtype.numpy)
    return stored(rng.uniform(-2.0, 2.0, count).astype(np.float32), dtype)


def stored(values: Array, dtype: DType) -> Array:
    """Values as a tensor's type has them in memory; bf16 is cut off, which needs no ml_dtypes."""
    if dtype.name == "bf16":
        return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return np.asarray(values).astype(dtype.numpy)


def _laid_out(values: Array, strides: Sequence[int], count: int, dtype: DType) -> Array:
    """The elements at their places, zeros between them."""
    elements = stored(values, dtype)
    data = np.zeros(count, elements.dtype)
    bytes_ = [stride * data.itemsize for stride in strides]
    if count:
        np.lib.stride_tricks.as_strided(data, values.shape, bytes_)[...] = elements
    return data
