"""`dnnc engines`: which engines take a graph, and what the others would need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from .. import target as targets
from ..target import Target
from . import console, files
from .arguments import (
    DEFAULT_MODES,
    DEFAULT_TARGET,
    Graph,
    Modes,
    Targets,
    parse_modes,
)

if TYPE_CHECKING:
    from ..dialect.fusion import Fusion
    from ..dialect.graph import OperationGraph
    from ..engines.heuristics import EngineConfig

# Ranked configs that are listed without --explain.
_SHOWN = 8


def register(app: typer.Typer) -> None:
    console.add_command(
        app,
        "engines",
        engines,
        "dnnc engines ffn.py",
        "dnnc engines ffn.py --target sm_80,sm_120 --explain",
    )


def engines(
    graph: Graph,
    target: Targets = None,
    mode: Modes = DEFAULT_MODES,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Also every knob, the support surface of each engine, every config."
        ),
    ] = False,
) -> None:
    """Shows which engines take a graph, with their best knobs and the predicted time, and for each
    other engine the clauses that refused it, with what would be accepted.

    Then the configs that dnnc compile tries, in their order.  A graph that no config fits is an
    error with every engine's reasons.  Nothing is compiled.
    """
    modes = parse_modes(mode)
    source = files.read_source(graph)
    for place, row in enumerate(targets.of_list(target or source.target or DEFAULT_TARGET)):
        if place:
            console.blank()
        _show(source.graph, row, modes, explain)


def _show(graph: OperationGraph, target: Target, modes: Sequence[str], explain: bool) -> None:
    from ..dialect.fusion import partition
    from ..engines import heuristics

    (whole,) = partition(graph, [graph.live_ops])
    console.heading(f"graph '{graph.name}' on {target.name}, as one fusion")
    console.field("operations", ", ".join(op.label for op in whole.ops))
    _show_fits(whole, target)
    _show_refusals(whole, target)
    if explain:
        _show_engines(whole, target)
    configs = list(heuristics.configs(graph, target, modes))
    if not configs:
        raise heuristics.no_config_error(graph, target)
    _show_configs(configs, len(configs) if explain else _SHOWN, modes)


def _show_fits(fusion: Fusion, target: Target) -> None:
    """A line for each engine that takes the fusion: its best choice."""
    from ..engines import ENGINES, heuristics

    table = console.table("takes it", ">predicted", "bound by", "best knobs", "notes")
    for engine in ENGINES:
        found = heuristics.choices(fusion, target, [engine])
        if found:
            best = found[0]
            table.add_row(
                f"{engine.name} ({engine.index})",
                console.seconds_text(best.prediction.seconds),
                best.prediction.bound,
                console.knobs_text(best.knobs),
                " ".join(best.notes),
            )
    if table.row_count:
        console.blank()
        console.show(table)


def _show_refusals(fusion: Fusion, target: Target) -> None:
    """A line for each clause that an engine refused."""
    from ..engines import heuristics

    table = console.table("refuses it", "clause", "what is wrong", "accepted")
    for refusal in heuristics.refusals(fusion, target):
        name = f"{refusal.engine.name} ({refusal.engine.index})"
        for place, reason in enumerate(refusal.reasons):
            first = name if place == 0 else ""
            table.add_row(first, reason.clause, reason.what, reason.supported)
    if table.row_count:
        console.blank()
        console.show(table)


def _show_engines(fusion: Fusion, target: Target) -> None:
    """Each engine: what it supports, and its knobs for the fusion if it takes it."""
    from ..engines import ENGINES

    for engine in ENGINES:
        console.heading(f"\nengine {engine.name} ({engine.index})")
        for line in engine.support:
            console.field("supports", line)
        if engine.supports(fusion, target):
            continue
        table = console.table("knob", "values", "what it is")
        for knob in engine.knobs(fusion, target):
            table.add_row(knob.name, ", ".join(map(str, sorted(knob.values))), knob.doc)
        console.show(table)


def _show_configs(configs: Sequence[EngineConfig], count: int, modes: Sequence[str]) -> None:
    """The configs in order; of a split one, its fusions and the reason."""
    console.heading(f"\nconfigs in the order of compile (modes {', '.join(modes)})")
    table = console.table(">", "engine", "knobs", ">predicted", "operations")
    for place, config in enumerate(configs[:count]):
        for part, choice in enumerate(config.choices):
            labels = ", ".join(op.label for op in choice.fusion.ops)
            table.add_row(
                str(place) if part == 0 else "",
                choice.engine.name,
                console.knobs_text(choice.knobs),
                console.seconds_text(choice.prediction.seconds),
                labels if len(config.choices) > 1 else "all",
            )
    console.show(table)
    if len(configs) > count:
        console.field("", f"and {len(configs) - count} more (--explain lists them)")
    for reason in dict.fromkeys(c.split_reason for c in configs[:count] if c.split_reason):
        console.field("split", reason)
