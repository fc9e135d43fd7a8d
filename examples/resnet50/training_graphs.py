"""Operations of a training step as graphs.

Images are f16 with channels last; statistics, gradients of parameters and their master copies are
f32.  Each class is an operation: its fields say which, `add` describes it on n images, and the
names of its tensors are what a step binds.  Gradients carry the loss scale.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Protocol

import dnnc

from .network import AveragePool, Conv, Linear, MaxPool, Shape

EPSILON = 1e-5  # of a batch norm
STATISTICS_MOMENTUM = 0.1  # of its running statistics
MOMENTUM = 0.9  # of SGD
WEIGHT_DECAY = 1e-4

# Of the loss scale, as torch's GradScaler has them.
GROWTH, BACKOFF = 2.0, 0.5
GROWTH_INTERVAL = 2000

# Results of bn_finalize and of dbn_weight, in their order.
STATISTICS = ("eq_scale", "eq_bias", "mean", "inv_std", "next_mean", "next_variance")
NORM_GRADIENTS = ("dscale", "dbias", "factor_g", "factor_y", "offset")


class Operation(Protocol):
    """The graph that a step runs; equal operations share a plan."""

    @property
    def id(self) -> str: ...

    def add(self, made: Graph, n: int) -> None:
        """Adds it to a graph, for n images."""
        ...


class Graph:
    """A graph under construction.

    is_exact: every number is f64, for a reference without rounding.
    """

    def __init__(self, name: str, *, is_exact: bool = False):
        half, single = ("DOUBLE", "DOUBLE") if is_exact else ("HALF", "FLOAT")
        self.types = {"f16": half, "f32": single, "i32": "INT32", "i8": "INT8"}
        self.ops = dnnc.pygraph(
            name, io_data_type=half, intermediate_data_type=single, compute_data_type=single
        )

    def image(self, name: str, n: int, shape: Shape, kind: str = "f16") -> Any:
        """[n, channels, height, width], channels last."""
        h, w, c = shape
        strides = [h * w * c, 1, w * c, c]
        return self.ops.tensor([n, c, h, w], strides, data_type=self.types[kind], name=name)

    def channels(self, name: str, count: int) -> Any:
        """A number of each channel."""
        return self.image(name, 1, (1, 1, count), "f32")

    def matrix(self, name: str, rows: int, columns: int, kind: str = "f16") -> Any:
        """[1, rows, columns], row after row."""
        strides = [rows * columns, columns, 1]
        return self.ops.tensor(
            [1, rows, columns], strides, data_type=self.types[kind], name=name
        )  # fmt: skip

    def transposed(self, name: str, rows: int, columns: int) -> Any:
        """[1, columns, rows] of a matrix that lies as [rows, columns]."""
        strides = [rows * columns, 1, columns]
        return self.ops.tensor(
            [1, columns, rows], strides, data_type=self.types["f16"], name=name
        )  # fmt: skip

    def output(self, tensor: Any, name: str, kind: str = "f16") -> Any:
        return tensor.set_output(True).set_data_type(self.types[kind]).set_name(name)

    def normalized(self, y: Any, channels: int, suffix: str = "") -> Any:
        """y times a batch norm's factor, plus its offset."""
        scale = self.channels("eq_scale" + suffix, channels)
        return self.ops.add(self.ops.mul(y, scale), self.channels("eq_bias" + suffix, channels))

    def norm_gradients(self, g: Any, y: Any, channels: int, suffix: str = "") -> None:
        """Outputs NORM_GRADIENTS of a batch norm of y, from its result's gradient."""
        given = (self.channels(name + suffix, channels) for name in ("mean", "inv_std", "scale"))
        found = self.ops.dbn_weight(g, y, *given)
        for tensor, name in zip(found, NORM_GRADIENTS, strict=True):
            self.output(tensor, name + suffix, "f32")


@functools.cache
def graph_of(op: Operation, n: int, *, is_exact: bool = False) -> dnnc.pygraph:
    """An operation's graph, finalized."""
    made = Graph(plan_name(op, n), is_exact=is_exact)
    op.add(made, n)
    made.ops.build_operation_graph()
    return made.ops


def plan_name(op: Operation, n: int) -> str:
    return f"train-{op.id}@{n}"


def spatial(conv: Conv) -> dict[str, int]:
    return {"padding": conv.padding, "stride": conv.stride, "dilation": 1}


def sizes_of(conv: Conv) -> str:
    h, w, c = conv.x_shape
    return f"{h}x{w}x{c}-{conv.filters}x{conv.taps}x{conv.taps}-s{conv.stride}"


def filter_of(made: Graph, conv: Conv) -> Any:
    return made.image("w", conv.filters, (conv.taps, conv.taps, conv.channels))


# ---- forward


@dataclass(frozen=True)
class Forward:
    """y = x convolved with w, and what its batch norm follows from, in one pass over y."""

    conv: Conv

    @property
    def id(self) -> str:
        return f"conv-{sizes_of(self.conv)}"

    def add(self, made: Graph, n: int) -> None:
        conv, k = self.conv, self.conv.filters
        x, w = made.image("x", n, conv.x_shape), filter_of(made, conv)
        y = made.output(made.ops.conv_fprop(x, w, **spatial(conv)), "y")
        names = ("scale", "shift", "running_mean", "running_variance")
        scale, shift, mean, variance = (made.channels(name, k) for name in names)
        count = float(n * conv.y_shape[0] * conv.y_shape[1])
        found = made.ops.bn_finalize(
            *made.ops.genstats(y), scale, shift, EPSILON, count, mean, variance,
            STATISTICS_MOMENTUM,
        )  # fmt: skip
        for tensor, name in zip(found, STATISTICS, strict=True):
            made.output(tensor, name, "f32")


@dataclass(frozen=True)
class Activate:
    """a = relu(normalized y + shortcut).

    shortcut: "none", "identity" (another activation) or "projection" (another y, normalized).
    """

    shape: Shape
    shortcut: str = "none"

    @property
    def id(self) -> str:
        h, w, c = self.shape
        return f"activate-{h}x{w}x{c}-{self.shortcut}"

    def add(self, made: Graph, n: int) -> None:
        channels = self.shape[-1]
        z = made.normalized(made.image("y", n, self.shape), channels)
        if self.shortcut == "identity":
            z = made.ops.add(z, made.image("residual", n, self.shape))
        elif self.shortcut == "projection":
            other = made.normalized(made.image("y2", n, self.shape), channels, "2")
            z = made.ops.add(z, other)
        made.output(made.ops.relu(z), "a")


@dataclass(frozen=True)
class Pool:
    """The largest of each window, and which one it is."""

    pool: MaxPool

    @property
    def id(self) -> str:
        return self.pool.id

    def add(self, made: Graph, n: int) -> None:
        x = made.image("x", n, self.pool.x_shape)
        y, index = made.ops.resample(input=x, generate_index=True, **windows_of(self.pool))
        made.output(y, "y")
        made.output(index, "index", "i8")


def windows_of(pool: MaxPool) -> dict[str, Any]:
    return {
        "resample_mode": "MAXPOOL", "padding_mode": "NEG_INF_PAD", "pre_padding": pool.padding,
        "post_padding": pool.padding, "stride": pool.stride, "window": pool.window,
        "compute_data_type": "FLOAT",
    }  # fmt: skip


@dataclass(frozen=True)
class Average:
    """The mean of each channel of an image."""

    pool: AveragePool

    @property
    def id(self) -> str:
        return self.pool.id

    def add(self, made: Graph, n: int) -> None:
        x = made.image("x", n, self.pool.x_shape)
        y = made.ops.reduction(x, "AVG").set_dim([n, self.pool.channels, 1, 1])
        made.output(y, "y")


@dataclass(frozen=True)
class Logits:
    """x w + bias, in f32."""

    linear: Linear

    @property
    def id(self) -> str:
        return self.linear.id

    def add(self, made: Graph, n: int) -> None:
        classes, channels = self.linear.w_shape
        y = made.ops.matmul(made.matrix("x", n, channels), made.transposed("w", classes, channels))
        made.output(made.ops.add(y, made.matrix("bias", 1, classes, "f32")), "y", "f32")


@dataclass(frozen=True)
class Loss:
    """Cross entropy of softmax, a share of each image: their sum is the loss.  Its gradient."""

    classes: int

    @property
    def id(self) -> str:
        return f"loss-{self.classes}"

    def add(self, made: Graph, n: int) -> None:
        ops = made.ops
        logits = made.matrix("logits", n, self.classes, "f32")
        labels, scale = made.matrix("labels", n, 1, "i32"), made.matrix("loss_scale", 1, 1, "f32")
        logarithm = ops.softmax(logits, axis=-1, algorithm="LOG")
        is_label = ops.cmp_eq(ops.gen_index(logits, 2), labels)
        picked = ops.reduction(ops.binary_select(logarithm, 0.0, is_label), "ADD")
        made.output(ops.mul(picked.set_dim([1, n, 1]), -1.0 / n), "losses", "f32")
        off = ops.sub(ops.exp(logarithm), ops.binary_select(1.0, 0.0, is_label))
        made.output(ops.mul(off, ops.mul(scale, 1.0 / n)), "dlogits")
