"""Compiles the plans of cases, several at once, in processes of their own."""

from __future__ import annotations

import queue
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import dnnc
from dnnc import worker
from dnnc.options import DEFAULTS, Options
from dnnc.plan import format
from dnnc.plan.plan import Plan

from .cases.case import Case
from .graphs import build as graphs


def our_graph(case: Case) -> tuple[Any, dict[str, Any]]:
    """(OperationGraph, name -> tensor) of a case."""
    graph = dnnc.pygraph(case.kind, **graphs.options(dnnc))
    made = graphs.build(dnnc, graph, case)
    graph.validate()  # ragged tensors become what memory has
    return graph.graph.finalize(), made.tensors


class Compilers:
    """A pool of compile workers that compiles a plan once for a case and options.

    The workers end with this process, however it ends.
    """

    def __init__(self, jobs: int, target: str):
        self.target = target
        self._idle: queue.SimpleQueue[worker.Worker] = queue.SimpleQueue()
        for _ in range(jobs):
            self._idle.put(worker.Worker())
        self._threads = ThreadPoolExecutor(jobs)
        self._plans: dict[tuple[str, Options], Future[tuple[Plan, float]]] = {}

    def ahead(self, case: Case, options: Options = DEFAULTS) -> Future[tuple[Plan, float]]:
        """Starts a compilation: (the plan, seconds it took), or the error that it ends in."""
        key = (case.id, options)
        if key not in self._plans:
            graph, _ = our_graph(case)
            message = {
                "graph": graph.canonical_text(),
                "targets": [self.target],
                "options": vars(options),
            }
            self._plans[key] = self._threads.submit(self._compile, message)
        return self._plans[key]

    def _compile(self, message: dict[str, Any]) -> tuple[Plan, float]:
        one = self._idle.get()
        began = time.perf_counter()
        try:
            made = one.request(message, lambda stage, seconds: None)
        finally:
            self._idle.put(one)
        return format.read(made), time.perf_counter() - began

    def close(self) -> None:
        """Ends the workers; what has not begun is not compiled."""
        self._threads.shutdown(cancel_futures=True)
        while not self._idle.empty():
            self._idle.get().close()
