# pyright: basic
"""Compiling a config, and what its plan needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import keys
from .. import target as targets
from ..expr import most_of
from ..plan.plan import Plan
from .engines import CHOSEN, Config, default_inputs, others


def key_of(config: Config) -> str:
    """A hash of all that the plan of a config depends on; it holds for later processes too."""
    text, target = config.graph.canonical_text(), config.target.name
    options = config.config.options(config.graph)
    return keys.hash_of(keys.plan_key(text, [target], options), keys.installation())


def plan_of(config: Config) -> Plan:
    """The plan of a config, from memory if this process has compiled it.

    An engine's config is compiled as it is.  In one that the heuristics choose, fusions whose
    kernels spill registers get other choices.
    """
    from ..choosing.unspilled import Door, unspilled
    from ..worker import compile_graph

    graph, target = config.graph, config.target
    if config.index != CHOSEN:
        return compile_graph(graph, target, config.config.options(graph))
    door = Door(
        target,
        lambda tried, inputs: compile_graph(graph, target, tried.options(graph)),
        lambda part, tried: compile_graph(part, target, tried.options(part)),
        lambda inputs: others(graph, target, inputs),
    )
    found = unspilled(config.config, default_inputs(), door)
    assert found is not None, "it is to be had"
    return found[1]


def _limits(target: str) -> dict[str, int]:
    """The limits of the target's usual part."""
    row = targets.of(target)
    return {"sm_count": row.sm_count, "max_dynamic_smem_bytes": row.limits.smem_block_bytes}


def workspace_bytes(plan: Plan) -> int:
    """A workspace that is enough for every execution of a plan, on the target's usual part."""
    return max(
        most_of(plan.expression(variant.workspace_bytes), plan.dims, _limits(program.target))
        for program in plan.programs
        for variant in program.variants
    )


def shared_bytes(plan: Plan) -> int:
    """The most shared memory that a block of a plan has."""
    return max(_shared(plan), default=0)


def _shared(plan: Plan) -> Iterator[int]:
    for program in plan.programs:
        static: dict[str, Any] = {k.name: k.static_smem_bytes for k in program.kernels}
        limits = _limits(program.target)
        for variant in program.variants:
            for step in variant.steps:
                if step.launch is not None:
                    dynamic = plan.expression(step.launch.dynamic_smem_bytes)
                    yield static[step.launch.kernel] + most_of(dynamic, plan.dims, limits)
