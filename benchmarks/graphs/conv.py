"""Convolutions as operation graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..cases.conv_dgrad import GRADIENTS, NORM
from ..cases.conv_shape import ConvShape
from .image_norm import output

if TYPE_CHECKING:
    from .build import Graph


def _conv(made: Graph, p: Mapping[str, Any]) -> None:
    g, shape = made.graph, p["shape"]
    y = g.conv_fprop(
        image=made.input("x", *shape.x, p["x_type"]),
        weight=made.input("f", *shape.f, p["x_type"]),
        padding=[shape.padding] * shape.rank,
        stride=[shape.stride] * shape.rank,
        dilation=[shape.dilation] * shape.rank,
        compute_data_type=made.sums(p["sums"]),
    )
    if p["epilogue"] != "plain":
        y = _epilogue(made, p, shape, y.set_data_type(made.sums_type(p["sums"])))
    output(made, "y", y, shape.y, p["y_type"])


def _epilogue(made: Graph, p: Mapping[str, Any], shape: ConvShape, y: Any) -> Any:
    g, epilogue, scale_type = made.graph, p["epilogue"], p["scale_type"]
    is_one = epilogue == "descale"
    channels = shape.channels(1 if is_one else shape.k)
    y = g.mul(a=y, b=made.input("scale", *channels, scale_type))
    if is_one:
        return y
    y = g.add(a=y, b=made.input("bias", *channels, scale_type))
    if epilogue == "scale_bias_add_relu":
        y = g.add(a=y, b=made.input("residual", *shape.y, p["y_type"]))
    return g.relu(input=y)


def _conv_before(made: Graph, p: Mapping[str, Any]) -> None:
    g, shape, dtype = made.graph, p["shape"], p["dtype"]
    x = made.input("x", *shape.x, dtype)
    channels = shape.channels(shape.c)
    x = g.mul(a=x, b=made.input("scale", *channels, dtype))
    x = g.relu(input=g.add(a=x, b=made.input("bias", *channels, dtype)))
    y = g.conv_fprop(
        image=x.set_data_type(made.type("HALF" if dtype == "fp16" else "BFLOAT16")),
        weight=made.input("f", *shape.f, dtype),
        padding=[shape.padding] * shape.rank,
        stride=[shape.stride] * shape.rank,
        dilation=[shape.dilation] * shape.rank,
        compute_data_type=made.sums(p["sums"]),
    )
    output(made, "y", y, shape.y, dtype)
    if p["outputs"] == "genstats":
        sizes = shape.channels(shape.k)
        for name, total in zip(("sum", "squares"), g.genstats(input=y), strict=True):
            output(made, name, total, sizes, "fp32")


def _conv_dgrad(made: Graph, p: Mapping[str, Any]) -> None:
    g, shape, dtype = made.graph, p["shape"], p["dtype"]
    dx = g.conv_dgrad(
        loss=made.input("dy", *shape.y, dtype),
        filter=made.input("f", *shape.f, dtype),
        padding=[shape.padding] * shape.rank,
        stride=[shape.stride] * shape.rank,
        dilation=[shape.dilation] * shape.rank,
        compute_data_type=made.sums(p["sums"]),
    )
    dx.set_dim(shape.x[0])
    if p["epilogue"] != "plain":
        dx.set_data_type(made.type("FLOAT"))
    if p["epilogue"] == "add":
        dx = g.add(a=dx, b=made.input("residual", *shape.x, dtype))
    if p["epilogue"] == "drelu":
        dx = g.relu_backward(loss=dx, input=made.input("y", *shape.x, dtype))
    if p["epilogue"] == "norm":
        _norms_gradients(made, p, dx)
        return
    output(made, "dx", dx, shape.x, dtype)


def _norms_gradients(made: Graph, p: Mapping[str, Any], dx: Any) -> None:
    """dx masked by the ReLU of a batch norm of x, the norm's gradients, factors of dBNApply."""
    g, shape, dtype = made.graph, p["shape"], p["dtype"]
    channels = shape.channels(shape.c)
    x = made.input("x", *shape.x, dtype)
    mean, rstd, scale, bias = (made.input(name, *channels, "fp32") for name in NORM)
    normal = g.mul(a=g.sub(a=x, b=mean), b=rstd)
    y = g.add(a=g.mul(a=normal, b=scale), b=bias)
    dx = g.relu_backward(loss=dx, input=y)
    output(made, "dx", dx, shape.x, dtype)
    found = g.dbn_weight(dy=dx, x=x, mean=mean, inv_variance=rstd, scale=scale)
    for name, gradient in zip(GRADIENTS, found, strict=True):
        output(made, name, gradient, channels, "fp32")


def _conv_wgrad(made: Graph, p: Mapping[str, Any]) -> None:
    g, shape, dtype = made.graph, p["shape"], p["dtype"]
    x, dy = made.input("x", *shape.x, dtype), made.input("dy", *shape.y, dtype)
    if p["operation"] == "scaled":
        channels = shape.channels(shape.c)
        x = g.mul(a=x, b=made.input("scale", *channels, dtype))
        x = g.relu(input=g.add(a=x, b=made.input("bias", *channels, dtype)))
    df = g.conv_wgrad(
        image=x,
        loss=dy,
        padding=[shape.padding] * shape.rank,
        stride=[shape.stride] * shape.rank,
        dilation=[shape.dilation] * shape.rank,
        compute_data_type=made.sums(p["sums"]),
    )
    output(made, "df", df.set_dim(shape.f[0]), shape.f, p["output"])
    if p["operation"] == "sum":
        channels = shape.channels(shape.k)
        total = made.library.reduction_mode.ADD
        db = g.reduction(input=dy, mode=total, compute_data_type=made.type("FLOAT"))
        output(made, "db", db.set_dim(channels[0]), channels, p["output"])


# Kind -> what adds the operations of a case's parameters to a graph.
BUILDERS: dict[str, Callable[[Graph, Mapping[str, Any]], None]] = {
    "conv": _conv,
    "conv_before": _conv_before,
    "conv_dgrad": _conv_dgrad,
    "conv_wgrad": _conv_wgrad,
}
