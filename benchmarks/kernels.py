"""Runs the cases: checks every column's output, then times the columns beside each other."""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from typing import Any

import torch

from . import contestants, timing
from .cases import Buffers, Case
from .results import Results


def run_cases(cases: Sequence[Case], rounds: int, columns: Sequence[str], results: Results) -> None:
    """Times the cases that the results lack, and writes the file after each."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for case in cases:
            if case.id not in results.rows:
                results.add(case.id, run_case(case, rounds, columns, stream))
                gc.collect()
                torch.cuda.empty_cache()


def run_case(case: Case, rounds: int, columns: Sequence[str], stream: Any) -> dict[str, Any]:
    """The row of one case: column -> rate, seconds in each round, error, what was run."""
    count = timing.sets_needed(case.bytes, case.unit == "GB/s")
    sets = [case.make() for _ in range(count)]
    exact = case.exact(sets[0])
    row: dict[str, Any] = {}
    captured: dict[str, timing.Captured] = {}
    for name in columns:
        try:
            made = contestants.ALL[name](case, sets, stream)
        except Exception as error:  # whatever a peer raises is what its column says
            row[name] = {"error": f"{type(error).__name__}: {error}"[:300]}
            continue
        for column, (launch, information) in made.items():
            row[column] = {"information": information}
            try:
                row[column]["relative_error"] = verify(case, launch, sets[0], exact)
                captured[column] = timing.capture(launch, count, stream)
            except Exception as error:
                row[column]["error"] = f"{type(error).__name__}: {error}"[:300]
    for column, seconds in timing.interleaved(captured, rounds).items():
        row[column]["seconds"] = seconds
        row[column]["rate"] = case.rate(sorted(seconds)[len(seconds) // 2])
    return {
        "unit": case.unit,
        "flops": case.flops,
        "bytes": case.bytes,
        "tolerance": case.tolerance,
        "columns": row,
    }


def verify(case: Case, launch: timing.Launch, buffers: Buffers, exact: Buffers) -> float:
    """Poisons the outputs, runs once, and gives the relative error; wrong ones raise."""
    for name in exact:
        out = buffers[name]
        out.fill_(float("nan") if out.is_floating_point() else -7)
    returned = launch(0)
    torch.cuda.synchronize()
    worst = 0.0
    for name, wanted in exact.items():
        actual = returned if isinstance(returned, torch.Tensor) else buffers[name]
        actual = actual.double().reshape(buffers[name].shape)
        # The reference may be of the first rows only.
        actual = actual[tuple(slice(0, extent) for extent in wanted.shape)]
        error = float((actual - wanted).norm() / wanted.norm())
        worst = max(worst, error) if math.isfinite(error) else math.inf
    if worst > case.tolerance:
        raise AssertionError(f"relative error {worst:.3g} > {case.tolerance:.3g}")
    return worst
