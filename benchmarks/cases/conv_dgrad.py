"""The cases of gradients of convolutions by the image.

    dx [n, c, h, w] = the gradient of dy [n, k, p, q], the result of f [k, c / groups, r, s] forward

An id is conv_dgrad/type/epilogue/shape; the shape is the forward convolution's, see `conv_shape`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ..peers.torch_later import torch
from .case import Buffers, Case, unit
from .conv import empty, normal
from .conv_shape import ConvShape, conv_shape_of
from .kinds import OPERANDS, TOLERANCES, bytes_of, torch_type

# What follows: nothing, the gradient that comes by another path, or that of a ReLU, of its result.
EPILOGUES: dict[str, Callable[[Any, Buffers], Any]] = {
    "plain": lambda dx, s: dx,
    "add": lambda dx, s: dx + s["residual"],
    "drelu": lambda dx, s: dx * (s["y"] > 0),
}
_READ = {"add": "residual", "drelu": "y"}  # of dx's dims


def conv_dgrad(dtype: str, epilogue: str, shape: ConvShape) -> Case:
    """A case of f16 or bf16."""
    if dtype not in ("fp16", "bf16") or epilogue not in EPILOGUES:
        raise ValueError(f"no conv_dgrad case {epilogue!r} of {dtype!r}")
    p = {"dtype": dtype, "epilogue": epilogue, "shape": shape, "sums": OPERANDS[dtype].sums}
    made = shape.n * shape.c * math.prod(shape.image) * (1 + (epilogue in _READ))
    bytes_ = float(bytes_of(dtype) * (made + shape.written + shape.k * shape.fan_in))
    return Case(
        id=f"conv_dgrad/{dtype}/{epilogue}/{shape}",
        kind="conv_dgrad",
        p=p,
        make=lambda: _make(p),
        exact=lambda buffers: {"dx": _exact(p, buffers)},
        flops=shape.flops,
        bytes=bytes_,
        unit=unit(shape.flops, bytes_),
        tolerance=TOLERANCES[dtype],
    )


def conv_dgrad_of(id_: str) -> Case:
    """The case of an id, also of sizes that no list has."""
    _, dtype, epilogue, shape = [*id_.split("/", 3), "", "", ""][:4]
    return conv_dgrad(dtype, epilogue, conv_shape_of(shape))


def in_torch(p: Mapping[str, Any], s: Buffers) -> Any:
    """The gradient as autograd computes it."""
    return EPILOGUES[p["epilogue"]](_direct(p, s["dy"], s["f"], s["dx"]), s)


def _direct(p: Mapping[str, Any], dy: Any, f: Any, like: Any) -> Any:
    """like: a tensor of dx's dims and type, whose elements are not read."""
    shape: ConvShape = p["shape"]
    stride, padding, dilation = (
        [size] * shape.rank for size in (shape.stride, shape.padding, shape.dilation)
    )
    none = [0] * shape.rank
    return torch.ops.aten.convolution_backward(
        dy, like, f, None, stride, padding, dilation, False, none, shape.groups,
        [True, False, False],
    )[0]  # fmt: skip


def _make(p: dict[str, Any]) -> Buffers:
    shape, dtype = p["shape"], torch_type(p["dtype"])
    terms = shape.k // shape.groups * math.prod(shape.taps) / shape.stride**shape.rank
    found = {
        "dy": normal(shape.y, dtype),
        "f": normal(shape.f, dtype, min(1.0, terms**-0.5)),
        "dx": empty(shape.x, dtype),
    }
    if p["epilogue"] in _READ:
        found[_READ[p["epilogue"]]] = normal(shape.x, dtype)
    return found


def _exact(p: dict[str, Any], s: Buffers) -> Any:
    """The result in f32, which is exact beside what 16 bits hold: in f64 it would take seconds."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        dx = _direct(p, s["dy"].float(), s["f"].float(), s["dx"].float())
    rest = {name: s[name].float() for name in ("residual", "y") if name in s}
    return EPILOGUES[p["epilogue"]](dx, rest).double()
