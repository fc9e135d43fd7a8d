"""Compiles many graphs ahead of time, several workers at once."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from dnnc import worker
from dnnc.dialect.graph import OperationGraph
from dnnc.plan.plan import Plan


def compile_all(
    graphs: Sequence[OperationGraph],
    target: str,
    jobs: int,
    step: Callable[[str], None],
    *,
    cache: bool = True,
) -> list[Plan]:
    """The plans of finalized graphs, in their order.

    target: `sm_90a`, or several by commas.  jobs: workers at once.  step: called after each plan,
    with its name.  cache: take what was compiled before.
    """
    idle: queue.SimpleQueue[worker.Worker] = queue.SimpleQueue()
    for _ in range(jobs):
        idle.put(worker.Worker())

    def compiled(graph: OperationGraph) -> Plan:
        child = idle.get()
        try:
            plan = worker.compile_graph(graph, target, cache=cache, child=child)
        finally:
            idle.put(child)
        step(graph.name)
        return plan

    try:
        with ThreadPoolExecutor(jobs) as threads:
            futures = [threads.submit(compiled, graph) for graph in graphs]
            try:
                return [future.result() for future in futures]
            except BaseException:
                threads.shutdown(cancel_futures=True)
                raise
    finally:
        while not idle.empty():
            idle.get().close()
