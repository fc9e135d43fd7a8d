"""The cases of convolutions of images, forward, with what follows them; channels last.

    y [n, k, p, q] = epilogue(x [n, c, h, w] convolved with f [k, c, r, s])

Sizes of an id are n x h x w x c, then k x r x s, then stride and padding of both axes:
256x56x56x64-64x3x3-s1p1; -g and the number of groups, where there are several: f is
[k, c / groups, r, s].
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from . import cases
from .case import Buffers, Case, unit
from .cases import TOLERANCES, TORCH_TYPES, bytes_of

# The operation of an id: a function of the convolution.
EPILOGUES: dict[str, Callable[[Any, Buffers], Any]] = {
    "plain": lambda y, s: y,
    "scale_bias_relu": lambda y, s: torch.relu(y * s["scale"] + s["bias"]),
    "scale_bias_add_relu": lambda y, s: torch.relu(y * s["scale"] + s["bias"] + s["residual"]),
}

# (h, w, c, k, r, stride, padding) of layers of ResNet-50, square filters.
LAYERS = (
    (56, 56, 64, 64, 3, 1, 1),
    (56, 56, 64, 256, 1, 1, 0),
    (28, 28, 128, 128, 3, 1, 1),
    (14, 14, 256, 256, 3, 1, 1),
    (7, 7, 512, 512, 3, 1, 1),
    (56, 56, 256, 512, 1, 2, 0),
    (224, 224, 3, 64, 7, 2, 3),
)
BATCHES = (32, 256)

# (h, c, r, stride) of depthwise layers of MobileNetV2 and EfficientNet, square images and filters,
# padded so that a stride of 1 keeps the size.
DEPTHWISE_LAYERS = (
    (112, 96, 3, 2),
    (56, 144, 3, 1),
    (14, 384, 3, 1),
    (7, 960, 3, 1),
    (56, 144, 5, 2),
    (28, 192, 5, 1),
    (14, 576, 5, 1),
    (7, 960, 5, 1),
)

_ROW_STEP = 3  # of Y's rows that are computed exactly, and in no step with a tile


def conv(
    dtype: str, epilogue: str, n: int, h: int, w: int, c: int, k: int, r: int, s: int,
    stride: int, padding: int, groups: int = 1,
) -> Case:  # fmt: skip
    """A convolution with one of EPILOGUES; dtype: of all tensors, bf16 or fp16."""
    if c % groups or k % groups:
        raise ValueError(f"a conv of {groups} groups of {c} and {k} channels")
    if epilogue not in EPILOGUES:
        raise ValueError(f"no conv case {epilogue!r}")
    height, width = ((size + 2 * padding - t) // stride + 1 for size, t in ((h, r), (w, s)))
    p = {
        "dtype": dtype, "epilogue": epilogue, "n": n, "h": h, "w": w, "c": c, "k": k, "r": r,
        "s": s, "stride": stride, "padding": padding, "p": height, "q": width,
        "groups": groups,
    }  # fmt: skip
    weights = k * c // groups * r * s
    flops = 2.0 * n * height * width * weights
    # A filter of one tap reads those pixels only that its stride meets.
    read = n * c * (height * width if r == s == 1 else h * w)
    written = n * k * height * width * (1 + (epilogue == "scale_bias_add_relu"))
    bytes_ = float(bytes_of(TORCH_TYPES[dtype]) * (read + weights + written))
    step = _ROW_STEP if height > 1 else 1
    suffix = f"-g{groups}" if groups > 1 else ""
    return Case(
        id=f"conv/{dtype}/{epilogue}/{n}x{h}x{w}x{c}-{k}x{r}x{s}-s{stride}p{padding}{suffix}",
        kind="conv",
        p=p,
        make=lambda: _make(p),
        exact=lambda buffers: {"y": _exact(p, step, buffers)},
        flops=flops,
        bytes=bytes_,
        unit=unit(flops, bytes_),
        tolerance=TOLERANCES[dtype],
        row_step=step,
    )


def layers() -> list[Case]:
    """Every layer, with every epilogue, of both types and batches."""
    return [
        conv(dtype, epilogue, n, h, w, c, k, r, r, stride, padding)
        for dtype in ("fp16", "bf16")
        for n in BATCHES
        for h, w, c, k, r, stride, padding in LAYERS
        for epilogue in EPILOGUES
    ]


def depthwise_layers() -> list[Case]:
    """Every depthwise layer, plain for a large batch and with an epilogue for a small one."""
    return [
        conv("fp16", epilogue, n, h, h, c, c, r, r, stride, r // 2, groups=c)
        for n, epilogue in ((128, "plain"), (32, "scale_bias_relu"))
        for h, c, r, stride in DEPTHWISE_LAYERS
    ]


def conv_of(id_: str) -> Case:
    """The case of an id, also of sizes that no list has."""
    found = re.fullmatch(
        r"conv/(\w+)/(\w+)/(\d+)x(\d+)x(\d+)x(\d+)-(\d+)x(\d+)x(\d+)-s(\d+)p(\d+)(?:-g(\d+))?",
        id_,
    )
    if found is None or found[1] not in TOLERANCES:
        raise ValueError(f"{id_!r} is no conv case")
    dtype, epilogue, *sizes = found.groups(default="1")
    return conv(dtype, epilogue, *map(int, sizes))


def _make(p: dict[str, Any]) -> Buffers:
    dtype = TORCH_TYPES[p["dtype"]]

    def image(n: int, h: int, w: int, c: int) -> Any:
        """[n, c, h, w] with channels last, also where a dim is 1."""
        return torch.empty(n, h, w, c, dtype=dtype, device=cases.DEVICE).permute(0, 3, 1, 2)

    n, k, c_group = p["n"], p["k"], p["c"] // p["groups"]
    fan_in = c_group * p["r"] * p["s"]
    buffers = {
        "x": image(n, p["h"], p["w"], p["c"]).normal_(),
        "f": image(k, p["r"], p["s"], c_group).normal_().mul_((2.0 / fan_in) ** 0.5),
        "y": image(n, p["p"], p["q"], k),
    }
    if p["epilogue"] != "plain":
        buffers["scale"] = image(1, 1, 1, k).uniform_(0.5, 1.5)
        buffers["bias"] = image(1, 1, 1, k).normal_()
    if p["epilogue"] == "scale_bias_add_relu":
        buffers["residual"] = image(n, p["p"], p["q"], k).normal_()
    return buffers


def _exact(p: dict[str, Any], step: int, s: Buffers) -> Any:
    """Every step-th row of Y, as a convolution of a longer stride."""
    stride = (p["stride"] * step, p["stride"])
    y = functional.conv2d(
        s["x"].double(), s["f"].double(), None, stride, p["padding"], 1, p["groups"]
    )
    rest = {name: s[name].double() for name in ("scale", "bias") if name in s}
    if "residual" in s:
        rest["residual"] = s["residual"][..., ::step, :].double()
    return EPILOGUES[p["epilogue"]](y, rest)
