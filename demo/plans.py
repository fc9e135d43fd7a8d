"""Compiles the demo's graphs in the compile worker and writes the plans to one file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dnnc import worker
from dnnc.plan import format
from dnnc.plan.plan import Kernel, Plan, Program
from dnnc.progress import STAGES

from . import graphs

HEADERS = ("plan", "target", "sizes", "compile ms", "kernel", "registers", "spills")

# What the compiler does for each target of a plan.
STEPS_A_TARGET = len(STAGES)


@dataclass(frozen=True)
class Compiled:
    """A plan.  seconds: in the compiler, for all targets."""

    plan: Plan
    seconds: float

    def rows(self) -> list[tuple[object, ...]]:
        """A line of `HEADERS` for each kernel."""
        whole = f"{1000 * self.seconds:.0f}"
        kernels = [
            (self.plan.name, program.target, sizes, kernel)
            for program in self.plan.programs
            for sizes, kernel in _launched(program)
        ]
        return [
            (*place, "" if i else whole, *_facts(kernel))
            for i, (*place, kernel) in enumerate(kernels)
        ]


def _launched(program: Program) -> Iterator[tuple[str, Kernel]]:
    """Each kernel, with the sizes that it is launched for."""
    kernels = {kernel.name: kernel for kernel in program.kernels}
    others = "any" if len(program.variants) == 1 else "other"
    for variant in program.variants:
        sizes = others if variant.guard == "1" else variant.guard
        for step in variant.steps:
            if step.launch is not None:
                yield sizes, kernels[step.launch.kernel]


def _facts(kernel: Kernel) -> tuple[object, ...]:
    return (kernel.name, kernel.registers, kernel.spill_store_bytes + kernel.spill_load_bytes)


def compile_all(
    names: Sequence[str], target: str, path: Path, step: Callable[[str], None]
) -> list[Compiled]:
    """Compiles the graphs of some names into one bundle.

    step: called after each stage, with what it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    found: list[Compiled] = []
    for name in names:
        took: list[float] = []

        def report(stage: str, seconds: float, name: str = name, took: list[float] = took) -> None:
            took.append(seconds)
            step(f"{name}: {stage}")

        plan = worker.compile_graph(graphs.build(name).graph, target, cache=False, report=report)
        found.append(Compiled(plan, sum(took)))
    format.write(path, [compiled.plan for compiled in found])
    return found
