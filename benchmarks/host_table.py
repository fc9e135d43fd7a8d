"""Rows of host times, and the ratios between them that the goals name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BARE = "cuLaunchKernelEx alone, through cuda-bindings"
BOUND = "dnnc: bound plan"
TENSORS = "dnnc: execute, torch tensors"
ADDRESSES = "dnnc: execute, addresses"
CUDNN = "cudnn: execute, torch tensors"

# (of, over, the most that is wanted)
GOALS = (
    (BOUND, BARE, 1.3),
    (BOUND, CUDNN, 0.25),
    (TENSORS, CUDNN, 0.5),
    (ADDRESSES, CUDNN, 0.5),
)


def ratios(rows: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """A row for each goal both of whose times are there: the ratio, and the most wanted."""
    found: dict[str, dict[str, float]] = {}
    for of, over, most in GOALS:
        times = [rows.get(name, {}).get("host_us") for name in (of, over)]
        if all(times):
            found[f"{of} / {over}"] = {"ratio": round(times[0] / times[1], 3), "most": most}
    return found


def markdown(data: Mapping[str, Any]) -> str:
    """The table of host times, and that of their ratios."""
    lines = ["| call | us | worst us |", "|---|---:|---:|"]
    for name, row in data["rows"].items():
        if "ratio" not in row:
            cells = [f"{row[key]:.1f}" if key in row else "" for key in ("host_us", "worst_us")]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    compared = {name: row for name, row in data["rows"].items() if "ratio" in row}
    if compared:
        lines += ["", "| ratio | | at most |", "|---|---:|---:|"]
    lines += [f"| {n} | {row['ratio']:.2f} | {row['most']} |" for n, row in compared.items()]
    return "\n".join(lines)
