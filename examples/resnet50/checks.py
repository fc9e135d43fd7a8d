"""How far off results may be, and what they are compared with.

A layer is compared with its reference on the values that it was given; the logits with the whole
network's.  error = ||y - exact|| / ||exact||, as everywhere (docs/numerics.md).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

import dnnc

from .graphs import graph_of
from .network import IMAGE, Layer, Linear, Network, Operation

Array = Any

UNIT = 2.0**-11  # f16
_F32_TERMS = 2.0**-23 / 16  # of the terms' norm, a term of a sum in f32


class Arithmetic(Protocol):
    """Computes layers with more bits.  Arrays are images [n, height, width, channels], filters as
    they lie in memory.

    library: numpy or torch.  images: how many it is worth computing, None for all.
    """

    library: Any
    images: int | None
    what: str

    def layer(self, op: Operation, x: Array, w: Array, bias: Array, residual: Array) -> Array:
        """The result of an operation, not rounded; operands that it does not have are None."""
        ...


class Reference:
    """The graphs' own reference on NumPy in float64; inputs of a layer are rounded to f16."""

    library: Any = np
    images: int | None = 1
    what = "the graphs' reference on NumPy"

    def layer(self, op: Operation, x: Array, w: Array, bias: Array, residual: Array) -> Array:
        given = {"x": x, "residual": residual, "bias": bias, "w": w}
        inputs = {name: logical(op, name, v) for name, v in given.items() if v is not None}
        graph = _graph(op, len(x))
        (y,) = dnnc.reference(graph, inputs, exact_outputs=True).values()
        if isinstance(op, Linear):
            return y.reshape(len(x), 1, 1, op.classes)
        return np.moveaxis(y, 1, -1)


@functools.cache
def _graph(op: Operation, n: int) -> dnnc.pygraph:
    made = graph_of(op, n)
    made.build_operation_graph()
    return made


def logical(op: Operation, name: str, array: Array) -> Array:
    """An array as it lies in memory, with its tensor's dims."""
    if isinstance(op, Linear):
        return array.T[None] if name == "w" else array.reshape(1, -1, array.shape[-1])
    if name == "bias":
        return array.reshape(1, -1, 1, 1)
    return np.moveaxis(array, -1, 1)


@dataclass(frozen=True)
class Verdict:
    """error: ||y - exact|| / ||exact||; bound: the largest that is allowed.

    element_error: the largest error of an element, as a share of its pixel's largest magnitude,
    or of the whole tensor's root mean square where a pixel has less; at most eight times the
    bound is allowed.
    """

    error: float
    bound: float
    element_error: float

    @property
    def share(self) -> float:
        """The error as a share of what is allowed."""
        return max(self.error / self.bound, self.element_error / (8 * self.bound))

    @property
    def is_good(self) -> bool:
        return self.error <= self.bound and self.element_error <= 8 * self.bound


def layer_verdict(
    arithmetic: Arithmetic, op: Operation, y: Array, inputs: Mapping[str, Array]
) -> Verdict:
    """Judges a layer's y on the inputs that it had: x, w, bias, residual, those that it has."""
    given = [inputs.get(name) for name in ("x", "w", "bias", "residual")]
    exact = arithmetic.layer(op, *given)
    terms = arithmetic.layer(op, *(None if v is None else abs(v) for v in given))
    size = float((terms**2).mean() / (exact**2).mean()) ** 0.5
    bound = UNIT + _F32_TERMS * max(16, op.depth) * size
    return _judged(arithmetic.library, y, exact, bound)


def network_verdict(network: Network, logits: Array, exact: Array) -> Verdict:
    """Judges what comes out, arrays of the host.

    Each layer rounds, by a unit at most; the roundings of layers are independent.
    """
    bound = UNIT * len(network.layers) ** 0.5
    return _judged(np, logits.astype(np.float64), exact.astype(np.float64), bound)


def _judged(library: Any, y: Array, exact: Array, bound: float) -> Verdict:
    off, mean_square = abs(y - exact), float((exact**2).mean())
    pixels = library.amax(abs(exact), axis=-1, keepdims=True).clip(min=mean_square**0.5)
    error = (float((off**2).mean()) / mean_square) ** 0.5
    return Verdict(error, bound, float((off / pixels).max()))


def exact_logits(
    arithmetic: Arithmetic, network: Network, image: Array, parameters: Mapping[str, Any]
) -> Array:
    """[n, 1, 1, classes] of images; parameters: (w, bias) by layer."""
    values = {IMAGE: image}
    for layer in network.layers:
        values[layer.y] = arithmetic.layer(layer.op, *inputs_of(layer, values, parameters).values())
    return values[network.logits]


def inputs_of(
    layer: Layer, values: Mapping[str, Array], parameters: Mapping[str, Any]
) -> dict[str, Array]:
    """x, w, bias, residual of a layer; None for what it does not have."""
    w, bias = parameters.get(layer.name, (None, None))
    residual = values[layer.residual] if layer.residual else None
    return {"x": values[layer.x], "w": w, "bias": bias, "residual": residual}
