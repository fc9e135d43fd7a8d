"""The cases of gradients of convolutions by the image.

    dx [n, c, h, w] = the gradient of dy [n, k, p, q], the result of f [k, c / groups, r, s] forward

An id is conv_dgrad/type/epilogue/shape; the shape is the forward convolution's, see `conv_shape`.
"norm" is DgradDreluBNBwdWeight of cuDNN's guide: the image is that of relu(a batch norm of x), dx
is masked by it, and the norm's gradients and the factors of dBNApply are results, too.
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
    "norm": lambda dx, s: _of_norm(dx, s),
}
_READ = {"add": "residual", "drelu": "y", "norm": "x"}  # of dx's dims
# A number of each channel in f32: what a norm has, and what "norm" gives.
NORM = ("mean", "rstd", "scale", "bias")
GRADIENTS = ("dscale", "dbias", "of_dy", "of_x", "shift")


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
        exact=lambda buffers: _exact(p, buffers),
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
    if p["epilogue"] == "norm":
        channel = shape.channels(shape.c)
        found["x"] += normal(channel, dtype)
        variance, mean = torch.var_mean(found["x"].float(), _axes(shape.rank), keepdim=True)
        found |= {"mean": mean, "rstd": torch.rsqrt(variance + 1e-5)}
        found["scale"] = empty(channel, torch.float32).uniform_(0.5, 1.5)
        found["bias"] = normal(channel, torch.float32, 0.5)
        # A gradient that is neither without a mean nor apart from x: else sums would cancel.
        found["dy"].add_(0.5)
        found["f"].add_(min(1.0, terms**-0.5) / 2)
        found |= {name: empty(channel, torch.float32) for name in GRADIENTS}
    return found


def _axes(rank: int) -> list[int]:
    return [0, *range(2, 2 + rank)]


def _of_norm(dx: Any, s: Buffers) -> Any:
    """dx masked by a ReLU of a batch norm of x, and what dBNApply needs."""
    x, mean, rstd, scale = (s[name] for name in ("x", "mean", "rstd", "scale"))
    normal = (x - mean) * rstd
    made = dx * (normal * scale + s["bias"] > 0)
    axes, count = _axes(dx.dim() - 2), dx.numel() / dx.shape[1]
    dscale = (made * normal).sum(axes, keepdim=True)
    dbias = made.float().sum(axes, keepdim=True)
    of_dy = scale * rstd
    of_x = -of_dy * rstd * dscale / count
    return made, dscale, dbias, of_dy, of_x, -of_dy * dbias / count - of_x * mean


def _exact(p: dict[str, Any], s: Buffers) -> Buffers:
    """The results in f32, exact beside what 16 bits hold: in f64 it would take seconds."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        dx = _direct(p, s["dy"].float(), s["f"].float(), s["dx"].float())
    if p["epilogue"] == "norm":
        made = _of_norm(dx, s | {"x": s["x"].float()})
        names = ("dx", *GRADIENTS)
        return {name: value.double() for name, value in zip(names, made, strict=True)}
    rest = {name: s[name].float() for name in ("residual", "y") if name in s}
    return {"dx": EPILOGUES[p["epilogue"]](dx, rest).double()}
