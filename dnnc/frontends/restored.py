"""The plans of a pygraph that was deserialized: the one that its file holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .. import given
from ..errors import DnncError, Status
from ..expr import typical_sizes
from ..plan.plan import FusionRecord, Plan, Program
from ..progress import Report, silent


@dataclass(frozen=True)
class RecordedEngine:
    """An engine as a plan names it."""

    name: str
    index: int


@dataclass(frozen=True)
class RecordedChoice:
    """The engine and knobs of a fusion, as a plan has them."""

    engine: RecordedEngine
    knobs: dict[str, int]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class RecordedConfig:
    """The config of a plan's first program that runs sizes as the ranking assumed them."""

    choices: tuple[RecordedChoice, ...]

    @staticmethod
    def of(plan: Plan) -> RecordedConfig:
        program = plan.programs[0]
        fusions = program.fusions_of(_typical_config(plan, program))
        return RecordedConfig(tuple(map(_choice, fusions)))

    @property
    def name(self) -> str:
        """eng3_TILE_M=128_TILE_N=128; parts of a split are joined by +."""
        return "+".join(
            "_".join([f"eng{c.engine.index}", *(f"{k}={v}" for k, v in sorted(c.knobs.items()))])
            for c in self.choices
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """The numerical notes of all choices."""
        return tuple(dict.fromkeys(note for choice in self.choices for note in choice.notes))

    @property
    def knobs(self) -> dict[str, int]:
        """All knobs, those of a split named fusion.knob."""
        if len(self.choices) == 1:
            return dict(self.choices[0].knobs)
        return {
            f"{i}.{k}": v for i, choice in enumerate(self.choices) for k, v in choice.knobs.items()
        }


def _typical_config(plan: Plan, program: Program) -> int:
    """The config that runs typical sizes; the first where guards depend on the device."""
    sizes = typical_sizes(plan.dims, {})
    for variant in program.variants:
        guard = plan.guard(variant.guard)
        named = {dim.name for _, *sides in guard.comparisons for e in sides for dim in e.dims()}
        if named <= sizes.keys() and guard.holds(sizes):
            return max(0, program.config_of(variant))
    return 0


def _choice(record: FusionRecord) -> RecordedChoice:
    engine = RecordedEngine(record.engine, record.index)
    return RecordedChoice(engine, dict(record.knobs), record.notes)


class RestoredPlans:
    """One plan, built and selected; what has to compile or to rank is an error."""

    def __init__(self, plan: Plan):
        from ..runtime import ExecutionPlan

        self.configs: Sequence[RecordedConfig] = (RecordedConfig.of(plan),)
        self.workspace_limit: int | None = None
        self._executable = ExecutionPlan(plan)
        self._is_barred = False

    def config(self, index: int) -> RecordedConfig:
        given.verify_integer(index, "index")
        if index != 0:
            raise IndexError(f"plan {index}: there is 1")
        return self.configs[0]

    def bar(self, condition: Callable[[Any], bool]) -> None:
        """Takes the plan out if a condition holds."""
        self._is_barred |= condition(self.configs[0])

    def check_support(self) -> None:
        limit = self.workspace_limit
        if limit is not None and self._executable.workspace_size() > limit:
            self._is_barred = True
        self.selected()

    def build(self, all_of_them: bool, report: Report = silent) -> None:
        self.check_support()
        report("the plan is there", 1, 1)

    def build_at(self, index: int) -> None:
        self.executable(index)

    def executable(self, index: int) -> Any:
        self.config(index)
        return self.selected()

    def selected(self) -> Any:
        if self._is_barred:
            raise DnncError(Status.NOT_SUPPORTED, "filters bar the plan", self.configs[0].name)
        return self._executable

    def selected_index(self) -> int:
        return 0

    def __getattr__(self, name: str) -> Any:
        raise DnncError(
            Status.BAD_PARAM_NOT_FINALIZED,
            f"{name} of a graph that was deserialized with its plan",
            "deserialize() of the graph's JSON alone, or a new graph",
        )
