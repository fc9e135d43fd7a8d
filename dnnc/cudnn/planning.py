# pyright: basic
"""The steps of a recorded graph from `validate` to `build_plans`, and its ranked plans."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from ..dialect.graph import OperationGraph
from ..errors import DnncError, DnncRuntimeError, Status
from ..frontends import pygraph as own
from ..frontends.enums import knob as own_knob
from ..frontends.enums import text_of
from . import enums, moments
from .handles import Handle, own_of
from .lowering import Layouts, Lowered, Unserved
from .moments import Refusal
from .recording import Recording
from .tensors import frozen

_DEFAULT_MODES = (enums.heur_mode.A, enums.heur_mode.FALLBACK)


@dataclass(frozen=True)
class PlanConfig:
    """A plan of the ranked list: the index of its first engine, and its knobs.

    cpp_index: its index.  knobs: by `knob_type`; none for a plan of several kernels, which
    `create_execution_plan` can't make.
    """

    engine_id: int
    knobs: Mapping[Any, int]
    cpp_index: int


@dataclass(frozen=True)
class knob:
    """A knob of an engine: an integer range."""

    type: Any
    max_value: int
    min_value: int
    stride: int


class Planning(Recording):
    """A recording that is validated, planned and built.

    options: of the `dnnc.pygraph` that it becomes.  handle: where its plans run.
    """

    def __init__(self, types: Sequence[Any], handle: Handle | None, options: Mapping[str, Any]):
        super().__init__(*types)
        self._handle = handle
        self._options = dict(options)
        self._lowered: Lowered | None = None
        self._refusal: Refusal | None = None
        self._inferred_early = False
        self._is_planned = False
        self._is_built = False
        self._pinned: int | None = None
        self._modes: tuple[Any, ...] = _DEFAULT_MODES
        self._filters: list[tuple[str, Any]] = []

    # ---- recording

    def require_mutable(self, what: str) -> None:
        if self._is_planned:
            raise frozen(what)
        if self._inferred_early or self._lowered is not None:
            self._inferred_early, self._lowered, self._refusal = False, None, None
            self._forget_inferred()

    def _forget_inferred(self) -> None:
        for tensor in self._all:
            if not tensor.is_result:
                continue
            if not tensor.dim_assigned:
                tensor.dim = []
            if not tensor.stride_assigned:
                tensor.stride = []
            if not tensor.type_assigned:
                tensor.data_type = None

    def infer_early(self) -> None:
        if self._inferred_early or self._lowered is not None or self._is_planned:
            return
        self._inferred_early = True
        lowered = self._new_lowered()
        try:
            lowered.add(self._recorded)
        except (DnncError, TypeError, ValueError):  # `validate` says what is wrong
            pass
        lowered.read_back()

    def _new_lowered(self, layouts: Layouts | None = None) -> Lowered:
        context = self.context
        made = own.pygraph(
            io_data_type=enums.own_type(context.io_data_type),
            intermediate_data_type=enums.own_type(context.intermediate_data_type),
            compute_data_type=enums.own_type(context.compute_data_type),
            handle=None if self._handle is None else own_of(self._handle),
            **self._options,
        )
        return Lowered(made, layouts)

    # ---- planning

    def validate(self) -> None:
        """Infers and checks the whole graph; ValueError or cudnnGraphNotSupportedError.

        What cudnn-frontend refuses later is kept for that step.
        """
        if self._lowered is None:
            lowered = self._new_lowered()
            self._refusal = self._refused(lowered)
            if self._refusal is not None:
                self._set_types()
            self._lowered = lowered
        self._raise_at(moments.VALIDATE)

    def _refused(self, lowered: Lowered) -> Refusal | None:
        """Why the graph is refused, and when; None if it is valid."""
        try:
            if not self._recorded:
                what = "a graph without operations"
                error = DnncError(Status.BAD_PARAM, what, "one at least")
                return Refusal(moments.BUILD, moments.as_runtime(error))
            lowered.add(self._recorded)
            lowered.read_back()
            if not any(not t.is_virtual for node in self._recorded for t in node.outputs.values()):
                return moments.unsupported("every result is virtual", "set_output(True)", "graph")
            lowered.graph.validate()
            lowered.read_back(is_packed_now=True)
        except Unserved as error:
            return Refusal(error.step, error)
        except DnncError as error:
            return moments.refusal(error)
        return None

    def _set_types(self) -> None:
        """Gives results the graph's types where a refusal left them without one."""
        for node in self._recorded:
            for tensor in node.outputs.values():
                context, is_virtual = self.context, tensor.is_virtual
                chosen = context.intermediate_data_type if is_virtual else context.io_data_type
                tensor.data_type = tensor.data_type or chosen

    def _raise_at(self, *steps: str) -> None:
        if self._refusal is not None and self._refusal.step in steps:
            raise self._refusal.error

    def build_operation_graph(self) -> None:
        """Validates and fixes the graph."""
        self.validate()
        self._raise_at(moments.BUILD)
        if self._refusal is None:
            self._own.build_operation_graph()

    @property
    def _own(self) -> own.pygraph:
        """The `dnnc.pygraph` of a valid graph."""
        self.validate()
        self._raise_at(moments.BUILD, moments.PLAN)
        assert self._lowered is not None, "validate makes it"
        return self._lowered.graph

    @property
    def graph(self) -> OperationGraph:
        """The graph as dnnc's own functions take it: `dnnc.compile`, `dnnc.reference`."""
        return self._own.graph

    @property
    def named_target(self) -> Any:
        """The target that the graph names, as `dnnc.compile` takes it."""
        return self._own.named_target

    def create_execution_plans(self, heuristics: Sequence[Any] | None = None) -> None:
        """Ranks the ways to run the graph, in mode order; none is an error with all reasons."""
        modes = _DEFAULT_MODES if heuristics is None else tuple(heuristics)
        names = enums.own_modes(modes)
        if self._is_planned:
            raise frozen("plan again")
        self.build_operation_graph()
        self._own.create_execution_plans(names)
        self._is_planned, self._modes = True, modes
        for method, argument in self._filters:
            getattr(self._own, method)(argument)

    def check_support(self) -> None:
        """At least one plan is left after the filters; else cudnnGraphNotSupportedError."""
        self._own.check_support()

    def build_plans(
        self, policy: Any = enums.build_plan_policy.HEURISTICS_CHOICE, ctx: Any = None
    ) -> None:
        """Compiles the first plan that builds, or all of them; one that was selected, if it can."""
        chosen = enums.member_of(enums.build_plan_policy, policy)
        if chosen is enums.build_plan_policy.ALL:
            self._own.build_plans(chosen.name)
        elif self._pinned is None:
            self._own.build_plans(chosen.name)
        if self._pinned is not None:
            self._own.build_plan_at_index(self._pinned)
        self._is_built = True

    def build(self, heuristics: Sequence[Any] | None = None, ctx: Any = None) -> None:
        """Everything from `validate` to `build_plans`, as far as it is not done."""
        if not self._is_planned:
            self.validate()
            self.build_operation_graph()
            self.create_execution_plans(heuristics)
        self.check_support()
        self.build_plans()

    # ---- plans

    @property
    def plans(self) -> list[PlanConfig]:
        """The ranked plans; none before `create_execution_plans`."""
        return [self._config(i) for i in range(self.get_execution_plan_count())]

    def backend_plan_entries(self) -> list[PlanConfig]:
        """The ranked plans, all of which are the compiler's."""
        return self.plans

    @property
    def selected_engine(self) -> None:
        """None: no engine is one of cudnn-frontend's own."""
        return None

    def _config(self, index: int) -> PlanConfig:
        engine_id, knobs = self._own.get_engine_and_knobs_at_index(index)
        is_whole = all(name in enums.knob_type.__members__ for name in knobs)
        named = {enums.knob_type[name]: value for name, value in knobs.items()} if is_whole else {}
        return PlanConfig(engine_id, named, index)

    def get_execution_plan_count(self) -> int:
        """How many plans there are; 0 before `create_execution_plans`."""
        return self._own.get_execution_plan_count() if self._is_planned else 0

    def _at(self, index: int) -> int:
        """The index of a plan; an IndexError where there is none."""
        count = self.get_execution_plan_count()
        if not 0 <= operator.index(index) < count:
            raise IndexError(f"plan {index}: there are {count}")
        return operator.index(index)

    def get_plan_name_at_index(self, index: int) -> str:
        """eng4_STAGES=3_TILE_M=128...: the engine's index and its knobs."""
        return self._own.get_plan_name_at_index(self._at(index))

    def get_engine_and_knobs_at_index(self, index: int) -> tuple[int, dict[Any, int]]:
        """(engine, knobs) of a plan, for `create_execution_plan`."""
        found = self._config(self._at(index))
        return found.engine_id, dict(found.knobs)

    def select_plan(self, index: int) -> Self:
        """Has `build_plans` build this plan, or fail."""
        if not self._is_planned:
            what = "select_plan() of a graph without plans"
            wanted = "create_execution_plans() first"
            raise DnncRuntimeError(Status.BAD_PARAM_NOT_FINALIZED, what, wanted)
        self._pinned = self._at(index)
        return self

    def build_plan_at_index(self, index: int) -> Self:
        """Compiles one plan and selects it."""
        self._own.build_plan_at_index(self._at(index))
        self._is_built = True
        return self

    def create_execution_plan(self, engine_id: int, knobs: Mapping[Any, int] | None = None) -> Self:
        """Appends a plan of an engine with knobs set; an unknown engine is a RuntimeError."""
        self.build_operation_graph()
        self._require_engine(engine_id)
        named = {text_of_knob(name): value for name, value in (knobs or {}).items()}
        self._own.create_execution_plan(engine_id, named)
        self._is_planned = True
        return self

    def get_engine_count(self) -> int:
        """One more than the largest engine index; not every index below has an engine."""
        return self._own.get_engine_count()

    def get_knobs_for_engine(self, engine_id: int) -> list[knob]:
        """The knobs of an engine for the graph; an unknown engine is a RuntimeError."""
        self.build_operation_graph()
        self._require_engine(engine_id)
        return [_knob(found) for found in self._own.get_knobs_for_engine(engine_id)]

    def _require_engine(self, engine_id: int) -> None:
        count = self.get_engine_count()
        if not 0 <= operator.index(engine_id) < count:
            what = f"engine {engine_id}"
            raise DnncRuntimeError(Status.BAD_PARAM_OUT_OF_BOUND, what, f"0 to {count - 1}")

    def get_behavior_notes(self) -> list[Any]:
        """How the selected plan behaves."""
        return [enums.behavior_note[note.name] for note in self._own.get_behavior_notes()]

    def get_behavior_notes_for_plan_at_index(self, index: int) -> list[Any]:
        """How a plan behaves."""
        found = self._own.get_behavior_notes_for_plan_at_index(self._at(index))
        return [enums.behavior_note[note.name] for note in found]

    # ---- filters

    def _filter(self, method: str, argument: Any) -> Self:
        """Applies a filter now or, where there are no plans yet, when there are."""
        self._filters.append((method, argument))
        if self._is_planned:
            getattr(self._own, method)(argument)
        return self

    def deselect_engines(self, engine_names: Sequence[str]) -> Self:
        """Bars plans whose name holds one of the texts."""
        return self._filter("deselect_engines", list(engine_names))

    def deselect_workspace_greater_than(self, workspace_limit: int) -> Self:
        """Bars plans that need more workspace; known when they are built."""
        return self._filter("deselect_workspace_greater_than", workspace_limit)

    def deselect_shared_mem_greater_than(self, limit: int) -> Self:
        """Bars plans whose blocks need more shared memory."""
        return self._filter("deselect_shared_mem_greater_than", limit)

    def select_behavior_notes(self, notes: Sequence[Any]) -> Self:
        """Keeps plans that have all of the notes."""
        return self._filter("select_behavior_notes", _notes(enums.behavior_note, notes))

    def deselect_behavior_notes(self, notes: Sequence[Any]) -> Self:
        """Bars plans that have one of the notes."""
        return self._filter("deselect_behavior_notes", _notes(enums.behavior_note, notes))

    def select_numeric_notes(self, notes: Sequence[Any]) -> Self:
        """Keeps plans that have all of the notes."""
        return self._filter("select_numeric_notes", _notes(enums.numerical_note, notes))

    def deselect_numeric_notes(self, notes: Sequence[Any]) -> Self:
        """Bars plans that have one of the notes."""
        return self._filter("deselect_numeric_notes", _notes(enums.numerical_note, notes))


def text_of_knob(name: Any) -> str:
    """The name of a knob that a member or a text names."""
    return name.name if isinstance(name, enums.knob_type) else text_of(name)


def _knob(found: own_knob) -> knob:
    kind = enums.knob_type[text_of(found.type)]
    return knob(kind, found.max_value, found.min_value, found.stride)


def _notes(kind: Any, notes: Any) -> list[str]:
    return [note.name for note in enums.members_of(kind, notes)]
