"""Timing: contestants interleaved, each on a device that has idled, by replay of CUDA graphs."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

IDLE_SECONDS = 0.03
GRAPH_SECONDS = 2e-3
MOST_SETS = 16
HOT_SECONDS = 0.2

Launch = Callable[[int], object]


def sets_needed(bytes_a_call: float, is_memory_bound: bool) -> int:
    """Buffer sets so that no call finds its inputs in L2."""
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    cover = (4.0 if is_memory_bound else 2.5) * l2
    least = 3 if is_memory_bound else 2
    return max(least, min(MOST_SETS, math.ceil(cover / bytes_a_call)))


@dataclass
class Captured:
    """Calls in rotation over the buffer sets, as one CUDA graph.

    launch: what was captured, kept for as long as the graph: it holds plans and workspaces.
    """

    graph: Any
    calls: int
    launch: Launch

    def seconds_a_call(self, idle: float = IDLE_SECONDS) -> float:
        """One replay, after the device has idled for so many seconds."""
        return _seconds(self.graph.replay, idle) / self.calls

    def hot_seconds_a_call(self, busy: float = HOT_SECONDS) -> float:
        """One of replays that follow each other, after the device has been busy for so long."""
        replays = max(1, math.ceil(busy / (self.seconds_a_call(0.0) * self.calls)))

        def replay() -> None:
            for _ in range(replays):
                self.graph.replay()

        replay()
        return _seconds_since(replay) / (replays * self.calls)


@dataclass
class Launched:
    """One call on each of so many buffer sets, launched by the host, whose time counts too."""

    launch: Launch
    sets: int

    def seconds_a_call(self) -> float:
        """Of one after the other, after the device has idled."""
        return _seconds(self._launch_all) / self.sets

    def _launch_all(self) -> None:
        for index in range(self.sets):
            self.launch(index)


Timed = Captured | Launched


def _seconds(work: Callable[[], object], idle: float = IDLE_SECONDS) -> float:
    torch.cuda.synchronize()
    time.sleep(idle)
    return _seconds_since(work)


def _seconds_since(work: Callable[[], object]) -> float:
    """Of work behind what the device has to do already."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3


def capture(launch: Launch, sets: int, stream: Any) -> Captured:
    """Captures about 2 ms of calls; launch(i) must launch on `stream`, on buffer set i.

    What calls return is kept for as many calls as there are sets: memory that is given back at
    once would be taken for the next call's outputs, which would then stay in L2.
    """
    for index in range(sets):
        launch(index)
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for index in range(sets):
        launch(index)
    end.record()
    torch.cuda.synchronize()
    estimate = max(1e-6, start.elapsed_time(end) / 1e3 / sets)
    rounds = max(1, min(math.ceil(GRAPH_SECONDS / (estimate * sets)), 512 // sets))
    graph = torch.cuda.CUDAGraph()
    returned: deque[object] = deque(maxlen=sets)
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(rounds):
            for index in range(sets):
                returned.append(launch(index))
    graph.replay()
    torch.cuda.synchronize()
    return Captured(graph, rounds * sets, launch)


def interleaved(
    captured: Mapping[str, Timed], rounds: int, say: Callable[[str], None]
) -> dict[str, list[float]]:
    """Name -> seconds a call in each round; the order turns round each time.

    say: told each name before it runs.
    """
    found: dict[str, list[float]] = {name: [] for name in captured}
    names = list(captured)
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            say(name)
            found[name].append(captured[name].seconds_a_call())
    return found
