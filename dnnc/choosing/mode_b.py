"""Heuristic mode B: what mode A ranks, ranked again, and more knobs behind it.

Where mode A's predictions are nearly equal, B takes what came out better when such choices were
timed, by the factors that engines say (`Engine.doubt`): a prediction counts as 8% longer where a
Hopper product's instruction has 8 columns, and where its blocks form clusters although the time is
that of latencies.  Among what the stored
sweeps timed (`python -m benchmarks judge --mode B`) its first choice reaches 0.971 of the fastest
in geometric mean, A's 0.976, since its predictions tell most of these apart.  A simulation
of the tiles' rounds, with the bytes that each round brings first, reached less and was dropped.

Then come choices that differ in one knob from the best: schedules and stages that A leaves out
since predictions can't tell them apart.  They are there for autotuning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..errata import Errata
from ..target import Target
from .choice import Choice

_BASES = 8  # choices whose neighbours are looked at


def ranked(found: Sequence[Choice], target: Target, errata: Errata) -> list[Choice]:
    """Mode A's choices in the order of mode B, then their neighbours, by prediction.

    found: ranked, without what errata bar.
    """
    first = sorted(found, key=lambda c: (c.rounds_operands, _doubted_seconds(c)))
    known = {choice.text for choice in first}
    more: dict[str, Choice] = {}
    for base in first[:_BASES]:
        for choice in _neighbours(base, target, known | more.keys()):
            if not errata.rule_for(choice.engine.name, choice.fusion, choice.knobs, target):
                more[choice.text] = choice
    return [*first, *sorted(more.values(), key=lambda c: c.prediction.seconds)]


def _doubted_seconds(choice: Choice) -> float:
    prediction = choice.prediction
    return prediction.seconds * choice.engine.doubt(choice.knobs, prediction)


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
