"""Convolutions as operation graphs, images and filters with channels last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .image_norm_graphs import image, output

if TYPE_CHECKING:
    from .graphs import Graph


def _conv(made: Graph, p: Mapping[str, Any]) -> None:
    g, dtype = made.graph, p["dtype"]
    y = g.conv_fprop(
        image=made.input("x", *image(p["n"], p["h"], p["w"], p["c"]), dtype),
        weight=made.input("f", *image(p["k"], p["r"], p["s"], p["c"] // p["groups"]), dtype),
        padding=[p["padding"]] * 2,
        stride=[p["stride"]] * 2,
        dilation=[1, 1],
        compute_data_type=made.type("FLOAT"),
    )
    dims = image(p["n"], p["p"], p["q"], p["k"])
    if p["epilogue"] != "plain":
        channel = image(1, 1, 1, p["k"])
        y = g.mul(a=y, b=made.input("scale", *channel, dtype))
        y = g.add(a=y, b=made.input("bias", *channel, dtype))
        if p["epilogue"] == "scale_bias_add_relu":
            y = g.add(a=y, b=made.input("residual", *dims, dtype))
        y = g.relu(input=y)
    output(made, "y", y, dims, dtype)


# Kind -> what adds the operations of a case's parameters to a graph.
BUILDERS: dict[str, Callable[[Graph, Mapping[str, Any]], None]] = {"conv": _conv}
