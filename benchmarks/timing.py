"""Timing: contestants interleaved, each on a device that is busy or has idled, by CUDA graphs.

Sustained is what is judged: 30 ms of the same work run right before each sample, as training and
serving run.  The card is at its power limit then.  Cool samples follow 30 ms of idling.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

IDLE_SECONDS = 0.03
BUSY_SECONDS = 0.03
GRAPH_SECONDS = 2e-3
MOST_SETS = 16

MODES = ("sustained", "cool")

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
    replay_seconds: float | None = None

    def seconds_a_call(self, mode: str = "cool") -> float:
        """One replay: after the same work for BUSY_SECONDS, or after the device has idled.

        mode: of MODES, or "once" for neither, which is quick.
        """
        ahead = math.ceil(BUSY_SECONDS / self.estimate()) if mode == "sustained" else 0
        return _seconds(self.graph.replay, ahead, IDLE_SECONDS * (mode == "cool")) / self.calls

    def estimate(self) -> float:
        """Seconds of a replay, about."""
        if self.replay_seconds is None:
            self.replay_seconds = max(1e-5, _seconds(self.graph.replay, 1, 0.0))
        return self.replay_seconds


@dataclass
class Launched:
    """One call on each of so many buffer sets, launched by the host, whose time counts too."""

    launch: Launch
    sets: int

    def seconds_a_call(self, mode: str = "cool") -> float:
        """Seconds of a call when all sets run in turn; sustained: after all ran once."""
        idle = IDLE_SECONDS * (mode == "cool")
        return _seconds(self._launch_all, int(mode == "sustained"), idle) / self.sets

    def _launch_all(self) -> None:
        for index in range(self.sets):
            self.launch(index)


Timed = Captured | Launched


def _seconds(work: Callable[[], object], ahead: int, idle: float) -> float:
    """Seconds of work that follows so much of the same, after so many seconds of idling."""
    torch.cuda.synchronize()
    time.sleep(idle)
    for _ in range(ahead):
        work()
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
    captured: Mapping[str, Timed],
    rounds: int,
    say: Callable[[str], None],
    mode: str = "sustained",
) -> dict[str, list[float]]:
    """Name -> seconds a call in each round; the order turns round each time.

    say: told each name before it runs.  mode: of MODES.
    """
    found: dict[str, list[float]] = {name: [] for name in captured}
    names = list(captured)
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            say(name)
            found[name].append(captured[name].seconds_a_call(mode))
    return found
