"""`dnnc engines`: which engines take a graph, and what the others would need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ..api import errata_text, tuning_text
from ..frontends.default_target import single_target
from ..frontends.device_properties import target_rows
from ..target import Target
from ..visible import counted
from . import console, files
from .arguments import (
    DEFAULT_MODES,
    Errata,
    Graph,
    Modes,
    Targets,
    Tuning,
    note_explain,
    parse_modes,
    target_or,
)

if TYPE_CHECKING:
    from ..choosing.heuristics import EngineConfig
    from ..choosing.inputs import Inputs
    from ..dialect.fusion import Fusion
    from ..dialect.graph import OperationGraph
    from ..record import Entry

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
    tuning: Tuning = None,
    errata: Errata = None,
    every: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Also the engines that are made for other operations, and every clause that an "
            "engine declines.",
        ),
    ] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            callback=note_explain,
            help="As --all; also every knob, the support surface of each engine, every config, "
            "what bounds it, and what errata bar.",
        ),
    ] = False,
) -> None:
    """Shows which engines take a graph, with their best knobs and the predicted time, and which
    nearly do, nearest first: the clause that each declines, with what would be accepted.

    Then the configs that dnnc compile tries, in their order.  A graph that no config fits is an
    error with the nearest engine's reason.  Nothing is compiled.
    """
    from ..choosing.inputs import inputs_of
    from ..options import Options

    modes = parse_modes(mode)
    source = files.read_source(graph)
    options = Options(errata=errata_text(errata), tuning=tuning_text(source.graph, tuning))
    named = target_or(target, source.target)
    for place, row in enumerate(target_rows(single_target() if named is None else named)):
        if place:
            console.blank()
        _show(source.graph, row, modes, inputs_of(options), every or explain, explain)


def _show(
    graph: OperationGraph,
    target: Target,
    modes: Sequence[str],
    inputs: Inputs,
    every: bool,
    explain: bool,
) -> None:
    from ..choosing import heuristics, nearest
    from ..dialect.fusion import partition

    (whole,) = partition(graph, [graph.live_ops])
    console.heading(f"graph '{graph.name}' on {target.name}, as one fusion")
    console.field("operations", ", ".join(op.label for op in whole.ops))
    _show_fits(whole, target, inputs)
    _show_refusals(whole, target, every)
    if explain:
        _show_engines(whole, target, inputs)
    _show_barred(whole, target, inputs)
    configs = list(heuristics.configs(graph, target, modes, inputs))
    if not configs:
        raise nearest.no_config_error(graph, target, inputs)
    _show_configs(configs, modes, explain)
    if (entry := configs[0].measured) is not None:
        _show_tuned(graph, entry)


def _show_fits(fusion: Fusion, target: Target, inputs: Inputs) -> None:
    """A line for each engine that takes the fusion: its best choice."""
    from ..choosing import heuristics
    from ..engines import all_engines

    table = console.table("takes it", ">predicted", "bound by", "best knobs", "notes")
    for engine in all_engines():
        found = heuristics.choices(fusion, target, [engine], inputs)
        if found:
            best = found[0]
            table.add_row(
                f"{engine.name} ({engine.index})",
                console.seconds_text(best.prediction.seconds),
                best.prediction.bound,
                console.knobs_text(best.knobs),
                " ".join(best.notes),
            )
    if table.rows:
        console.blank()
        console.show(table)


def _show_refusals(fusion: Fusion, target: Target, every: bool) -> None:
    """A line for each engine of such operations that declines, nearest first.

    every: a line for each clause of all engines.
    """
    from ..choosing import nearest
    from ..choosing.choice import refusals

    found = nearest.nearest_first(refusals(fusion, target))
    near = [refusal for refusal in found if nearest.is_related(refusal)]
    title = "declines it" if every else "nearly takes it"
    table = console.table(title, "clause", "what is wrong", "accepted")
    for refusal in found if every else near:
        first = nearest.decisive_reason(refusal)
        more = "" if every else nearest.more_clauses(refusal)
        name = f"{refusal.engine.name} ({refusal.engine.index})"
        table.add_row(name, first.clause, f"{first.what}{more}", first.supported)
        for reason in refusal.reasons if every else ():
            if reason is not first:
                table.add_row("", reason.clause, reason.what, reason.supported)
    if table.rows:
        console.blank()
        console.show(table)
    if (others := len(found) - len(near)) and not every:
        console.blank()
        said = counted(others, "engine is", "engines are")
        console.field("", f"{said} made for other operations (--all lists them)")


def _show_barred(fusion: Fusion, target: Target, inputs: Inputs) -> None:
    """How many configs each rule bars."""
    from ..choosing.choice import barred_choices

    counts = Counter((c.engine.name, rule) for c, rule in barred_choices(fusion, target, inputs))
    table = console.table("barred", ">configs", "by rule", "why")
    for (engine, rule), count in counts.items():
        table.add_row(engine, str(count), rule.id, rule.why)
    if table.rows:
        console.blank()
        console.show(table)


def _show_engines(fusion: Fusion, target: Target, inputs: Inputs) -> None:
    """Each engine: what it supports, and its notes and knobs for the fusion if it takes it."""
    from ..choosing.info import info
    from ..engines import all_engines

    for engine in all_engines():
        said = info(engine, fusion, target, inputs)
        console.heading(f"\nengine {said.name} ({said.index})")
        for line in said.support:
            console.field("supports", line)
        if said.reasons:
            continue
        console.field("behavior", " ".join(said.behavior_notes))
        if said.possible_notes:
            console.field("numerics", " ".join(said.possible_notes))
        table = console.table("knob", "values", ">default", "what it is")
        for knob in said.knobs:
            values = ", ".join(map(str, knob.values))
            table.add_row(knob.name, values, str(knob.default), knob.doc)
        console.show(table)


def _show_configs(configs: Sequence[EngineConfig], modes: Sequence[str], explain: bool) -> None:
    """The configs in order; of a split one, its fusions and the reason."""
    count = len(configs) if explain else _SHOWN
    console.heading(f"\nconfigs in the order of compile (modes {', '.join(modes)})")
    table = console.table(">", "engine", "knobs", ">predicted", "bound by", "operations")
    for place, config in enumerate(configs[:count]):
        for part, choice in enumerate(config.choices):
            labels = ", ".join(op.label for op in choice.fusion.in_graph.ops)
            table.add_row(
                str(place) if part == 0 else "",
                choice.engine.name,
                console.knobs_text(choice.knobs),
                console.seconds_text(choice.prediction.seconds),
                choice.prediction.bound,
                labels if len(config.choices) > 1 else "all",
            )
    console.show(table)
    if len(configs) > count:
        console.field("", f"and {len(configs) - count} more (--explain lists them)")
    for reason in dict.fromkeys(c.split_reason for c in configs[:count] if c.split_reason):
        console.show_split("", reason)  # the tables above hold the rest


def _show_tuned(graph: OperationGraph, entry: Entry) -> None:
    """Where the first config was timed, by the graph's own names of sizes."""
    from ..record import symbol_names

    names = {plain: name for name, plain in symbol_names(graph).items()}
    sizes = " ".join(f"{names[plain]}={size}" for plain, size in entry.sizes.items())
    taken = f"{console.seconds_text(entry.seconds)} on {entry.device}, {entry.l2} L2"
    at = f" at {sizes}" if sizes else ""
    console.field("tuned", f"config 0 comes from the tuning record: {taken}{at}")
