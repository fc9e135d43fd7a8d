"""Causal convolutions along a sequence, and their gradient, as operation graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..cases.causal_conv1d import BACKWARD, KIND, TAPS

if TYPE_CHECKING:
    from .build import Graph


def _forward(made: Graph, p: Mapping[str, Any]) -> None:
    x, w, bias = _operands(made, p)
    states = made.input("states", *_sequence(p, TAPS - 1), p["dtype"]) if p["states"] else None
    y = made.graph.causal_conv1d(x, w, bias, states, activation="silu")
    _output(made, p, "y", y, *_sequence(p, p["t"]))


def _backward(made: Graph, p: Mapping[str, Any]) -> None:
    dy = made.input("dy", *_sequence(p, p["t"]), p["dtype"])
    results = made.graph.causal_conv1d_backward(dy, *_operands(made, p), activation="silu")
    sizes = (_sequence(p, p["t"]), ([p["d"], TAPS], [TAPS, 1]), ([p["d"]], [1]))
    for name, tensor, (dims, strides) in zip(("dx", "dw", "dbias"), results, sizes, strict=True):
        _output(made, p, name, tensor, dims, strides)


def _operands(made: Graph, p: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    return (
        made.input("x", *_sequence(p, p["t"]), p["dtype"]),
        made.input("w", [p["d"], TAPS], [TAPS, 1], p["dtype"]),
        made.input("bias", [p["d"]], [1], p["dtype"]),
    )


def _sequence(p: Mapping[str, Any], length: int) -> tuple[list[int], list[int]]:
    """(dims, strides) of so many places of all channels."""
    d = p["d"]
    return [p["b"], d, length], [d * length, *((1, d) if p["order"] == "last" else (length, 1))]


def _output(
    made: Graph, p: Mapping[str, Any], name: str, tensor: Any, dims: list[int], strides: list[int]
) -> None:
    made.output(name, tensor, dims, p["dtype"])
    tensor.set_stride(strides)


# Kind -> what adds the operations of a case's parameters to a graph.
BUILDERS: dict[str, Callable[[Graph, Mapping[str, Any]], None]] = {
    KIND: _forward, BACKWARD: _backward,
}  # fmt: skip
