"""Choices that are asked for: by name, by text, with some knobs or with all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..dialect.fusion import Fusion
from ..engines import all_engines
from ..engines.engine import Engine
from ..errors import DnncError, Status
from ..target import Target
from .choice import Choice, barred_choices, choices, rounds_operands
from .choice_text import choice_of_text, choice_text
from .declined import reasons_against, reasons_without_choice
from .inputs import Inputs, inputs_of


def parsed_choice(
    text: str, fusion: Fusion, target: Target, inputs: Inputs | None = None
) -> Choice:
    """The choice of "matmul_sm80:TILE_M=64"; what the engine does not take is an error."""
    engine, knobs = choice_of_text(text)
    reasons = reasons_against(engine, fusion, target)
    if reasons:
        said = "; ".join(map(str, reasons))
        raise DnncError(reasons[0].status, f"engine {engine.name}: {said}", "", repr(fusion))
    return with_knobs(engine, fusion, knobs, target, inputs)


def with_knobs(
    engine: Engine,
    fusion: Fusion,
    knobs: Mapping[str, int],
    target: Target,
    inputs: Inputs | None = None,
) -> Choice:
    """An engine's best candidate with some knobs set; what is unknown, illegal or barred is an
    error."""
    known = {knob.name: knob for knob in engine.knobs(fusion, target)}
    for name, value in knobs.items():
        if name not in known:
            raise DnncError(
                Status.BAD_PARAM,
                f"engine {engine.name} has no knob {name}",
                ", ".join(known) or "no knobs",
            )
        if value not in known[name].values:
            raise DnncError(
                Status.BAD_PARAM,
                f"knob {name}={value} of engine {engine.name}",
                ", ".join(map(str, sorted(known[name].values))),
            )
    merged = _completed(engine, fusion, knobs, target, inputs)
    illegal = engine.legal(merged, fusion, target)
    if illegal:
        raise DnncError(
            illegal[0].status,
            f"engine {engine.name}: {'; '.join(map(str, illegal))}",
            "",
        )
    rule = (inputs or inputs_of()).errata.rule_for(engine.name, fusion, merged, target)
    if rule is not None:
        said = choice_text(engine.name, merged)
        raise DnncError(Status.NOT_SUPPORTED, f"{said} is barred by {rule}", "another config")
    return Choice(fusion, engine, merged, engine.predict(fusion, merged, target))


def engines_with(knobs: Iterable[str], fusion: Fusion, target: Target) -> list[str]:
    """The names of the engines that take a fusion and have all of these knobs for it."""
    wanted = set(knobs)
    takers = (e for e in all_engines() if not reasons_against(e, fusion, target))
    return [e.name for e in takers if wanted <= {k.name for k in e.knobs(fusion, target)}]


def verify_choice(engine: Engine, fusion: Fusion, knobs: Mapping[str, int], target: Target) -> None:
    """Raises unless the engine takes the fusion and the knobs are all of its own, and legal."""
    reasons = reasons_against(engine, fusion, target)
    known = {knob.name: knob for knob in engine.knobs(fusion, target)} if not reasons else {}
    if not reasons:
        wrong = [f"{n}={v}" for n, v in knobs.items() if n not in known or v not in known[n].values]
        missing = [name for name in known if name not in knobs]
        if wrong or missing:
            what = ", ".join([*wrong, *(f"no {name}" for name in missing)])
            accepted = "; ".join(f"{k.name} of {k.values}" for k in known.values())
            raise DnncError(
                Status.BAD_PARAM, f"knobs of engine {engine.name}: {what}", accepted, "dnn.knobs"
            )
        reasons = engine.legal(knobs, fusion, target)
    if reasons:
        raise DnncError(
            reasons[0].status,
            f"engine {engine.name}: {'; '.join(map(str, reasons))}",
            "",
            "dnn.engine",
        )


def _completed(
    engine: Engine,
    fusion: Fusion,
    knobs: Mapping[str, int],
    target: Target,
    inputs: Inputs | None,
) -> dict[str, int]:
    """The knobs that are asked for, the rest of the candidate that differs least from them.

    Candidates that differ as much stay ranked by prediction; legal results come first.  What
    rounds operands is completed from such candidates only if the knobs asked for say so.
    """
    if all(knob.name in knobs for knob in engine.knobs(fusion, target)):
        return dict(knobs)
    ranked = [choice.knobs for choice in choices(fusion, target, [engine], inputs)]
    if not ranked:
        _raise_if_barred(engine, fusion, target, inputs)
        reasons = reasons_without_choice(engine, fusion, target)
        said = "".join(f"; {reason}" for reason in reasons)
        raise DnncError(
            reasons[0].status if reasons else Status.NOT_SUPPORTED,
            f"engine {engine.name} has no configuration for this graph on {target}{said}",
            "another engine",
            repr(fusion),
        )
    is_rounded = rounds_operands(engine, fusion, {**ranked[0], **knobs})
    alike = [c for c in ranked if rounds_operands(engine, fusion, c) == is_rounded]
    alike.sort(key=lambda c: sum(c.get(name) != value for name, value in knobs.items()))
    merged = [{**candidate, **knobs} for candidate in alike or ranked]
    return next((m for m in merged if not engine.legal(m, fusion, target)), merged[0])


def _raise_if_barred(engine: Engine, fusion: Fusion, target: Target, inputs: Inputs | None) -> None:
    rules = [rule for c, rule in barred_choices(fusion, target, inputs) if c.engine is engine]
    if rules:
        what = f"every config of engine {engine.name} is barred by {rules[0]}"
        raise DnncError(Status.NOT_SUPPORTED, what, "another engine", repr(fusion))
