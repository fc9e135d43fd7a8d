"""The command line and the tables of host and compile times, without torch."""

from __future__ import annotations

import pytest

from benchmarks import __main__ as command
from benchmarks import compile_times


def test_sets_of_cases():
    assert command.parser().parse_args(["kernels", "--set", "fused"]).set == "fused"
    with pytest.raises(SystemExit):
        command.parser().parse_args(["kernels", "--set", "nope"])


def test_host_times():
    rows = {
        "bound": {"host_us": 5.5},
        "new size": {"host_us": 80.0, "worst_us": 95.25},
        "peer": {"error": "no plan"},
    }
    assert command.host_markdown({"rows": rows}).splitlines()[2:] == [
        "| bound | 5.5 |  |",
        "| new size | 80.0 | 95.2 |",
        "| peer |  |  |",
    ]


def test_compile_times():
    meta = {"processor": "P", "cores": 2, "python": "3", "dnnc": "0", "date": "2026-01-01"}
    rows = {
        "warm, another graph": {"median_ms": 300.0, "most_ms": 400.0, "rounds": 7},
        "warm, by stage": {"fused": 40.0, "cubin": 70.0},
        "warm, by stage, sm_90a, one tile": {"fused": 50.0},
    }
    lines = compile_times.markdown({"metadata": meta, "rows": rows}).splitlines()
    assert "| warm, another graph | 300.0 | 400.0 |" in lines
    assert "Warm, by stage: fused 40.0 ms, cubin 70.0 ms." in lines
    assert "Warm, by stage, sm_90a, one tile: fused 50.0 ms." in lines
