# pyright: basic
"""The methods `broadcast` and `constant` of a pygraph."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..dialect.ops import Broadcast
from ..dialect.tensor import Tensor, sizes
from ..errors import DnncError, Status
from ..places import current_place
from .graph_tensor import GraphTensor, data_type_of


def broadcast(graph: Any, given: dict[str, Any]) -> Any:
    """The result, of dims that the call gives."""
    dims = sizes(given["dim"])
    x = graph._operand(given["input"], len(dims))
    return _repeated(graph, x, dims, given["name"], given["label"])


def constant(graph: Any, value: Any, dim: Any, data_type: Any, name: str) -> Any:
    """A constant of one element, repeated."""
    kind = data_type_of(data_type)
    if not isinstance(value, bool | int | float):
        what = f"a constant of value {value!r:.40}"
        raise DnncError(Status.BAD_PARAM, what, "a number", "constant")
    default = {bool: dtypes.i1, int: dtypes.i32}.get(type(value), dtypes.f32)
    dims = sizes(dim)
    one = graph.tensor([1] * len(dims), data_type=kind or default)
    one.value = int(value) if isinstance(value, bool) else value
    return _repeated(graph, one, dims, name, graph._label("constant", name))


def _repeated(graph: Any, x: Tensor, dims: Any, name: str, label: str) -> Any:
    y = GraphTensor(is_virtual=True, name=f"{label}::Y", dims=dims, made_at=current_place())
    y._graph = graph
    return graph._append(Broadcast, {"x": x, "y": y, "name": name}, label)
