"""Configurations of our own beside each other: an engine's candidates, or those that are named."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from dnnc.choosing import heuristics
from dnnc.choosing.heuristics import Choice
from dnnc.dialect.fusion import Fusion, partition
from dnnc.engines import engine_named
from dnnc.errors import DnncError
from dnnc.options import Options
from dnnc.target import of

from .cases.case import Buffers, Case
from .compilers import our_graph
from .kernels import Makers, maker, measure_or_say
from .peers import contestants
from .peers.contestants import Bench, Column, our_launch
from .results import Results, geometric_mean


def run_sweep(
    cases: Sequence[Case], engine: str, most: int, bench: Bench, results: Results, *,
    also: Sequence[str] = (), peers: Sequence[str] = (),
) -> None:  # fmt: skip
    """Times an engine's candidates for each case; most: of each, in the order of prediction.

    also: knobs, as of `variants`, that each of them is timed with, too.  peers: contestants that
    are timed beside them.
    """
    cases = [case for case in cases if case.id not in results.rows]
    todo = []
    for case in cases:
        choices = candidates(case, engine, most, bench)
        more = [text({**c.knobs, **parsed(item)}) for c in choices for item in also]
        todo.append((case, [*choices, *named(case, engine, more, bench)]))
    for case, choices in todo:
        _compile(case, choices, bench)
    for case, choices in todo:
        beside = {name: maker(contestants.ALL[name], case, bench) for name in peers}
        measured = _measured(case, choices, bench, beside)
        if measured is not None:
            found = [_config(choice, measured.pop(text(choice.knobs))) for choice in choices]
            p = {k: v if isinstance(v, int | float | str | list) else str(v)
                 for k, v in case.p.items()}  # fmt: skip
            sizes = {"flops": case.flops, "bytes": case.bytes, "p": p}
            results.add(case.id, {"configs": found, "columns": measured, **sizes})
    print(summary(results))


def run_variants(case: Case, choices: Sequence[Choice], bench: Bench, results: Results) -> None:
    """Times configurations of one case, and prints them, the fastest first."""
    _compile(case, choices, bench)
    found = times(case, choices, bench)
    if not found:
        print("nothing was timed")
        return
    found.sort(key=lambda config: config.get("seconds", math.inf))
    results.add(f"{case.id} {found[0]['engine']}", {"unit": case.unit, "configs": found})
    for config in found:
        said = config.get("error")
        if said is None:
            said = (
                f"{1e6 * config['seconds']:9.1f} us {case.rate(config['seconds']):8.1f} {case.unit}"
            )
        print(f"{said}  registers {config.get('registers')}  {text(config['knobs'])}")


# ---- choices


def _whole(case: Case) -> Fusion:
    graph, _ = our_graph(case)
    (whole,) = partition(graph, [graph.live_ops])
    return whole


def candidates(case: Case, engine: str, most: int, bench: Bench) -> list[Choice]:
    """An engine's candidates, the best prediction first."""
    target = of(bench.compilers.target)
    return heuristics.choices(_whole(case), target, [engine_named(engine)])[:most]


def named(case: Case, engine: str, knobs: Sequence[str], bench: Bench) -> list[Choice]:
    """The choices of "TILE_M=128,TILE_N=256" and the like; what is refused is printed."""
    whole, target = _whole(case), of(bench.compilers.target)
    found: dict[str, Choice] = {}
    for item in knobs:
        try:
            choice = heuristics.with_knobs(engine_named(engine), whole, parsed(item), target)
            found[text(choice.knobs)] = choice
        except DnncError as error:
            print(f"{item}: {error}", flush=True)
    return list(found.values())


def parsed(knobs: str) -> dict[str, int]:
    """The knobs of "TILE_M=128,TILE_N=256"."""
    pairs = (item.split("=") for item in knobs.split(",") if item)
    return {name.strip(): int(value) for name, value in pairs}


def text(knobs: Mapping[str, int]) -> str:
    return ",".join(f"{name}={value}" for name, value in knobs.items())


def _options(choice: Choice) -> Options:
    return Options(engine=choice.engine.name, knobs=tuple(choice.knobs.items()))


# ---- times


def _compile(case: Case, choices: Sequence[Choice], bench: Bench) -> None:
    """Starts the compilations of a case's choices."""
    bench.watch.at("", f"compile {case.id}")
    for choice in choices:
        bench.compilers.ahead(case, _options(choice))


def times(case: Case, choices: Sequence[Choice], bench: Bench) -> list[dict[str, Any]] | None:
    """Knobs, seconds and registers of each choice, or its error, in the order of the choices.

    None where the case itself fails.
    """
    measured = _measured(case, choices, bench, {})
    if measured is None:
        return None
    return [_config(choice, measured[text(choice.knobs)]) for choice in choices]


def _measured(
    case: Case, choices: Sequence[Choice], bench: Bench, peers: Makers
) -> dict[str, dict[str, Any]] | None:
    """The columns of choices, by the text of their knobs, and of peers."""

    def make(choice: Choice, sets: Sequence[Buffers]) -> dict[str, Column]:
        return {text(choice.knobs): our_launch(case, sets, bench, _options(choice))}

    makers = {text(choice.knobs): functools.partial(make, choice) for choice in choices}
    return measure_or_say(case, {**makers, **peers}, bench)


def _config(choice: Choice, column: Mapping[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = {
        "engine": choice.engine.name,
        "knobs": dict(choice.knobs),
        "predicted": choice.prediction.seconds,
        "registers": column.get("information", {}).get("registers"),
    }
    if "seconds" in column:
        config["seconds"] = statistics.median(column["seconds"])
    return config | {k: column[k] for k in ("relative_error", "error", "energy") if k in column}


def summary(results: Results) -> str:
    """The chosen configuration's share of the fastest one's speed."""
    shares: list[float] = []
    failed: list[str] = []
    for name, row in results.rows.items():
        times = [config["seconds"] for config in row["configs"] if "seconds" in config]
        if times and "seconds" in row["configs"][0]:
            shares.append(min(times) / times[0])
        else:
            failed.append(name)
    said = [f"{name}: the chosen configuration failed, or there is none" for name in failed]
    if not shares:
        return "\n".join([*said, "no shapes"])
    shares.sort()
    fifth = shares[int(0.05 * len(shares))]
    said.append(
        f"{len(shares)} shapes: the chosen configuration reaches {geometric_mean(shares):.3f} of "
        f"the fastest (geometric mean), {fifth:.3f} at the 5th percentile, {shares[0]:.3f} at least"
    )
    return "\n".join(said)
