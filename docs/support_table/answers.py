"""Answers of the engines about graphs."""

from __future__ import annotations

import contextlib
from functools import cache
from itertools import product

from dnnc.choosing import heuristics
from dnnc.dialect.fusion import Fusion
from dnnc.engines import ENGINES
from dnnc.engines.engine import Engine
from dnnc.errors import DnncError
from dnnc.target import TARGETS, Target
from tests.dialect.examples import EXAMPLES

from .graphs import graphs_of_operation


@cache
def takes(engine: Engine, fusion: Fusion, target: Target) -> bool:
    """Whether the engine has no reason against the graph, and knobs to look at."""
    return not engine.supports(fusion, target) and bool(engine.candidates(fusion, target))


@cache
def targets_of(engine: Engine, graphs: tuple[Fusion, ...]) -> tuple[Target, ...]:
    """The targets for which the engine takes one of the graphs."""
    return tuple(t for t in TARGETS if any(takes(engine, fusion, t) for fusion in graphs))


@cache
def is_taken(graphs: tuple[Fusion, ...]) -> bool:
    """Whether an engine takes one of the graphs for some target."""
    # What one target has an engine for, most have: the others are asked where it has none.
    asked = product(TARGETS, graphs, ENGINES)
    return any(takes(engine, fusion, target) for target, fusion, engine in asked)


def engines_of(graphs: tuple[Fusion, ...]) -> tuple[Engine, ...]:
    """The engines that take one of the graphs for some target."""
    return tuple(engine for engine in ENGINES if targets_of(engine, graphs))


def engines_text(graphs: tuple[Fusion, ...]) -> str:
    """The engines that take one of the graphs, each with its targets unless it is all."""
    cells: list[str] = []
    for engine in ENGINES:
        fitting = targets_of(engine, graphs)
        if fitting:
            some = "" if fitting == TARGETS else f" ({', '.join(map(str, fitting))})"
            cells.append(engine.name + some)
    return ", ".join(cells) or "none"


@cache
def engines_of_parts(name: str) -> tuple[str, ...]:
    """The engines of an operation's examples that are split, where no engine takes them whole."""
    found: dict[str, None] = {}
    for build in EXAMPLES[name]:
        with contextlib.suppress(DnncError):
            config = heuristics.best_config(build().graph.finalize(), TARGETS[0])
            found |= dict.fromkeys(choice.engine.name for choice in config.choices)
    return tuple(found)


def runs(name: str) -> bool:
    """Whether an operation has an engine, or several for its parts."""
    return is_taken(graphs_of_operation(name)) or bool(engines_of_parts(name))


def engines_of_operation(name: str) -> str:
    """Engines that take an example whole, or else those of its parts."""
    graphs = graphs_of_operation(name)
    if is_taken(graphs) or not engines_of_parts(name):
        return engines_text(graphs)
    return f"several kernels: {', '.join(engines_of_parts(name))}"
