"""The search of cuDNN's fastest plans: what is kept, and what becomes of processes that die."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from benchmarks.peers import cudnn as cudnn_peers
from benchmarks.peers import cudnn_search
from benchmarks.results import Results


class Captured:
    """Takes `first` seconds when it is looked at once, `later` when it is timed."""

    def __init__(self, first: float, later: float):
        self.first, self.later = first, later

    def seconds_a_call(self, mode: str = "cool") -> float:
        return self.first if mode == "once" else self.later


def test_the_fastest_is_settled_among_the_close_ones():
    found = cudnn_search._Found()
    for name, first, later in (("a", 2.0, 2.0), ("b", 1.0, 1.1), ("c", 1.05, 1.0), ("d", 3.0, 0.1)):
        found.add(name, Captured(first, later))
    assert set(found.close) == {"b", "c"}
    found.settle()
    assert found.best() == "c"
    assert found.seconds == {"a": 2.0, "b": 1.1, "c": 1.0, "d": 3.0}


class Made:
    """A graph whose heuristics list three plans."""

    def __init__(self):
        self.built: list[int] = []

    def names(self) -> list[str]:
        return ["eng1", "eng2_k2=1", "eng2_k2=3"]

    def launch(self, index: int):
        self.built.append(index)
        return lambda i: index


def test_winners_are_replayed_by_name():
    made = Made()
    known = {"first": "eng2_k2=1", "best": "eng2_k2=3", "tried": 2, "failed": 1}
    columns = cudnn_peers._named(made, known)
    assert [columns[name][0](0) for name in ("cudnn", "cudnn_best")] == [1, 2]
    assert columns["cudnn_best"][1] == {"plan": "eng2_k2=3", "index": 2, "tried": 2, "failed": 1}
    once = Made()
    cudnn_peers._named(once, known | {"best": known["first"]})
    assert once.built == [1]
    with pytest.raises(RuntimeError, match="no plan"):
        cudnn_peers._named(Made(), {"error": "no plan"})


def _work(pipe, lock: str) -> None:
    while True:
        case = pipe.recv()
        if case == "dies":
            os._exit(7)
        with cudnn_search.alone(Path(lock)):
            pipe.send({"error": f"found {case}"})


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_process_that_dies_loses_its_case_only(tmp_path: Path, jobs: int):
    path = tmp_path / "plans.json"
    results = Results(path, "cudnn-plans", {})
    results.rows["known"] = {"error": "earlier"}
    given = Namespace(jobs=jobs)
    cudnn_search.run_search(given, ["a", "dies", "known", "b", "c"], results, _work)
    again = Results(path, "cudnn-plans", {}).rows
    assert again.pop("dies")["error"] == "the process ended with status 7"
    assert again.pop("known")["error"] == "earlier"
    assert again == {name: {"error": f"found {name}"} for name in "abc"}
