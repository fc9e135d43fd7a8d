"""Compiles the network ahead of time: each operation once a batch, several workers at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import dnnc
from dnnc import target as targets
from dnnc.choosing import heuristics
from dnnc.dialect.graph import OperationGraph
from dnnc.errors import DnncError, Status
from dnnc.expr import assuming
from dnnc.plan import format
from dnnc.plan.plan import Plan

from .. import compiling
from .graphs import ANY_BATCH, Batch, graph_of
from .network import Network, Operation, bytes_of, flops_of

# Images that predictions of plans for every batch are shown for.
SHOWN_IMAGES = 32


@dataclass(frozen=True)
class Compiled:
    """A plan of an operation.  layers: that have the operation."""

    op: Operation
    n: Batch
    layers: int
    plan: Plan
    graph: OperationGraph

    @property
    def images(self) -> int:
        """That sizes and predictions are of."""
        return self.n if isinstance(self.n, int) else SHOWN_IMAGES

    @property
    def engine(self) -> str:
        """Engines of the first target's launches, joined by +."""
        return "+".join(name for name, _ in self._choices)

    @property
    def _choices(self) -> list[tuple[str, dict[str, int]]]:
        """Engine and knobs of each fusion."""
        program, sizes = self.plan.programs[0], {ANY_BATCH.name: self.images}
        variant = next(v for v in program.variants if self.plan.guard(v.guard).holds(sizes))
        fusions = program.fusions_of(program.config_of(variant))
        return [(f.engine, dict(f.knobs)) for f in fusions]

    @property
    def predicted(self) -> float:
        """Seconds, for the first target."""
        target = targets.of(self.plan.programs[0].target)
        with assuming({ANY_BATCH.name: self.images}):
            for config in heuristics.configs(self.graph, target):
                if self._choices == [(c.engine.name, dict(c.knobs)) for c in config.choices]:
                    return config.seconds
        raise DnncError(Status.INTERNAL_ERROR, f"no config of {self.graph.name} is its plan's")


def parts(network: Network, batches: Sequence[Batch]) -> list[tuple[Operation, Batch, int]]:
    """Each operation with each batch, once, and the number of layers that share its plan."""
    counted = network.operations.items()
    return [(op, n, layers) for n in batches for op, layers in counted]


def compile_all(
    network: Network,
    batches: Sequence[Batch],
    target: str,
    jobs: int,
    step: Callable[[str], None],
    *,
    cache: bool = True,
) -> list[Compiled]:
    """Compiles all plans, in the order of `parts`.

    target: `sm_90a`, or several by commas.  jobs: workers at once.  step: called after each plan,
    with its name.  cache: take what was compiled before.
    """
    wanted = parts(network, batches)
    graphs = [graph_of(op, n).graph.finalize() for op, n, _ in wanted]
    plans = compiling.compile_all(graphs, target, jobs, step, cache=cache)
    return [
        Compiled(*part, plan, graph)
        for part, plan, graph in zip(wanted, plans, graphs, strict=True)
    ]


def write(path: Path, made: Sequence[Compiled]) -> None:
    """The bundle's file; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    dnnc.write_plan(path, [compiled.plan for compiled in made])


HEADERS = ("plan", "layers", "engine", "us", "GFLOP", "MB", "floor us")


def rows(made: Sequence[Compiled], target: str) -> list[tuple[object, ...]]:
    """A line of HEADERS for each plan, and one for the layers of each batch together."""
    found: list[tuple[object, ...]] = []
    for n in dict.fromkeys(compiled.n for compiled in made):
        mine = [compiled for compiled in made if compiled.n == n]
        figures = [_figures(compiled, targets.of(target)) for compiled in mine]
        for compiled, numbers in zip(mine, figures, strict=True):
            place = (compiled.plan.name, compiled.layers, compiled.engine)
            found.append((*place, *_shown(numbers)))
        layers = [compiled.layers for compiled in mine]
        whole = [sum(c * x for c, x in zip(layers, column, strict=True))
                 for column in zip(*figures, strict=True)]  # fmt: skip
        found.append(("all layers", sum(layers), "", *_shown(whole)))
    return found


def _figures(compiled: Compiled, target: targets.Target) -> tuple[float, ...]:
    """Microseconds, GFLOP, MB, and the microseconds that the part's rates allow."""
    flops, bytes_ = flops_of(compiled.op, compiled.images), bytes_of(compiled.op, compiled.images)
    floor = max(flops / (target.mma_tflops["f16"] * 1e12), bytes_ / (target.dram_gbs * 1e9))
    return 1e6 * compiled.predicted, flops / 1e9, bytes_ / 1e6, 1e6 * floor


def _shown(figures: Sequence[float]) -> tuple[str, ...]:
    return tuple(f"{figure:.1f}" for figure in figures)


def verified(path: Path) -> int:
    """Reads every plan of a bundle again; gives the bytes of the file."""
    format.Bundle(path).verify()
    return path.stat().st_size
