# pyright: basic
"""The launches of a plan as nodes of a CUDA graph, without capturing a stream.

Each step is a node that depends on the one before.  A launch that may start before the one ahead of
it ends (programmatic) waits for its end here: a kernel that waits for what has ended goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import given
from ..errors import DnncError, Status
from . import driver
from .laid_out import KernelStep, MemsetStep, Steps


def populate(
    graph: Any, steps: Steps, place: driver.Device, dependencies: Sequence[Any]
) -> tuple[Any, ...]:
    """Adds a node for each step; the first waits for `dependencies`.  Gives the nodes in order."""
    given.verify_list(dependencies, "dependencies")
    made: list[Any] = []
    after = [driver.node_handle(node) for node in dependencies]
    for step in steps:
        params = _params(step)
        if isinstance(step, KernelStep):
            node = driver.add_kernel_node(graph, after, params, step.sized.launch)
        else:
            node = driver.add_memset_node(graph, after, params, place)
        made.append(node)
        after = [node]
    return tuple(made)


def update(
    graph: Any,
    steps: Steps,
    place: driver.Device,
    nodes: Sequence[Any] | None,
    executable: Any,
    where: str,
) -> None:
    """Gives populated nodes what the steps say, in an instantiated graph if one is given.

    nodes: of the steps, in their order; None: those of the graph, which has no others.
    All are looked at before one is changed.
    """
    present = driver.graph_nodes(graph)
    if nodes is None:
        ordered = _in_order(present, where)
    else:
        given.verify_list(nodes, "nodes")
        ordered = [driver.node_handle(node) for node in nodes]
        handles = {int(node) for node in present}
        if not all(int(node) in handles for node in ordered):
            raise _mismatch("a node that the graph does not have", "nodes of this graph", where)
    if len(ordered) != len(steps):
        raise _mismatch(f"{len(ordered)} nodes", f"{len(steps)}, one a step of the plan", where)
    for node, step in zip(ordered, steps, strict=True):
        _verify(node, step, where)
    for node, step in zip(ordered, steps, strict=True):
        if isinstance(step, KernelStep):
            driver.set_kernel_node(node, _params(step), executable)
        else:
            driver.set_memset_node(node, _params(step), place, executable)


def _params(step: KernelStep | MemsetStep) -> Any:
    if isinstance(step, MemsetStep):
        return driver.memset_node_params(step.address, step.value, step.bytes)
    known = step.sized
    return driver.kernel_node_params(
        known.function, known.grid, known.smem, known.launch, step.arguments.address
    )


def _in_order(nodes: Sequence[Any], where: str) -> list[Any]:
    """Nodes of a graph that is one chain, from its first on."""
    following: dict[int, Any] = {}
    for node in nodes:
        before = [int(other) for other in driver.nodes_before(node)]
        if len(before) > 1 or (before or [0])[0] in following:
            raise _mismatch("a graph that is no chain of nodes", "nodes=...", where)
        following[(before or [0])[0]] = node
    ordered, at = [], 0
    while at in following:
        ordered.append(following.pop(at))
        at = int(ordered[-1])
    return ordered


def _verify(node: Any, step: KernelStep | MemsetStep, where: str) -> None:
    """A node is of the kind of a step; a kernel is the step's own, in blocks of its size."""
    if isinstance(step, MemsetStep):
        if not driver.is_memset(node):
            raise _mismatch("another node", "a memset", where)
        return
    found = driver.kernel_of(node)
    launch = step.sized.launch
    if found is None or found[0] != int(step.sized.function) or found[1] != launch.block:
        raise _mismatch(
            "a node that does not launch it" if found is None else "a node of another kernel",
            f"kernel {launch.kernel}, as these sizes take it",
            where,
        )


def _mismatch(what: str, supported: str, where: str) -> DnncError:
    return DnncError(Status.BAD_PARAM_CUDA_GRAPH_MISMATCH, what, supported, where)
