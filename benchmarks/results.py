"""Result files: what was measured, on what, when; ratios and tables from them."""

from __future__ import annotations

import datetime
import json
import math
import os
import random
import statistics
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

OURS = "dnnc"
PEERS = ("cudnn", "cudnn_best", "torch", "torch_fused", "torch_compile")


class Results:
    """A JSON file of rows, written whole after each row; an earlier file is gone on with."""

    def __init__(self, path: Path, kind: str, metadata: Mapping[str, Any]):
        self.path = path
        self.data: dict[str, Any] = {"kind": kind, "metadata": dict(metadata), "rows": {}}
        if path.exists():
            self.data["rows"] = json.loads(path.read_text())["rows"]

    @property
    def rows(self) -> dict[str, Any]:
        return self.data["rows"]

    def add(self, name: str, row: Mapping[str, Any]) -> None:
        self.rows[name] = dict(row)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".part")
        temporary.write_text(json.dumps(self.data, indent=1) + "\n")
        os.replace(temporary, self.path)
        print(line(name, row), flush=True)


def line(name: str, row: Mapping[str, Any]) -> str:
    """A row on one line, for the terminal."""
    columns = row.get("columns")
    if columns is None:
        return f"{name:50s} {json.dumps(row)[:200]}"
    cells = [
        f"{column}={entry['rate']:.0f}" if "rate" in entry else f"{column}={entry['error'][:60]}"
        for column, entry in columns.items()
    ]
    return f"{name:50s} {'  '.join(cells)} {row['unit']}"


def metadata() -> dict[str, Any]:
    """Device, versions, date."""
    import torch

    from dnnc import __version__
    from dnnc.runtime import driver

    place = driver.device()
    found = {
        "device": place.name,
        "multiprocessors": place.sm_count,
        "driver": _nvidia_smi("driver_version"),
        "power_limit": _nvidia_smi("power.limit"),
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "dnnc": __version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    try:
        import cudnn

        found["cudnn"] = cudnn.backend_version_string()
        found["cudnn_frontend"] = cudnn.__version__
    except ImportError:
        found["cudnn"] = None
    return found


def _nvidia_smi(field: str) -> str:
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.split("\n")[0]
    except OSError:
        return ""


# ---- ratios


def ratios(row: Mapping[str, Any], peers: Iterable[str] = PEERS) -> list[float] | None:
    """Our speed over the best peer's, round by round; None without a peer or without us."""
    columns = row["columns"]
    ours = columns.get(OURS, {}).get("seconds")
    timed = [columns[p]["seconds"] for p in peers if "seconds" in columns.get(p, {})]
    if not ours or not timed:
        return None
    best = min(timed, key=statistics.median)
    return [theirs / mine for theirs, mine in zip(best, ours, strict=True)]


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def interval(rows: Sequence[Sequence[float]], draws: int = 2000) -> tuple[float, float]:
    """95% of the geometric means over rows, when rounds are drawn again."""
    draw = random.Random(0)
    means = sorted(
        geometric_mean([statistics.median(draw.choices(row, k=len(row))) for row in rows])
        for _ in range(draws)
    )
    return means[int(0.025 * draws)], means[int(0.975 * draws)]


# ---- tables


def markdown(data: Mapping[str, Any]) -> str:
    """Tables of a kernels file, a family each."""
    meta = data["metadata"]
    lines = [
        f"{meta['device']}, {meta['multiprocessors']} multiprocessors, driver {meta['driver']}, "
        f"CUDA {meta['cuda']}, torch {meta['torch']}, cuDNN {meta.get('cudnn')} "
        f"(frontend {meta.get('cudnn_frontend')}), dnnc {meta['dnnc']}; {meta['date']}.",
        "",
    ]
    families: dict[str, list[str]] = {}
    for name in data["rows"]:
        families.setdefault(name.partition("/")[0], []).append(name)
    for family, names in families.items():
        lines += _family_table(family, [(name, data["rows"][name]) for name in names])
    return "\n".join(lines)


def _family_table(family: str, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    used = [c for c in (OURS, *PEERS) if any(c in row["columns"] for _, row in rows)]
    units = " or ".join(dict.fromkeys(row["unit"] for _, row in rows))
    lines = [
        f"### {family} ({units})",
        "",
        f"| case | {' | '.join(used)} | ours / best peer |",
        "|---|" + "---:|" * (len(used) + 1),
    ]
    compared: list[list[float]] = []
    for name, row in rows:
        cells = [_cell(row["columns"].get(column)) for column in used]
        ratio = ratios(row)
        if ratio:
            compared.append(ratio)
        shown = f"{statistics.median(ratio):.2f}" if ratio else ""
        lines.append(f"| {name.partition('/')[2]} | {' | '.join(cells)} | {shown} |")
    if compared:
        mean = geometric_mean([statistics.median(ratio) for ratio in compared])
        low, high = interval(compared)
        lines += ["", f"Geometric mean of the ratios: {mean:.3f} (95%: {low:.3f} to {high:.3f})."]
    return [*lines, ""]


def _cell(entry: Mapping[str, Any] | None) -> str:
    if entry is None:
        return ""
    if "rate" not in entry:
        return "none"
    rate = entry["rate"]
    return f"{rate:.0f} ({1e6 * statistics.median(entry['seconds']):.1f} us)"
