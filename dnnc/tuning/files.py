"""Candidates in a folder: compiled on one machine, timed on another, which needs no compiler.

index.json holds the graph, target, sizes, versions of the tools, and of each candidate its config,
its predictions and its plan's file (or the error of its compilation).  The index is written last.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from .. import __version__, given
from .. import record as records
from ..dialect.graph import OperationGraph
from ..dialect.json_form import from_json, to_json
from ..errors import DnncError, Status
from ..plan import format
from ..plan.plan import Plan
from ..progress import Report, silent
from ..record import Record
from .candidates import Candidate, Sizes
from .measure import measured
from .race import Rules
from .results import Tuned
from .timer import DeviceTimer, Timer

VERSION = 1
INDEX = "index.json"


def write(
    folder: str | os.PathLike[str],
    graph: OperationGraph,
    target: str,
    sizes: Sequence[Sizes],
    every: Sequence[Candidate],
    plans: Sequence[Plan | DnncError],
    tools: Mapping[str, str],
) -> None:
    """Writes candidates and their index."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    (place / INDEX).unlink(missing_ok=True)
    for old in place.glob(f"candidate*{format.SUFFIX}"):
        old.unlink()
    listed: list[dict[str, Any]] = []
    for number, (candidate, plan) in enumerate(zip(every, plans, strict=True)):
        entry: dict[str, Any] = {
            "partition": candidate.partition, "choices": candidate.choices,
            "predicted": {str(at): seconds for at, seconds in candidate.predicted.items()},
        }  # fmt: skip
        if isinstance(plan, DnncError):
            entry["error"] = str(plan)
        else:
            entry["file"] = f"candidate{number:03}{format.SUFFIX}"
            format.write(str(place / entry["file"]), plan)
        listed.append(entry)
    index = {
        "dnnc_candidates": VERSION, "graph": to_json(graph), "target": target,
        "sizes": [dict(values) for values in sizes],
        "versions": {"dnnc": __version__, **tools}, "candidates": listed,
    }  # fmt: skip
    format.write_whole(str(place / INDEX), (json.dumps(index, indent=1) + "\n").encode())


@given.checked
def time_candidates(
    folder: str | os.PathLike[str],
    *,
    timer: Timer | None = None,
    cold_l2: bool = False,
    rules: Rules = Rules(),  # noqa: B008  (it is frozen)
    record: str | os.PathLike[str] | Record | None = None,
    report: Report = silent,
) -> Tuned:
    """Times the candidates of a folder; needs the runtime, not the compiler.

    The rest is as `dnnc.autotune` takes it.  A folder without a whole index, plans that are not
    of its graph, and an index of another version of dnnc are BAD_PARAM.
    """
    index = _index(Path(folder))
    graph = from_json(index["graph"])
    every = [
        Candidate(
            entry["partition"], entry["choices"],
            {int(at): seconds for at, seconds in entry["predicted"].items()},
        )
        for entry in index["candidates"]
    ]  # fmt: skip
    plans = [_plan(Path(folder), entry, graph) for entry in index["candidates"]]
    tools = {name: text for name, text in index["versions"].items() if name != "dnnc"}
    clock = timer or DeviceTimer(cold_l2=cold_l2)
    try:
        return measured(
            graph, index["target"], every, plans, index["sizes"], clock, rules,
            records.read(record), tools, report,
        )  # fmt: skip
    finally:
        if timer is None:
            clock.close()


def _index(folder: Path) -> dict[str, Any]:
    path = folder / INDEX
    try:
        index: Any = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        wanted = "a folder that `dnnc tune GRAPH --compile-only` wrote"
        raise DnncError(Status.BAD_PARAM, f"no index: {error}", wanted, str(folder)) from error
    if not isinstance(index, dict) or cast(Any, index).get("dnnc_candidates") != VERSION:
        raise DnncError(
            Status.BAD_PARAM, f"{index!r:.40}", f'{{"dnnc_candidates": {VERSION}}}', str(path)
        )
    missing = {"graph", "target", "sizes", "versions", "candidates"} - cast(Any, index).keys()
    if missing:
        what = f"no {', '.join(sorted(missing))}"
        raise DnncError(Status.BAD_PARAM, what, "a whole index", str(path))
    made: dict[str, Any] = index
    if made["versions"].get("dnnc") != __version__:
        raise DnncError(
            Status.BAD_PARAM,
            f"candidates of dnnc {made['versions'].get('dnnc')}",
            f"those of dnnc {__version__}: a record is used by the version that it is of",
            str(path),
        )
    return made


def _plan(folder: Path, entry: Mapping[str, Any], graph: OperationGraph) -> Plan | DnncError:
    if "file" not in entry:
        return DnncError(Status.INTERNAL_ERROR_COMPILATION_FAILED, entry.get("error", "no file"))
    plan = format.read(str(folder / entry["file"]))
    if from_json(dict(plan.graph)) != graph:
        raise DnncError(
            Status.BAD_PARAM, "a plan of another graph", f"graph '{graph.name}'", entry["file"]
        )
    return plan
