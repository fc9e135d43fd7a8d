"""The cases of ResNet-50, f16: each of its operations, and the whole forward pass.

The network is that of `examples.resnet50`: batch norms folded, so that what is compared is the
same for everyone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from examples.resnet50 import checks, tensors
from examples.resnet50.network import (
    NETWORKS,
    Conv,
    Linear,
    Network,
    Operation,
    bytes_of,
    flops_of,
)
from examples.resnet50.torch_model import InFloat32, as_images, as_pixels
from examples.resnet50.torch_model import layer as torch_layer

from . import kinds
from .case import Buffers, Case, unit
from .kinds import TOLERANCES

NETWORK = NETWORKS["resnet50"]
SEED = 0

_HALF = torch.float16
_IMAGES_AT_ONCE = 64  # of what is computed exactly


def layer_id(op: Operation, n: int) -> str:
    return f"resnet50/fp16/{type(op).__name__.lower()}/{n}:{op.id}"


def layer(op: Operation, n: int) -> Case:
    """An operation of the network on n images."""
    flops, bytes_ = flops_of(op, n), bytes_of(op, n)
    return Case(
        id=layer_id(op, n),
        kind="resnet50_layer",
        p={"op": op, "n": n},
        make=lambda: _layer_buffers(op, n),
        exact=lambda buffers: {"y": _exact_layer(op, buffers)},
        flops=flops,
        bytes=bytes_,
        unit=unit(flops, bytes_),
        tolerance=TOLERANCES["fp16"],
    )


def forward(n: int, network: Network | None = None) -> Case:
    """The whole pass, of the parameters of SEED; x [n, 3, size, size] -> y [n, classes].

    network: NETWORK by default.
    """
    network = network or NETWORK
    h, w, c = network.layers[0].op.x_shape
    return Case(
        id=f"resnet50/fp16/forward/{n}x{h}x{w}x{c}",
        kind="resnet50",
        p={"network": network, "n": n},
        make=lambda: _buffers(network, n),
        exact=lambda buffers: {"y": _exact(network, buffers["x"])},
        flops=network.flops(n),
        bytes=network.bytes(n),
        tolerance=checks.UNIT * len(network.layers) ** 0.5,
    )


def placed_parameters(network: Network) -> dict[str, tuple[Any, Any]]:
    """Parameters by layer, on the device, as they lie in memory."""
    return {
        name: (torch.as_tensor(w).to(kinds.DEVICE), torch.as_tensor(bias).to(kinds.DEVICE))
        for name, (w, bias) in tensors.parameters(network, SEED).items()
    }


def image(n: int, shape: tuple[int, ...]) -> Any:
    """[n, c, h, w] with channels last, nothing in it."""
    return as_images(torch.empty(n, *shape, dtype=_HALF, device=kinds.DEVICE))


def _layer_buffers(op: Operation, n: int) -> Buffers:
    if isinstance(op, Linear):
        made = {
            "x": torch.empty(1, n, op.channels, dtype=_HALF, device=kinds.DEVICE),
            "y": torch.empty(1, n, op.classes, dtype=_HALF, device=kinds.DEVICE),
            "w": torch.empty(op.w_shape, dtype=_HALF, device=kinds.DEVICE),
        }
    else:
        made = {"x": image(n, op.x_shape), "y": image(n, op.y_shape)}
    if isinstance(op, Conv):
        made["w"] = image(op.filters, op.w_shape[1:])
    if op.has_residual:
        made["residual"] = image(n, op.y_shape).normal_()
    if op.w_shape:
        made["w"].normal_().mul_((2.0 / op.depth) ** 0.5)
        made["bias"] = torch.empty(op.bias_elements, dtype=_HALF, device=kinds.DEVICE).normal_()
    made["x"].normal_()
    return made


def in_torch(op: Operation, s: Mapping[str, Any], dtype: torch.dtype | None = None) -> Any:
    """An operation on its buffers as torch's images, [n, c, h, w]."""
    given = {name: tensor if dtype is None else tensor.to(dtype) for name, tensor in s.items()}
    x = given["x"][0, :, :, None, None] if isinstance(op, Linear) else given["x"]
    return torch_layer(op, x, given.get("w"), given.get("bias"), given.get("residual"))


def _exact_layer(op: Operation, s: Buffers) -> Any:
    """In float32, without tf32: far within what f16 allows."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        return in_torch(op, s, torch.float32).double().reshape(s["y"].shape)


def _buffers(network: Network, n: int) -> Buffers:
    x = image(n, network.layers[0].op.x_shape).normal_()
    return {"x": x, "y": torch.empty(n, network.classes, dtype=_HALF, device=kinds.DEVICE)}


def _exact(network: Network, x: Any) -> Any:
    parameters = placed_parameters(network)
    parts = [
        checks.exact_logits(InFloat32(), network, as_pixels(part), parameters).flatten(1)
        for part in x.split(_IMAGES_AT_ONCE)
    ]
    return torch.cat(parts).double()
