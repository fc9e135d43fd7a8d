"""Small graphs that the engines are asked about."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

from dnnc import dtypes
from dnnc.dialect.fusion import Fusion, partition
from dnnc.dialect.pointwise_modes import Mode
from dnnc.dtypes import DType
from dnnc.errors import DnncError
from tests.attention_graphs import Pattern
from tests.dialect.attention_gradient_examples import gradient
from tests.dialect.example_parts import finish, new_graph
from tests.dialect.examples import EXAMPLES

Build = Callable[[], Any]  # makes a pygraph


def fusion_of(build: Build, io: DType | None = None, compute: DType | None = None) -> Fusion | None:
    """A graph as one fusion, of types as `valid_graph` takes them; None if it is not valid."""
    g = valid_graph(build, io, compute)
    if g is None:
        return None
    graph = g.graph.finalize()
    (whole,) = partition(graph, [graph.live_ops])
    return whole


def valid_graph(build: Build, io: DType | None, compute: DType | None) -> Any:
    """A pygraph of these types; None if an operation's constraints do not hold.

    io: the type of tensors that set none.  compute: of every operation.  None: as built.
    """
    g = build()
    if io is not None:
        g.graph.io_type = g.graph.intermediate_type = io
    for op in g.graph.ops:
        if compute is not None and hasattr(op, "compute_type"):
            op.compute_type = compute
    try:
        g.validate()
    except DnncError:
        return None
    return g


def valid_compute_types(build: Build, io: DType, among: Iterable[DType]) -> Iterator[DType]:
    """The compute types, some of `among`, that all operations of a graph may have at once."""
    g = build()
    g.graph.io_type = g.graph.intermediate_type = io
    for compute in among:
        for op in g.graph.ops:
            if hasattr(op, "compute_type"):
                op.compute_type = compute
        with contextlib.suppress(DnncError):
            g.validate()
            yield compute


def summed(build: Build) -> Build:
    """The graph with its first output summed along the last axis."""

    def make() -> Any:
        g, y = _reopened(build)
        total = g.reduction(y, "add", compute_data_type=dtypes.f32)
        return finish(g, total.set_dim([*y.get_dim()[:-1], 1]))

    return make


def multiplied(build: Build) -> Build:
    """The graph with its first output, as f32, as operand A of a matrix product."""

    def make() -> Any:
        g, y = _reopened(build)
        w = g.tensor([*[1] * (len(y.get_dim()) - 2), y.get_dim()[-1], 8], data_type=dtypes.f32)
        a = g.identity(y, compute_data_type=dtypes.f32).set_data_type(dtypes.f32)
        return finish(g, g.matmul(a, w, compute_data_type=dtypes.f32))

    return make


def _reopened(build: Build) -> tuple[Any, Any]:
    """A new graph and its first output, which is virtual now."""
    g = build()
    y = g.graph.outputs[0]
    return g, y.set_output(False)


def after_a_product(mode: Mode) -> Build:
    """A matrix product and the mode on its result."""

    def make() -> Any:
        g = new_graph()
        c = g.matmul(g.tensor([2, 4, 6]), g.tensor([2, 6, 6]))
        others = [g.tensor([2, 4, 6]) for _ in range(mode.arity - 1)]
        axis = [1] if "axis" in mode.parameters else []
        y = getattr(g, mode.methods[0][0])(c, *others, *axis)
        return finish(g, g.identity(y))

    return make


def contexts(build: Build) -> tuple[Build, ...]:
    """An example alone, and before what engines grow around."""
    return build, summed(build), multiplied(build)


def fusions(builds: Iterable[Build]) -> tuple[Fusion, ...]:
    """The valid ones of the graphs."""
    made = (fusion_of(build) for build in builds)
    return tuple(fusion for fusion in made if fusion is not None)


@cache
def graphs_of_operation(name: str) -> tuple[Fusion, ...]:
    """The example graphs of an operation, in every context."""
    return fusions(made for build in EXAMPLES[name] for made in contexts(build))


def attention(dtype: str) -> Fusion:
    """A small attention."""
    graph = Pattern(dtype=dtype).g.graph.finalize()
    return partition(graph, [graph.live_ops])[0]


def attention_gradient(dtype: DType) -> Fusion:
    """The gradient of a small attention."""
    graph = gradient({"use_causal_mask": True}, io=dtype)().graph.finalize()
    return partition(graph, [graph.live_ops])[0]
