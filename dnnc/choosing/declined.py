"""Why an engine declines a fusion: what none of them takes, its own support surface, and, where it
takes the fusion, that no configuration is legal."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

from ..dialect.fusion import Fusion, remembered
from ..dialect.orders import unknown_order
from ..engines.engine import KNOBS_OF_ANY, Engine, Knobs, Reason
from ..errors import Status
from ..target import Target
from .choice_text import choice_text
from .priors import prior_reasons

MOST_OPS = 256  # of a fusion
MOST_REDUCTIONS = 32  # of a fusion: a thread has a running total of each in a register
MOST_TENSORS = 384  # that a fusion reads and writes: 8 of 4096 bytes of parameters each
_CHANGED = 3  # knobs that are tried together, beside the first values of the others
_TOLD = 3  # clauses that rule out most


def takes(engine: Engine, fusion: Fusion, target: Target) -> bool:
    return not reasons_against(engine, fusion, target)


def reasons_against(engine: Engine, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
    """Every clause that the fusion fails; empty: the engine takes it."""
    return (
        size_reasons(fusion)
        or _reordering_reasons(fusion)
        or prior_reasons(engine, fusion)
        or engine.supports(fusion, target)
    )


def reasons_without_choice(engine: Engine, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
    """The reasons of an engine, and, if it takes the fusion, which clauses rule out its
    configurations, the one that rules out most first; empty: it has some."""
    reasons = reasons_against(engine, fusion, target)
    if reasons or engine.candidates(fusion, target):
        return reasons
    counts, first = Counter[tuple[str, str]](), dict[tuple[str, str], Reason]()
    tries = 0
    for knobs in _tries(engine, fusion, target):
        illegal = engine.legal(knobs, fusion, target)
        if any(reason.clause == KNOBS_OF_ANY for reason in illegal):
            continue
        tries += 1
        if not illegal:
            supported = f"a choice of all its knobs, as {choice_text(engine.name, knobs)}"
            what = f"none of {engine.name} is worth a look"
            return (Reason(Status.NOT_SUPPORTED, "configurations", what, supported),)
        for reason in illegal:
            clause = (reason.clause, reason.supported)
            counts[clause] += 1
            first.setdefault(clause, reason)
    return tuple(
        Reason(
            first[clause].status,
            "configurations",
            f"{count} of {tries} fail {clause[0]}: {first[clause].what}",
            clause[1],
        )
        for clause, count in counts.most_common(_TOLD)
    )


def _tries(engine: Engine, fusion: Fusion, target: Target) -> Iterator[Knobs]:
    """Knobs of which some differ from their first values, which are the plain ones."""
    known = engine.knobs(fusion, target)
    plain = {knob.name: knob.values[0] for knob in known}
    for count in range(min(_CHANGED, len(known)) + 1):
        for changed in itertools.combinations(known, count):
            for values in itertools.product(*(knob.values[1:] for knob in changed)):
                yield plain | {knob.name: v for knob, v in zip(changed, values, strict=True)}


@remembered
def size_reasons(fusion: Fusion) -> tuple[Reason, ...]:
    """The assembler takes more than twice the time for a kernel of twice the operations, and a
    kernel's parameters have an end."""
    counts = (
        (len(fusion.ops), MOST_OPS, "operations"),
        (len(fusion.with_role("reduction")), MOST_REDUCTIONS, "reductions"),
        (len(fusion.inputs) + len(fusion.outputs), MOST_TENSORS, "tensors"),
    )
    return tuple(
        Reason(Status.NOT_SUPPORTED_GRAPH_PATTERN, "size", f"{count} {what}", f"up to {most}")
        for count, most, what in counts
        if count > most
    )


@remembered
def _reordering_reasons(fusion: Fusion) -> tuple[Reason, ...]:
    """No engine knows cuDNN's other orders of elements."""
    found = map(unknown_order, (*fusion.inputs, *fusion.outputs))
    return tuple(
        Reason(Status.NOT_SUPPORTED_LAYOUT, "reordering", *problem) for problem in found if problem
    )
