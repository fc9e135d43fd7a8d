# pyright: basic
"""`pygraph` as cudnn-frontend 1.32 has it: recorded, validated, planned, executed by address."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import DnncError, DnncRuntimeError, DnncTypeError, Status
from ..frontends import pygraph as own
from ..frontends.enums import knob as own_knob
from ..frontends.enums import text_of
from . import enums
from .handles import Handle, create_device_properties, own_of
from .lowering import Layouts, Lowered, layouts_of, refusal
from .operations import OPERATIONS, PLANNING
from .packs import AddressedPlan, by_uid
from .recording import Recording
from .tensors import Tensor, frozen

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


class pygraph(Recording):
    """An operation graph and its plans.

    name, io_data_type, intermediate_data_type, compute_data_type: as those of `dnnc.pygraph`.
    handle: the device and stream of the plans.  sm_count: SMs to rank plans for.  sm_version,
    device_property: a device that is not here.  kernel_cache, is_dynamic_shape_enabled,
    cuda_graph_retention, is_cuda_graph_replay_expected: accepted, and change nothing.
    is_override_shape_enabled: whether `execute` may be given other sizes; a plan is compiled for
    sizes when they are first seen.  target: beyond cudnn-frontend, as that of `dnnc.pygraph`.
    """

    def __init__(
        self,
        name: str = "test_graph",
        io_data_type: Any = None,
        intermediate_data_type: Any = None,
        compute_data_type: Any = None,
        handle: Handle | None = None,
        sm_count: int | None = None,
        sm_version: int | None = None,
        kernel_cache: Any = None,
        device_property: Any = None,
        is_dynamic_shape_enabled: bool = False,
        is_override_shape_enabled: bool = False,
        cuda_graph_retention: Any = None,
        *,
        is_cuda_graph_replay_expected: bool = False,
        target: str | None = None,
    ):
        super().__init__(io_data_type, intermediate_data_type, compute_data_type)
        self.is_cuda_graph_replay_expected = bool(is_cuda_graph_replay_expected)
        if isinstance(device_property, str):
            device_property = create_device_properties(device_property)
        self._options = {
            "name": name,
            "sm_count": sm_count,
            "sm_version": sm_version,
            "device_property": device_property,
            "target": target,
        }
        self._handle = handle
        self._may_override = bool(is_override_shape_enabled)
        self._retention = cuda_graph_retention
        self._lowered: Lowered | None = None
        self._inferred_early = False
        self._is_planned = False
        self._is_built = False
        self._pinned: int | None = None
        self._modes: tuple[Any, ...] = _DEFAULT_MODES
        self._filters: list[tuple[str, Any]] = []
        self._addressed: dict[int, AddressedPlan] = {}
        self._overridden: dict[Any, pygraph] = {}

    # ---- recording

    def require_mutable(self, what: str) -> None:
        if self._is_planned:
            raise frozen(what)
        self._lowered = None
        if self._inferred_early:
            self._inferred_early = False
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
        """Infers and checks the whole graph; ValueError or cudnnGraphNotSupportedError."""
        if self._is_planned or self._lowered is not None or self._refused() is not None:
            return
        lowered = self._new_lowered()
        lowered.add(self._recorded)
        lowered.read_back()
        lowered.graph.validate()
        lowered.read_back(is_packed_now=True)
        self._lowered = lowered

    def _refused(self) -> Any:
        """The first node that planning refuses, as cudnn-frontend does on the devices we have."""
        missing = [OPERATIONS[node.method].missing for node in self._recorded]
        pairs = zip(self._recorded, missing, strict=True)
        return next((n for n, m in pairs if m is not None and m.step == PLANNING), None)

    def build_operation_graph(self) -> None:
        """Validates and fixes the graph."""
        self.validate()
        if self._refused() is None:
            self._own.build_operation_graph()

    @property
    def _own(self) -> own.pygraph:
        """The `dnnc.pygraph`; a graph that was not validated has none."""
        if self._lowered is None:
            self.validate()
        refused = self._refused() if self._lowered is None else None
        if refused is not None:
            raise refusal(refused)
        assert self._lowered is not None, "validate makes it"
        return self._lowered.graph

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

    def select_plan(self, index: int) -> pygraph:
        """Has `build_plans` build this plan, or fail."""
        if not self._is_planned:
            what = "select_plan() of a graph without plans"
            wanted = "create_execution_plans() first"
            raise DnncRuntimeError(Status.BAD_PARAM_NOT_FINALIZED, what, wanted)
        self._pinned = self._at(index)
        return self

    def build_plan_at_index(self, index: int) -> pygraph:
        """Compiles one plan and selects it."""
        self._own.build_plan_at_index(self._at(index))
        self._is_built = True
        return self

    def create_execution_plan(
        self, engine_id: int, knobs: Mapping[Any, int] | None = None
    ) -> pygraph:
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

    def _filter(self, method: str, argument: Any) -> pygraph:
        """Applies a filter now or, where there are no plans yet, when there are."""
        self._filters.append((method, argument))
        if self._is_planned:
            getattr(self._own, method)(argument)
        return self

    def deselect_engines(self, engine_names: Sequence[str]) -> pygraph:
        """Bars plans whose name holds one of the texts."""
        return self._filter("deselect_engines", list(engine_names))

    def deselect_workspace_greater_than(self, workspace_limit: int) -> pygraph:
        """Bars plans that need more workspace; known when they are built."""
        return self._filter("deselect_workspace_greater_than", workspace_limit)

    def deselect_shared_mem_greater_than(self, limit: int) -> pygraph:
        """Bars plans whose blocks need more shared memory."""
        return self._filter("deselect_shared_mem_greater_than", limit)

    def select_behavior_notes(self, notes: Sequence[Any]) -> pygraph:
        """Keeps plans that have all of the notes."""
        return self._filter("select_behavior_notes", _notes(enums.behavior_note, notes))

    def deselect_behavior_notes(self, notes: Sequence[Any]) -> pygraph:
        """Bars plans that have one of the notes."""
        return self._filter("deselect_behavior_notes", _notes(enums.behavior_note, notes))

    def select_numeric_notes(self, notes: Sequence[Any]) -> pygraph:
        """Keeps plans that have all of the notes."""
        return self._filter("select_numeric_notes", _notes(enums.numerical_note, notes))

    def deselect_numeric_notes(self, notes: Sequence[Any]) -> pygraph:
        """Bars plans that have one of the notes."""
        return self._filter("deselect_numeric_notes", _notes(enums.numerical_note, notes))

    # ---- workspace and execution

    def get_workspace_size(
        self,
        handle: Handle | None = None,
        override_uids: Sequence[int] | None = None,
        override_shapes: Sequence[Sequence[int]] | None = None,
        override_strides: Sequence[Sequence[int]] | None = None,
    ) -> int:
        """Bytes of workspace of the selected plan, or of one for other sizes."""
        graph, sizes = self._for_sizes(override_uids, override_shapes, override_strides)
        return graph._own.get_workspace_size(sizes)

    def get_workspace_size_plan_at_index(
        self,
        index: int,
        handle: Handle | None = None,
        override_uids: Sequence[int] | None = None,
        override_shapes: Sequence[Sequence[int]] | None = None,
        override_strides: Sequence[Sequence[int]] | None = None,
    ) -> int:
        """Bytes of workspace of a plan."""
        graph, sizes = self._for_sizes(override_uids, override_shapes, override_strides)
        if graph is not self:
            return graph._own.get_workspace_size(sizes)
        return self._own.get_workspace_size_plan_at_index(self._at(index))

    def execute(
        self,
        tensor_dict: Any,
        workspace: Any = None,
        handle: Handle | None = None,
        override_uids: Sequence[int] | None = None,
        override_shapes: Sequence[Sequence[int]] | None = None,
        override_strides: Sequence[Sequence[int]] | None = None,
        tensor_uids: Sequence[int] | None = None,
    ) -> None:
        """Launches the selected plan on the handle's stream; a graph without one is built first.

        tensor_dict: tensor, uid or name -> buffer; with tensor_uids, a sequence of buffers.
        workspace: at least `get_workspace_size()` bytes; None where that is 0.
        """
        if not self._is_built:
            self.build()
        graph, sizes = self._for_sizes(override_uids, override_shapes, override_strides)
        plan = graph._own.plan
        self._execute(graph, plan, tensor_dict, workspace, handle, tensor_uids, sizes)

    def execute_plan_at_index(
        self,
        tensor_dict: Any,
        workspace: Any = None,
        index: int = 0,
        handle: Handle | None = None,
        override_uids: Sequence[int] | None = None,
        override_shapes: Sequence[Sequence[int]] | None = None,
        override_strides: Sequence[Sequence[int]] | None = None,
        tensor_uids: Sequence[int] | None = None,
    ) -> None:
        """Launches one of the plans; for other sizes than the graph's, the best for them."""
        graph, sizes = self._for_sizes(override_uids, override_shapes, override_strides)
        at = self._at(index)
        plan = self._own._planned().executable(at) if graph is self else graph._own.plan
        self._execute(graph, plan, tensor_dict, workspace, handle, tensor_uids, sizes)

    def _execute(
        self,
        graph: pygraph,
        plan: Any,
        pack: Any,
        workspace: Any,
        handle: Handle | None,
        uids: Sequence[int] | None,
        sizes: Mapping[str, int] | None,
    ) -> None:
        chosen = self._handle if handle is None else handle
        stream = 0 if chosen is None else own_of(chosen).stream
        given = by_uid(self.find_tensor, self._bindings, pack, uids)
        graph._by_address(plan).execute(given, workspace, stream, sizes)

    def _by_address(self, plan: Any) -> AddressedPlan:
        found = self._addressed.get(id(plan))
        if found is None:
            found = self._addressed[id(plan)] = AddressedPlan(plan)
        return found

    # ---- other sizes

    def _for_sizes(
        self,
        uids: Sequence[int] | None,
        shapes: Sequence[Sequence[int]] | None,
        strides: Sequence[Sequence[int]] | None,
    ) -> tuple[pygraph, Mapping[str, int] | None]:
        """The graph for sizes that a call gives, built: itself where they are its own.

        A graph of `dnnc.Dim`s takes them as the sizes of its symbols.
        """
        if uids is None and shapes is None and strides is None:
            return self, None
        if self._is_planned and self._own.plan.plan.symbols:
            return self, self._own._overridden(uids, shapes, strides)
        layouts = layouts_of(self._uids.tensors, uids, shapes, strides)
        if all(_is_own(tensor, *layout) for tensor, layout in layouts.items()):
            return self, None
        if not self._may_override:
            what = "override_shapes of a graph that was made without is_override_shape_enabled"
            raise DnncError(Status.BAD_PARAM, what, "is_override_shape_enabled=True", "execute")
        key = tuple((tensor.uid, *layout) for tensor, layout in layouts.items())
        found = self._overridden.get(key)
        if found is None:
            found = self._overridden[key] = self._at_sizes(layouts)
        return found, None

    def _at_sizes(self, layouts: Layouts) -> pygraph:
        """A graph that is this one but for the layouts of some tensors, built."""
        made = pygraph(handle=self._handle)
        made._lowered = self._new_lowered(layouts)
        made._lowered.add(self._recorded)
        made._own.validate()
        made._own.create_execution_plans(enums.own_modes(self._modes))
        made._is_planned = True
        for method, argument in self._filters:
            getattr(made._own, method)(argument)
        made.build_plans()
        return made

    # ---- CUDA graphs

    def populate_cuda_graph(
        self, handle: Handle | None, variant_pack: Any, workspace: Any, cuda_graph: Any
    ) -> None:
        """Adds the selected plan's launches to a CUDA graph, by its integer handle."""
        given = self._for_cuda_graph(variant_pack)
        self._own.populate_cuda_graph(
            self._own_handle(handle), given, workspace or None, cuda_graph
        )

    def update_cuda_graph(
        self, handle: Handle | None, variant_pack: Any, workspace: Any, cuda_graph: Any
    ) -> None:
        """Gives a CUDA graph that the selected plan populated other buffers."""
        given = self._for_cuda_graph(variant_pack)
        self._own.update_cuda_graph(self._own_handle(handle), given, workspace or None, cuda_graph)

    def _for_cuda_graph(self, pack: Any) -> dict[int, Any]:
        if not self._is_built:
            self.build()
        given = by_uid(self.find_tensor, self._bindings, pack)
        return self._by_address(self._own.plan).given(given)

    def _own_handle(self, handle: Handle | None) -> Any:
        chosen = self._handle if handle is None else handle
        return None if chosen is None else own_of(chosen)

    def get_cuda_graph_retention(self) -> Any:
        """The mode that was asked for, else what CUDNN_CUDA_GRAPH_RETENTION names, else
        PER_GRAPH; dnnc keeps no CUDA graph in any."""
        asked = self._retention or os.environ.get("CUDNN_CUDA_GRAPH_RETENTION") or "PER_GRAPH"
        return enums.member_of(enums.cuda_graph_retention, asked)

    # ---- the graph as data

    def query_tensor_attributes_of_uid(self, uid: int) -> Tensor:
        """The tensor with a uid; unknown ones are an error."""
        found = self.find_tensor(operator.index(uid))
        if found is None:
            raise DnncError(Status.BAD_PARAM, f"no tensor has uid {uid}", "a uid of the graph")
        return found

    def key(self) -> int:
        """A hash of topology, sizes and types, for caches of graphs."""
        self.build_operation_graph()
        return self._own.key()

    def __repr__(self) -> str:
        """JSON: of the graph once it is validated, before of what was recorded."""
        if self._lowered is not None:
            return repr(self._lowered.graph)
        return json.dumps(self.inspect(), default=str, indent=2)

    def serialize(
        self, *, as_bytes: bool = False, include_kernels: bool = True
    ) -> bytes | list[int]:
        """The selected plan, in dnnc's format: the bytes of a `.dnnplan` file, which
        `dnnc.load` takes too; without as_bytes as a list of integers."""
        if not self._is_built:
            self.build()
        data = self._own.serialize()
        return data if as_bytes else list(data)

    def deserialize(self, *args: Any, **kwargs: Any) -> None:
        """Makes this new graph the one that was serialized.

        (data), or (handle, data), or by the keywords handle_ (or handle), pyobj (or data) and
        enforce_precompiled, which every plan of dnnc is.  data: what `serialize` gave; a str is
        the JSON of a graph, which is planned as any other.
        """
        handle, data = _deserialized(args, kwargs)
        if handle is not None:
            self._handle = handle
        if self._recorded:
            raise frozen("deserialize into a graph with operations")
        lowered = self._new_lowered()
        lowered.graph.deserialize(data if isinstance(data, str) else bytes(data))
        self._lowered = lowered
        self._is_planned = self._is_built = not isinstance(data, str)
        for made in lowered.graph.graph.tensors:
            self._restore(made, lowered)

    def _restore(self, made: Any, lowered: Lowered) -> None:
        """Records a tensor of a deserialized graph."""
        tensor = Tensor(
            made.name, is_virtual=made.is_virtual, is_pass_by_value=made.is_by_value,
            pass_by_value=made.value, uid=made.uid, uid_assigned=True,
        )  # fmt: skip
        self._uids.tensors[made.uid] = tensor
        self._all.append(tensor)
        lowered.tensors[tensor] = made
        lowered.read_back()
        tensor.owner = self


def _deserialized(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Handle | None, Any]:
    """(handle, data) of a call of `deserialize`."""
    given = list(args)
    handle = kwargs.pop("handle_", kwargs.pop("handle", None))
    data = kwargs.pop("pyobj", kwargs.pop("data", None))
    kwargs.pop("enforce_precompiled", None)
    if handle is None and given and (isinstance(given[0], Handle) or given[0] is None):
        handle = given.pop(0)
    if data is None and given:
        data = given.pop(0)
    if given and isinstance(given[-1], bool):
        given.pop()
    is_list = isinstance(data, list | tuple) and all(type(item) is int for item in data)
    if given or kwargs or not (is_list or isinstance(data, str | bytes | bytearray | memoryview)):
        shown = ", ".join([type(item).__name__ for item in args] + sorted(kwargs))
        what = f"deserialize({shown})"
        raise DnncTypeError(Status.BAD_PARAM, what, "data, or a handle and data")
    if handle is not None:
        own_of(handle)
    return handle, data


def text_of_knob(name: Any) -> str:
    """The name of a knob that a member or a text names."""
    return name.name if isinstance(name, enums.knob_type) else text_of(name)


def _knob(found: own_knob) -> knob:
    kind = enums.knob_type[text_of(found.type)]
    return knob(kind, found.max_value, found.min_value, found.stride)


def _notes(kind: Any, notes: Any) -> list[str]:
    return [note.name for note in enums.members_of(kind, notes)]


def _is_own(tensor: Tensor, shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether a layout is the tensor's own."""
    return (tuple(tensor.dim), tuple(tensor.stride)) == (tuple(shape), tuple(stride))
