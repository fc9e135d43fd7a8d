"""How far off what the encoder's steps make may be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from .model import HEADS, attention, by_head, exact
from .numerics import UNIT, Verdict, judge, values_of

Array = Any


def judge_step(graph: str, y: Array, inputs: Mapping[str, Array], dtype: str) -> Verdict:
    """Judges what a graph made of some inputs, all of them bits."""
    given = {name: values_of(bits, dtype) for name, bits in inputs.items()}
    wanted = exact(graph, given)
    return judge(values_of(y, dtype), wanted, bound_of(graph, given, wanted, dtype))


def judge_vectors(y: Array, exact: Array, steps: int, dtype: str) -> Verdict:
    """Judges vectors of a batch that was rounded, beside those of one that was not.

    Parameters and each step's results are rounded, by a unit at most, and independently.
    """
    return judge(values_of(y, dtype), exact, UNIT[dtype] * (2 * steps) ** 0.5)


def bound_of(graph: str, inputs: Mapping[str, Array], exact: Array, dtype: str) -> float:
    """The data type's unit, and 2**-23 for every 16 terms that f32 sums up (docs/numerics.md).

    Attention rounds its probabilities, too: by another unit of what they weigh.
    """
    depth, terms, rounded = _sums(graph, inputs)
    whole = np.linalg.norm(exact)
    size, weighed = (float(np.linalg.norm(array) / whole) for array in (terms, rounded))
    return UNIT[dtype] * (1 + weighed) + 2.0**-23 * max(1, depth / 16) * size


def _sums(graph: str, inputs: Mapping[str, Array]) -> tuple[int, Array, Array]:
    """(terms of a sum, their magnitudes in each element, what is rounded on the way)."""
    nothing = np.zeros(1)
    match graph:
        case "embeddings":
            added = [inputs["words"], inputs["places"]]
            terms = _norm_terms(sum(added), sum(map(np.abs, added)), inputs)
            return len(inputs["scale"]), terms, nothing
        case "attention":
            q, k, v = (inputs[name][:, : inputs["v"].shape[-1]] for name in "qkv")
            weighed = attention(q, k, np.abs(v), inputs["sentence"])
            # A weight exp(s) is as far off as s is.
            scores = by_head(np.abs(q)) @ by_head(np.abs(k)).swapaxes(1, 2)
            largest = scores.max() / math.sqrt(len(q[0]) / HEADS)
            return len(v), weighed * (1 + largest), weighed
        case "pool":
            sums = inputs["member"] @ inputs["x"]
            terms = inputs["member"] @ np.abs(inputs["x"])
            return len(inputs["x"]), terms / np.linalg.norm(sums, axis=-1, keepdims=True), nothing
        case _:
            x, w = inputs["x"], inputs["w"]
            terms = np.abs(x) @ np.abs(w).T + np.abs(inputs["b"])
            if "residual" not in inputs:
                return x.shape[-1], terms, nothing
            added = x @ w.T + inputs["b"] + inputs["residual"]
            terms = terms + np.abs(inputs["residual"])
            return x.shape[-1], _norm_terms(added, terms, inputs), nothing


def _norm_terms(added: Array, size: Array, inputs: Mapping[str, Array]) -> Array:
    """Magnitudes that the layer norm of a sum adds: its terms, their mean, and the bias.

    added [rows, columns]: the sum.  size: of its terms' magnitudes.
    """
    deviation = np.std(added, axis=-1, keepdims=True)
    distance = (size + np.mean(size, axis=-1, keepdims=True)) / deviation
    return distance * np.abs(inputs["scale"]) + np.abs(inputs["bias"])
