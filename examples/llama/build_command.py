"""`build`: the bundle, and a table of each phase's steps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from demo.progress import bar
from demo.tables import table

from . import building
from .phases import Phase


def build(phases: Sequence[Phase], target: str, path: Path, jobs: int, no_cache: bool) -> None:
    """Compiles the plans of some phases into one file."""
    began = time.perf_counter()
    with bar(len(building.plan_names(phases))) as shown:
        built = building.compile_all(phases, target, jobs, shown.step, cache=not no_cache)
    seconds = time.perf_counter() - began
    building.write(path, built)
    first = target.partition(",")[0].strip()
    for phase in phases:
        print(f"{phase.name}:\n")
        print(table(building.HEADERS, building.rows(built, phase, first)), end="\n\n")
    print(f"engines: of {first}; several launches are joined by +.")
    print("floor us: GFLOP or MB, each element once, at its usual part's nominal rates.")
    if any(phase.is_decode for phase in phases):
        print("decode: with every sequence at its longest.")
    size = building.verified(path)
    print(f"{path}: {len(built.plans)} plans, {size:,} bytes, after {seconds:.1f} s")
