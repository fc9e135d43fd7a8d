"""Heuristic mode B: what mode A ranks, ranked again, and more knobs behind it.

Where mode A's predictions are nearly equal, B takes what came out better when such choices were
timed: a prediction counts as 8% longer where a Hopper product's instruction has 8 columns, and
where its blocks form clusters although the time is that of latencies.  Among what the stored
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

_DOUBT = 1.08
_TIMED = ("matmul_sm90", "conv_product_sm90")  # the first, and what has its kernels
_BASES = 8  # choices whose neighbours are looked at


def ranked(found: Sequence[Choice], target: Target, errata: Errata) -> list[Choice]:
    """Mode A's choices in the order of mode B, then their neighbours, by prediction.

    found: ranked, without what errata bar.
    """
    first = sorted(found, key=lambda c: (c.rounds_operands, c.prediction.seconds * doubt(c)))
    known = {choice.text for choice in first}
    more: dict[str, Choice] = {}
    for base in first[:_BASES]:
        for choice in _neighbours(base, target, known | more.keys()):
            if not errata.rule_for(choice.engine.name, choice.fusion, choice.knobs, target):
                more[choice.text] = choice
    return [*first, *sorted(more.values(), key=lambda c: c.prediction.seconds)]


def doubt(choice: Choice) -> float:
    """The factor of a prediction before it is compared."""
    if choice.engine.name not in _TIMED:
        return 1.0
    knobs = choice.knobs
    columns = knobs["TILE_M"] if knobs["SWAP_AB"] else knobs["TILE_N"]
    times = _DOUBT if columns == 8 else 1.0
    if choice.prediction.bound == "latency" and knobs["TILE_CGA_M"] * knobs["TILE_CGA_N"] > 1:
        times *= _DOUBT
    return times


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
