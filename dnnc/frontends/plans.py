# pyright: basic
"""The ranked plans of a pygraph: configs, filters, and what was built of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import given
from ..dialect.graph import OperationGraph
from ..errors import DnncError, Status
from ..options import DEFAULTS, Options
from ..plan.plan import Plan
from ..progress import Parts, Report, StageTimes, silent
from ..target import Target


class PlanList:
    """Engine configs of a graph in rank order.

    configs: all that were found; `barred` holds the indices that filters took out, so that
    indices stay as they are.  Configs are those of the first target; a plan for several targets
    takes the same engine and knobs where they are legal, else the best there.
    modes: heuristic modes; without one the list begins empty, for `append`.
    options: errata and tuning record of the ranking.
    workspace_limit, smem_limit: bytes that a plan may need, of a block for shared memory.
    """

    def __init__(
        self,
        graph: OperationGraph,
        targets: Sequence[Target],
        modes: Sequence[str],
        options: Options = DEFAULTS,
    ):
        from ..choosing import heuristics
        from ..choosing.inputs import inputs_of
        from ..choosing.nearest import no_config_error

        self.graph = graph
        self.targets = tuple(targets)
        self._modes = tuple(modes)
        self.inputs = inputs_of(options)
        ranked = heuristics.configs(graph, self.targets[0], modes, self.inputs) if modes else ()
        self.configs = list(ranked)
        self.barred: set[int] = set()
        self._conditions: list[Callable[[Any], bool]] = []
        self.workspace_limit: int | None = None
        self._smem_limit: int | None = None
        self._built: dict[int, Any] = {}
        self._selected: int | None = None
        self._parts = Parts(silent, 1)  # what tells of the compilations of a `build`
        if modes and not self.configs:
            raise no_config_error(graph, self.targets[0], self.inputs)

    def config(self, index: int) -> Any:
        given.verify_integer(index, "index")
        if not 0 <= index < len(self.configs):
            raise IndexError(f"plan {index}: there are {len(self.configs)}")
        return self.configs[index]

    def bar(self, condition: Callable[[Any], bool]) -> None:
        """Takes out the configs for which a condition holds."""
        self._conditions.append(condition)
        self.barred |= {i for i, config in enumerate(self.configs) if condition(config)}

    def _left(self) -> list[int]:
        return [i for i in range(len(self.configs)) if i not in self.barred]

    def check_support(self) -> None:
        if not self._left():
            raise DnncError(
                Status.NOT_SUPPORTED,
                f"filters bar all {len(self.configs)} plans",
                ", ".join(config.name for config in self.configs),
                f"graph '{self.graph.name}'",
            )

    def build(self, all_of_them: bool, report: Report = silent) -> None:
        """Builds and selects the first config that fits; all of them if asked.

        Of several that fit, one that spills registers is selected only if others do as well, or
        are predicted to be much slower.
        """
        from ..choosing import hints

        self.check_support()
        self._parts = Parts(report, len(self._left()) if all_of_them else 1)
        try:
            self._select(all_of_them)
        finally:
            self._parts = Parts(silent, 1)
        hints.warned(hints.slow_products(self.config(self.selected_index()), self.targets[0]))

    def _select(self, all_of_them: bool) -> None:
        if self._selected in self.barred:
            self._selected = None
        for index in self._left():
            if all_of_them:
                found = index if self._is_built(index) else None
            else:
                found = self._unspilled(index)
            if self._selected is None:
                self._selected = found
            if self._selected is not None and not all_of_them:
                return
        if self._selected is None:
            raise DnncError(
                Status.NOT_SUPPORTED,
                "every plan needs more workspace or shared memory",
                f"workspace {self.workspace_limit}, shared memory {self._smem_limit}",
            )

    def _is_built(self, index: int) -> bool:
        """Whether a config's plan, which is built, is within the limits; else it is barred."""
        if self._fits(self.executable(index)):
            return True
        # Alone it may need less than with the configs for other sizes.
        self._built[index] = self._compiled(self.config(index), ())
        if not self._fits(self._built[index]):
            self.barred.add(index)
            return False
        return True

    def _unspilled(self, index: int) -> int | None:
        """The index of a config whose kernels do not spill, a config to begin with; of the one that
        spills least, where all do.  None: the config's plan is not within the limits."""
        from ..choosing import heuristics
        from ..choosing.unspilled import Door, unspilled

        target = self.targets[0]

        def whole(config: Any, inputs: Any) -> Plan | None:
            place = self._index_of(config)
            if place not in self._built:
                self._built[place] = self._compiled(config, self._guards(config, inputs))
            return self._built[place].plan if self._is_built(place) else None

        door = Door(
            target,
            whole,
            lambda part, config: self._plan("a part", part, config.options(part)),
            lambda inputs: heuristics.configs(self.graph, target, self._modes, inputs),
            self._is_allowed,
        )
        found = unspilled(self.config(index), self.inputs, door)
        return None if found is None else self._index_of(found[0])

    def _index_of(self, config: Any) -> int:
        """The place of a config in the list, at the end of which it is put if it is new."""
        names = [known.name for known in self.configs]
        if config.name not in names:
            self.configs.append(config)
            names.append(config.name)
        return names.index(config.name)

    def _is_allowed(self, config: Any) -> bool:
        barred = {self.configs[index].name for index in self.barred}
        return config.name not in barred and not any(c(config) for c in self._conditions)

    def limit_smem(self, bytes_: int) -> None:
        """Bars plans whose blocks need more shared memory: by their knobs, and when built."""
        self._smem_limit = bytes_
        self.bar(lambda config: not config.fits_smem(bytes_, self.targets[0]))

    def _fits(self, executable: Any) -> bool:
        limit, most = self.workspace_limit, self._smem_limit
        return (limit is None or executable.workspace_size() <= limit) and (
            most is None or _smem_bytes(executable.plan) <= most
        )

    def build_at(self, index: int) -> None:
        self.executable(index)
        self._selected = index

    def executable(self, index: int) -> Any:
        """The execution plan of a config that no filter bars, compiled on first use."""
        given.verify_integer(index, "index")
        if index in self.barred:
            raise DnncError(
                Status.BAD_PARAM, f"plan {index} is barred by a filter", f"one of {self._left()}"
            )
        if index not in self._built:
            config = self.config(index)
            is_best = index == min(self._left(), default=-1)
            guards = self._guards(config, self.inputs) if is_best else ()
            self._built[index] = self._compiled(config, guards)
        return self._built[index]

    def _compiled(self, config: Any, guards: tuple[tuple[str, str], ...]) -> Any:
        from ..runtime import ExecutionPlan

        name = f"plan {self._index_of(config)}"
        return ExecutionPlan(self._plan(name, self.graph, config.options(self.graph, guards)))

    def _plan(self, what: str, graph: OperationGraph, options: Options) -> Plan:
        from ..worker import compile_graph

        names = [target.name for target in self.targets]
        times = StageTimes(names, self._parts.next(what))
        plan = compile_graph(graph, self.targets, options, report=times)
        times.end()
        return plan

    def _guards(self, config: Any, inputs: Any) -> tuple[tuple[str, str], ...]:
        """The guards of the plan that is to be run: it may hold other configs for other sizes."""
        from ..choosing import variants

        target, *others = self.targets
        if others:
            return ()  # knobs of one target may not be legal on another

        def is_allowed(other: Any) -> bool:
            return not any(condition(other) for condition in self._conditions)

        found = variants.guarded_configs(
            self.graph, target, config, is_allowed=is_allowed, inputs=inputs
        )
        return tuple((entry.guard, entry.config.choice_text) for entry in found)

    def selected(self) -> Any:
        return self._built[self.selected_index()]

    def selected_index(self) -> int:
        if self._selected is None:
            raise DnncError(
                Status.BAD_PARAM_NOT_FINALIZED,
                "no plan is built",
                "build_plans() or build() first",
                f"graph '{self.graph.name}'",
            )
        if self._selected in self.barred:
            what = f"plan {self._selected}, which was built, is barred by a filter since then"
            raise DnncError(Status.NOT_SUPPORTED, what, "build_plans() again, for another")
        return self._selected

    def append(self, engine_id: int, knobs: Mapping[str, int]) -> None:
        from ..choosing import heuristics, info
        from ..choosing.declined import reasons_against
        from ..choosing.nearest import subject
        from ..dialect.fusion import partition

        engine = info.engine_at(engine_id)
        (whole,) = partition(self.graph, [self.graph.live_ops])
        reasons = reasons_against(engine, whole, self.targets[0])
        if reasons:
            raise DnncError(
                reasons[0].status,
                f"engine {engine.name}: {'; '.join(map(str, reasons))}",
                made_at=subject(reasons[0], whole).made_at,
            )
        choice = heuristics.with_knobs(engine, whole, knobs, self.targets[0], self.inputs)
        self.configs.append(heuristics.EngineConfig((choice,)))

    def info_of(self, engine_id: int) -> Any:
        """The `EngineInfo` of an engine for the graph as one fusion."""
        from ..choosing import info
        from ..dialect.fusion import partition

        (whole,) = partition(self.graph, [self.graph.live_ops])
        return info.info(info.engine_at(engine_id), whole, self.targets[0], self.inputs)


def _smem_bytes(plan: Plan) -> int:
    """The shared memory of the block that needs most."""
    return max(
        plan.expression(step.launch.dynamic_smem_bytes).bounds()[1]
        + next(k.static_smem_bytes for k in program.kernels if k.name == step.launch.kernel)
        for program in plan.programs
        for variant in program.variants
        for step in variant.steps
        if step.launch is not None
    )
