"""Instance norms, adaptive layer norms and a quantised rms norm as operation graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .image_norm import EPSILON, Layout, Sizes, channels_first, image, output

if TYPE_CHECKING:
    from .build import Graph

SCALE = 16.0  # of what is quantised to fp8


class _Sizes:
    """whole: of x.  scaled: of scale and bias.  row: of statistics."""

    def __init__(self, whole: Sizes, scaled: Sizes, row: Sizes, dtype: str):
        self.whole, self.scaled, self.row, self.dtype = whole, scaled, row, dtype


def _of_images(p: Mapping[str, Any], layout: Layout) -> _Sizes:
    n, h, w, c = p["n"], p["h"], p["w"], p["c"]
    row = image(n, 1, 1, c)
    return _Sizes(layout(n, h, w, c), image(1, 1, 1, c), row, "fp32")


def _of_batches(p: Mapping[str, Any]) -> _Sizes:
    batches, rows, columns = p["batches"], p["rows"], p["columns"]

    def packed(b: int, r: int, c: int) -> Sizes:
        return [b, r, c, 1], [r * c, c, 1, 1]

    whole, scaled = packed(batches, rows, columns), packed(batches, 1, columns)
    return _Sizes(whole, scaled, packed(batches, rows, 1), "bf16")


def _forward(made: Graph, norm: str, at: _Sizes) -> None:
    y, *statistics = getattr(made.graph, norm)(
        norm_forward_phase=made.library.norm_forward_phase.TRAINING,
        input=made.input("x", *at.whole, "bf16"),
        scale=made.input("scale", *at.scaled, at.dtype),
        bias=made.input("bias", *at.scaled, at.dtype),
        epsilon=made.number(EPSILON, 4),
    )
    output(made, "y", y, at.whole)
    for name, tensor in zip(("mean", "rstd"), statistics, strict=True):
        output(made, name, tensor, at.row, "fp32")


def _backward(made: Graph, norm: str, at: _Sizes) -> None:
    dx, *sums = getattr(made.graph, f"{norm}_backward")(
        grad=made.input("dy", *at.whole, "bf16"),
        input=made.input("x", *at.whole, "bf16"),
        scale=made.input("scale", *at.scaled, at.dtype),
        mean=made.input("mean", *at.row, "fp32"),
        inv_variance=made.input("rstd", *at.row, "fp32"),
    )
    output(made, "dx", dx, at.whole)
    for name, tensor in zip(("dscale", "dbias"), sums, strict=True):
        output(made, name, tensor, at.scaled, at.dtype)


def _rmsnorm_fp8_amax(made: Graph, p: Mapping[str, Any]) -> None:
    rows, columns = p["rows"], p["columns"]
    whole: Sizes = ([rows, columns, 1, 1], [columns, 1, columns, columns])
    one: Sizes = ([1] * 4, [1] * 4)
    g = made.graph
    y, _ = g.rmsnorm(
        norm_forward_phase=made.library.norm_forward_phase.INFERENCE,
        input=made.input("x", *whole, "bf16"),
        scale=made.input("w", [1, columns, 1, 1], [columns, 1, columns, columns], "bf16"),
        epsilon=made.number(EPSILON, 4),
    )
    y.set_data_type(made.type("FLOAT"))
    amax = g.reduction(input=y, mode=made.library.reduction_mode.AMAX)
    output(made, "amax", amax, one, "fp32")
    output(made, "y", g.mul(a=y, b=made.number(SCALE, 4)), whole, "e4m3")


# Kind -> what adds the operations of a case's parameters to a graph.
BUILDERS: dict[str, Callable[[Graph, Mapping[str, Any]], None]] = {
    "instancenorm": lambda made, p: _forward(made, "instancenorm", _of_images(p, channels_first)),
    "instancenorm_backward": lambda made, p: _backward(
        made, "instancenorm", _of_images(p, channels_first)
    ),
    "instancenorm_nhwc": lambda made, p: _forward(made, "instancenorm", _of_images(p, image)),
    "instancenorm_nhwc_backward": lambda made, p: _backward(
        made, "instancenorm", _of_images(p, image)
    ),
    "adalayernorm": lambda made, p: _forward(made, "adalayernorm", _of_batches(p)),
    "adalayernorm_backward": lambda made, p: _backward(made, "adalayernorm", _of_batches(p)),
    "rmsnorm_fp8_amax": _rmsnorm_fp8_amax,
}
