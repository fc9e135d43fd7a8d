"""Runs the cases: checks every column's output, then times the columns beside each other."""

from __future__ import annotations

import contextlib
import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import torch

from . import energy, timing
from .cases.case import Buffers, Case
from .peers import contestants
from .peers.contestants import Bench, Column, Contestant
from .results import Results

# What a step may take: building plans, and running one, which may hang.
BUILD_SECONDS = 240.0
RUN_SECONDS = 20.0
# A call that takes longer is not timed.
MOST_SECONDS = 1.0

# Of buffer sets, the columns that a contestant has.
Maker = Callable[[Sequence[Buffers]], Mapping[str, Column]]
Makers = Mapping[str, Maker]


def run_cases(
    cases: Sequence[Case], columns: Sequence[str], bench: Bench, results: Results
) -> None:
    """Times the cases that the results lack, and writes the file after each."""
    cases = [case for case in cases if case.id not in results.rows]
    if contestants.OURS in columns:
        _compile(cases, bench)
    for case in cases:
        makers = {name: maker(bench.contestants[name], case, bench) for name in columns}
        measured = measure_or_say(case, makers, bench)
        if measured is not None:
            results.add(case.id, row_of(case, measured))


def row_of(case: Case, measured: Mapping[str, Any]) -> dict[str, Any]:
    """A case's row of a results file."""
    return {
        "unit": case.unit,
        "flops": case.flops,
        "bytes": case.bytes,
        "tolerance": case.tolerance,
        "columns": measured,
        **({"dense": case.dense} if case.dense else {}),
    }


def maker(contestant: Contestant, case: Case, bench: Bench) -> Maker:
    """A contestant's columns of a case, once it has buffers."""
    return lambda sets: contestant(case, sets, bench)


def _compile(cases: Sequence[Case], bench: Bench) -> None:
    """All plans of our own, ahead: nothing compiles beside what is timed."""
    began = time.perf_counter()
    waiting: list[Future[Any]] = []
    for case in cases:
        bench.watch.at("", f"compile {case.id}")
        # What can't be compiled is said by the case's column.
        with contextlib.suppress(Exception):
            options = contestants.our_options(case, bench.compilers.target)
            waiting.append(bench.compilers.ahead(case, options))
    for number, future in enumerate(waiting):
        bench.watch.at("", f"plan {number}")
        future.exception()
    print(f"{len(waiting)} plans compiled in {time.perf_counter() - began:.1f} s", flush=True)


def measure_or_say(case: Case, makers: Makers, bench: Bench) -> dict[str, dict[str, Any]] | None:
    """`measure`; None where the case itself fails, which is printed: a later run tries again."""
    why = bench.watch.failures.get((case.id, ""))
    try:
        if why is None:
            bench.watch.at(case.id, "", BUILD_SECONDS)
            return measure(case, makers, bench)
    except Exception as error:  # for instance out of memory; the other cases go on
        _give_up_if_lost(bench, error)
        why = said(error)
    finally:
        gc.collect()
        torch.cuda.empty_cache()
    print(f"{case.id}: {why}", flush=True)
    return None


def measure(case: Case, makers: Makers, bench: Bench) -> dict[str, dict[str, Any]]:
    """Column -> rate, seconds in each round, error, what was run."""
    count = timing.sets_needed(case.bytes, case.unit == "GB/s")
    sets = [case.make() for _ in range(count)]
    exact = case.exact(sets[0])
    columns: dict[str, dict[str, Any]] = {}
    captured: dict[str, timing.Timed] = {}
    maker_of: dict[str, str] = {}
    for name, make in makers.items():
        why = bench.watch.failures.get((case.id, name))
        if why is not None:
            columns[name] = {"error": why}
            continue
        try:
            bench.watch.at(case.id, name, BUILD_SECONDS)
            made = make(sets)
        except Exception as error:  # whatever a peer raises is what its column says
            columns[name] = {"error": said(error)}
            _give_up_if_lost(bench, error)
            continue
        for column, (launch, information) in made.items():
            columns[column], maker_of[column] = {"information": information}, name
            try:
                bench.watch.at(case.id, name, RUN_SECONDS)
                columns[column]["relative_error"] = verify(case, launch, sets[0], exact)
                if information.get("is_captured", True):
                    captured[column] = timing.capture(launch, count, bench.stream)
                else:
                    captured[column] = timing.Launched(launch, count)
            except Exception as error:
                columns[column]["error"] = said(error)
                _give_up_if_lost(bench, error)

    def say(column: str) -> None:
        bench.watch.at(case.id, maker_of[column], RUN_SECONDS)

    judged, *beside = bench.modes
    for column, seconds in timing.interleaved(captured, bench.rounds, say, judged).items():
        columns[column]["seconds"] = seconds
        columns[column]["rate"] = case.rate(statistics.median(seconds))
    if bench.measures_energy:
        for column, found in energy.measured(captured, energy.Meter(), say).items():
            columns[column]["energy"] = found
    for mode in beside:
        for column, seconds in timing.interleaved(captured, bench.rounds, say, mode).items():
            columns[column][f"{mode}_rate"] = case.rate(statistics.median(seconds))
    return columns


def said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def _give_up_if_lost(bench: Bench, error: Exception) -> None:
    """End the process if its context is lost: no call works after an illegal access."""
    try:
        torch.cuda.synchronize()
    except Exception:
        bench.watch.give_up(said(error))


def verify(case: Case, launch: timing.Launch, buffers: Buffers, exact: Buffers) -> float:
    """Poisons the outputs, runs once, and gives the relative error; wrong ones raise.

    What a launch returns are the outputs in the order of `exact`; others are in their buffers.
    """
    for name in exact:
        out = buffers[name]
        out.fill_(float("nan") if out.is_floating_point() else -7)
    torch.cuda.synchronize()
    began = time.perf_counter()
    returned: Any = launch(0)
    torch.cuda.synchronize()
    taken = time.perf_counter() - began
    worst = 0.0
    given = returned if isinstance(returned, tuple) else (returned,)
    for place, (name, wanted) in enumerate(exact.items()):
        is_returned = place < len(given) and isinstance(given[place], torch.Tensor)
        actual = given[place] if is_returned else buffers[name]
        actual = actual.reshape(buffers[name].shape).double()
        if not torch.isfinite(actual).all():
            raise AssertionError(f"{name} has elements that are not finite, or not written")
        if actual.shape != wanted.shape:
            actual = actual[..., :: case.row_step, :]
        error = float((actual - wanted).norm() / wanted.norm())
        worst = max(worst, error) if math.isfinite(error) else math.inf
    if worst > case.tolerance:
        raise AssertionError(f"relative error {worst:.3g} > {case.tolerance:.3g}")
    if taken > MOST_SECONDS:
        raise AssertionError(f"a call takes {taken:.1f} s")
    return worst
