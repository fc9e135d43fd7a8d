"""Compiles the demo's graphs in the compile worker and writes the plans to files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dnnc import compiler, worker
from dnnc.plan import format
from dnnc.plan.plan import Plan, Program

from . import graphs

HEADERS = ("plan", "target", "compile ms", "file kB", "registers", "spills", "engine", "knobs")

# What the compiler does for each target of a plan; the graph and the plan take no time.
STEPS_A_TARGET = len(compiler.STAGES) - 2


@dataclass(frozen=True)
class Compiled:
    """A plan and its file.  seconds: in the compiler, for all targets."""

    plan: Plan
    path: Path
    seconds: float

    def rows(self) -> list[tuple[object, ...]]:
        """A line of `HEADERS` for each target."""
        whole = (f"{1000 * self.seconds:.0f}", f"{self.path.stat().st_size / 1000:.0f}")
        return [
            (self.plan.name, program.target, *(whole if i == 0 else ("", "")), *_facts(program))
            for i, program in enumerate(self.plan.programs)
        ]


def _facts(program: Program) -> tuple[object, ...]:
    knobs = (
        " ".join(f"{name}={value}" for name, value in sorted(fusion.knobs.items()))
        for fusion in program.fusions
    )
    return (
        max(kernel.registers for kernel in program.kernels),
        sum(kernel.spill_store_bytes + kernel.spill_load_bytes for kernel in program.kernels),
        " + ".join(fusion.engine for fusion in program.fusions),
        " + ".join(knobs),
    )


def compile_all(
    names: Sequence[str], target: str, folder: Path, step: Callable[[str], None]
) -> list[Compiled]:
    """Compiles the graphs of some names; step: called after each stage, with what it was."""
    folder.mkdir(parents=True, exist_ok=True)
    found: list[Compiled] = []
    for name in names:
        took: list[float] = []

        def report(stage: str, seconds: float, name: str = name, took: list[float] = took) -> None:
            took.append(seconds)
            step(f"{name}: {stage}")

        plan = worker.compile_graph(graphs.build(name).graph, target, report=report)
        path = folder / f"{name}{format.SUFFIX}"
        format.write(path, plan)
        found.append(Compiled(plan, path, sum(took)))
    return found
