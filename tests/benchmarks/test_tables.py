"""The command line and the tables of host and compile times, without torch."""

from __future__ import annotations

import json

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


def test_judging_wants_three_configurations_of_a_case(tmp_path):
    pytest.importorskip("torch")
    from benchmarks.judge import run_judge, shares_of
    from dnnc.target import of

    def config(rows, seconds):
        knobs = {"TILE_M": rows, "TILE_N": 128, "STAGES": 4, "SWAP_AB": 0}
        return {"engine": "matmul_sm90", "knobs": knobs, "seconds": seconds}

    case = "matmul/bf16/none/4096x4096x4096"
    configs = [config(64, 3.0), config(128, 1.0), config(256, 4.0), config(8, 0.5)]
    data = {"rows": {case: {"configs": configs}}}
    (share,) = shares_of(data, of("sm_90a")).values()
    assert share in (1.0, 0.25)  # 8 rows are no tile of this side, whatever they took
    few = {"rows": {case: {"configs": configs[:2]}}}
    assert shares_of(few, of("sm_90a")) == {}
    path = tmp_path / "a.json"
    path.write_text(json.dumps(data))
    assert "1 shapes" in run_judge([path], "sm_90a")
    path.write_text(json.dumps(few))
    assert "no shapes" in run_judge([path], "sm_90a")
