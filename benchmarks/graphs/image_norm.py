"""Batch norms of images as operation graphs, forward and backward, and what is fused to them.

Images are [n, c, h, w] with channels last; masks are packed booleans in the images' layout, eight
channels a byte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .build import Graph

EPSILON = 1e-5  # as torch has it
MOMENTUM = 0.1

Sizes = tuple[list[int], list[int]]  # dims and strides
Layout = Callable[[int, int, int, int], Sizes]  # of n, h, w, c


def image(n: int, h: int, w: int, c: int) -> Sizes:
    return [n, c, h, w], [h * w * c, 1, w * c, c]


def channels_first(n: int, h: int, w: int, c: int) -> Sizes:
    return [n, c, h, w], [c * h * w, h * w, w, 1]


def output(made: Graph, name: str, tensor: Any, sizes: Sizes, dtype: str = "bf16") -> None:
    made.output(name, tensor, sizes[0], dtype)
    tensor.set_stride(sizes[1])


def _sizes(p: Mapping[str, Any], layout: Layout = image) -> tuple[Sizes, Sizes]:
    """Sizes of the image, and of a tensor with a number for each channel."""
    return layout(p["n"], p["h"], p["w"], p["c"]), image(1, 1, 1, p["c"])


# ---- forward


def _normalised(made: Graph, p: Mapping[str, Any], layout: Layout = image) -> tuple[Any, Sizes]:
    """(The batch norm's y, sizes of it); the statistics are outputs."""
    whole, channel = _sizes(p, layout)
    y, *statistics = made.graph.batchnorm(
        name="batchnorm",
        input=made.input("x", *whole, "bf16"),
        scale=made.input("scale", *channel, "fp32"),
        bias=made.input("bias", *channel, "fp32"),
        in_running_mean=made.input("old_mean", *channel, "fp32"),
        in_running_var=made.input("old_var", *channel, "fp32"),
        epsilon=made.number(EPSILON, 4),
        momentum=made.number(MOMENTUM, 4),
    )
    names = ("mean", "rstd", "next_mean", "next_var")
    for name, tensor in zip(names, statistics, strict=True):
        output(made, name, tensor, channel, "fp32")
    return y, whole


def _batchnorm(made: Graph, p: Mapping[str, Any]) -> None:
    y, sizes = _normalised(made, p)
    output(made, "y", y, sizes)


def _batchnorm_nchw(made: Graph, p: Mapping[str, Any]) -> None:
    y, sizes = _normalised(made, p, channels_first)
    output(made, "y", y, sizes)


def _batchnorm_relu(made: Graph, p: Mapping[str, Any]) -> None:
    y, sizes = _normalised(made, p)
    output(made, "y", made.graph.relu(input=y), sizes)


def _bn_add_relu(made: Graph, p: Mapping[str, Any]) -> None:
    g = made.graph
    normalised, sizes = _normalised(made, p)
    y = g.relu(input=g.add(a=normalised, b=made.input("z", *sizes, "bf16")))
    output(made, "y", y, sizes)
    mask = g.cmp_gt(input=y, comparison=made.number(0.0, 4, "bf16"))
    output(made, "mask", mask, sizes)
    mask.set_data_type(made.type("BOOLEAN"))


# ---- backward


def _gradients(made: Graph, p: Mapping[str, Any], dy: Any, layout: Layout = image) -> None:
    whole, channel = _sizes(p, layout)
    dx, dscale, dbias = made.graph.batchnorm_backward(
        name="batchnorm_backward",
        grad=dy,
        input=made.input("x", *whole, "bf16"),
        scale=made.input("scale", *channel, "fp32"),
        mean=made.input("mean", *channel, "fp32"),
        inv_variance=made.input("rstd", *channel, "fp32"),
    )
    output(made, "dx", dx, whole)
    output(made, "dscale", dscale, channel, "fp32")
    output(made, "dbias", dbias, channel, "fp32")


def _batchnorm_backward(made: Graph, p: Mapping[str, Any]) -> None:
    _gradients(made, p, made.input("dy", *_sizes(p)[0], "bf16"))


def _batchnorm_nchw_backward(made: Graph, p: Mapping[str, Any]) -> None:
    dy = made.input("dy", *_sizes(p, channels_first)[0], "bf16")
    _gradients(made, p, dy, channels_first)


def _drelu_fork_dbn(made: Graph, p: Mapping[str, Any]) -> None:
    g, (dims, strides) = made.graph, _sizes(p)[0]
    dy = made.input("dy", dims, strides, "bf16")
    mask = g.tensor(name="mask", dim=dims, stride=strides, data_type=made.type("BOOLEAN"))
    made.tensors["mask"] = mask
    dz = g.mul(a=dy, b=mask)
    output(made, "dz", dz, (dims, strides))
    _gradients(made, p, dz)


# Kind -> what adds the operations of a case's parameters to a graph.
BUILDERS: dict[str, Callable[[Graph, Mapping[str, Any]], None]] = {
    "batchnorm": _batchnorm,
    "batchnorm_nchw": _batchnorm_nchw,
    "batchnorm_nchw_backward": _batchnorm_nchw_backward,
    "batchnorm_relu": _batchnorm_relu,
    "bn_add_relu": _bn_add_relu,
    "batchnorm_backward": _batchnorm_backward,
    "drelu_fork_dbn": _drelu_fork_dbn,
}
