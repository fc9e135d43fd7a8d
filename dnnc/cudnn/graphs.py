# pyright: basic
"""`pygraph` as cudnn-frontend 1.32 has it: a planned recording that is executed by address."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import DnncError, DnncTypeError, Status
from . import enums
from .handles import Handle, create_device_properties, own_of
from .lowering import Layouts, Lowered, layouts_of
from .packs import ROWS, AddressedPlan, by_uid
from .planning import Planning
from .tensors import Tensor, frozen


class pygraph(Planning):
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
        if isinstance(device_property, str):
            device_property = create_device_properties(device_property)
        options = {
            "name": name,
            "sm_count": sm_count,
            "sm_version": sm_version,
            "device_property": device_property,
            "target": target,
        }
        types = (io_data_type, intermediate_data_type, compute_data_type)
        super().__init__(types, handle, options)
        self.is_cuda_graph_replay_expected = bool(is_cuda_graph_replay_expected)
        self._may_override = bool(is_override_shape_enabled)
        self._retention = cuda_graph_retention
        self._addressed: dict[int, AddressedPlan] = {}
        self._overridden: dict[Any, pygraph] = {}

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
        if self._is_planned and any(map(_is_callers, self._own.plan.plan.symbols)):
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
        self._on_cuda_graph("populate_cuda_graph", handle, variant_pack, workspace, cuda_graph)

    def update_cuda_graph(
        self, handle: Handle | None, variant_pack: Any, workspace: Any, cuda_graph: Any
    ) -> None:
        """Gives a CUDA graph that the selected plan populated other buffers."""
        self._on_cuda_graph("update_cuda_graph", handle, variant_pack, workspace, cuda_graph)

    def _on_cuda_graph(
        self, method: str, handle: Handle | None, pack: Any, workspace: Any, cuda_graph: Any
    ) -> None:
        if not self._is_built:
            self.build()
        chosen = self._handle if handle is None else handle
        plan = self._by_address(self._own.plan)
        given = plan.apart(by_uid(self.find_tensor, self._bindings, pack))
        getattr(plan.plan, method)(
            {**given.addresses, **given.numbers}, plan.workspace(workspace), cuda_graph,
            sizes=given.sizes,
            device=None if chosen is None else own_of(chosen).device,
        )  # fmt: skip

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


def _is_callers(symbol: Any) -> bool:
    """Whether a symbol is a `dnnc.Dim` of the caller."""
    return not symbol.name.startswith(ROWS)


def _is_own(tensor: Tensor, shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether a layout is the tensor's own."""
    return (tuple(tensor.dim), tuple(tensor.stride)) == (tuple(shape), tuple(stride))
