"""Calls of plans as one CUDA graph, made without a capture; with events between them, if asked."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any, Protocol

from dnnc.errors import DnncError, Status


class Call(Protocol):
    """Something to launch."""

    def populate(self, graph: Any, after: Sequence[Any]) -> Sequence[Any]:
        """Adds it to a CUDA graph after some nodes; gives those that what follows waits for."""
        ...


@functools.cache
def api() -> Any:
    """The driver's bindings."""
    return importlib.import_module("cuda.bindings.driver")


def call(name: str, *arguments: Any) -> Any:
    """Calls a function of the driver and returns its value; its error is a DnncError."""
    result, *values = getattr(api(), name)(*arguments)
    if int(result):
        raise DnncError(Status.EXECUTION_FAILED_CUDA_DRIVER, f"{name} failed: {result}")
    return values[0] if values else None


class Replay:
    """Calls in order as a CUDA graph; calling it launches them all.

    is_timed: an event before the first call and after each, for `seconds`.  What the calls are
    bound to has to live as long.
    """

    def __init__(self, calls: Sequence[Call], stream: int = 0, *, is_timed: bool = False):
        self._stream = stream
        self._events: list[Any] = []
        self._graph = call("cuGraphCreate", 0)
        last = self._recorded(()) if is_timed else ()
        for work in calls:
            last = work.populate(self._graph, last) or last
            last = self._recorded(last) if is_timed else last
        self._executable = call("cuGraphInstantiate", self._graph, 0)

    def _recorded(self, after: Sequence[Any]) -> tuple[Any, ...]:
        """A node that records an event."""
        self._events.append(call("cuEventCreate", 0))
        event = self._events[-1]
        node = call("cuGraphAddEventRecordNode", self._graph, list(after), len(after), event)
        return (node,)

    def __call__(self) -> None:
        call("cuGraphLaunch", self._executable, self._stream)

    def seconds(self) -> list[float]:
        """Seconds of each call on the device in the last launch, which has ended."""
        pairs = zip(self._events, self._events[1:], strict=False)
        return [call("cuEventElapsedTime", start, end) / 1e3 for start, end in pairs]

    def close(self) -> None:
        """Destroys the graph and its events."""
        call("cuGraphExecDestroy", self._executable)
        call("cuGraphDestroy", self._graph)
        for event in self._events:
            call("cuEventDestroy", event)
