"""The watched child process: what hangs, dies or gives up is left out by the next one."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from benchmarks.watch import Watch, watched

CASES = ("good", "hangs", "dies", "gives up", "last")


def work(given, watch):
    path, cases = given
    for case in cases:
        why = watch.failures.get((case, "column"))
        if why is None:
            watch.at(case, "column", 0.5)
            if case == "hangs":
                time.sleep(100)
            if case == "dies":
                os._exit(7)
            if case == "gives up":
                watch.give_up("no device")
            if case == "raises":
                raise ValueError(case)
        watch.at(case, seconds=5.0)
        with open(path, "a") as file:
            file.write(f"{case}: {why}\n")


def raises_at_once(given, watch):
    raise ValueError("at once")


def test_failures_are_left_out(tmp_path: Path):
    path = tmp_path / "said"
    watched(work, (path, CASES))
    lines = path.read_text().splitlines()
    wanted = {
        "good: None",
        "hangs: no sign of life for 0.5 s",
        "dies: the process ended with status 7",
        "gives up: no device",
        "last: None",
    }
    assert set(lines) == wanted
    assert lines[-1] == "last: None"


def test_failure_without_a_case_is_raised():
    with pytest.raises(RuntimeError, match="status 1"):
        watched(raises_at_once, None)


def test_without_a_child_giving_up_raises():
    watch = Watch()
    watch.at("case", "column")
    with pytest.raises(RuntimeError, match="lost"):
        watch.give_up("lost")
