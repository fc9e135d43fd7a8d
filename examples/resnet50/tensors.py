"""Filters, biases and images from a seed: the same everywhere, f16, as they lie in memory.

Filters are scaled after He: what a convolution and its ReLU make of values of a second moment has
the same one again.  Of the two convolutions that a block adds up, each gives half.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .network import Conv, Layer, Network, Operation, elements

Array = Any

_BIAS = 0.1  # standard deviation


class Parameters(NamedTuple):
    """Parameters of a layer.  w: of the operation's w_shape.  bias [filters]."""

    w: Array
    bias: Array


def parameters(network: Network, seed: int) -> dict[str, Parameters]:
    """Parameters by layer.  A layer's depend on the seed, its place and its shape."""
    return {
        layer.name: _drawn(layer, np.random.default_rng([seed, step]))
        for step, layer in enumerate(network.layers)
        if layer.op.w_shape
    }


def _drawn(layer: Layer, random: np.random.Generator) -> Parameters:
    op = layer.op
    w = random.standard_normal(op.w_shape, np.float32) * np.float32(_scale(op))
    bias = random.standard_normal(op.bias_elements, np.float32) * np.float32(_BIAS)
    return Parameters(w.astype(np.float16), bias.astype(np.float16))


def _scale(op: Operation) -> float:
    """The filter's standard deviation: ReLU takes half, and so does another summand."""
    has_relu_alone = isinstance(op, Conv) and op.has_relu and not op.has_residual
    return ((2.0 if has_relu_alone else 1.0) / op.depth) ** 0.5


def images(network: Network, n: int, seed: int) -> Array:
    """[n, size, size, 3]"""
    shape = (n, *network.layers[0].op.x_shape)
    random = np.random.default_rng([seed, len(network.layers)])
    return random.standard_normal(elements(shape), np.float32).astype(np.float16).reshape(shape)
