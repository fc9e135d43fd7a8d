"""The fused cases as operation graphs: products, and what is done to their rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .build import Graph

# Added to the mean of squares, by rms_norm.
EPSILON = 1e-6


def _swiglu(made: Graph, p: Mapping[str, Any]) -> None:
    """y [1, m, n] = swish(a [1, m, k] @ g [1, k, n]) * (a @ u [1, k, n])."""
    graph, m, n, k = made.graph, p["m"], p["n"], p["k"]
    a = _rows(made, "a", m, k)
    gate, up = (graph.matmul(A=a, B=_weight(made, name, 1, n, k)) for name in ("g", "u"))
    made.output("y", graph.mul(a=graph.swish(input=gate), b=up), [1, m, n], "bf16")


def _softmax(made: Graph, p: Mapping[str, Any]) -> None:
    """y [1, m, n]: of each row of a [1, m, k] @ w [1, k, n]."""
    graph = made.graph
    c = _product(made, p)
    e = graph.exp(input=graph.sub(a=c, b=_of_rows(made, "MAX", c, p["m"])))
    y = graph.div(a=e, b=_of_rows(made, "ADD", e, p["m"]))
    made.output("y", y, [1, p["m"], p["n"]], "bf16")


def _rms_norm(made: Graph, p: Mapping[str, Any]) -> None:
    """y [1, m, n]: each row of a [1, m, k] @ w [1, k, n] by its root mean square, times gamma."""
    graph, n = made.graph, p["n"]
    c = _product(made, p)
    mean = _of_rows(made, "AVG", graph.mul(a=c, b=c), p["m"])
    epsilon = graph.tensor_scalar(EPSILON, made.library.scalar_type.COMPILE_TIME_CONST)
    inverse = graph.rsqrt(input=graph.add(a=mean, b=epsilon))
    gamma = made.input("gamma", [1, 1, n], [n, n, 1], "bf16")
    y = graph.mul(a=graph.mul(a=c, b=inverse), b=gamma)
    made.output("y", y, [1, p["m"], n], "bf16")


def _grouped(made: Graph, p: Mapping[str, Any]) -> None:
    """y [1, t, n]: each row of token [1, t, k] times its expert's weight [e, k, n].

    first [e, 1, 1]: the first row of each expert.
    """
    e, t, n, k = p["e"], p["t"], p["n"], p["k"]
    y = made.graph.moe_grouped_matmul(
        token=_rows(made, "token", t, k),
        weight=_weight(made, "weight", e, n, k),
        first_token_offset=made.input("first", [e, 1, 1], [1, 1, 1], "int32"),
        mode=made.library.moe_grouped_matmul_mode.NONE,
        compute_data_type=made.type("FLOAT"),
    )
    made.output("y", y, [1, t, n], "bf16")


def _product(made: Graph, p: Mapping[str, Any]) -> Any:
    """[1, m, n], virtual."""
    a = _rows(made, "a", p["m"], p["k"])
    return made.graph.matmul(A=a, B=_weight(made, "w", 1, p["n"], p["k"]))


def _rows(made: Graph, name: str, rows: int, k: int) -> Any:
    """An input [1, rows, k]."""
    return made.input(name, [1, rows, k], [rows * k, k, 1], "bf16")


def _weight(made: Graph, name: str, count: int, n: int, k: int) -> Any:
    """An input [count, k, n], stored as [count, n, k]."""
    return made.input(name, [count, k, n], [n * k, 1, k], "bf16")


def _of_rows(made: Graph, mode: str, x: Any, rows: int) -> Any:
    """[1, rows, 1] of x [1, rows, n]."""
    mode = getattr(made.library.reduction_mode, mode)
    reduced = made.graph.reduction(input=x, mode=mode)
    return reduced.set_dim([1, rows, 1]).set_stride([rows, 1, 1])


# Kind -> what adds the operations of a case's parameters to a graph.
BUILDERS: dict[str, Callable[[Graph, Mapping[str, Any]], None]] = {
    "swiglu": _swiglu,
    "softmax": _softmax,
    "rms_norm": _rms_norm,
    "grouped": _grouped,
}
