"""The cases of norms over a part of an image or of a batch, and of one that is quantised.

bf16.  Instance norms have images [n, c, h, w], packed in this order or, `_nhwc`, channels last;
adaptive layer norms [batches, rows, columns], with a scale and a bias of each batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..graphs.image_norm import EPSILON
from ..graphs.part_norm import SCALE
from ..peers.torch_later import functional, torch
from . import kinds
from .case import Buffers, Case
from .image_norm import image, image_case, memory_case

_SPATIAL, _LAST = (2, 3), (2,)
_MOST = 448.0  # of e4m3


# ---- instance norms


def instancenorm_nhwc(n: int, h: int, w: int, c: int) -> Case:
    """y = (x - mean) * rstd * scale + bias, with statistics of each channel of each image.

    They are outputs as well, [n, c, 1, 1] in f32.
    """

    def make() -> Buffers:
        x = image(n, h, w, c).normal_().add_(_f32(n, c, 1, 1).normal_())
        return {"x": x, "scale": 1.0 + 0.1 * _f32(1, c, 1, 1).normal_(),
                "bias": _f32(1, c, 1, 1).normal_(), "y": torch.empty_like(x),
                "mean": _f32(n, c, 1, 1), "rstd": _f32(n, c, 1, 1)}  # fmt: skip

    def exact(s: Buffers) -> Buffers:
        return {"y": _forward(s, _SPATIAL)}

    return image_case("instancenorm_nhwc", n, h, w, c, 2.0 * n * h * w * c, make, exact)


def instancenorm_nhwc_backward(n: int, h: int, w: int, c: int) -> Case:
    """dx, and dscale and dbias [1, c, 1, 1] in f32, of an instance norm."""

    def make() -> Buffers:
        return _gradient_buffers(instancenorm_nhwc(n, h, w, c).make(), _SPATIAL)

    def exact(s: Buffers) -> Buffers:
        return _gradients(s, _SPATIAL, (0, 2, 3))

    return image_case("instancenorm_nhwc_backward", n, h, w, c, 3.0 * n * h * w * c, make, exact)


def instancenorm(n: int, h: int, w: int, c: int) -> Case:
    """`instancenorm_nhwc` of images with channels first."""
    return _channels_first(instancenorm_nhwc(n, h, w, c))


def instancenorm_backward(n: int, h: int, w: int, c: int) -> Case:
    """`instancenorm_nhwc_backward` of images with channels first."""
    return _channels_first(instancenorm_nhwc_backward(n, h, w, c))


def _channels_first(case: Case) -> Case:
    def make() -> Buffers:
        return {name: tensor.contiguous() for name, tensor in case.make().items()}

    kind = case.kind.replace("_nhwc", "")
    return replace(case, id=case.id.replace(case.kind, kind), kind=kind, make=make)


# ---- adaptive layer norms


def adalayernorm(batches: int, rows: int, columns: int) -> Case:
    """y = (x - mean) * rstd * scale + bias, scale and bias [batches, 1, columns]; mean and rstd of
    each row, f32, are outputs."""

    def make() -> Buffers:
        x = _normal(batches, rows, columns)
        scale, bias = 1.0 + 0.1 * _normal(batches, 1, columns), _normal(batches, 1, columns)
        of_rows = {name: _f32(batches, rows, 1) for name in ("mean", "rstd")}
        return {"x": x, "scale": scale, "bias": bias, "y": torch.empty_like(x), **of_rows}

    def exact(s: Buffers) -> Buffers:
        return {"y": _forward(s, _LAST)}

    return _of_batches("adalayernorm", batches, rows, columns, 2, make, exact)


def adalayernorm_backward(batches: int, rows: int, columns: int) -> Case:
    """dx, and dscale and dbias [batches, 1, columns], of an adaptive layer norm."""

    def make() -> Buffers:
        return _gradient_buffers(adalayernorm(batches, rows, columns).make(), _LAST)

    def exact(s: Buffers) -> Buffers:
        return _gradients(s, _LAST, (1,))

    return _of_batches("adalayernorm_backward", batches, rows, columns, 3, make, exact)


def _of_batches(
    kind: str,
    batches: int,
    rows: int,
    columns: int,
    passes: int,
    make: Callable[[], Buffers],
    exact: Callable[[Buffers], Buffers],
) -> Case:
    sizes = {"batches": batches, "rows": rows, "columns": columns}
    return memory_case(kind, sizes, 1.0 * passes * batches * rows * columns, make, exact)


# ---- a norm and what quantises it


def rmsnorm_fp8_amax(rows: int, columns: int) -> Case:
    """y = fp8(SCALE * n), and the largest |n|, in f32, of an rms norm n."""

    def make() -> Buffers:
        y = torch.empty(rows, columns, dtype=torch.float8_e4m3fn, device=kinds.DEVICE)
        return {"x": _normal(rows, columns), "w": 1.0 + 0.1 * _normal(columns), "y": y,
                "amax": _f32(1)}  # fmt: skip

    def exact(s: Buffers) -> Buffers:
        normal = functional.rms_norm(s["x"].double(), (columns,), s["w"].double(), EPSILON)
        return {"y": (SCALE * normal).clamp(-_MOST, _MOST), "amax": normal.abs().amax().view(1)}

    sizes = {"rows": rows, "columns": columns}
    made = memory_case("rmsnorm_fp8_amax", sizes, 1.5 * rows * columns, make, exact)
    return replace(made, tolerance=5e-2)


KINDS: dict[str, Callable[..., Case]] = {
    "instancenorm": instancenorm,
    "instancenorm_backward": instancenorm_backward,
    "instancenorm_nhwc": instancenorm_nhwc,
    "instancenorm_nhwc_backward": instancenorm_nhwc_backward,
    "adalayernorm": adalayernorm,
    "adalayernorm_backward": adalayernorm_backward,
    "rmsnorm_fp8_amax": rmsnorm_fp8_amax,
}


# ---- in torch


def in_torch(kind: str, s: Buffers) -> Any:
    """A case as a torch user writes it; torch has no gradients of instance norms with channels
    last, and of adaptive layer norms only dx."""
    if kind == "rmsnorm_fp8_amax":
        normal = functional.rms_norm(s["x"], s["w"].shape, s["w"], EPSILON).float()
        scaled = (normal * SCALE).clamp(-_MOST, _MOST).to(torch.float8_e4m3fn)
        return scaled, normal.abs().amax().view(1)
    if kind == "adalayernorm":
        normal = functional.layer_norm(s["x"], s["x"].shape[-1:], eps=EPSILON)
        return torch.addcmul(s["bias"], normal, s["scale"])
    if kind == "adalayernorm_backward":
        return _adalayernorm_backward(s)
    if kind == "instancenorm":
        scale, bias = s["scale"].flatten(), s["bias"].flatten()
        return functional.instance_norm(s["x"], weight=scale, bias=bias, eps=EPSILON)
    if kind == "instancenorm_backward":
        return _instancenorm_backward(s)
    if kind == "instancenorm_nhwc":
        return _forward(s, _SPATIAL, torch.float32).to(torch.bfloat16)
    found = _gradients(s, _SPATIAL, (0, 2, 3), torch.float32)
    return found["dx"].to(torch.bfloat16), found["dscale"], found["dbias"]


def _instancenorm_backward(s: Buffers) -> Any:
    """The gradient by a batch norm of n * c channels, as torch does it."""
    n, c, h, w = s["x"].shape
    dy, x = (s[name].view(1, n * c, h, w) for name in ("dy", "x"))
    mean, rstd, scale = s["mean"].flatten(), s["rstd"].flatten(), s["scale"].flatten().repeat(n)
    dx, *sums = torch.ops.aten.native_batch_norm_backward(
        dy, x, scale, None, None, mean, rstd, True, EPSILON, [True] * 3
    )
    return dx.view(n, c, h, w), *(each.view(n, c).sum(0) for each in sums)


def _adalayernorm_backward(s: Buffers) -> Any:
    dims = s["x"].shape[-1:]
    normal = (s["x"] - s["mean"]) * s["rstd"]
    dscale, dbias = ((s["dy"] * by).sum(1, keepdim=True) for by in (normal, 1.0))
    dx, *_ = torch.ops.aten.native_layer_norm_backward(
        s["dy"] * s["scale"], s["x"], dims, s["mean"], s["rstd"], None, None, [True, False, False]
    )
    return dx, dscale.to(torch.bfloat16), dbias.to(torch.bfloat16)


# ---- what they share


def _forward(s: Buffers, axes: tuple[int, ...], dtype: Any = None) -> Any:
    """dtype: to compute in, float64 by default."""
    dtype = dtype or torch.float64
    x = s["x"].to(dtype)
    variance, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + EPSILON) * s["scale"].to(dtype) + s["bias"].to(dtype)


def _gradient_buffers(forward: Buffers, axes: tuple[int, ...]) -> Buffers:
    x, scale = forward["x"], forward["scale"]
    variance, mean = torch.var_mean(x.float(), axes, correction=0, keepdim=True)
    rstd = torch.rsqrt(variance + EPSILON)
    # Apart from x, both means that dx has would be lost in its rounding.
    dy = torch.empty_like(x).normal_().add_(((x - mean) * rstd).to(x.dtype))
    sums = {name: torch.empty_like(scale) for name in ("dscale", "dbias")}
    return {"dy": dy, "x": x, "scale": scale, "mean": mean.contiguous(),
            "rstd": rstd.contiguous(), "dx": torch.empty_like(x), **sums}  # fmt: skip


def _gradients(
    s: Buffers, axes: tuple[int, ...], shared: tuple[int, ...], dtype: Any = None
) -> Buffers:
    """shared: the axes that the sums are over.  dtype: to compute in, float64 by default."""
    dtype = dtype or torch.float64
    dy, rstd, scale = (s[name].to(dtype) for name in ("dy", "rstd", "scale"))
    normal = (s["x"].to(dtype) - s["mean"].to(dtype)) * rstd
    g = dy * scale
    rest = g - g.mean(axes, keepdim=True) - normal * (g * normal).mean(axes, keepdim=True)
    sums = ((dy * factor).sum(shared, keepdim=True) for factor in (normal, 1.0))
    return dict(zip(("dx", "dscale", "dbias"), (rstd * rest, *sums), strict=True))


def _normal(*dims: int) -> Any:
    return torch.empty(*dims, dtype=torch.bfloat16, device=kinds.DEVICE).normal_()


def _f32(*dims: int) -> Any:
    return torch.empty(*dims, device=kinds.DEVICE)
