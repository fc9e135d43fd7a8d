"""Every configuration of our own on generated shapes: how good is the one that is chosen?"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Sequence
from typing import Any

import torch

from dnnc.dialect.fusion import partition
from dnnc.engines import engine_named, heuristics
from dnnc.options import Options
from dnnc.target import of

from . import contestants, timing
from .cases import Case
from .results import Results, geometric_mean


def run_sweep(cases: Sequence[Case], engine: str, most: int, results: Results) -> None:
    """Times an engine's candidates for each case; most: of each, in the order of prediction."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for case in cases:
            if case.id not in results.rows:
                results.add(case.id, sweep(case, engine, most, stream))
                gc.collect()
                torch.cuda.empty_cache()
    print(summary(results))


def sweep(case: Case, engine: str, most: int, stream: Any) -> dict[str, Any]:
    """The times of a case's configurations, the chosen one first."""
    graph, _ = contestants.our_graph(case)
    count = timing.sets_needed(case.bytes, case.unit == "GB/s")
    sets = [case.make() for _ in range(count)]
    found: list[dict[str, Any]] = []
    captured: dict[str, timing.Captured] = {}
    place = of(contestants.target())
    (whole,) = partition(graph, [graph.live_ops])
    for choice in heuristics.choices(whole, place, [engine_named(engine)])[:most]:
        options = Options(engine=choice.engine.name, knobs=tuple(choice.knobs.items()))
        launch, information = contestants.our_launch(case, sets, stream, options)
        captured[str(len(found))] = timing.capture(launch, count, stream)
        found.append(
            {
                "engine": choice.engine.name,
                "knobs": dict(choice.knobs),
                "predicted": choice.prediction.seconds,
                "registers": information["registers"],
            }
        )
    for index, seconds in timing.interleaved(captured, 3).items():
        found[int(index)]["seconds"] = statistics.median(seconds)
    return {"configs": found, "flops": case.flops, "bytes": case.bytes, "p": dict(case.p)}


def summary(results: Results) -> str:
    """The chosen configuration's share of the fastest one's speed."""
    shares = []
    for row in results.rows.values():
        times = [config["seconds"] for config in row["configs"]]
        shares.append(min(times) / times[0])
    shares.sort()
    fifth = shares[int(0.05 * len(shares))]
    return (
        f"{len(shares)} shapes: the chosen configuration reaches {geometric_mean(shares):.3f} of "
        f"the fastest (geometric mean), {fifth:.3f} at the 5th percentile, {shares[0]:.3f} at least"
    )
