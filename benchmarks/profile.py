"""Profiles of kernels, ours and the peers', by Nsight Compute: where their time goes.

Each kernel runs alone, several times, on an empty cache and with the clocks as they are; what is
reported is what its counters say, not what a call takes in a graph.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .results import Results

# Part of the name of the kernel that `profiled` puts before each call.
MARKER = "spin_kernel"

# What is asked for, where the device has it: metric -> how a row calls it.
METRICS = {
    "gpu__time_duration.sum": "ns",
    "dram__bytes_read.sum": "dram_read_bytes",
    "dram__bytes_write.sum": "dram_write_bytes",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "dram_pct",
    "lts__t_sectors.avg.pct_of_peak_sustained_elapsed": "l2_pct",
    "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed": "l1_pct",
    "smsp__issue_active.avg.pct_of_peak_sustained_active": "issue_pct",
    "sm__cycles_active.avg.pct_of_peak_sustained_elapsed": "sm_active_pct",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "warps_pct",
    "sm__inst_executed.sum": "instructions",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": "tensor_pct",
    "sm__inst_executed_pipe_tensor.sum": "tensor_instructions",
    "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_active": "alu_pct",
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active": "fma_pct",
    "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active": "xu_pct",
    "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active": "lsu_pct",
    "l1tex__data_bank_conflicts_pipe_lsu.sum": "bank_conflicts",
    "launch__registers_per_thread": "registers",
    "launch__grid_size": "blocks",
    "launch__block_size": "threads",
}
_STALLS = (
    "barrier", "dispatch_stall", "drain", "gmma", "imc_miss", "lg_throttle", "long_scoreboard",
    "math_pipe_throttle", "membar", "mio_throttle", "no_instruction", "not_selected", "selected",
    "short_scoreboard", "sleeping", "wait", "warpgroup_arrive",
)  # fmt: skip
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"


def run_profile(given: Namespace, results: Results) -> int:
    """Profiles the cases that `given` chooses, and writes a row a call; the exit status."""
    ncu = shutil.which("ncu")
    if ncu is None:
        print("python -m benchmarks profile needs ncu (Nsight Compute) on PATH", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        calls = Path(folder) / "calls.json"
        done = subprocess.run(_command(ncu, given, calls), capture_output=True, text=True)
        print(done.stderr, file=sys.stderr, end="")
        if done.returncode or not calls.exists():
            print(done.stdout[-4000:], file=sys.stderr)
            return 1
        made = json.loads(calls.read_text())
    for call, kernels in zip(made, by_call(kernels_of(done.stdout)), strict=True):
        row = {key: call[key] for key in ("bytes", "flops", "information")}
        results.rows[f"{call['case']} {call['column']}"] = row | {"kernels": kernels}
        print(f"{call['case']} {call['column']}")
        for kernel in kernels:
            print(f"  {line(kernel)}")
    results.save()
    return 0


def _command(ncu: str, given: Namespace, calls: Path) -> list[str]:
    wanted = [*METRICS, *(_STALL.format(stall) for stall in _STALLS)]
    found = subprocess.run([ncu, "--query-metrics"], capture_output=True, text=True).stdout
    known = {text.split()[0] for text in found.splitlines() if text.strip()}
    asked = [name for name in wanted if _base(name) in known or name.startswith("launch__")]
    chosen = ["--match", given.match, "--columns", given.columns, "--jobs", str(given.jobs)]
    chosen += ["--tune-seconds", str(given.tune_seconds), "--calls", str(calls)]
    chosen += ["--cudnn-plans", str(given.cudnn_plans)] if given.cudnn_plans else []
    chosen += ["--set", given.set] if given.set else []
    chosen += ["--seed", str(given.seed)] if given.seed is not None else []
    return [
        ncu, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
        "--profile-from-start", "off", "--target-processes", "application-only",
        "--metrics", ",".join(asked), sys.executable, "-m", "benchmarks.profiled", *chosen,
    ]  # fmt: skip


def _base(metric: str) -> str:
    return metric.split(".")[0]


def kernels_of(output: str) -> list[dict[str, Any]]:
    """Each kernel of ncu's raw page as CSV: its name, and what METRICS and _STALLS call its
    counters; a line of units follows that of names."""
    lines = output.splitlines()
    start = next((i for i, text in enumerate(lines) if text.startswith('"ID"')), None)
    if start is None:
        raise ValueError(f"no table in what ncu wrote: {output[-2000:]}")
    rows = csv.DictReader(io.StringIO("\n".join(lines[start:])))
    names = METRICS | {_STALL.format(stall): f"stall_{stall}" for stall in _STALLS}
    found = []
    for row in list(rows)[1:]:
        counters = {short: number(row[name]) for name, short in names.items() if row.get(name)}
        found.append({"name": row["Kernel Name"], **counters})
    return found


def number(text: str) -> float | str:
    """A field of ncu's table as a number, commas between thousands removed; else its text."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return text


def by_call(kernels: Iterable[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
    """The kernels behind each marker."""
    calls: list[list[dict[str, Any]]] = []
    for kernel in kernels:
        if MARKER in kernel["name"]:
            calls.append([])
        elif calls:
            calls[-1].append(dict(kernel))
    return calls


def line(kernel: Mapping[str, Any]) -> str:
    """A kernel on one line: its time, the shares of its peaks, and what warps wait for most."""
    shares = [f"{key[:-4]} {_share(kernel, key)}" for key in kernel if key.endswith("_pct")]
    taken = f"{kernel.get('ns', 0) / 1e3:.1f} us"
    return "  ".join([taken, kernel["name"][:60], *shares, "| waits:", *_waits(kernel)[:5]])


def summary(rows: Mapping[str, Any]) -> str:
    """The Markdown of a results file."""
    heads = ("us", "DRAM MB", "DRAM", "L2", "L1", "issue", "tensor", "warps", "waits for")
    lines = [f"| kernel | {' | '.join(heads)} |", "|---|" + "---:|" * 8 + "---|"]
    for name, row in rows.items():
        lines += [f"| {name} | {' | '.join(_cells(kernel))} |" for kernel in row["kernels"]]
    return "\n".join(lines)


def _cells(kernel: Mapping[str, Any]) -> list[str]:
    moved = kernel.get("dram_read_bytes", 0) + kernel.get("dram_write_bytes", 0)
    keys = ("dram_pct", "l2_pct", "l1_pct", "issue_pct", "tensor_pct", "warps_pct")
    shares = [_share(kernel, key) for key in keys]
    waits = ", ".join(_waits(kernel)[:3])
    return [f"{kernel.get('ns', 0) / 1e3:.1f}", f"{moved / 1e6:.0f}", *shares, waits]


def _share(kernel: Mapping[str, Any], key: str) -> str:
    found = kernel.get(key, "")
    return f"{found:.0f}%" if isinstance(found, float) else found


def _waits(kernel: Mapping[str, Any]) -> list[str]:
    """Reasons for which warps stall, with cycles per issued instruction, the most first."""
    stalls = {key[6:]: kernel[key] for key in kernel if key.startswith("stall_")}
    found = {key: value for key, value in stalls.items() if isinstance(value, float)}
    return [f"{key} {found[key]:.1f}" for key in sorted(found, key=lambda key: -found[key])]
