"""Queries, keys and values as parts of one product, as operation graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..cases.parts import KIND, NAMES, widths

if TYPE_CHECKING:
    from .build import Graph


def _parts(made: Graph, p: Mapping[str, Any]) -> None:
    g, rows, k, sizes = made.graph, p["b"] * p["s"], p["k"], widths(p)
    x = made.input("x", [1, rows, k], [rows * k, k, 1], "fp16")
    if p["order"] == "apart":
        found = [_layer(made, x, name, k, n) for name, n in zip(NAMES, sizes, strict=True)]
    else:
        y, first, found = _layer(made, x, "", k, sum(sizes)), 0, []
        for n in sizes:
            found.append(g.slice(y, [slice(None), slice(None), slice(first, first + n)]))
            first += n
    for name, n, part in zip(NAMES, sizes, found, strict=True):
        dims = [1, rows, n]
        if p["order"] == "heads":
            b, s, d = p["b"], p["s"], p["d"]
            shape = [b, s, n // d, d]
            part = g.reshape(part, reshape_mode=made.library.reshape_mode.LOGICAL).set_dim(shape)
            part = g.transpose(part, permutation=[0, 2, 1, 3])
            dims = [b, n // d, s, d]
        made.output(name, part, dims, "fp16")


def _layer(made: Graph, x: Any, name: str, k: int, n: int) -> Any:
    """x times a weight stored as [n, k], plus a bias."""
    g = made.graph
    w = made.input(f"w{name}", [1, k, n], [n * k, 1, k], "fp16")
    y = g.matmul(A=x, B=w)
    y = g.bias(input=y, bias=made.input(f"bias{name}", [1, 1, n], [n, n, 1], "fp16"))
    return y.set_data_type(made.type("HALF"))


# Kind -> what adds the operations of a case's parameters to a graph.
BUILDERS: dict[str, Callable[[Graph, Mapping[str, Any]], None]] = {KIND: _parts}
