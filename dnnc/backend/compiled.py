# pyright: basic
"""Compiling a config, and what its plan needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import keys
from .. import target as targets
from ..options import Options
from ..plan.plan import Plan
from .engines import Config


def _options(config: Config) -> Options:
    """The config as options of a compilation: it alone, for all sizes."""
    partition = config.config.partition_text(config.graph)
    return Options(partition=partition, choices=config.config.choice_text)


def key_of(config: Config) -> str:
    """What the plan of a config depends on, hashed; also for those that outlive this process."""
    text, target = config.graph.canonical_text(), config.target.name
    return keys.hash_of(keys.plan_key(text, [target], _options(config)), keys.installation())


def plan_of(config: Config) -> Plan:
    """The plan of a config, from memory if this process has compiled it."""
    from ..worker import compile_graph

    return compile_graph(config.graph, config.target, _options(config))


def _sizes(plan: Plan, target: str) -> dict[str, int]:
    """The largest of every size, and the limits of the target's usual part."""
    row = targets.of(target)
    known = {"sm_count": row.sm_count, "max_dynamic_smem_bytes": row.smem_block_bytes}
    return {symbol.name: symbol.max for symbol in plan.symbols} | known


def workspace_bytes(plan: Plan) -> int:
    """What every execution of a plan can do with, on a device like the target's usual part."""
    return max(
        plan.expression(variant.workspace_bytes).evaluate(_sizes(plan, program.target))
        for program in plan.programs
        for variant in program.variants
    )


def shared_bytes(plan: Plan) -> int:
    """The most shared memory that a block of a plan has."""
    return max(_shared(plan), default=0)


def _shared(plan: Plan) -> Iterator[int]:
    for program in plan.programs:
        static: dict[str, Any] = {k.name: k.static_smem_bytes for k in program.kernels}
        sizes = _sizes(plan, program.target)
        for variant in program.variants:
            for step in variant.steps:
                if step.launch is not None:
                    dynamic = plan.expression(step.launch.dynamic_smem_bytes).evaluate(sizes)
                    yield static[step.launch.kernel] + dynamic
