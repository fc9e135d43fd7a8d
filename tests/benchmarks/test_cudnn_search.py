"""The search of cuDNN's fastest plans: what is kept, and what becomes of processes that die."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from benchmarks.cases import lists
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


class Listed(Made):
    """A case's graph whose heuristics list the plans of `known`."""

    known: tuple[str, ...] = ()

    def __init__(self, case, sets, stream):
        super().__init__()

    def names(self) -> list[str]:
        return list(self.known)


@pytest.mark.parametrize(
    ("listed", "is_replayed"),
    [(["eng1", "eng2_k2=1", "eng2_k2=3"], True), (["eng1", "eng2_k2=1"], False)],
)
def test_a_bf16_case_replays_the_plans_of_its_twin(monkeypatch, listed, is_replayed):
    monkeypatch.setattr(Listed, "known", listed)
    monkeypatch.setattr(cudnn_peers, "CudnnGraph", Listed)
    monkeypatch.setattr(cudnn_peers, "_tuned", lambda made, sets, bench: "tuned")
    shape = "2x8x8x16-32x3x3-s1p1"
    known = {"first": "eng1", "best": "eng2_k2=3", "tried": 3, "failed": 0}
    plans = {f"conv_dgrad/fp16/plain/{shape}": known}
    bench = Namespace(cudnn_plans=plans, stream=None, tune_seconds=0.0)
    case = lists.case_of(f"conv_dgrad/bf16/plain/{shape}")
    found = cudnn_peers.columns(case, [{}], bench)
    if is_replayed:
        assert found["cudnn_best"][1] == {
            "plan": "eng2_k2=3", "index": 2, "tried": 3, "failed": 0, "searched": "fp16",
        }  # fmt: skip
    else:
        assert found == "tuned"


def test_bf16_cases_are_searched_in_f16_once():
    ids = [f"conv_dgrad/{dtype}/plain/2x8x8x16-32x3x3-s1p1" for dtype in ("bf16", "fp16")]
    cases = [lists.case_of(id_) for id_ in ids]
    assert cudnn_search.matching(cases, "dgrad") == ids
    assert cudnn_search.matching(cases, "dgrad", by_f16=True) == ids[1:]


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
