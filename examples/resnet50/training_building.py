"""`build --training`: compiles a training step ahead of time into one bundle."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import dnnc
from demo.progress import bar
from demo.tables import table
from dnnc import target as targets
from dnnc.plan.plan import Plan

from .. import compiling
from .building import verified
from .network import network_of
from .training_graphs import Operation, graph_of
from .training_steps import Training

HEADERS = ("plan", "steps", "engines")


def compile_all(
    training: Training, batches: Sequence[int], target: str, jobs: int,
    step: Callable[[str], None], *, cache: bool = True,
) -> list[tuple[Operation, int, Plan]]:  # fmt: skip
    """(operation, images, plan) of each operation with each batch."""
    wanted = [(op, n) for n in batches for op in training.operations]
    graphs = [graph_of(op, n).graph for op, n in wanted]
    plans = compiling.compile_all(graphs, target, jobs, step, cache=cache)
    return [(op, n, plan) for (op, n), plan in zip(wanted, plans, strict=True)]


def build(
    name: str, batches: Sequence[int], target: str, path: Path, jobs: int, no_cache: bool
) -> None:
    """The bundle's file, and a table of its plans."""
    training, sizes = Training(network_of(name)), list(dict.fromkeys(batches))
    began = time.perf_counter()
    with bar(len(training.operations) * len(sizes)) as shown:
        made = compile_all(training, sizes, target, jobs, shown.step, cache=not no_cache)
    seconds = time.perf_counter() - began
    path.parent.mkdir(parents=True, exist_ok=True)
    dnnc.write_plan(path, [plan for _, _, plan in made])
    first = targets.of(target.partition(",")[0].strip()).name
    print(table(HEADERS, [(plan.name, training.operations[op], _engines(plan))
                          for op, _, plan in made]))  # fmt: skip
    print(
        f"\nsteps: that share a plan.  engines: for {first}; several kernels are joined by +.\n"
        f"{len(training.steps)} steps, {training.network.parameters / 1e6:.2f} million parameters."
    )
    print(f"{path}: {len(made)} plans, {verified(path):,} bytes, after {seconds:.1f} s")


def _engines(plan: Plan) -> str:
    program = plan.programs[0]
    fusions = program.fusions_of(program.config_of(program.variants[0]))
    return "+".join(fusion.engine for fusion in fusions)
