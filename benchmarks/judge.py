"""Compares the heuristics' choice of today with configurations that were timed before."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dnnc.dialect.fusion import Fusion, partition
from dnnc.engines import Engine, engine_named
from dnnc.engines.engine import Knobs
from dnnc.target import Target, of

from . import results
from .cases.lists import case_of
from .compilers import our_graph

# Knobs that products had, of which 0 stands for today's code.
_DROPPED = ("STREAM_K", "SCHED_POLICY")


def run_judge(files: Sequence[Path], target: str) -> str:
    """A line for each shape, the worst first, then the summary.

    files: of `sweep` and `variants`.  A shape that several files time is judged in each of them.
    """
    shares = sorted(
        (share, name)
        for path in files
        for name, share in shares_of(json.loads(path.read_text()), of(target)).items()
    )
    if not shares:
        return "no shapes of which several configurations were timed"
    lines = [f"{share:.3f}  {name}" for share, name in shares]
    mean = results.geometric_mean([share for share, _ in shares])
    said = f"{len(shares)} shapes: {mean:.3f} of the fastest (geometric mean), {shares[0][0]:.3f}"
    return "\n".join([*lines, f"{said} at least"])


def shares_of(data: Mapping[str, Any], target: Target) -> dict[str, float]:
    """The share of the fastest configuration's speed that today's choice reaches: case -> share.

    It chooses among what are candidates now.  Knobs that an engine learned later have their first
    value.  Left out are configurations that are refused now, and cases with fewer than three.
    """
    found: dict[str, float] = {}
    for name, row in data["rows"].items():
        configs = [config for config in row["configs"] if "seconds" in config]
        guesses = (predicted(name.split()[0], c, target) for c in configs)
        timed = [(guess, c["seconds"]) for guess, c in zip(guesses, configs, strict=True)]
        legal = [(guess, seconds) for guess, seconds in timed if guess is not None]
        if len(legal) > 2 and min(legal)[0] < math.inf:
            _, chosen = min(legal)
            found[name] = min(seconds for _, seconds in legal) / chosen
    return found


def predicted(case: str, config: Mapping[str, Any], target: Target) -> float | None:
    """Seconds of a timed configuration; infinite: never chosen by itself;
    None: refused, as are schedules that products have no more."""
    engine, whole = engine_named(config["engine"]), _whole(case)
    known = _first_values(engine, whole, target)
    knobs = {**known, **{n: v for n, v in config["knobs"].items() if n in known}}
    asks_more = any(config["knobs"].get(name) for name in _DROPPED if name not in known)
    if asks_more or engine.supports(whole, target) or engine.legal(knobs, whole, target):
        return None
    if knobs not in _candidates(engine, case, target):
        return math.inf
    return engine.predict(whole, knobs, target).seconds


def _candidates(engine: Engine, case: str, target: Target) -> Sequence[Knobs]:
    key = (engine.name, case, target.name)
    if key not in _CANDIDATES:
        _CANDIDATES[key] = engine.candidates(_whole(case), target)
    return _CANDIDATES[key]


def _first_values(engine: Engine, whole: Fusion, target: Target) -> dict[str, int]:
    """The value of each knob that stands for its absence: it changes nothing."""
    plain = {"WARP_SPEC_CFG": 1, "SPLIT_K_SLC": 1, "TILE_CGA_M": 1, "TILE_CGA_N": 1}
    return {k.name: plain.get(k.name, k.values[0]) for k in engine.knobs(whole, target)}


def _whole(case: str) -> Fusion:
    if case not in _FUSIONS:
        graph, _ = our_graph(case_of(case))
        (_FUSIONS[case],) = partition(graph, [graph.live_ops])
    return _FUSIONS[case]


_FUSIONS: dict[str, Fusion] = {}
_CANDIDATES: dict[tuple[str, str, str], Sequence[Knobs]] = {}
