"""Values that a shell completes: of targets, engines, knobs, modes and passes.

`dnnc --install-completion` has the shell ask; stages and devices are enumerations, which need
nothing here.  Lists by commas are completed behind their last comma.
"""

from __future__ import annotations

from collections.abc import Iterable

import typer

from .. import target as targets
from ..frontends.enums import heur_mode

# What is inserted, and what it is.
Completions = list[tuple[str, str]]


def target_names(incomplete: str) -> Completions:
    """Architectures, their aliases and `portable`."""
    return [
        *((row.name, row.part) for row in targets.TARGETS),
        ("portable", targets.PORTABLE),
        *targets.ALIASES.items(),
    ]


def target_lists(incomplete: str) -> Completions:
    """Architectures by commas."""
    return _behind_commas(incomplete, target_names(incomplete))


def modes(incomplete: str) -> Completions:
    """Heuristic modes by commas."""
    return _behind_commas(incomplete, [(mode.value, "") for mode in heur_mode])


def passes(incomplete: str) -> Completions:
    """Passes of dnnc by commas."""
    from ..passes import PASSES

    return _behind_commas(incomplete, [(kind.name, "") for kind in PASSES])


def engines(incomplete: str) -> Completions:
    """The engines, with the operations that they are made for."""
    from ..engines import all_engines

    return [(engine.name, ", ".join(engine.families)) for engine in all_engines()]


def knobs(context: typer.Context, incomplete: str) -> Completions:
    """Settings of the knobs that --engine has, or that any engine has, but those that are given."""
    from ..engines import all_engines

    named = context.params.get("engine")
    given = {setting.partition("=")[0] for setting in context.params.get("knob") or ()}
    return [
        (f"{knob.name}={value}", knob.doc)
        for engine in all_engines()
        if named in (None, engine.name)
        for knob in engine.all_knobs
        if knob.name not in given
        for value in sorted(knob.values)
    ]


def _behind_commas(incomplete: str, items: Iterable[tuple[str, str]]) -> Completions:
    """The items that are not in the list yet, each behind what is."""
    head, comma, _ = incomplete.rpartition(",")
    return [(f"{head}{comma}{name}", doc) for name, doc in items if name not in head.split(",")]
