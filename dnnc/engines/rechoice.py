"""Other choices for the fusions of a config whose kernels spill registers; the rest stays."""

from __future__ import annotations

from dataclasses import replace

from ..dialect.fusion_key import key_of
from ..plan.plan import Plan
from ..target import Target
from . import spills
from .choice import choices_of_each
from .heuristics import EngineConfig
from .inputs import Inputs


def rechosen(
    config: EngineConfig, plan: Plan, target: Target, inputs: Inputs
) -> EngineConfig | None:
    """The config with the next choice for each fusion of the plan that spills, and its equals.

    inputs: with what spills.  None: such a fusion has no choice that is not much slower, so that
    the graph had better be split another way.
    """
    places = {place for place, _ in spills.spilling_fusions(plan)}
    texts = set(spills.spilling_choices(plan))
    keys = {key_of(config.choices[place].fusion) for place in places}
    wanted = [c for c in config.choices if c.text in texts and key_of(c.fusion) in keys]
    found = choices_of_each((choice.fusion for choice in wanted), target, inputs=inputs)
    others = {}
    for choice, ranked in zip(wanted, found, strict=True):
        most = spills.MOST_SLOWER * choice.prediction.seconds
        if not ranked or ranked[0].prediction.seconds > most:
            return None
        if ranked[0].rounds_operands and not choice.rounds_operands:
            return None
        others[choice.fusion] = ranked[0]
    made = tuple(others.get(choice.fusion, choice) for choice in config.choices)
    return replace(config, choices=made)
