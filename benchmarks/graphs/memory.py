"""The cases bound by memory as operation graphs.

Images are [n, c, h, w] with channels last, whole matrices [1, rows, columns].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from . import image_norm as image_norm_graphs
from . import part_norm as part_norm_graphs
from . import vector as vector_graphs
from .image_norm import Sizes, image, output

if TYPE_CHECKING:
    from .build import Graph

# (window, stride, padding) of a pooling, the same for height and width.
MAX_POOL = (3, 2, 1)
AVERAGE_POOL = (2, 2, 0)


def pooled(extent: int, pool: tuple[int, int, int]) -> int:
    """How many windows a dim of some elements has."""
    window, stride, padding = pool
    return (extent + 2 * padding - window) // stride + 1


def _images(p: Mapping[str, Any], pool: tuple[int, int, int]) -> tuple[Sizes, Sizes]:
    """Sizes of the large image and of the pooled one."""
    n, h, w, c = p["n"], p["h"], p["w"], p["c"]
    return image(n, h, w, c), image(n, pooled(h, pool), pooled(w, pool), c)


def _windows(made: Graph, pool: tuple[int, int, int], mode: str, padding: str) -> dict[str, Any]:
    """Arguments of a resample and of its gradient."""
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
    output(made, "y", y, small)


def _averages(made: Graph) -> dict[str, Any]:
    return _windows(made, AVERAGE_POOL, "AVGPOOL_INCLUDE_PADDING", "ZERO_PAD")


def _average_pool(made: Graph, p: Mapping[str, Any]) -> None:
    large, small = _images(p, AVERAGE_POOL)
    x = made.input("x", *large, "bf16")
    y, _ = made.graph.resample(input=x, **_averages(made))
    output(made, "y", y, small)


def _average_pool_backward(made: Graph, p: Mapping[str, Any]) -> None:
    large, small = _images(p, AVERAGE_POOL)
    dy = made.input("dy", *small, "bf16")
    output(made, "dx", made.graph.resample_backward(loss=dy, **_averages(made)), large)


def _max_pool_backward(made: Graph, p: Mapping[str, Any]) -> None:
    large, small = _images(p, MAX_POOL)
    dx = made.graph.resample_backward(
        loss=made.input("dy", *small, "bf16"), index=made.input("index", *small, "int8"),
        **_windows(made, MAX_POOL, "MAXPOOL", "NEG_INF_PAD"),
    )  # fmt: skip
    output(made, "dx", dx, large)


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
    **image_norm_graphs.BUILDERS,
    **part_norm_graphs.BUILDERS,
    **vector_graphs.BUILDERS,
    "max_pool": _max_pool,
    "max_pool_backward": _max_pool_backward,
    "average_pool": _average_pool,
    "average_pool_backward": _average_pool_backward,
    "silu_mul": _silu_mul,
    "chain": _chain,
    "transposed": _transposed,
    "strided": _strided,
}
