"""Heuristic mode B: what mode A ranks, in its order, and more knobs behind it.

Behind come choices that differ in one knob from the best: orders of tiles and stages that A leaves
out since predictions can't tell them apart.  They are there for autotuning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..errata import Errata
from ..target import Target
from .choice import Choice

_BASES = 8  # choices whose neighbours are looked at


def with_neighbours(found: Sequence[Choice], target: Target, errata: Errata) -> list[Choice]:
    """Mode A's choices, then those that differ from the first in one knob, by prediction.

    found: ranked, without what errata bar.
    """
    known = {choice.text for choice in found}
    more: dict[str, Choice] = {}
    for base in found[:_BASES]:
        for choice in _neighbours(base, target, known | more.keys()):
            if not errata.rule_for(choice.engine.name, choice.fusion, choice.knobs, target):
                more[choice.text] = choice
    return [*found, *sorted(more.values(), key=lambda c: c.prediction.seconds)]


def _neighbours(base: Choice, target: Target, known: set[str]) -> Iterator[Choice]:
    """Legal choices that differ in one knob and round nothing that the base does not."""
    engine, fusion = base.engine, base.fusion
    for knob in engine.knobs(fusion, target):
        for value in knob.values:
            knobs = {**base.knobs, knob.name: value}
            made = Choice(fusion, engine, knobs, base.prediction)
            if made.text in known or engine.legal(knobs, fusion, target):
                continue
            if set(made.notes) <= set(base.notes):
                yield Choice(fusion, engine, knobs, engine.predict(fusion, knobs, target))
