"""Images of bytes from one layout to another, as operation graphs.

A layout is nchw, or nchw4 or nchw32: channels in vectors of 4 or 32, NC/4HW4 and NC/32HW32.  Over
the axes [n, c / 32, 8, 4, h, w] each is only strides, so a copy is one operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .build import Graph

LAYOUTS = ("nchw", "nchw4", "nchw32")
# Kind -> the layouts of x and y.
COPIES = {f"{x}_to_{y}": (x, y) for x in LAYOUTS for y in LAYOUTS if x != y}


def dims_of(p: Mapping[str, int]) -> list[int]:
    """[n, c / 32, 8, 4, h, w]; c is a multiple of 32."""
    return [p["n"], p["c"] // 32, 8, 4, p["h"], p["w"]]


def strides_of(layout: str, p: Mapping[str, int]) -> list[int]:
    """Strides of the layout's axes, in elements."""
    pixels, w = p["h"] * p["w"], p["w"]
    # Elements from one channel of a vector, and from one pixel, to the next.
    channel, pixel = {"nchw": (pixels, 1), "nchw4": (1, 4), "nchw32": (1, 32)}[layout]
    vector = 4 if layout == "nchw32" else 4 * pixels
    return [p["c"] * pixels, 32 * pixels, vector, channel, w * pixel, pixel]


def _copy(made: Graph, p: Mapping[str, Any], x: str, y: str) -> None:
    dims = dims_of(p)
    source = made.input("x", dims, strides_of(x, p), "int8")
    made.output("y", made.graph.identity(input=source), dims, "int8")
    made.tensors["y"].set_stride(strides_of(y, p))


def _builder(layouts: tuple[str, str]) -> Callable[[Graph, Mapping[str, Any]], None]:
    return lambda made, p: _copy(made, p, *layouts)


# Kind -> what adds the operations of a case's parameters to a graph.
BUILDERS = {kind: _builder(layouts) for kind, layouts in COPIES.items()}
