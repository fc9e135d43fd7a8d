"""The cases of gradients of filters.

    df [k, c / groups, r, s] = the sum, over pixels, of dy [n, k, p, q] times x [n, c, h, w] there

An id is conv_wgrad/type/operation/shape, the shape as of a convolution forward.  Of "sum" the sums
of dy's channels are a result, too; of "scaled" x is relu(x * scale + bias).  Of int8 df is exact,
in int32.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from ..peers.torch_later import functional, torch
from .case import Buffers, Case, unit
from .conv import empty, normal
from .conv_shape import ConvShape, conv_shape_of
from .kinds import OPERANDS, TOLERANCES, bytes_of, torch_type

OPERATIONS = ("plain", "sum", "scaled")
TYPES = ("fp16", "bf16", "fp32", "e4m3", "int8")


def conv_wgrad(dtype: str, operation: str, shape: ConvShape) -> Case:
    """A filter's gradient of TYPES."""
    operations = OPERATIONS if dtype != "int8" else ("plain",)
    if dtype not in TYPES or operation not in operations:
        raise ValueError(f"no conv_wgrad case {operation!r} of {dtype!r}")
    row = OPERANDS[dtype]
    p = {"dtype": dtype, "operation": operation, "shape": shape, "sums": row.sums,
         "output": "int32" if dtype == "int8" else row.c}  # fmt: skip
    bytes_ = float(bytes_of(dtype) * (shape.read + shape.written))
    return Case(
        id=f"conv_wgrad/{dtype}/{operation}/{shape}",
        kind="conv_wgrad",
        p=p,
        make=lambda: _make(p),
        exact=lambda buffers: _exact_results(p, buffers),
        flops=shape.flops,
        bytes=bytes_,
        unit=unit(shape.flops, bytes_),
        tolerance=TOLERANCES[dtype],
    )


def conv_wgrad_of(id_: str) -> Case:
    """The case of an id, also of sizes that no list has."""
    family, dtype, operation, shape = [*id_.split("/", 3), "", "", ""][:4]
    if family != "conv_wgrad":
        raise ValueError(f"{id_!r} is no conv_wgrad case")
    return conv_wgrad(dtype, operation, conv_shape_of(shape))


def in_torch(p: Mapping[str, Any], s: Buffers) -> Any:
    """The gradient as autograd computes it: of f, dims and layout are read."""
    shape: ConvShape = p["shape"]
    is_summed = p["operation"] == "sum"
    x = s["x"]
    if p["operation"] == "scaled":
        x = torch.relu(x * s["scale"] + s["bias"])
    found = torch.ops.aten.convolution_backward(
        s["dy"], x, s["df"], [shape.k] if is_summed else None,
        [shape.stride] * shape.rank, [shape.padding] * shape.rank,
        [shape.dilation] * shape.rank, False, [0] * shape.rank, shape.groups,
        [False, True, is_summed],
    )  # fmt: skip
    return (found[1], found[2].reshape(s["db"].shape)) if is_summed else found[1]


def _make(p: dict[str, Any]) -> Buffers:
    shape, dtype = p["shape"], torch_type(p["dtype"])
    more: Buffers = {}
    if p["operation"] == "sum":
        more["db"] = empty(shape.channels(shape.k), torch_type(p["output"]))
    if p["operation"] == "scaled":
        channels = shape.channels(shape.c)
        more["scale"] = empty(channels, dtype).uniform_(0.5, 1.5)
        more["bias"] = normal(channels, dtype, 0.5)
    return more | {
        "x": normal(shape.x, dtype),
        # Sums of as many products as there are pixels stay of about unit size.
        "dy": normal(shape.y, dtype, (shape.written / shape.k) ** -0.5),
        "df": empty(shape.f, torch_type(p["output"])),
    }


def _exact_results(p: dict[str, Any], s: Buffers) -> Buffers:
    found: Buffers = {"df": _exact(p, s)}
    if p["operation"] == "sum":
        axes = [0, *range(2, s["dy"].dim())]
        found["db"] = s["dy"].double().sum(axes, keepdim=True)
    return found


def _exact(p: dict[str, Any], s: Buffers) -> Any:
    """The gradient in float64, a tap of the filter after the other."""
    shape: ConvShape = p["shape"]
    x = s["x"].double()
    if p["operation"] == "scaled":
        x = torch.relu(x * s["scale"].double() + s["bias"].double())
    x = functional.pad(x, [shape.padding] * 2 * shape.rank)
    dy = _by_group(s["dy"].double(), shape.groups)
    found = torch.empty(
        (shape.k, shape.c // shape.groups, *shape.taps), dtype=torch.float64, device=x.device
    )
    for tap in itertools.product(*map(range, shape.taps)):
        window = [slice(None), slice(None)]
        for place, outputs in zip(tap, shape.y_image, strict=True):
            first = place * shape.dilation
            last = first + (outputs - 1) * shape.stride
            window.append(slice(first, last + 1, shape.stride))
        met = _by_group(x[tuple(window)], shape.groups)
        found[(..., *tap)] = (dy @ met.mT).flatten(0, 1)
    return found


def _by_group(image: Any, groups: int) -> Any:
    """[groups, channels of one, pixels of all images]."""
    return image.transpose(0, 1).reshape(groups, image.shape[1] // groups, -1)
