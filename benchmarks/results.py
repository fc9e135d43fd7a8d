"""Result files: what was measured, on what, when; ratios and tables from them."""

from __future__ import annotations

import datetime
import json
import math
import os
import random
import re
import statistics
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

OURS = "dnnc"
PEERS = (
    "cudnn", "cudnn_best", "torch_eager", "torch", "torch_cudnn", "torch_fused", "torch_compile",
    "torch_compile_max",
)  # fmt: skip


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
        self.save()
        print(line(name, row), flush=True)

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".part")
        temporary.write_text(_written(self.data))
        os.replace(temporary, self.path)


def _written(data: Mapping[str, Any]) -> str:
    """JSON, a row on each line: a third shorter than indented, and differences stay readable."""
    rows = ",\n".join(f"  {json.dumps(n)}: {json.dumps(row)}" for n, row in data["rows"].items())
    others = [f" {json.dumps(k)}: {json.dumps(v)},\n" for k, v in data.items() if k != "rows"]
    return "{\n" + "".join(others) + ' "rows": {\n' + rows + "\n }\n}\n"


def line(name: str, row: Mapping[str, Any]) -> str:
    """A row on one line, for the terminal."""
    columns = row.get("columns")
    if "configs" in row:
        return f"{name:50s} {len(row['configs'])} configurations"
    if columns is None:
        return f"{name:50s} {json.dumps(row)[:200]}"
    cells = [
        f"{column}={entry['rate']:.0f}" if "rate" in entry else f"{column}={entry['error'][:60]}"
        for column, entry in columns.items()
    ]
    ratio = ratios(row)
    shown = f"  ratio {statistics.median(ratio):.3f}" if ratio else ""
    return f"{name:50s} {'  '.join(cells)} {row['unit']}{shown}"


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


def summary(rows: Sequence[Sequence[float]]) -> str:
    """The geometric mean of rows of ratios, and its interval."""
    mean = geometric_mean([statistics.median(row) for row in rows])
    low, high = interval(rows)
    return f"{mean:.3f} (95%: {low:.3f} to {high:.3f}; {len(rows)} rows)"


# ---- tables

# Rates that stand beside the judged one: of an idle device, and, in older files, of a busy one.
_BESIDE = ("cool", "hot")

# Shares of the copy bandwidth are told from so many bytes on.
_STREAMED_BYTES = 2e8

Row = tuple[str, Mapping[str, Any]]


def markdown(data: Mapping[str, Any], match: str = "") -> str:
    """Tables of a kernels file, one for each family and unit; match: of the rows' ids."""
    lines = [device_line(data["metadata"]), ""]
    stream = copy_bandwidth(data["rows"])
    tables: dict[tuple[str, str], list[Row]] = {}
    for name, row in data["rows"].items():
        if re.search(match, name):
            tables.setdefault((name.partition("/")[0], row["unit"]), []).append((name, row))
    for (family, unit), rows in tables.items():
        known = data["rows"]
        lines += _table(f"{family} ({unit})", rows, known, stream if unit == "GB/s" else 0.0)
    return "\n".join(lines)


def device_line(meta: Mapping[str, Any]) -> str:
    """The device, the versions and the date of a measurement."""
    return (
        f"{meta['device']}, {meta['multiprocessors']} SMs, driver {meta['driver']}, "
        f"CUDA {meta['cuda']}, torch {meta['torch']}, cuDNN {meta.get('cudnn')} "
        f"(frontend {meta.get('cudnn_frontend')}), dnnc {meta['dnnc']}; {meta['date']}; "
        f"{meta.get('mode', 'cool')}."
    )


def copy_bandwidth(rows: Mapping[str, Any]) -> float:
    """GB/s of the fastest streaming kernel of the run, of anyone; 0 if none ran."""
    rates = [
        entry.get("rate", 0.0)
        for name, row in rows.items()
        if name.startswith(("pointwise/", "reduction/")) and row["bytes"] >= _STREAMED_BYTES
        for entry in row["columns"].values()
    ]
    return max(rates, default=0.0)


def _table(title: str, rows: Sequence[Row], known: Mapping[str, Any], stream: float) -> list[str]:
    """known: all rows of the file, among which others find their dense ones."""
    used = [c for c in (OURS, *PEERS) if any(c in row["columns"] for _, row in rows)]
    more = ["ours / best peer", *(["ours / copy bandwidth"] if stream else [])]
    has_dense = any(_of_dense(row, known) for _, row in rows)
    more += ["ours / dense"] if has_dense else []
    beside = [m for m in _BESIDE if any(f"{m}_rate" in r["columns"].get(OURS, {}) for _, r in rows)]
    for mode in beside:
        more += [f"{mode}: ours", f"{mode}: ours / best peer"]
    lines = [
        f"### {title}",
        "",
        f"| case | {' | '.join([*used, *more])} |",
        "|---|" + "---:|" * len(used + more),
    ]
    groups: dict[str, list[list[float]]] = {}
    for name, row in rows:
        cells = [_cell(row["columns"].get(column)) for column in used]
        ratio = ratios(row)
        if ratio:
            groups.setdefault(_group(name), []).append(ratio)
        cells.append(f"{statistics.median(ratio):.2f}" if ratio else "")
        if stream:
            rate = row["columns"].get(OURS, {}).get("rate")
            is_judged = rate and row["bytes"] >= _STREAMED_BYTES
            cells.append(f"{rate / stream:.2f}" if is_judged else "")
        if has_dense:
            share = _of_dense(row, known)
            cells.append(f"{share:.2f}" if share else "")
        for mode in beside:
            cells += _cells_beside(row, mode)
        lines.append(f"| {name.partition('/')[2]} | {' | '.join(cells)} |")
    if stream:
        lines += ["", f"Copy bandwidth of the run: {stream:.0f} GB/s."]
    if groups:
        every = [ratio for ratios_ in groups.values() for ratio in ratios_]
        lines += ["", f"Geometric mean of the ratios: {summary(every)}."]
    if len(groups) > 1:
        lines += ["", *(f"- {group}: {summary(ratios_)}" for group, ratios_ in groups.items())]
    return [*lines, ""]


def _of_dense(row: Mapping[str, Any], known: Mapping[str, Any]) -> float | None:
    """Our rate over our own on the row's dense case; None: it has none, or one was not timed."""
    found = (entry.get("columns", {}).get(OURS, {}).get("rate")
             for entry in (row, known.get(row.get("dense", ""), {})))  # fmt: skip
    own, of_dense = found
    return own / of_dense if own and of_dense else None


def _cells_beside(row: Mapping[str, Any], mode: str) -> list[str]:
    """Our rate as it was measured beside the judged one, and what it is of the best peer's."""
    rates = {name: entry[f"{mode}_rate"] for name, entry in row["columns"].items()
             if f"{mode}_rate" in entry}  # fmt: skip
    ours = rates.pop(OURS, None)
    best = max(rates.values(), default=None)
    return [
        f"{ours:.0f}" if ours else "",
        f"{ours / best:.2f}" if ours and best else "",
    ]


def _group(name: str) -> str:
    """The part of a case's name without its family and sizes: type/operation, and a layout; of a
    family of one type, the operation."""
    _, *kind, sizes_or_layout = name.split("/")
    if len(kind) < 3:
        return "/".join(kind)
    dtype, operation, _, *more = kind
    return "/".join([dtype, operation, *more, sizes_or_layout])


def _cell(entry: Mapping[str, Any] | None) -> str:
    if entry is None:
        return ""
    if "rate" not in entry:
        return "none"
    rate = entry["rate"]
    return f"{rate:.0f} ({1e6 * statistics.median(entry['seconds']):.1f} us)"
