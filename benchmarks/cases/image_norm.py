"""The cases of batch norms of images, forward and backward, and what is fused to them.

bf16, channels last; sizes are [n, h, w, c].  A mask is packed booleans in the images' layout, in
bytes of eight elements; torch has none, so its mask is a tensor of bools, a byte each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..graphs.image_norm import EPSILON
from ..peers.torch_later import torch
from . import kinds
from .case import Buffers, Case
from .kinds import TOLERANCES

_AXES = (0, 2, 3)  # those that a batch norm averages over
_MASK = 1 / 16  # of the bytes of a bf16 image


# ---- forward


def batchnorm(n: int, h: int, w: int, c: int) -> Case:
    """y = (x - mean) * rstd * scale + bias, with the batch's statistics of each channel.

    They are outputs as well, [1, c, 1, 1] in f32, and so are the next running ones.
    """
    return _batchnorm("batchnorm", n, h, w, c, lambda y: y)


def batchnorm_nchw(n: int, h: int, w: int, c: int) -> Case:
    """`batchnorm` of images with channels first."""
    return _channels_first("batchnorm_nchw", batchnorm(n, h, w, c))


def batchnorm_relu(n: int, h: int, w: int, c: int) -> Case:
    """relu of a batch norm's y."""
    return _batchnorm("batchnorm_relu", n, h, w, c, lambda y: torch.relu(y))


def _batchnorm(kind: str, n: int, h: int, w: int, c: int, activation: Callable[[Any], Any]) -> Case:
    def make() -> Buffers:
        x = _channels_apart(n, h, w, c)
        return {
            "x": x,
            "scale": 1.0 + 0.1 * _channel(c).normal_(),
            "bias": _channel(c).normal_(),
            "old_mean": _channel(c).normal_(),
            "old_var": 0.5 + _channel(c).uniform_(),
            "y": torch.empty_like(x),
            **{name: _channel(c) for name in ("mean", "rstd", "next_mean", "next_var")},
        }

    def exact(s: Buffers) -> Buffers:
        x = s["x"].double()
        variance, mean = torch.var_mean(x, _AXES, correction=0, keepdim=True)
        factor = torch.rsqrt(variance + EPSILON) * s["scale"].double()
        return {"y": activation((x - mean) * factor + s["bias"].double())}

    return image_case(kind, n, h, w, c, 2.0 * n * h * w * c, make, exact)


def bn_add_relu(n: int, h: int, w: int, c: int) -> Case:
    """y = relu(a batch norm's y + z), and the mask y > 0: pattern BnAddRelu of cuDNN's guide.

    Torch gives y > 0 as bools.  Only y is compared: where the sum is nearly 0, rounding it sets
    or clears a bit.
    """
    plain = batchnorm(n, h, w, c)

    def make() -> Buffers:
        mask = torch.empty(_mask_bytes(n, h, w, c), dtype=torch.uint8, device=kinds.DEVICE)
        return plain.make() | {"z": image(n, h, w, c).normal_(), "mask": mask}

    def exact(s: Buffers) -> Buffers:
        return {"y": torch.relu(plain.exact(s)["y"] + s["z"].double())}

    return image_case("bn_add_relu", n, h, w, c, (3 + _MASK) * n * h * w * c, make, exact)


# ---- backward


def batchnorm_backward(n: int, h: int, w: int, c: int) -> Case:
    """dx, and dscale and dbias [1, c, 1, 1] in f32, of a batch norm.

    From dy, x, scale and the saved mean and rstd.
    """

    def make() -> Buffers:
        return _backward_buffers(n, h, w, c)

    def exact(s: Buffers) -> Buffers:
        return _gradients(s, s["dy"].double())

    return image_case("batchnorm_backward", n, h, w, c, 3.0 * n * h * w * c, make, exact)


def batchnorm_nchw_backward(n: int, h: int, w: int, c: int) -> Case:
    """`batchnorm_backward` of images with channels first."""
    return _channels_first("batchnorm_nchw_backward", batchnorm_backward(n, h, w, c))


def drelu_fork_dbn(n: int, h: int, w: int, c: int) -> Case:
    """dz = dy * mask, an output too, and the gradients of a batch norm from it.

    Pattern DReluForkDBn of cuDNN's guide, the backward pass of `bn_add_relu`: dz is z's gradient.
    Torch reads the mask as bools, which no graph has.
    """

    def make() -> Buffers:
        mask = torch.randint(
            256, (_mask_bytes(n, h, w, c),), dtype=torch.uint8, device=kinds.DEVICE
        )
        found = _backward_buffers(n, h, w, c)
        return found | {
            "mask": mask,
            "bools": unpacked(mask, found["dy"]),
            "dz": torch.empty_like(found["dy"]),
        }

    def exact(s: Buffers) -> Buffers:
        dz = s["dy"].double() * s["bools"]
        return {"dz": dz, **_gradients(s, dz)}

    return image_case("drelu_fork_dbn", n, h, w, c, (4 + _MASK) * n * h * w * c, make, exact)


def _backward_buffers(n: int, h: int, w: int, c: int) -> Buffers:
    x = _channels_apart(n, h, w, c)
    variance, mean = torch.var_mean(x.float(), _AXES, correction=0, keepdim=True)
    rstd = torch.rsqrt(variance + EPSILON)
    # Of a dy without a mean and apart from x, both means that dx has are lost in its rounding.
    dy = _channels_apart(n, h, w, c)
    dy.add_((x - mean) * rstd * _channel(c).normal_())
    return {
        "dy": dy,
        "x": x,
        "scale": 1.0 + 0.1 * _channel(c).normal_(),
        "mean": mean,
        "rstd": rstd,
        "dx": torch.empty_like(x),
        "dscale": _channel(c),
        "dbias": _channel(c),
    }


def _gradients(s: Buffers, dy: Any) -> Buffers:
    rstd, count = s["rstd"].double(), dy.numel() / dy.shape[1]
    normal = (s["x"].double() - s["mean"].double()) * rstd
    dscale, dbias = ((dy * factor).sum(_AXES, keepdim=True) for factor in (normal, 1.0))
    dx = s["scale"].double() * rstd * (dy - dbias / count - normal * (dscale / count))
    return {"dx": dx, "dscale": dscale, "dbias": dbias}


KINDS: dict[str, Callable[[int, int, int, int], Case]] = {
    "batchnorm": batchnorm,
    "batchnorm_nchw": batchnorm_nchw,
    "batchnorm_nchw_backward": batchnorm_nchw_backward,
    "batchnorm_relu": batchnorm_relu,
    "bn_add_relu": bn_add_relu,
    "batchnorm_backward": batchnorm_backward,
    "drelu_fork_dbn": drelu_fork_dbn,
}


# ---- what they share


def image_case(
    kind: str,
    n: int,
    h: int,
    w: int,
    c: int,
    elements: float,
    make: Callable[[], Buffers],
    exact: Callable[[Buffers], Buffers],
) -> Case:
    """elements: of 2 bytes each that are read or written."""
    return memory_case(kind, {"n": n, "h": h, "w": w, "c": c}, elements, make, exact)


def memory_case(
    kind: str,
    p: dict[str, int],
    elements: float,
    make: Callable[[], Buffers],
    exact: Callable[[Buffers], Buffers],
) -> Case:
    """elements: of 2 bytes each that are read or written."""
    return Case(
        id=f"memory/bf16/{kind}/{'x'.join(map(str, p.values()))}",
        kind=kind,
        p=p,
        make=make,
        exact=exact,
        bytes=2.0 * elements,
        unit="GB/s",
        tolerance=TOLERANCES["bf16"],
    )


def _channels_first(kind: str, case: Case) -> Case:
    """A case whose images, [n, c, h, w], are packed in this order."""

    def make() -> Buffers:
        return {name: tensor.contiguous() for name, tensor in case.make().items()}

    id_ = case.id.replace(f"/{case.kind}/", f"/{kind}/")
    return replace(case, id=id_, kind=kind, make=make)


def image(n: int, h: int, w: int, c: int) -> Any:
    """[n, c, h, w] with channels last, also where a dim is 1."""
    empty = torch.empty(n, h, w, c, dtype=torch.bfloat16, device=kinds.DEVICE)
    return empty.permute(0, 3, 1, 2)


def _channels_apart(n: int, h: int, w: int, c: int) -> Any:
    """A random image whose channels differ, so that wrong statistics show."""
    x = image(n, h, w, c).normal_().mul_(0.5 + _channel(c).uniform_())
    return x.add_(_channel(c).normal_())


def _channel(c: int) -> Any:
    """A number of each channel."""
    return torch.empty(1, c, 1, 1, device=kinds.DEVICE)


def _mask_bytes(n: int, h: int, w: int, c: int) -> int:
    return -(-n * h * w * c // 8)


def unpacked(mask: Any, like: Any) -> Any:
    """The bools of a mask's bytes, lowest bit first, as an image with the dims of another one."""
    n, c, h, w = like.shape
    places = torch.arange(8, dtype=torch.uint8, device=mask.device)
    bits = (mask[:, None] >> places & 1).bool().flatten()[: n * h * w * c]
    return bits.view(n, h, w, c).permute(0, 3, 1, 2)
