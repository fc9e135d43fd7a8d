"""The tables of a results file of `resnet50`, for each batch: operations, and whole passes.

The floor of an operation is what its multiplications take at the rate of the run's fastest
product, or its bytes at the bandwidth of the run's fastest streaming kernel: the longer of both.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any

from examples.resnet50.network import NETWORKS, Network, Operation, bytes_of, flops_of

from .results import OURS, PEERS, copy_bandwidth, device_line, ratios, summary

_WAYS = {
    OURS: "dnnc",
    "cudnn_best": "cuDNN's graphs, the fastest plan of each; torch's pooling",
    "torch_eager": "torch, channels last, cudnn.benchmark",
    "torch": "the same as a CUDA graph",
    "torch_fused": "torch's fused convolutions, as a CUDA graph",
    "torch_compile": "torch.compile, as a CUDA graph",
    "torch_compile_max": "torch.compile, max-autotune, as a CUDA graph",
}

_TRAINING = "resnet50/fp16/train/"
_TRAINERS = {
    OURS: "dnnc, as one CUDA graph",
    "torch": "torch, channels last, cudnn.benchmark, f16 autocast, fused SGD",
    "torch_compile": "the same by torch.compile",
    "torch_compile_max": "the same by torch.compile, max-autotune",
}

# Of operations: torch is there where cuDNN's frontend has no graph.
_PEERS_SHOWN = ("cudnn", "cudnn_best", "torch")


def markdown(data: Mapping[str, Any], network: Network = NETWORKS["resnet50"]) -> str:
    rows = data["rows"]
    lines = [device_line(data["metadata"]), ""]
    limits = matmul_rate(rows), copy_bandwidth(rows)
    if all(limits):
        lines += [f"Floors: {limits[0]:.0f} TFLOP/s, {limits[1]:.0f} GB/s.", ""]
    for n, shape in _batches(rows):
        lines += [f"### {n} images", ""]
        lines += _operations(network, n, rows, limits)
        row = rows.get(f"resnet50/fp16/forward/{n}x{shape}")
        if row is not None:
            lines += _passes(network, n, row, limits)
    for name, row in rows.items():
        if name.startswith(_TRAINING):
            lines += _steps(int(name.removeprefix(_TRAINING).partition("x")[0]), row)
    return "\n".join(lines)


def matmul_rate(rows: Mapping[str, Any]) -> float:
    """TFLOP/s of the fastest product of the run, of anyone; 0 if none ran."""
    rates = [
        entry.get("rate", 0.0)
        for name, row in rows.items()
        if name.startswith("matmul/") and row["unit"] == "TFLOP/s"
        for entry in row["columns"].values()
    ]
    return max(rates, default=0.0)


def _batches(rows: Mapping[str, Any]) -> list[tuple[int, str]]:
    """(images, shape of one) of each batch."""
    found: dict[int, str] = {}
    for name in rows:
        family, _, *rest = name.split("/")
        if name.startswith(_TRAINING):
            continue
        if family == "resnet50" and rest[0] == "forward":
            n, _, shape = rest[1].partition("x")
            found[int(n)] = shape
        elif family == "resnet50":
            found.setdefault(int(rest[1].partition(":")[0]), "")
    return list(found.items())


def floor(op: Operation, n: int, limits: tuple[float, float]) -> float:
    """Seconds of an operation at rates of (TFLOP/s, GB/s)."""
    return max(flops_of(op, n) / (limits[0] * 1e12), bytes_of(op, n) / (limits[1] * 1e9))


def _operations(
    network: Network, n: int, rows: Mapping[str, Any], limits: tuple[float, float]
) -> list[str]:
    lines = [
        f"| operation, us | layers | dnnc | {' | '.join(_PEERS_SHOWN)} | best / dnnc | floor |",
        "|---|" + "---:|" * (4 + len(_PEERS_SHOWN)),
    ]
    sums = dict.fromkeys((OURS, "best", "floor"), 0.0)
    found = 0
    for op, layers in network.operations.items():
        row = rows.get(f"resnet50/fp16/{type(op).__name__.lower()}/{n}:{op.id}")
        if row is None:
            continue
        seconds = {name: statistics.median(entry["seconds"])
                   for name, entry in row["columns"].items() if "seconds" in entry}  # fmt: skip
        ours = seconds.get(OURS, math.nan)
        best = min((seconds[name] for name in PEERS if name in seconds), default=math.nan)
        least = floor(op, n, limits) if all(limits) else math.nan
        cells = [_us(seconds.get(name, math.nan)) for name in (OURS, *_PEERS_SHOWN)]
        numbers = [*cells, _ratio(best, ours), _us(least)]
        lines.append(f"| {op.id} | {layers} | {' | '.join(numbers)} |")
        found += layers
        for name, value in ((OURS, ours), ("best", best), ("floor", least)):
            sums[name] += layers * value
    if not found:
        return []
    ours, best, least = sums.values()
    numbers = [_us(ours), f"best of each: {_us(best)}", "", "", _ratio(best, ours), _us(least)]
    return [*lines, f"| all layers | {found} | {' | '.join(numbers)} |", ""]


def _ratio(theirs: float, ours: float) -> str:
    return "" if math.isnan(theirs / ours) else f"{theirs / ours:.2f}"


def _passes(
    network: Network, n: int, row: Mapping[str, Any], limits: tuple[float, float]
) -> list[str]:
    lines = _columns("whole pass", n, row, _WAYS)
    best = ratios(row)
    if best:
        lines.append(f"Best peer / dnnc: {summary([best])}.")
    columns = row["columns"]
    if all(limits) and "seconds" in columns.get(OURS, {}):
        least = sum(floor(op, n, limits) * count for op, count in network.operations.items())
        ours = statistics.median(columns[OURS]["seconds"])
        lines.append(f"Floor of all layers: {_us(least)} us, {least / ours:.2f} of dnnc's time.")
    return [*lines, ""]


def _steps(n: int, row: Mapping[str, Any]) -> list[str]:
    """Training steps of n images."""
    lines = [f"### Training, {n} images", "", *_columns("step", n, row, _TRAINERS)]
    best = ratios(row)
    return [*lines, f"Best peer / dnnc: {summary([best])}.", ""] if best else lines


def _columns(
    what: str, n: int, row: Mapping[str, Any], ways: Mapping[str, str]
) -> list[str]:  # fmt: skip
    """A line for each way that was timed."""
    lines = [f"| {what} | us | images/s | dnnc is faster by |", "|---|---:|---:|---:|"]
    for name, way in ways.items():
        entry = row["columns"].get(name)
        if entry is None:
            continue
        if "seconds" not in entry:
            lines.append(f"| {way} | {entry['error'][:60]} | | |")
            continue
        seconds, faster = statistics.median(entry["seconds"]), ratios(row, [name])
        share = f"{statistics.median(faster):.2f}" if faster and name != OURS else ""
        lines.append(f"| {way} | {_us(seconds)} | {n / seconds:.0f} | {share} |")
    return [*lines, ""]


def _us(seconds: float) -> str:
    """Nothing where nothing is known."""
    return "" if math.isnan(seconds) else f"{1e6 * seconds:.1f}"
