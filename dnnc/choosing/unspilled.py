"""Compiles a graph so that its kernels do not spill registers: one policy for all who compile.

Which choice spills is known to the assembler alone, so it is found by compiling.  A fusion that
spills gets its next choice, which is tried on that fusion alone; the others stay as they are.  The
graph is split another way only where a fusion has no choice left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from .. import log
from ..dialect.fusion import partition
from ..dialect.fusion_graph import graph_of
from ..dialect.fusion_key import key_of
from ..dialect.graph import OperationGraph
from ..plan.plan import Plan
from ..target import Target
from . import spills
from .choice import Choice, choices
from .heuristics import EngineConfig
from .inputs import Inputs

_log = log.logger(__name__)


@dataclass(frozen=True)
class Door:
    """How someone compiles a graph for a target.

    whole: gives the plan of a config of the graph, by what is known to spill; None: it is not to be
    had.  alone: gives the plan of another graph with a config.  others: gives the configs of the
    graph, best first, by what is known to spill.  is_allowed: whether a config, of the graph or of
    a part of it, may be compiled.
    """

    target: Target
    whole: Callable[[EngineConfig, Inputs], Plan | None]
    alone: Callable[[OperationGraph, EngineConfig], Plan]
    others: Callable[[Inputs], Iterable[EngineConfig]]
    is_allowed: Callable[[EngineConfig], bool] = lambda config: True


def unspilled(
    first: EngineConfig, inputs: Inputs, door: Door, tries: int = spills.MOST_TRIES
) -> tuple[EngineConfig, Plan] | None:
    """A config whose kernels do not spill, and its plan: the first, or the next that is not much
    slower.  Where all that were tried spill, the one that spills least.

    None: the first is not to be had.
    """
    plan = door.whole(first, inputs)
    if plan is None:
        return None
    config, best = first, (first, plan)
    for _ in range(tries):
        if not (spilling := spills.spilling_choices(plan)):
            break
        _log.info("%s spills registers: %s", plan.summary, ", ".join(spilling))
        inputs = _with(inputs, *spilling)
        following, inputs = _rechosen(config, plan, inputs, door)
        if following is None:
            following = next(filter(door.is_allowed, door.others(inputs)), None)
        if following is None or following.seconds > spills.MOST_SLOWER * first.seconds:
            break
        if (made := door.whole(following, inputs)) is None:
            break
        config, plan = following, made
        best = min(best, (config, plan), key=lambda tried: spills.spilled_bytes(tried[1]))
    return best


def _with(inputs: Inputs, *spilling: str) -> Inputs:
    return replace(inputs, spilling=(*inputs.spilling, *spilling))


def _rechosen(
    config: EngineConfig, plan: Plan, inputs: Inputs, door: Door
) -> tuple[EngineConfig | None, Inputs]:
    """The config with another choice for each fusion of the plan that spills, and its equals; and
    the inputs with what was found to spill on the way.

    None: the graph is one fusion, or one has no choice that is not much slower.
    """
    if len(config.choices) == 1:
        return None, inputs
    places = {place for place, _ in spills.spilling_fusions(plan)}
    texts = set(spills.spilling_choices(plan))
    keys = {key_of(config.choices[place].fusion) for place in places}
    others = {}
    for choice in config.choices:
        key = key_of(choice.fusion)
        if choice.text not in texts or key not in keys or key in others:
            continue
        others[key], inputs = _next(choice, inputs, door)
        if others[key] is None:
            return None, inputs
    made = (
        replace(other, fusion=choice.fusion)
        if choice.text in texts and (other := others.get(key_of(choice.fusion)))
        else choice
        for choice in config.choices
    )
    return replace(config, choices=tuple(made)), inputs


def _next(choice: Choice, inputs: Inputs, door: Door) -> tuple[Choice | None, Inputs]:
    """The next choice of a fusion, which does not spill where the fusion is compiled alone."""
    for _ in range(spills.MOST_TRIES):
        found = choices(choice.fusion, door.target, inputs=inputs)
        ranked = [other for other in found if door.is_allowed(EngineConfig((other,)))]
        most = spills.MOST_SLOWER * choice.prediction.seconds
        if not ranked or ranked[0].prediction.seconds > most:
            break
        if ranked[0].rounds_operands and not choice.rounds_operands:
            break
        if not _spills_alone(ranked[0], door):
            return ranked[0], inputs
        inputs = _with(inputs, ranked[0].text)
    return None, inputs


def _spills_alone(choice: Choice, door: Door) -> bool:
    """False, too, of a fusion that can't be compiled alone: compiling the graph will tell."""
    graph = graph_of(choice.fusion)
    if graph is None:
        return False
    (fusion,) = partition(graph, [graph.live_ops])
    plan = door.alone(graph, EngineConfig((replace(choice, fusion=fusion),)))
    return bool(spills.spilling_choices(plan))
