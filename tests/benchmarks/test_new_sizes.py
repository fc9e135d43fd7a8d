"""Executions at new sizes, against a stand-in for the driver."""

from __future__ import annotations

import pytest

from benchmarks.new_sizes import MOST_ROWS, K, N, SymbolicPlan, first_times, row_counts
from tests.runtime.fake_driver import FakeDriver, FakeTorchTensor

STREAM = 77


def arrays(rows):
    def array(address, *dims, strides=None):
        strides = strides or (dims[1] * dims[2], dims[2], 1)
        return FakeTorchTensor(address << 32, dims, strides, "torch.bfloat16")

    return {
        "x": array(1, 1, rows, K),
        "w": array(2, 1, K, N, strides=(N * K, 1, K)),
        "b": array(3, 1, 1, N),
        "y": array(4, 1, rows, N),
    }


def test_sizes_differ_and_are_of_every_order():
    counts = row_counts()
    assert len(set(counts)) == len(counts)
    assert min(counts) < 16 < MOST_ROWS // 4 < max(counts) <= MOST_ROWS


@pytest.mark.parametrize("way", ["through_symbol", "through_overrides"])
def test_each_size_is_launched_once(way, monkeypatch):
    fake = FakeDriver()
    fake.install(monkeypatch)
    plan = SymbolicPlan("sm_90a", STREAM)
    execute = getattr(plan, way)(1 << 40 if plan.workspace_size() else None)
    waits = []
    row = first_times(execute, arrays, lambda: waits.append(len(fake.launches)), [5, 300, 64, 7])
    assert waits == [0, 1, 2, 3, 4]
    assert all(launch.stream == STREAM for launch in fake.launches)
    assert 0 < row["host_us"] <= row["worst_us"]
