"""The cases bound by memory as operation graphs.

Images are [n, c, h, w] with channels last, whole matrices [1, rows, columns].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .graphs import Graph

EPSILON = 1e-5  # of batch norms, as torch has it
MOMENTUM = 0.1

# (window, stride, padding) of a pooling, the same for height and width.
MAX_POOL = (3, 2, 1)
AVERAGE_POOL = (2, 2, 0)


def pooled(extent: int, pool: tuple[int, int, int]) -> int:
    """How many windows a dim of some elements has."""
    window, stride, padding = pool
    return (extent + 2 * padding - window) // stride + 1


Sizes = tuple[list[int], list[int]]  # dims and strides


def _image(n: int, h: int, w: int, c: int) -> Sizes:
    return [n, c, h, w], [h * w * c, 1, w * c, c]


def _images(p: Mapping[str, Any], pool: tuple[int, int, int]) -> tuple[Sizes, Sizes]:
    """Of the large image and of the pooled one."""
    n, h, w, c = p["n"], p["h"], p["w"], p["c"]
    return _image(n, h, w, c), _image(n, pooled(h, pool), pooled(w, pool), c)


def _output(made: Graph, name: str, tensor: Any, sizes: Sizes, dtype: str = "bf16") -> None:
    made.output(name, tensor, sizes[0], dtype)
    tensor.set_stride(sizes[1])


def _constant(made: Graph, value: float) -> Any:
    return made.graph.tensor_scalar(value, made.library.scalar_type.COMPILE_TIME_CONST)


def _normalised(made: Graph, p: Mapping[str, Any]) -> tuple[Any, Sizes]:
    """(The batch norm's y, sizes of it); the statistics are outputs."""
    whole = _image(p["n"], p["h"], p["w"], p["c"])
    channel = _image(1, 1, 1, p["c"])
    y, *statistics = made.graph.batchnorm(
        name="batchnorm",
        input=made.input("x", *whole, "bf16"),
        scale=made.input("scale", *channel, "fp32"),
        bias=made.input("bias", *channel, "fp32"),
        in_running_mean=made.input("old_mean", *channel, "fp32"),
        in_running_var=made.input("old_var", *channel, "fp32"),
        epsilon=_constant(made, EPSILON),
        momentum=_constant(made, MOMENTUM),
    )
    names = ("mean", "rstd", "next_mean", "next_var")
    for name, tensor in zip(names, statistics, strict=True):
        _output(made, name, tensor, channel, "fp32")
    return y, whole


def _batchnorm(made: Graph, p: Mapping[str, Any]) -> None:
    y, sizes = _normalised(made, p)
    _output(made, "y", y, sizes)


def _batchnorm_relu(made: Graph, p: Mapping[str, Any]) -> None:
    y, sizes = _normalised(made, p)
    _output(made, "y", made.graph.relu(input=y), sizes)


def _windows(made: Graph, pool: tuple[int, int, int], mode: str, padding: str) -> dict[str, Any]:
    """What a resample and its gradient are called with."""
    window, stride, around = pool
    return {
        "resample_mode": getattr(made.library.resample_mode, mode),
        "padding_mode": getattr(made.library.padding_mode, padding),
        "pre_padding": [around] * 2,
        "post_padding": [around] * 2,
        "stride": [stride] * 2,
        "window": [window] * 2,
    }


def _max_pool(made: Graph, p: Mapping[str, Any]) -> None:
    large, small = _images(p, MAX_POOL)
    x = made.input("x", *large, "bf16")
    y, _ = made.graph.resample(input=x, **_windows(made, MAX_POOL, "MAXPOOL", "NEG_INF_PAD"))
    _output(made, "y", y, small)


def _averages(made: Graph) -> dict[str, Any]:
    return _windows(made, AVERAGE_POOL, "AVGPOOL_INCLUDE_PADDING", "ZERO_PAD")


def _average_pool(made: Graph, p: Mapping[str, Any]) -> None:
    large, small = _images(p, AVERAGE_POOL)
    x = made.input("x", *large, "bf16")
    y, _ = made.graph.resample(input=x, **_averages(made))
    _output(made, "y", y, small)


def _average_pool_backward(made: Graph, p: Mapping[str, Any]) -> None:
    large, small = _images(p, AVERAGE_POOL)
    dy = made.input("dy", *small, "bf16")
    _output(made, "dx", made.graph.resample_backward(loss=dy, **_averages(made)), large)


def _matrix(made: Graph, name: str, rows: int, columns: int) -> Any:
    return made.input(name, [1, rows, columns], [rows * columns, columns, 1], "bf16")


def _silu_mul(made: Graph, p: Mapping[str, Any]) -> None:
    rows, columns = p["rows"], p["columns"]
    gate, up = (_matrix(made, name, rows, columns) for name in ("g", "u"))
    y = made.graph.mul(a=made.graph.swish(input=gate), b=up)
    made.output("y", y, [1, rows, columns], "bf16")


def _chain(made: Graph, p: Mapping[str, Any]) -> None:
    g, rows, columns = made.graph, p["rows"], p["columns"]
    x, z = (_matrix(made, name, rows, columns) for name in ("x", "z"))
    s, b = (_matrix(made, name, 1, columns) for name in ("s", "b"))
    r, t = (_matrix(made, name, rows, 1) for name in ("r", "t"))
    y = g.add(a=g.mul(a=g.add(a=g.mul(a=x, b=s), b=b), b=r), b=z)
    made.output("y", g.mul(a=g.relu(input=y), b=t), [1, rows, columns], "bf16")


def _transposed(made: Graph, p: Mapping[str, Any]) -> None:
    _add(made, p, [1, p["rows"]])


def _strided(made: Graph, p: Mapping[str, Any]) -> None:
    _add(made, p, [2 * p["columns"], 1])


def _add(made: Graph, p: Mapping[str, Any], strides: list[int]) -> None:
    """y = x + z; strides: of the rows and columns of x."""
    rows, columns = p["rows"], p["columns"]
    dims = [1, rows, columns]
    x = made.input("x", dims, [max(rows * strides[0], columns * strides[1]), *strides], "bf16")
    y = made.graph.add(a=x, b=_matrix(made, "z", rows, columns))
    made.output("y", y, dims, "bf16")


# Kind -> what adds the operations of a case's parameters to a graph.
BUILDERS: dict[str, Callable[[Graph, Mapping[str, Any]], None]] = {
    "batchnorm": _batchnorm,
    "batchnorm_relu": _batchnorm_relu,
    "max_pool": _max_pool,
    "average_pool": _average_pool,
    "average_pool_backward": _average_pool_backward,
    "silu_mul": _silu_mul,
    "chain": _chain,
    "transposed": _transposed,
    "strided": _strided,
}
