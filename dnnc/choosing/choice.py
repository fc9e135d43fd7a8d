"""Choices: an engine and its knobs for one fusion; all that there are, ranked by prediction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..dialect.fusion import Fusion
from ..dialect.fusion_key import FusionKey, key_of
from ..engines import all_engines
from ..engines.engine import Engine, Prediction, Reason
from ..engines.views.operand_types import loses_bits_as_tf32
from ..errata import Rule
from ..target import Target
from . import spills
from .choice_text import choice_text
from .declined import reasons_against, reasons_without_choice
from .inputs import Inputs, inputs_of


@dataclass(frozen=True)
class Choice:
    """An engine and its knobs for one fusion."""

    fusion: Fusion
    engine: Engine
    knobs: Mapping[str, int]
    prediction: Prediction

    @property
    def notes(self) -> tuple[str, ...]:
        """Numerical notes."""
        return self.engine.notes(self.fusion, self.knobs)

    @property
    def rounds_operands(self) -> bool:
        """Whether operands get fewer bits than the graph says: see the function."""
        return rounds_operands(self.engine, self.fusion, self.knobs)

    @property
    def text(self) -> str:
        """matmul_sm80:STAGES=3:TILE_M=64, as the option of pass `select-engine`."""
        return choice_text(self.engine.name, self.knobs)


def rounds_operands(engine: Engine, fusion: Fusion, knobs: Mapping[str, int]) -> bool:
    """Whether numbers of f32 are multiplied with fewer bits.

    A computed operand that takes the other one's type, of 16 bits, is nothing to ask for: that type
    is the graph's.
    """
    if "DOWN_CONVERT_INPUTS" not in engine.notes(fusion, knobs):
        return False
    return any(loses_bits_as_tf32(fusion, op) for op in fusion.with_role("anchor"))


@dataclass(frozen=True)
class Refusal:
    """Reasons of an engine that declines a fusion, or has no legal configuration of it."""

    engine: Engine
    fusion: Fusion
    target: Target
    reasons: tuple[Reason, ...]


def refusals(fusion: Fusion, target: Target) -> list[Refusal]:
    """The reasons of every engine that declines the fusion, or has no configuration of it."""
    asked = ((engine, reasons_without_choice(engine, fusion, target)) for engine in all_engines())
    return [Refusal(engine, fusion, target, reasons) for engine, reasons in asked if reasons]


def choices(
    fusion: Fusion,
    target: Target,
    engines: Sequence[Engine] | None = None,
    inputs: Inputs | None = None,
) -> list[Choice]:
    """Every candidate of every engine that takes the fusion, fastest prediction first, without
    those that errata bar, or that are known to spill.  engines: None for all."""
    inputs = inputs or inputs_of()
    errata = inputs.errata
    found = _all_choices(fusion, target, engines)
    if inputs.spilling:
        found = [c for c in found if not spills.is_like(c.engine, c.knobs, inputs.spilling)]
    if errata.rules:
        found = [c for c in found if not errata.rule_for(c.engine.name, fusion, c.knobs, target)]
    return found


def choices_of_each(
    fusions: Iterable[Fusion],
    target: Target,
    engines: Sequence[Engine] | None = None,
    inputs: Inputs | None = None,
) -> list[list[Choice]]:
    """The choices of each fusion; for equal ones engines are asked once."""
    known: dict[FusionKey, list[Choice]] = {}
    found: list[list[Choice]] = []
    for fusion in fusions:
        key = key_of(fusion)
        if key not in known:
            known[key] = choices(fusion, target, engines, inputs)
        found.append([replace(choice, fusion=fusion) for choice in known[key]])
    return found


def _all_choices(
    fusion: Fusion, target: Target, engines: Sequence[Engine] | None = None
) -> list[Choice]:
    found: list[Choice] = []
    for engine in all_engines() if engines is None else engines:
        if reasons_against(engine, fusion, target):
            continue
        for knobs in engine.candidates(fusion, target):
            prediction = engine.predict(fusion, knobs, target)
            found.append(Choice(fusion, engine, dict(knobs), prediction))
    # What rounds operands to fewer bits than the graph says comes after all that does not, so
    # that it is never chosen silently.  Ties stay as listed.
    return sorted(found, key=lambda c: (c.rounds_operands, c.prediction.seconds))


def barred_choices(
    fusion: Fusion, target: Target, inputs: Inputs | None = None
) -> list[tuple[Choice, Rule]]:
    """Candidates that errata bar, each with the rule."""
    errata = (inputs or inputs_of()).errata
    if not errata.rules:
        return []
    found = _all_choices(fusion, target)
    rules = [errata.rule_for(c.engine.name, fusion, c.knobs, target) for c in found]
    return [(choice, rule) for choice, rule in zip(found, rules, strict=True) if rule is not None]
