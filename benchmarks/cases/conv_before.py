"""The cases of convolutions that begin with a batch norm's scale, bias and ReLU.

    y [n, k, p, q] = relu(x * scale + bias) convolved with f; its padding is zero

With statistics, the sums of y's channels, and of their squares, are outputs too: pattern
ConvBNfprop of cuDNN's guide.  An id is conv_before/type/outputs/shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..peers.torch_later import torch
from .case import Buffers, Case, unit
from .conv import direct, empty, normal
from .conv_shape import ConvShape, conv_shape_of
from .kinds import OPERANDS, TOLERANCES, bytes_of, torch_type

OUTPUTS = ("y", "genstats")
_AXES = (0, 2, 3)  # of images, without channels
_ROW_STEP = 3  # of y's rows that are computed exactly


def conv_before(dtype: str, outputs: str, shape: ConvShape) -> Case:
    """A case of f16 or bf16 with two spatial dims, channels last."""
    if dtype not in ("fp16", "bf16") or outputs not in OUTPUTS or shape.rank != 2:
        raise ValueError(f"no conv_before case {outputs!r} of {dtype!r}, {shape}")
    p = {"dtype": dtype, "outputs": outputs, "shape": shape, "sums": OPERANDS[dtype].sums}
    bytes_ = float(bytes_of(dtype) * (shape.read + shape.written))
    return Case(
        id=f"conv_before/{dtype}/{outputs}/{shape}",
        kind="conv_before",
        p=p,
        make=lambda: _make(p),
        exact=lambda buffers: _exact(p, buffers),
        flops=shape.flops,
        bytes=bytes_,
        unit=unit(shape.flops, bytes_),
        tolerance=TOLERANCES[dtype],
        row_step=_ROW_STEP,
    )


def conv_before_of(id_: str) -> Case:
    """The case of an id, also of sizes that no list has."""
    _, dtype, outputs, shape = [*id_.split("/", 3), "", "", ""][:4]
    return conv_before(dtype, outputs, conv_shape_of(shape))


def in_torch(p: Mapping[str, Any], s: Buffers) -> Any:
    """The outputs, as a torch user writes them."""
    y = direct(p, torch.relu(s["x"] * s["scale"] + s["bias"]), s["f"])
    if p["outputs"] == "y":
        return y
    wide = y.float()
    return y, wide.sum(_AXES, keepdim=True), (wide * wide).sum(_AXES, keepdim=True)


def _make(p: dict[str, Any]) -> Buffers:
    shape, dtype = p["shape"], torch_type(p["dtype"])
    channels, of_y = shape.channels(shape.c), shape.channels(shape.k)
    found = {
        "x": normal(shape.x, dtype),
        "scale": empty(channels, dtype).uniform_(0.5, 1.5),
        "bias": normal(channels, dtype, 0.5),
        "f": normal(shape.f, dtype, (1.0 / shape.fan_in) ** 0.5),
        "y": empty(shape.y, dtype),
    }
    if p["outputs"] == "genstats":
        found |= {name: empty(of_y, torch.float32) for name in ("sum", "squares")}
    return found


def _exact(p: dict[str, Any], s: Buffers) -> Buffers:
    """In float64, of x as it is rounded to before the convolution; statistics by way of f32."""
    before = torch.relu(s["x"].double() * s["scale"].double() + s["bias"].double())
    before, f = before.to(s["x"].dtype), s["f"]
    found = {"y": direct(p, before.double(), f.double(), _ROW_STEP)}
    if p["outputs"] == "genstats":
        y = direct(p, before.float(), f.float()).double()
        found |= {"sum": y.sum(_AXES, keepdim=True), "squares": (y * y).sum(_AXES, keepdim=True)}
    return found
