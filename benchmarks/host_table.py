"""Rows of host times, and the ratios between them that the goals name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BARE = "cuLaunchKernelEx alone, through cuda-bindings"
BOUND = "dnnc: bound plan"
TENSORS = "dnnc: execute, torch tensors"
ADDRESSES = "dnnc: execute, addresses"
CALL = "dnnc: plan(x, w, b), torch tensors"
ENTRY = "dnnc: entry, the same addresses"
NEW_ADDRESSES = "dnnc: entry, addresses never seen"
FIRST_ADDRESSES = "dnnc: execute, addresses never seen"
CUDNN = "cudnn: execute, torch tensors"

# (of, over, the most that is wanted), as ratios
GOALS = (
    (BOUND, BARE, 1.3),
    (ENTRY, BARE, 1.3),
    (BOUND, CUDNN, 0.25),
    (TENSORS, CUDNN, 0.5),
    (ADDRESSES, CUDNN, 0.5),
)

# (of, beyond, the most that is wanted), in microseconds
BEYOND = ((NEW_ADDRESSES, BARE, 3.0),)


def ratios(rows: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """A row for each goal both of whose times are there: the ratio, and the most wanted.

    A goal in microseconds has the difference in place of the ratio.
    """

    def times(*names: str) -> list[Any]:
        return [rows.get(name, {}).get("host_us") for name in names]

    found: dict[str, dict[str, float]] = {}
    for of, over, most in GOALS:
        if all(both := times(of, over)):
            found[f"{of} / {over}"] = {"ratio": round(both[0] / both[1], 3), "most": most}
    for of, over, most in BEYOND:
        if all(both := times(of, over)):
            found[f"{of} - {over}, us"] = {"ratio": round(both[0] - both[1], 3), "most": most}
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
