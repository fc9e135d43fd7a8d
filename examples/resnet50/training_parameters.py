"""Parameters, running statistics and data of a training step: where they lie, what they are.

All parameters lie in one flat buffer, so that one kernel updates them; master copies, velocities,
gradients and copies in f16 are four buffers of one layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .network import Conv, Network, elements

Array = Any

_ALIGNMENT = 128  # elements: 256 bytes of f16

_SCALE = (1.0, 0.1)  # of batch norms: mean and standard deviation
_SHIFT = (0.0, 0.1)


@dataclass(frozen=True)
class Part:
    """A tensor of a flat buffer.  offset: in elements.  shape: as it lies in memory."""

    offset: int
    shape: tuple[int, ...]

    @property
    def slice(self) -> slice:
        return slice(self.offset, self.offset + elements(self.shape))


@dataclass(frozen=True)
class Layout:
    """parts, running, scaler: by name.  parameters, statistics, scalars: elements of the flat
    buffers, with gaps."""

    parts: Mapping[str, Part]
    running: Mapping[str, Part]
    scaler: Mapping[str, Part]
    parameters: int
    statistics: int
    scalars: int

    def of_buffer(self, name: str) -> Mapping[str, Part]:
        """The parts of a flat buffer."""
        return {"running": self.running, "scaler": self.scaler}.get(name, self.parts)

    def elements_of(self, name: str) -> int:
        """Elements of a flat buffer."""
        sizes = {"running": self.statistics, "scaler": self.scalars}
        return sizes.get(name, self.parameters)


def layout_of(network: Network) -> Layout:
    """Filters, scales and shifts of norms, layer by layer; the last layer's filter and bias."""
    shapes: dict[str, tuple[int, ...]] = {}
    running: dict[str, tuple[int, ...]] = {}
    for layer in network.layers:
        if not layer.op.w_shape:
            continue
        shapes[f"{layer.name}.w"] = layer.op.w_shape
        count = (layer.op.bias_elements,)
        if isinstance(layer.op, Conv):
            shapes |= {f"{layer.name}.scale": count, f"{layer.name}.shift": count}
            running |= {f"{layer.name}.mean": count, f"{layer.name}.variance": count}
        else:
            shapes[f"{layer.name}.bias"] = count
    parts, size = _placed(shapes)
    statistics, statistics_size = _placed(running)
    scaler, scalars = _placed(dict.fromkeys(("loss_scale", "good_steps"), (1,)))
    return Layout(parts, statistics, scaler, size, statistics_size, scalars)


def _placed(shapes: Mapping[str, tuple[int, ...]]) -> tuple[dict[str, Part], int]:
    parts: dict[str, Part] = {}
    end = 0
    for name, shape in shapes.items():
        parts[name] = Part(end, shape)
        end += -(-elements(shape) // _ALIGNMENT) * _ALIGNMENT
    return parts, end


def parameters(network: Network, seed: int) -> dict[str, Array]:
    """f32, by name: filters scaled after He, norms about 1 and 0, a small last layer."""
    found: dict[str, Array] = {}
    for place, (name, part) in enumerate(layout_of(network).parts.items()):
        random = np.random.default_rng([seed, place])
        drawn = random.standard_normal(elements(part.shape), np.float32)
        mean, deviation = _moments(name, part.shape)
        found[name] = (mean + deviation * drawn).astype(np.float32).reshape(part.shape)
    return found


def _moments(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    if name == "linear.bias":
        return 0.0, 0.0
    kind = name.rpartition(".")[2]
    if kind == "w":
        gain = 1.0 if name == "linear.w" else 2.0
        return 0.0, (gain / elements(shape[1:])) ** 0.5
    return _SCALE if kind == "scale" else _SHIFT


def flat(parts: Mapping[str, Part], size: int, arrays: Mapping[str, Array]) -> Array:
    """Arrays in one buffer; zeros between them."""
    first = next(iter(arrays.values()))
    made = np.zeros(size, first.dtype)
    for name, array in arrays.items():
        made[parts[name].slice] = array.ravel()
    return made


def split(parts: Mapping[str, Part], buffer: Array) -> dict[str, Array]:
    """The tensors of a buffer, by name: views."""
    return {name: buffer[part.slice].reshape(part.shape) for name, part in parts.items()}


def running(network: Network) -> Array:
    """Running statistics before the first step: means of 0, variances of 1."""
    layout = layout_of(network)
    arrays = {
        name: np.full(part.shape, float(name.endswith(".variance")), np.float32)
        for name, part in layout.running.items()
    }
    return flat(layout.running, layout.statistics, arrays)


def scaler(network: Network, loss_scale: float) -> Array:
    """The state of the loss scale before the first step."""
    layout = layout_of(network)
    arrays = {"loss_scale": np.float32([loss_scale]), "good_steps": np.zeros(1, np.float32)}
    return flat(layout.scaler, layout.scalars, arrays)


def data(network: Network, n: int, seed: int) -> tuple[Array, Array]:
    """(images [n, size, size, 3] of f16, labels [n] of int32), at random."""
    random = np.random.default_rng([seed, 1 << 20])
    shape = (n, *network.layers[0].op.x_shape)
    images = random.standard_normal(shape, np.float32).astype(np.float16)
    return images, random.integers(0, network.classes, n).astype(np.int32)
