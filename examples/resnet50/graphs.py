"""Operations of the network as graphs, for every library with cudnn-frontend's pygraph.

Tensors are those of `network`, all of f16; sums and what lies between are f32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dnnc

from .network import AveragePool, Conv, Linear, MaxPool, Operation, Shape

Batch = int | dnnc.Dim

# One plan for all batches: `N` in the names of plans.
ANY_BATCH = dnnc.Dim("N", max=1024)

Tensors = dict[str, Any]


def plan_name(op: Operation, n: Batch) -> str:
    """The graph's, and the plan's in a bundle: conv-56x56x64-64x3x3-s1-relu@32."""
    return f"{op.id}@{n if isinstance(n, int) else n.name}"


def graph_of(op: Operation, n: Batch) -> dnnc.pygraph:
    """The graph of an operation on n images."""
    made = dnnc.pygraph(plan_name(op, n), **options(dnnc))
    add(dnnc, made, op, n)
    return made


def options(library: Any) -> dict[str, Any]:
    """Arguments of pygraph: its data types."""
    kind = library.data_type
    return {
        "io_data_type": kind.HALF,
        "intermediate_data_type": kind.FLOAT,
        "compute_data_type": kind.FLOAT,
    }


def add(library: Any, graph: Any, op: Operation, n: Batch) -> Tensors:
    """Adds an operation on n images; gives x, w, bias, residual and y, those that it has.

    library: dnnc or cudnn; graph: its pygraph.  An operation that the library's graphs do not
    have is an AttributeError.
    """
    adders: dict[type, Callable[[_Graph, Any, Batch], None]] = {
        Conv: _conv, MaxPool: _max_pool, AveragePool: _average_pool, Linear: _linear,
    }  # fmt: skip
    made = _Graph(library, graph)
    adders[type(op)](made, op, n)
    return made.tensors


class _Graph:
    """A graph under construction."""

    def __init__(self, library: Any, graph: Any):
        self.library, self.graph = library, graph
        self.tensors: Tensors = {}

    def input(self, name: str, dims: list[Any], strides: list[Any]) -> Any:
        half = self.library.data_type.HALF
        made = self.graph.tensor(name=name, dim=dims, stride=strides, data_type=half)
        self.tensors[name] = made
        return made

    def output(self, tensor: Any, dims: list[Any], strides: list[Any]) -> None:
        tensor.set_output(True).set_data_type(self.library.data_type.HALF)
        tensor.set_dim(dims).set_stride(strides).set_name("y")
        self.tensors["y"] = tensor


def _image(n: Any, shape: Shape) -> tuple[list[Any], list[Any]]:
    """Dims [n, c, h, w] and strides of an image whose channels are last."""
    h, w, c = shape
    return [n, c, h, w], [h * w * c, 1, w * c, c]


def _conv(made: _Graph, op: Conv, n: Batch) -> None:
    g, k = made.graph, op.filters
    y = g.conv_fprop(
        image=made.input("x", *_image(n, op.x_shape)),
        weight=made.input("w", *_image(k, (op.taps, op.taps, op.channels))),
        padding=[op.padding] * 2,
        stride=[op.stride] * 2,
        dilation=[1, 1],
        compute_data_type=made.library.data_type.FLOAT,
    )
    y = g.add(a=y, b=made.input("bias", *_image(1, (1, 1, k))))
    if op.has_residual:
        y = g.add(a=y, b=made.input("residual", *_image(n, op.y_shape)))
    if op.has_relu:
        y = g.relu(input=y)
    made.output(y, *_image(n, op.y_shape))


def _max_pool(made: _Graph, op: MaxPool, n: Batch) -> None:
    y, _ = made.graph.resample(
        input=made.input("x", *_image(n, op.x_shape)),
        resample_mode=made.library.resample_mode.MAXPOOL,
        padding_mode=made.library.padding_mode.NEG_INF_PAD,
        pre_padding=[op.padding] * 2,
        post_padding=[op.padding] * 2,
        stride=[op.stride] * 2,
        window=[op.window] * 2,
    )
    made.output(y, *_image(n, op.y_shape))


def _average_pool(made: _Graph, op: AveragePool, n: Batch) -> None:
    x = made.input("x", *_image(n, op.x_shape))
    y = made.graph.reduction(input=x, mode=made.library.reduction_mode.AVG)
    made.output(y, *_image(n, op.y_shape))


def _linear(made: _Graph, op: Linear, n: Batch) -> None:
    """x [1, n, c] by w [1, c, classes], which lies by classes."""
    g, c, k = made.graph, op.channels, op.classes
    x = made.input("x", [1, n, c], [n * c, c, 1])
    w = made.input("w", [1, c, k], [c * k, 1, c])
    y = g.add(a=g.matmul(A=x, B=w), b=made.input("bias", [1, 1, k], [k, k, 1]))
    made.output(y, [1, n, k], [n * k, k, 1])
