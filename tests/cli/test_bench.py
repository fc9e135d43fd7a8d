"""`dnnc bench`: on a stand-in for a GPU, whose times mean nothing."""

import re

import pytest

from dnnc.cli import bench
from tests.demo.interpreted_driver import InterpretedDriver

from .commands import dnnc, error_of


@pytest.fixture
def gpu(monkeypatch):
    made = InterpretedDriver()
    made.install(monkeypatch)
    monkeypatch.setattr(bench, "_WARM_CALLS", 1)
    monkeypatch.setattr(bench, "_ROUND_SECONDS", 0.0)
    return made


def test_what_it_says(plan, gpu):
    result = dnnc("bench", plan, "--size", "M=3", "--rounds", 2)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "device     cuda (an interpreted device)"
    assert re.fullmatch(r"time +[\d.]+ m?s a call \(median of 2 rounds", lines[1])
    elements = 3 * 64 + 64 * 128 + 128 + 3 * 128
    assert re.fullmatch(rf"bandwidth +\S+ GB/s for {elements * 2:,} bytes", lines[3])
    assert gpu.launches == 2 + 2


def test_without_a_gpu(plan, monkeypatch):
    from dnnc.errors import DnncError, Status
    from dnnc.runtime import driver

    def absent():
        raise DnncError(Status.NOT_INITIALIZED, "no CUDA driver", "a machine with one", "cuInit")

    monkeypatch.setattr(driver, "_api", absent)
    said = error_of(dnnc("bench", plan, "--size", "M=3"))
    assert said == "NOT_INITIALIZED: cuInit: no CUDA driver; accepted: a machine with one"


def test_a_size_that_is_not_given(plan, gpu):
    assert "the size M is not given" in error_of(dnnc("bench", plan))


def test_rounds_are_at_least_one(plan, gpu):
    assert dnnc("bench", plan, "--size", "M=3", "--rounds", 0).exit_code == 2
