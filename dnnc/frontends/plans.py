# pyright: basic
"""The ranked plans of a pygraph: configs, filters, and what was built of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..dialect.graph import OperationGraph
from ..errors import DnncError, Status
from ..options import DEFAULTS, Options
from ..plan.plan import Plan
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
        from ..engines import heuristics
        from ..engines.inputs import inputs_of
        from ..engines.nearest import no_config_error

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
        if modes and not self.configs:
            raise no_config_error(graph, self.targets[0], self.inputs)

    def config(self, index: int) -> Any:
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

    def build(self, all_of_them: bool) -> None:
        """Builds and selects the first config that fits; all of them if asked.

        Of several that fit, one that spills registers is selected only if others do as well, or
        are predicted to be much slower.
        """
        from ..engines import hints

        self.check_support()
        self._select(all_of_them)
        hints.warned(hints.slow_products(self.config(self.selected_index()), self.targets[0]))

    def _select(self, all_of_them: bool) -> None:
        if self._selected in self.barred:
            self._selected = None
        spilling = _Spilling(self.configs)
        for index in self._left():
            if not all_of_them and spilling.passes_over(index):
                continue
            if not self._fits(self.executable(index)):
                # Alone it may need less than with the configs for other sizes.
                self._built[index] = self._compiled(index, ())
                if not self._fits(self._built[index]):
                    self.barred.add(index)
                    continue
            if not all_of_them and spilling.is_found(index, self._built[index].plan):
                continue
            if self._selected is None:
                self._selected = index
            if not all_of_them:
                return
        if self._selected is None and spilling.least is not None:
            self._selected = self._apart(spilling)
        if self._selected is None:
            raise DnncError(
                Status.NOT_SUPPORTED,
                "every plan needs more workspace or shared memory",
                f"workspace {self.workspace_limit}, shared memory {self._smem_limit}",
            )

    def _apart(self, spilling: _Spilling) -> int:
        """The index of a split whose kernels do not spill, where mode FALLBACK was asked for and
        every config that was built does; else of the one that spills least."""
        from ..engines import heuristics

        assert spilling.least is not None, "one was built"
        if "FALLBACK" not in self._modes:
            return spilling.least
        inputs = replace(self.inputs, spilling=(*self.inputs.spilling, *spilling.texts))
        target = self.targets[0]
        found = heuristics.configs(self.graph, target, ["FALLBACK"], inputs)
        known = {config.name for config in self.configs}
        for config in found:
            if config.name in known or any(condition(config) for condition in self._conditions):
                continue
            self.configs.append(config)
            index = len(self.configs) - 1
            if spilling.passes_over(index) or not self._fits(self.executable(index)):
                continue
            if not spilling.is_found(index, self._built[index].plan):
                return index
        return spilling.least

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
        if index in self.barred:
            raise DnncError(
                Status.BAD_PARAM, f"plan {index} is barred by a filter", f"one of {self._left()}"
            )
        if index not in self._built:
            is_best = index == min(self._left(), default=-1)
            guards = self._guards(self.config(index)) if is_best else ()
            self._built[index] = self._compiled(index, guards)
        return self._built[index]

    def _compiled(self, index: int, guards: tuple[tuple[str, str], ...]) -> Any:
        from ..options import Options
        from ..runtime import ExecutionPlan
        from ..worker import compile_graph

        config = self.config(index)
        options = Options(
            partition=config.partition_text(self.graph),
            choices=config.choice_text,
            guards=guards,
        )
        return ExecutionPlan(compile_graph(self.graph, self.targets, options))

    def _guards(self, config: Any) -> tuple[tuple[str, str], ...]:
        """Of the best plan that is left: it may hold others of them for other sizes."""
        from ..engines import variants

        target, *others = self.targets
        if others:
            return ()  # knobs of one target may not be legal on another

        def is_allowed(other: Any) -> bool:
            return not any(condition(other) for condition in self._conditions)

        found = variants.guarded_configs(
            self.graph, target, config, is_allowed=is_allowed, inputs=self.inputs
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
        from ..dialect.fusion import partition
        from ..engines import heuristics, info
        from ..engines.declined import reasons_against
        from ..engines.nearest import subject

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
        from ..dialect.fusion import partition
        from ..engines import info

        (whole,) = partition(self.graph, [self.graph.live_ops])
        return info.info(info.engine_at(engine_id), whole, self.targets[0], self.inputs)


class _Spilling:
    """Configs that were built and spill registers, and what need not be built because of them.

    least: the index of the one that spills least; None: there is none.  texts: of their choices.
    """

    def __init__(self, configs: Sequence[Any]):
        self._configs = configs
        self.texts: tuple[str, ...] = ()
        self._seconds: float | None = None  # of the first that was built, as predicted
        self._fewest = 0
        self._tries = 0
        self.least: int | None = None

    def passes_over(self, index: int) -> bool:
        """Whether a config would spill as well, or is no better than one that does."""
        from ..engines import spills

        if not self.texts:
            return False
        config = self._configs[index]
        is_slow = config.seconds > spills.MOST_SLOWER * (self._seconds or 0.0)
        is_like = any(spills.is_like(c.engine.name, c.knobs, self.texts) for c in config.choices)
        return is_slow or is_like or self._tries >= spills.MOST_TRIES

    def is_found(self, index: int, plan: Plan) -> bool:
        """Whether a plan spills; it is remembered then."""
        from ..engines import spills

        found = spills.spilling_choices(plan)
        if not found:
            return False
        spilled = spills.spilled_bytes(plan)
        if self.least is None or spilled < self._fewest:
            self.least, self._fewest = index, spilled
        if self._seconds is None:
            self._seconds = self._configs[index].seconds
        self.texts += found
        self._tries += 1
        return True


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
