"""Operations of ResNet-50 as operation graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from examples.resnet50 import graphs as operations

if TYPE_CHECKING:
    from .build import Graph


def _layer(made: Graph, p: Mapping[str, Any]) -> None:
    made.tensors.update(operations.add(made.library, made.graph, p["op"], p["n"]))


# Kind -> what adds the operations of a case's parameters to a graph.
BUILDERS: dict[str, Callable[[Graph, Mapping[str, Any]], None]] = {"resnet50_layer": _layer}
