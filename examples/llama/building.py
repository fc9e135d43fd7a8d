"""Compiles the plans of some phases ahead of time, each once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import dnnc
from dnnc import target as targets
from dnnc.plan import format
from dnnc.plan.plan import Plan

from .. import compiling
from .phases import Phase, Step
from .work import floor_seconds, work_of

HEADERS = ("step", "plan", "engines", "GFLOP", "MB", "floor us")


@dataclass(frozen=True)
class Built:
    """plans: by name."""

    phases: Sequence[Phase]
    plans: dict[str, Plan]


def compile_all(
    phases: Sequence[Phase], target: str, jobs: int, step: Callable[[str], None],
    *, cache: bool = True,
) -> Built:  # fmt: skip
    """Compiles all plans.  step: called after each, with its name; else as `compiling`'s."""
    makers = {name: make for phase in phases for name, make in phase.graphs.items()}
    graphs = [make().graph.finalize() for make in makers.values()]
    plans = compiling.compile_all(graphs, target, jobs, step, cache=cache)
    return Built(phases, dict(zip(makers, plans, strict=True)))


def plan_names(phases: Sequence[Phase]) -> list[str]:
    return list(dict.fromkeys(name for phase in phases for name in phase.graphs))


def write(path: Path, built: Built) -> None:
    """The bundle's file; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    dnnc.write_plan(path, list(built.plans.values()))


def verified(path: Path) -> int:
    """Reads every plan of a bundle again; gives the bytes of the file."""
    format.Bundle(path).verify()
    return path.stat().st_size


def rows(built: Built, phase: Phase, target: str) -> list[tuple[object, ...]]:
    """A line of HEADERS for each step, and one for all of them."""
    found: list[tuple[object, ...]] = []
    whole = [0.0, 0.0, 0.0]
    for step in phase.steps:
        if not isinstance(step, Step):
            found.append((step.name, "", "copies by the driver", "", "", ""))
            continue
        plan = built.plans[step.plan]
        flops, bytes_ = work_of(plan, step)
        floor = floor_seconds(flops, bytes_, targets.of(target))
        figures = [flops / 1e9, bytes_ / 1e6, 1e6 * floor]
        whole = [a + b for a, b in zip(whole, figures, strict=True)]
        found.append((step.name, plan.name, engines(plan), *(f"{x:.1f}" for x in figures)))
    return [*found, ("all steps", "", "", *(f"{x:.1f}" for x in whole))]


def engines(plan: Plan) -> str:
    """Engines of the first target's launches, joined by +."""
    program = plan.programs[0]
    return "+".join(fusion.engine for fusion in program.fusions)
