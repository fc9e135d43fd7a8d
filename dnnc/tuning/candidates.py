"""Candidates of a graph: configs worth timing, and their plans, compiled on any executor."""

from __future__ import annotations

import atexit
import os
import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import islice
from typing import Any

from .. import outside
from ..cache import place, plans
from ..dialect.graph import OperationGraph
from ..errors import DnncError, Status
from ..expr import assuming
from ..options import Options
from ..plan import codec, format
from ..plan.plan import Plan
from ..target import Target
from ..worker import Worker

Sizes = Mapping[str, int]
Report = Callable[[int, int], object]


@dataclass(frozen=True)
class Candidate:
    """A config of a graph.

    partition, choices: as the passes fuse and select-engine take them.  predicted: seconds at
    each of the sets of sizes, by the place of the set, of those for which it was ranked.
    """

    partition: str
    choices: str
    predicted: Mapping[int, float]

    @property
    def options(self) -> Options:
        """The options of its compilation."""
        return Options(partition=self.partition, choices=self.choices)


def candidates(
    graph: OperationGraph,
    target: Target,
    sizes: Sequence[Sizes] = ({},),
    modes: Sequence[str] = ("B", "FALLBACK"),
    most: int = 32,
    options: Options | None = None,
) -> list[Candidate]:
    """The first configs of the heuristic modes, so many for each set of sizes, each once.

    A graph that no engine takes is an error with the nearest engine's reason.
    """
    from ..choosing import heuristics
    from ..choosing.inputs import inputs_of
    from ..choosing.nearest import no_config_error

    inputs = inputs_of(options or Options())
    found: dict[tuple[str, str], dict[int, float]] = {}
    for at, values in enumerate(sizes):
        with assuming(values):
            ranked = list(islice(heuristics.configs(graph, target, modes, inputs), most))
        for config in ranked:
            texts = (config.partition_text(graph), config.choice_text)
            found.setdefault(texts, {})[at] = config.seconds
    if not found:
        raise no_config_error(graph, target, inputs)
    return [Candidate(*texts, predicted) for texts, predicted in found.items()]


# ---- compiling


def compile_one(message: Mapping[str, Any]) -> bytes:
    """The plan of a request to a compile worker, as bytes: what executors run.

    It compiles in a process of its own; one is kept for each call that runs at the same time.
    """
    try:
        worker = _idle.get_nowait()
    except queue.Empty:
        worker = Worker()
    try:
        # Code that was made before comes from the cache of the machine that this runs on.
        cache = codec.encode(place.settings())
        return worker.request({**message, "cache": cache}, lambda stage, seconds: None)
    finally:
        _idle.put(worker)


_idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()


@atexit.register
def _close_workers() -> None:
    while not _idle.empty():
        _idle.get().close()


def compiled(
    graph: OperationGraph,
    target: Target,
    every: Sequence[Candidate],
    executor: Executor | None = None,
    report: Report = lambda done, count: None,
) -> list[Plan | DnncError]:
    """The plan of each candidate, or the error that its compilation ended in.

    executor: what runs the compilations (default: as many threads as there are processors, each
    with a compile worker; with engines from outside the package this process, one by one).
    report: called with (how many are done, of how many).
    """
    if executor is None and outside.is_used():
        return list(_compiled_here(graph, target, every, report))
    messages = [_message(graph, target, candidate) for candidate in every]
    if executor is not None:
        return list(_collected(executor, messages, report))
    with ThreadPoolExecutor(min(len(messages), os.cpu_count() or 1)) as threads:
        found = list(_collected(threads, messages, report))
    _close_workers()
    return found


def _compiled_here(
    graph: OperationGraph, target: Target, every: Sequence[Candidate], report: Report
) -> Iterator[Plan | DnncError]:
    for done, candidate in enumerate(every, 1):
        try:
            yield plans.compiled_here(graph, [target], candidate.options)
        except DnncError as error:
            yield error
        report(done, len(every))


def _message(graph: OperationGraph, target: Target, candidate: Candidate) -> dict[str, Any]:
    return {
        "graph": graph.canonical_text(), "targets": [target.name],
        "options": codec.encode(candidate.options),
    }  # fmt: skip


def _collected(
    executor: Executor, messages: Sequence[Mapping[str, Any]], report: Report
) -> Iterator[Plan | DnncError]:
    futures: list[Future[bytes]] = [executor.submit(compile_one, m) for m in messages]
    try:
        for done, _ in enumerate(as_completed(futures), 1):
            report(done, len(futures))
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    for future in futures:
        yield _plan_of(future)


def _plan_of(future: Future[bytes]) -> Plan | DnncError:
    try:
        return format.read(future.result())
    except DnncError as error:
        return error
    except Exception as error:  # what an executor raises of its own: its process or machine ended
        said = f"{type(error).__name__}: {error}"
        return DnncError(Status.INTERNAL_ERROR, said, "", "a candidate's compilation")
