"""The problem that `dnnc run` and `dnnc bench` work on: a graph, its plan, its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .. import target as targets
from ..api import errata_text
from ..dialect.graph import OperationGraph
from ..errors import DnncError, Status
from ..frontends.default_target import single_target
from ..frontends.device_properties import target_rows
from ..plan.plan import Plan
from . import console, files
from .arguments import target_or
from .files import Source


@dataclass(frozen=True)
class Problem:
    """A GRAPH or PLAN argument, read; exactly one of plan and source is there."""

    graph: OperationGraph
    plan: Plan | None = None
    source: Source | None = None

    def plan_for(self, target: str | None) -> Plan:
        """The plan: its part for a target, or compiled for it.

        A graph that names no target when none is asked for is compiled for the device that is
        here, else for sm_90a.
        """
        if self.plan is not None:
            return replace(self.plan, programs=files.programs_of(self.plan, target))
        from .compile import compiled

        assert self.source is not None
        named = target_or(target, self.source.target)
        rows = target_rows(single_target() if named is None else named)
        choice = {"errata": errata_text(), "sm_count": targets.other_sm_count(rows)}
        with console.compiling([row.name for row in rows]) as times:
            plan = compiled(self.source, rows, choice, times)
        console.show_hints(plan)
        return plan


def read_problem(path: str, name: str | None) -> Problem:
    """A graph file, or a plan; name: which plan of a bundle."""
    if files.suffix_of(path, (files.PLAN_SUFFIX, *files.GRAPH_SUFFIXES)) == files.PLAN_SUFFIX:
        from ..dialect.json_form import from_json

        plan = files.read_plan(path, name)
        return Problem(from_json(plan.graph), plan=plan)
    if name is not None:
        raise DnncError(Status.BAD_PARAM, f"--plan {name} of a graph", files.PLAN_SUFFIX, path)
    source = files.read_source(path)
    return Problem(source.graph, source=source)


def inputs_of(
    graph: OperationGraph,
    arguments: Sequence[str],
    sizes: Mapping[str, int],
    *,
    seed: int,
    is_random: bool,
) -> tuple[dict[int, Any], dict[str, int]]:
    """(uid -> array, symbol -> value): the arrays given, others made up if asked."""
    from . import arrays

    inputs = arrays.read_inputs(graph, arguments)
    found = arrays.sizes_of(graph, inputs, sizes)
    if is_random:
        inputs = arrays.random_inputs(graph, found, seed, inputs)
    arrays.verify_inputs(graph, inputs, found)
    return inputs, found
