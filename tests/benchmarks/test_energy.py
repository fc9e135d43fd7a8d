"""Joules, watts and clock of columns, by stand-ins for NVML and graphs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from benchmarks import energy, timing  # noqa: E402

pytestmark = pytest.mark.torch


class Counter:
    """A device that takes 300 W at 1500 MHz."""

    def __init__(self):
        self.now = 0.0

    def joules(self):
        return 300 * self.now

    def megahertz(self):
        return 1500.0


class Graph:
    """Replays that take so many seconds of the counter's time."""

    def __init__(self, counter, seconds):
        self.counter, self.seconds = counter, seconds

    def replay(self):
        self.counter.now += self.seconds


def test_each_columns_call(monkeypatch):
    counter, said = Counter(), []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(energy.time, "perf_counter", lambda: counter.now)
    captured = {
        name: timing.Captured(Graph(counter, seconds), 4, lambda i: None, seconds)
        for name, seconds in (("ours", 0.25), ("theirs", 0.125))
    }
    launched = {"alone": timing.Launched(lambda i: None, 2)}
    found = energy.measured(captured | launched, counter, said.append)
    assert found == {
        "ours": {"joules": 18.75, "watts": 300.0, "megahertz": 1500.0, "seconds": 0.0625},
        "theirs": {"joules": 9.375, "watts": 300.0, "megahertz": 1500.0, "seconds": 0.03125},
    }
    assert said == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
