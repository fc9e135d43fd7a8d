"""The cases of convolutions of images and volumes, forward, with what follows them.

    y [n, k, p, q] = epilogue(x [n, c, h, w] convolved with f [k, c / groups, r, s])

An id is conv/type/epilogue/shape; `conv_shape` says how shapes are spelled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..graphs.image_norm import Sizes
from ..peers.torch_later import functional, torch
from . import kinds
from .case import Buffers, Case, unit
from .conv_shape import ConvShape, conv_shape_of
from .kinds import OPERANDS, TOLERANCES, Operands, bytes_of, spread, torch_type

# The operation of an id: a function of the convolution.  scale, bias: of each channel; descale's
# is one number.
EPILOGUES: dict[str, Callable[[Any, Buffers], Any]] = {
    "plain": lambda y, s: y,
    "descale": lambda y, s: y * s["scale"],
    "scale_bias_relu": lambda y, s: torch.relu(y * s["scale"] + s["bias"]),
    "scale_bias_add_relu": lambda y, s: torch.relu(y * s["scale"] + s["bias"] + s["residual"]),
}

# Of i8, y is what the next layer multiplies; of the rest as for products of matrices.
TYPES = {
    **{name: OPERANDS[name] for name in ("bf16", "fp16", "e4m3", "e4m3_fast")},
    "int8": Operands("int8", "int8", "int8", "INT32"),
}

# The deviation of y in i8: the few that lie beyond 127 are cut.
_INT8_DEVIATION = 30.0
# The nearest integer differs from one cut towards zero by half a step and more.
_INT8_TOLERANCE = 5e-2
_ROW_STEP = 3  # of y's rows that are computed exactly, and in no step with a tile


def conv(dtype: str, epilogue: str, shape: ConvShape) -> Case:
    """A convolution of TYPES[dtype] with one of EPILOGUES; of i8, a plain one's y is i32."""
    if epilogue not in EPILOGUES or dtype not in TYPES:
        raise ValueError(f"no conv case {epilogue!r} of {dtype!r}")
    types = TYPES[dtype]
    y_type = "int32" if (dtype, epilogue) == ("int8", "plain") else types.c
    p = {
        "dtype": dtype, "epilogue": epilogue, "shape": shape, "x_type": types.a,
        "y_type": y_type, "scale_type": types.scale, "sums": types.sums,
    }  # fmt: skip
    written = shape.written * (1 + (epilogue == "scale_bias_add_relu"))
    bytes_ = float(bytes_of(types.a) * shape.read + bytes_of(y_type) * written)
    step = _ROW_STEP if shape.y_image[-2] > 1 else 1
    return Case(
        id=f"conv/{dtype}/{epilogue}/{shape}",
        kind="conv",
        p=p,
        make=lambda: _make(p),
        exact=lambda buffers: {"y": _exact(p, step, buffers)},
        flops=shape.flops,
        bytes=bytes_,
        unit=unit(shape.flops, bytes_),
        tolerance=_INT8_TOLERANCE if y_type == "int8" else TOLERANCES[dtype],
        row_step=step,
    )


def conv_of(id_: str) -> Case:
    """The case of an id, also of sizes that no list has."""
    family, dtype, epilogue, shape = [*id_.split("/", 3), "", "", ""][:4]
    if family != "conv":
        raise ValueError(f"{id_!r} is no conv case")
    return conv(dtype, epilogue, conv_shape_of(shape))


def direct(p: Mapping[str, Any], x: Any, f: Any, step: int = 1) -> Any:
    """The convolution in torch, or every step-th row of it, as one of a longer stride."""
    shape: ConvShape = p["shape"]
    stride = [shape.stride] * shape.rank
    stride[-2] *= step
    convolve = functional.conv3d if shape.rank == 3 else functional.conv2d
    return convolve(x, f, None, stride, shape.padding, shape.dilation, shape.groups)


def _make(p: dict[str, Any]) -> Buffers:
    shape: ConvShape = p["shape"]
    x_type, epilogue = torch_type(p["x_type"]), p["epilogue"]
    is_coarse = p["x_type"] in ("int8", "e4m3")
    # Elements of y are of about unit size; coarse types leave that to the scale.
    he = (2.0 / shape.fan_in) ** 0.5
    size = he / spread(p["x_type"]) ** 2 if is_coarse else 1.0
    buffers = {
        "x": normal(shape.x, x_type),
        "f": normal(shape.f, x_type, 1.0 if is_coarse else he),
        "y": empty(shape.y, torch_type(p["y_type"])),
    }
    if epilogue == "plain":
        return buffers
    unit_ = _INT8_DEVIATION if p["y_type"] == "int8" else 1.0
    scale_type = torch_type(p["scale_type"])
    channels = shape.channels(1 if epilogue == "descale" else shape.k)
    scale = empty(channels, scale_type).uniform_(0.5, 1.5)
    buffers["scale"] = scale.mul_(size * unit_)
    if "bias" in epilogue:
        buffers["bias"] = normal(channels, scale_type, unit_)
    if epilogue == "scale_bias_add_relu":
        buffers["residual"] = normal(shape.y, torch_type(p["y_type"]))
    return buffers


def empty(sizes: Sizes, dtype: torch.dtype) -> Any:
    """A buffer on the device."""
    return torch.empty_strided(*sizes, dtype=dtype, device=kinds.DEVICE)


def normal(sizes: Sizes, dtype: torch.dtype, scale: float = 1.0) -> Any:
    """A buffer of normal numbers; of i8, any of its values, uniform."""
    made = empty(sizes, dtype)
    if dtype == torch.int8:
        return made.random_(-128, 128)
    if dtype.itemsize == 1:  # torch draws no fp8
        return made.copy_(normal(sizes, torch.float16, scale))
    return made.normal_(std=scale)


def _exact(p: dict[str, Any], step: int, s: Buffers) -> Any:
    """In float64; i8 as it is rounded to."""
    # By way of f32, for the types that convert to nothing else on every device.
    y = direct(p, s["x"].float().double(), s["f"].float().double(), step)
    rest = {name: s[name].double() for name in ("scale", "bias") if name in s}
    if "residual" in s:
        rest["residual"] = s["residual"][..., ::step, :].double()
    y = EPILOGUES[p["epilogue"]](y, rest)
    return y.round().clamp(-128, 127) if p["y_type"] == "int8" else y
