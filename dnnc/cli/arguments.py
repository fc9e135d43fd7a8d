"""Arguments that several commands read from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from .. import options
from .. import target as targets
from . import completion

# Between the texts of several targets, and the parts of a file that `dnnc opt` splits.
SEPARATOR = "// -----"

DEFAULT_MODES = ",".join(options.DEFAULT_MODES)


# ---- arguments and options of more than one command

Graph = Annotated[
    str,
    typer.Argument(metavar="GRAPH", help="A .py, .json, .mlir or .ptx file; - is stdin (.mlir)."),
]
GraphOrPlan = Annotated[
    str,
    typer.Argument(
        metavar="GRAPH|PLAN", help="A .dnnplan, .py, .json, .mlir or .ptx file; - is stdin (.mlir)."
    ),
]
Targets = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        metavar="NAME,...",
        help="Architectures: sm_80, sm_86, sm_89, sm_90, sm_90a, sm_100, sm_100a, sm_120, sm_120a,"
        " or portable (sm_80,sm_90a); or a device: an alias (h100, a100, blackwell, ...),"
        " the JSON of its properties, or a .json file with it.  [dim]\\[default: what GRAPH"
        " names, else the device that is here,"
        f" else {targets.PORTABLE} for a plan and {targets.SINGLE} for a text][/]",
        show_default=False,
        autocompletion=completion.target_lists,
    ),
]
OneTarget = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        metavar="NAME",
        help="Run a plan's code for this target, or compile a graph for it.",
        autocompletion=completion.target_names,
    ),
]
EngineName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Use this engine for the whole graph (dnnc engines lists those that take it).",
        autocompletion=completion.engines,
    ),
]
Knobs = Annotated[
    list[str] | None,
    typer.Option(
        "--knob",
        "-k",
        metavar="NAME=N",
        help="Set a knob of --engine; repeatable.",
        autocompletion=completion.knobs,
    ),
]
Modes = Annotated[
    str,
    typer.Option(
        "--mode",
        metavar="MODE,...",
        help="Heuristic modes, asked in this order: INSTANT, A, B, FALLBACK.",
        autocompletion=completion.modes,
    ),
]
Tuning = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="A tuning record (dnnc tune): its fastest config comes first."
    ),
]
Errata = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Rules that exclude configs.  [dim]\\[default: what DNNC_ERRATA_FILE names][/]",
        show_default=False,
    ),
]
Sizes = Annotated[
    list[str] | None,
    typer.Option("--size", "-s", metavar="NAME=N", help="A symbolic size's value; repeatable."),
]


def note_explain(context: typer.Context, value: bool) -> bool:
    """Keeps the option for whoever prints the error that ends the command."""
    context.meta[EXPLAIN] = value
    return value


# The key of the option's value in a command's context; commands without the option have none.
EXPLAIN = "dnnc.explain"

Explain = Annotated[
    bool,
    typer.Option(
        "--explain",
        callback=note_explain,
        help="If no engine takes the graph, say why for every engine, not for the nearest alone.",
    ),
]
PlanName = Annotated[
    str | None,
    typer.Option("--plan", metavar="NAME", help="Which plan of a bundle."),
]


# ---- their values


def target_or(target: str | None, *others: Any) -> Any:
    """The text of --target, an empty one too; else the first other one that there is."""
    return next((each for each in (target, *others) if each is not None), None)


class Stage(StrEnum):
    """The stages, as --emit takes them, in order."""

    graph = "graph"
    fused = "fused"
    linalg = "linalg"
    kernel = "kernel"
    nvvm = "nvvm"
    ptx = "ptx"
    cubin = "cubin"
    plan = "plan"
    c = "c"


class Mode(StrEnum):
    """Heuristic modes."""

    INSTANT = "INSTANT"
    A = "A"
    B = "B"
    FALLBACK = "FALLBACK"


ORDER = tuple(Stage)


def parse_settings(settings: Sequence[str], option: str) -> dict[str, int]:
    """NAME=N of an option that may be repeated, each name once."""
    found: dict[str, int] = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        if not name or not value.removeprefix("-").isdecimal() or name in found:
            raise typer.BadParameter(f"{setting!r}: NAME=N, each NAME once", param_hint=option)
        found[name] = int(value)
    return found


def parse_modes(text: str) -> tuple[str, ...]:
    """A,FALLBACK"""
    modes = tuple(part.strip().upper() for part in text.split(","))
    unknown = [mode for mode in modes if mode not in Mode.__members__]
    if unknown:
        raise typer.BadParameter(
            f"{unknown[0]!r} is not one of {', '.join(Mode)}", param_hint="--mode"
        )
    return modes
