"""The operation graph descriptor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..dialect.graph import OperationGraph
from ..dialect.orders import unknown_order
from ..errors import DnncError, Status
from ..frontends.handle import Handle
from . import engines
from .descriptor import Given, Record
from .enums import cudnnBackendDescriptorType_t as DescriptorType
from .nodes import Node, Tensors
from .tables import ANY, BOOLEAN, DESCRIPTOR, HANDLE, INT64, SOME, Row, kind


@dataclass(frozen=True)
class GraphPayload:
    """graph: finalized.  handle: where its plans run unless they say."""

    graph: OperationGraph
    handle: Handle | None


def _build(given: Given) -> GraphPayload:
    nodes: list[Node] = [record.payload for record in given.all("OPS")]
    for node in nodes:
        if node.refusal is not None:
            raise DnncError(*node.refusal)
    handle: Handle | None = given.one("HANDLE")
    tensors = Tensors()
    graph = OperationGraph()
    for node in nodes:
        for op in node.make(tensors, _rank(handle)):
            graph.add(op)
    _require_read(given, tensors)
    _add_bounds(given, graph)
    if any(getattr(op, "peer_stats", ()) for op in graph.ops) and _device(handle) is None:
        raise given.error(
            "HANDLE", "no device for PEER_STAT_DESCS",
            "a handle of dnnc.create_handle(device), whose device is the place among them",
        )  # fmt: skip
    graph.finalize()
    if len(nodes) > 1 and any(node.is_in_place for node in nodes):
        raise given.error(
            "OPS",
            "an operation of several whose result is its own operand",
            "such an operation in a graph of its own; else a tensor for the result",
            Status.NOT_SUPPORTED_GRAPH_PATTERN,
        )
    return GraphPayload(graph, handle)


def _add_bounds(given: Given, graph: OperationGraph) -> None:
    """Adds the largest products of sizes."""
    products, maxima = given.all("BOUND_PRODUCTS"), given.all("BOUND_MAXIMA")
    if len(products) != len(maxima):
        what = f"{len(maxima)} elements for {len(products)} products of BOUND_PRODUCTS"
        raise given.error("BOUND_MAXIMA", what, "one for each product")
    for product, most in zip(products, maxima, strict=True):
        graph.bound(product, max=most)


def _device(handle: Handle | None) -> int | None:
    return None if handle is None else handle.device


def _rank(handle: Handle | None) -> int:
    return _device(handle) or 0


def _require_read(given: Given, tensors: Tensors) -> None:
    """Refuses tensors that no engine reads."""
    for spec in tensors.specs:
        problem = unknown_order(spec.tensor())
        if spec.ragged_offset is not None:
            problem = f"tensor {spec.uid} has a ragged offset", "strides alone"
        if problem is not None:
            raise given.error("OPS", *problem, Status.NOT_SUPPORTED_LAYOUT)


def _count(record: Record) -> Sequence[int]:
    return (engines.engine_count(),)


_OPERATIONS = [
    member.name.removeprefix("CUDNN_BACKEND_").removesuffix("_DESCRIPTOR")
    for member in DescriptorType
    if member.name.startswith("CUDNN_BACKEND_OPERATION_")
]

OPERATIONGRAPH = kind(
    "OPERATIONGRAPH",
    "OPERATIONGRAPH",
    [
        Row("HANDLE", HANDLE),
        Row("OPS", DESCRIPTOR, SOME, of=_OPERATIONS, required=True),
        Row("ENGINE_GLOBAL_COUNT", INT64, access="read-only"),
        Row("BOUND_PRODUCTS", INT64, ANY, takes_sizes=True),
        Row("BOUND_MAXIMA", INT64, ANY),
        Row("IS_DYNAMIC_SHAPE_ENABLED", BOOLEAN, default=False),
        Row(
            "IS_SAME_TOPOLOGY",
            BOOLEAN,
            access="unsupported",
            why="kernels of graphs that differ in sizes only are always shared",
        ),
    ],
    _build,
    {"ENGINE_GLOBAL_COUNT": _count},
)
