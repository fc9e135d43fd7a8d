"""The command line and the tables of host and compile times, without torch."""

from __future__ import annotations

import json

import pytest

from benchmarks import __main__ as command
from benchmarks import compile_times, host_table
from benchmarks.results import Results


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
    assert host_table.markdown({"rows": rows}).splitlines()[2:] == [
        "| bound | 5.5 |  |",
        "| new size | 80.0 | 95.2 |",
        "| peer |  |  |",
    ]


def test_ratios_of_host_times():
    rows = {
        host_table.BARE: {"host_us": 4.0},
        host_table.BOUND: {"host_us": 5.0},
        host_table.TENSORS: {"host_us": 7.0},
        host_table.CUDNN: {"error": "no plan"},
    }
    ratios = host_table.ratios(rows)
    assert ratios == {f"{host_table.BOUND} / {host_table.BARE}": {"ratio": 1.25, "most": 1.3}}
    rows[host_table.CUDNN] = {"host_us": 16.0}
    assert [row["ratio"] for row in host_table.ratios(rows).values()] == [1.25, 0.312, 0.438]
    rows[host_table.NEW_ADDRESSES] = {"host_us": 6.5}
    beyond = f"{host_table.NEW_ADDRESSES} - {host_table.BARE}, us"
    assert host_table.ratios(rows)[beyond] == {"ratio": 2.5, "most": 3.0}
    assert host_table.markdown({"rows": {**rows, **ratios}}).splitlines()[-3:] == [
        "| ratio | | at most |",
        "|---|---:|---:|",
        f"| {host_table.BOUND} / {host_table.BARE} | 1.25 | 1.3 |",
    ]


def test_compile_times():
    meta = {"processor": "P", "cores": 2, "python": "3", "dnnc": "0", "date": "2026-01-01"}
    rows = {
        "warm, another graph": {"median_ms": 300.0, "most_ms": 400.0, "rounds": 7},
        "repeated": {"median_ms": 1.04, "most_ms": 2.0, "processor_ms": 0.9, "rounds": 7},
        "warm, by stage": {"fused": 40.0, "cubin": 70.0},
        "warm, by stage, sm_90a, one tile": {"fused": 50.0},
    }
    lines = compile_times.markdown({"metadata": meta, "rows": rows}).splitlines()
    assert "| warm, another graph | 300.0 | 400.0 |  |" in lines
    assert "| repeated | 1.0 | 2.0 | 0.9 |" in lines
    assert "Warm, by stage: fused 40.0 ms, cubin 70.0 ms." in lines
    assert "Warm, by stage, sm_90a, one tile: fused 50.0 ms." in lines


def test_judging_wants_three_configurations_of_a_case(tmp_path):
    pytest.importorskip("torch")
    from benchmarks.judge import _whole, run_judge, shares_of
    from dnnc.choosing.heuristics import choices
    from dnnc.engines import engine_named
    from dnnc.target import of

    case, target = "matmul/bf16/none/4096x4096x4096", of("sm_90a")
    ranked = choices(_whole(case), target, [engine_named("matmul_sm90")])
    found = [ranked[0].knobs, ranked[5].knobs, ranked[9].knobs]

    def config(knobs, seconds):
        return {"engine": "matmul_sm90", "knobs": dict(knobs), "seconds": seconds}

    refused = config({**found[0], "TILE_M": 8, "TILE_N": 8}, 0.5)
    by_hand = config({**found[0], "SWIZZLE": 512}, 1.0)
    gone = config({**found[0], "STREAM_K": 1}, 0.1)
    configs = [config(found[0], 2.0), config(found[1], 4.0), config(found[2], 3.0)]
    data = {"rows": {case: {"configs": [*configs, refused, by_hand, gone]}}}
    assert shares_of(data, target) == {case: 0.5}
    few = {"rows": {case: {"configs": configs[:2]}}}
    assert shares_of(few, target) == {}
    path = tmp_path / "a.json"
    path.write_text(json.dumps(data))
    assert "1 shapes: 0.500" in run_judge([path], "sm_90a")
    path.write_text(json.dumps(few))
    assert "no shapes" in run_judge([path], "sm_90a")


def test_support_checks_are_timed(tmp_path, monkeypatch):
    monkeypatch.setattr(compile_times, "_CHECKED", 2)
    made = Results(tmp_path / "made.json", "compile", {})
    compile_times._support_checks(made, "sm_90a")
    row, parts = made.rows.values()
    assert row["rounds"] == 2
    assert 0 < row["median_ms"] <= row["most_ms"]
    assert list(parts) == [
        "validate", "build_operation_graph", "create_execution_plans", "check_support",
    ]  # fmt: skip
