"""The layers as one CUDA graph, made without a capture; with events between them, if asked."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any

from dnnc.errors import DnncError, Status

from .forward import Call


@functools.cache
def api() -> Any:
    """The driver's bindings."""
    return importlib.import_module("cuda.bindings.driver")


def _call(name: str, *arguments: Any) -> Any:
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
        self._graph = _call("cuGraphCreate", 0)
        last = self._recorded(()) if is_timed else ()
        for call in calls:
            last = call.populate(self._graph, last)[-1:] or last
            last = self._recorded(last) if is_timed else last
        self._executable = _call("cuGraphInstantiate", self._graph, 0)

    def _recorded(self, after: Sequence[Any]) -> tuple[Any, ...]:
        """A node that records an event."""
        self._events.append(_call("cuEventCreate", 0))
        node = _call(
            "cuGraphAddEventRecordNode", self._graph, list(after), len(after), self._events[-1]
        )
        return (node,)

    def __call__(self) -> None:
        _call("cuGraphLaunch", self._executable, self._stream)

    def seconds(self) -> list[float]:
        """What each call took on the device in the last launch, which has ended."""
        pairs = zip(self._events, self._events[1:], strict=False)
        return [_call("cuEventElapsedTime", start, end) / 1e3 for start, end in pairs]

    def close(self) -> None:
        """Destroys the graph and its events."""
        _call("cuGraphExecDestroy", self._executable)
        _call("cuGraphDestroy", self._graph)
        for event in self._events:
            _call("cuEventDestroy", event)
