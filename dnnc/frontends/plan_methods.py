# pyright: basic
"""The methods of a pygraph that list, filter, build and describe its plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from .. import given
from ..dialect.graph import OperationGraph
from ..errors import DnncError, Status
from ..target import Target
from . import enums
from .enums import text_of
from .keywords import explain_keywords


def _bytes(value: int) -> int:
    if value < 0:
        raise DnncError(Status.BAD_PARAM, f"{value!r} bytes", "0 or more")
    return value


def _named(notes: Sequence[Any], kind: Any) -> set[str]:
    """The names of notes; what is none of an enumeration's is an error."""
    known = [note.value for note in kind]
    names = {enums.choice_of(note, known) for note in notes}
    if unknown := sorted(names - set(known)):
        raise DnncError(Status.BAD_PARAM, f"notes {', '.join(unknown)}", ", ".join(known))
    return names


class PlanMethods:
    """Plans by their places in the list that `create_execution_plans` ranks."""

    if TYPE_CHECKING:  # what a pygraph has
        graph: OperationGraph
        _plans: Any

        def _planned(self) -> Any: ...
        def _targets(self) -> tuple[Target, ...]: ...
        def build_operation_graph(self) -> None: ...

    def get_execution_plan_count(self) -> int:
        """How many plans there are; 0 before `create_execution_plans`."""
        return 0 if self._plans is None else len(self._plans.configs)

    def get_plan_name_at_index(self, index: int) -> str:
        """eng4_STAGES=3_TILE_M=128...: the engine's index and its knobs."""
        return self._planned().config(index).name

    def build_plan_at_index(self, index: int) -> None:
        """Compiles one plan and selects it."""
        self._planned().build_at(index)

    def get_engine_and_knobs_at_index(self, index: int) -> tuple[int, dict[str, int]]:
        """(engine index, knobs) of a plan, for `create_execution_plan`."""
        config = self._planned().config(index)
        return config.choices[0].engine.index, config.knobs

    def create_execution_plan(self, engine_id: int, knobs: Mapping[Any, int]) -> None:
        """Appends a plan of an engine with knobs set; the list need not be ranked before."""
        given.verify_knobs(knobs)
        if self._plans is None:
            self._plans = self._unranked()
        self._plans.append(engine_id, {text_of(k): v for k, v in knobs.items()})

    def get_engine_count(self) -> int:
        """One more than the largest engine index; not every index below has an engine."""
        from ..choosing.info import engine_count

        return engine_count()

    def get_engine_info(self, engine_id: int) -> Any:
        """An engine's view of the graph as one fusion: a `dnnc.choosing.info.EngineInfo`."""
        plans = self._unranked() if self._plans is None else self._plans
        return plans.info_of(engine_id)

    def _unranked(self) -> Any:
        """A list of plans with none in it."""
        from .plans import PlanList

        self.build_operation_graph()
        return PlanList(self.graph, self._targets(), ())

    def get_knobs_for_engine(self, engine_id: int) -> list[enums.knob]:
        """The knobs that an engine has for the graph as one fusion; none if it declines that."""
        return [
            enums.knob(
                enums.knob_type(k.name), k.max_value, k.min_value, k.stride, k.values, k.default
            )
            for k in self.get_engine_info(engine_id).knobs
        ]

    def get_behavior_notes(self) -> list[enums.behavior_note]:
        """How the selected plan behaves."""
        return self.get_behavior_notes_for_plan_at_index(self._planned().selected_index())

    def get_behavior_notes_for_plan_at_index(self, index: int) -> list[enums.behavior_note]:
        """How a plan behaves."""
        notes = self._planned().config(index).behavior_notes
        return [enums.behavior_note(note) for note in notes]

    def get_numeric_notes_for_plan_at_index(self, index: int) -> list[enums.numerical_note]:
        """The effects of a plan on numbers beyond plain arithmetic."""
        return [enums.numerical_note(note) for note in self._planned().config(index).notes]

    def deselect_engines(self, names: Sequence[str]) -> Self:
        """Bars plans whose name holds one of the texts."""
        parts = tuple(names)
        return self._bar(lambda config: any(part in config.name for part in parts))

    def deselect_workspace_greater_than(self, bytes_: int) -> Self:
        """Bars plans that need more workspace; known when they are built."""
        self._planned().workspace_limit = _bytes(bytes_)
        return self

    def deselect_shared_mem_greater_than(self, bytes_: int) -> Self:
        """Bars plans whose blocks need more shared memory."""
        self._planned().limit_smem(_bytes(bytes_))
        return self

    def select_behavior_notes(self, notes: Sequence[Any]) -> Self:
        """Keeps plans that have all of the notes."""
        wanted = _named(notes, enums.behavior_note)
        return self._bar(lambda config: not wanted <= set(config.behavior_notes))

    def deselect_behavior_notes(self, notes: Sequence[Any]) -> Self:
        """Bars plans that have one of the notes."""
        barred = _named(notes, enums.behavior_note)
        return self._bar(lambda config: bool(barred & set(config.behavior_notes)))

    def select_numeric_notes(self, notes: Sequence[Any]) -> Self:
        """Keeps plans that have all of the notes."""
        wanted = _named(notes, enums.numerical_note)
        return self._bar(lambda config: not wanted <= set(config.notes))

    def deselect_numeric_notes(self, notes: Sequence[Any]) -> Self:
        """Bars plans that have one of the notes."""
        barred = _named(notes, enums.numerical_note)
        return self._bar(lambda config: bool(barred & set(config.notes)))

    def _bar(self, condition: Callable[[Any], bool]) -> Self:
        """Bars plans by their configs."""
        self._planned().bar(condition)
        return self

    def get_workspace_size(self, sizes: Mapping[str, int] | None = None) -> int:
        """Bytes of workspace of the selected plan; symbols count at their maximum."""
        return self._planned().selected().workspace_size(sizes)

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        return self._planned().executable(index).workspace_size()

    @property
    def plan(self) -> Any:
        """The selected `dnnc.runtime.ExecutionPlan`: bind, execute, serialize it."""
        return self._planned().selected()


explain_keywords(PlanMethods, shown="pygraph")
