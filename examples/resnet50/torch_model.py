"""The network in torch: its layers one by one, in any type and on any device.

Values are images [n, height, width, channels] as everywhere here; torch sees them as [n, channels,
height, width] with channels last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import functional

from .network import IMAGE, AveragePool, Conv, Linear, MaxPool, Network, Operation

Tensor = Any


def as_images(array: Tensor) -> Tensor:
    """An array of the last axis channels, as torch has images: the same memory."""
    return array.movedim(-1, 1)


def as_pixels(image: Tensor) -> Tensor:
    return image.movedim(1, -1)


def layer(op: Operation, x: Tensor, w: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
    """The result of an operation on torch's tensors; operands that it does not have are None."""
    match op:
        case Conv():
            y = functional.conv2d(x, w, bias, op.stride, op.padding)
            y = y if residual is None else y.add_(residual)
            return y.relu_() if op.has_relu else y
        case MaxPool():
            return functional.max_pool2d(x, op.window, op.stride, op.padding)
        case AveragePool():
            return functional.adaptive_avg_pool2d(x, 1)
        case Linear():
            return functional.linear(x.flatten(1), w, bias)[:, :, None, None]


class InFloat32:
    """Layers in float32, without tf32: nothing is rounded to f16.  An `Arithmetic` of checks."""

    library: Any = torch
    images: int | None = None
    what = "torch in float32"

    def layer(self, op: Operation, x: Tensor, w: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
        given = (None if v is None else v.float() for v in (x, w, bias, residual))
        x, w, bias, residual = given
        if isinstance(op, Conv):
            w = as_images(w)
        residual = None if residual is None else as_images(residual)
        with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            return as_pixels(layer(op, as_images(x), w, bias, residual))


class Model(torch.nn.Module):
    """The network on torch's images: what a user of torch writes, batch norms folded.

    parameters: (w, bias) of each layer, arrays as they lie in memory; f16 by default.
    """

    def __init__(
        self, network: Network, parameters: Mapping[str, Any], device: str,
        dtype: torch.dtype = torch.float16, run: Any = layer,
    ):  # fmt: skip
        """run: computes a layer (`layer`, or what has its arguments)."""
        super().__init__()
        self.network, self.run, self.ends = network, run, network.ends
        for name, (w, bias) in parameters.items():
            w, bias = (torch.as_tensor(array).to(device, dtype) for array in (w, bias))
            self.register_buffer(_buffer(name, "w"), as_images(w) if w.dim() == 4 else w)
            self.register_buffer(_buffer(name, "bias"), bias)

    def forward(self, image: Tensor) -> Tensor:
        """[n, classes] of [n, 3, size, size]"""
        values = {IMAGE: image}
        for step in self.network.layers:
            w, bias = (getattr(self, _buffer(step.name, part), None) for part in ("w", "bias"))
            residual = values[step.residual] if step.residual else None
            values[step.y] = self.run(step.op, values[step.x], w, bias, residual)
            for name in self.ends[step.name]:
                del values[name]
        return values[self.network.logits].flatten(1)


def _buffer(layer: str, part: str) -> str:
    """A name without dots, as torch wants it."""
    return f"{layer}_{part}".replace(".", "_")
