# pyright: basic
"""`dnnc.pygraph`: build, plan and execute an operation graph, as with cudnn-frontend.

graph = dnnc.pygraph(io_data_type=dnnc.data_type.HALF, compute_data_type=dnnc.data_type.FLOAT)
x = graph.tensor(dim=[1, 128, 64], stride=[8192, 64, 1], name="x")
...
y.set_output(True)
graph.build()
graph.execute({x: x_gpu, y: y_gpu}, workspace, handle=handle)
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..dialect import draft
from ..dialect.graph import OperationGraph
from ..dialect.json_form import from_json, to_json
from ..dialect.op import Op
from ..dialect.tensor import DEFAULT_ALIGNMENT, Tensor, packed_strides, sizes
from ..errors import DnncError, DnncTypeError, Status
from ..places import current_place
from ..progress import Report, silent
from ..target import Target
from . import broadcasts, enums
from .argument_types import DataType, Sizes
from .asked_target import AskedTarget
from .device_properties import DeviceProperties, create_device_properties
from .graph_tensor import GraphTensor, data_type_of
from .handle import Handle, get_stream
from .inference import Waiting, infer_again, require_fit
from .keywords import explain_keywords
from .operations import Operations
from .overrides import Overrides
from .plan_methods import PlanMethods
from .ragged import Packing
from .run_methods import RunMethods

# Operations of cudnn-frontend that no graph of dnnc has yet.
_NOT_YET = (
    "block_scale_dequantize", "block_scale_quantize", "sdpa_mxfp8", "sdpa_mxfp8_backward",
)  # fmt: skip


class pygraph(Operations, PlanMethods, RunMethods):
    """An operation graph and its plans.

    name: a label.  io_data_type, intermediate_data_type: of non-virtual and virtual tensors that
    set none; compute_data_type: of operations that set none (default FLOAT).  A default of
    FAST_FLOAT_FOR_FP8 is that of matmuls and convolutions, and means FLOAT for other operations.
    handle: the device and stream of the plans.  sm_version: compile for a device that is not here
    (90 or 900 for Hopper, sm_90a).  target: by name, several by commas ("sm_80,sm_90a").
    device_property: a device that is not here, as `dnnc.create_device_properties` gives it, or what
    that takes.
    sm_count: SMs that the ranking of plans counts with, in place of the target's.
    kernel_cache, is_dynamic_shape_enabled: accepted; kernels of graphs that differ in sizes only
    are always shared.
    is_override_shape_enabled: accepted; sizes that are to change are `dnnc.Dim`s.
    """

    def __init__(
        self,
        name: str = "graph",
        io_data_type: DataType | None = None,
        intermediate_data_type: DataType | None = None,
        compute_data_type: DataType | None = None,
        handle: Handle | None = None,
        sm_count: int | None = None,
        sm_version: int | None = None,
        kernel_cache: Any = None,
        device_property: Any = None,
        is_dynamic_shape_enabled: bool = False,
        is_override_shape_enabled: bool = False,
        *,
        target: str | None = None,
    ):
        io = data_type_of(io_data_type)
        self.compute_data_type = data_type_of(compute_data_type)
        self.graph = OperationGraph(
            name, io_type=io, intermediate_type=data_type_of(intermediate_data_type) or io
        )
        self.handle = handle
        self.sm_count = sm_count
        self._target = target
        self._sm_version = sm_version
        if device_property is not None and not isinstance(device_property, DeviceProperties):
            device_property = create_device_properties(device_property)
        self._device_property: DeviceProperties | None = device_property
        self._plans: Any = None
        self._overrides: Overrides | None = None
        self._packing = Packing()
        self._waiting = Waiting()
        self._calls: dict[str, int] = {}  # without a name, by method

    if not TYPE_CHECKING:  # type checkers know no method but those that there are

        def __getattr__(self, name: str) -> Any:
            if name in _NOT_YET:
                return functools.partial(self._refuse, name)
            said = f"'pygraph' object has no attribute {name!r}"
            raise AttributeError(said, name=name, obj=self)

    def _refuse(self, method: str, /, *_: Any, **__: Any) -> None:
        raise DnncError(
            Status.NOT_SUPPORTED_GRAPH_PATTERN,
            f"operation {method}",
            "operations of the support table",
            f"graph '{self.graph.name}'",
        )

    # ---- tensors

    def tensor(
        self,
        dim: Sizes,
        stride: Sizes | None = None,
        data_type: DataType | None = None,
        is_virtual: bool = False,
        is_pass_by_value: bool = False,
        ragged_offset: GraphTensor | None = None,
        reordering_type: Any = "NONE",
        name: str = "",
        uid: int | None = None,
        ragged_offset_multiplier: int = 1,
        alignment_value: int = DEFAULT_ALIGNMENT,
        vector_count: int = 1,
        vector_dimension: int = -1,
    ) -> GraphTensor:
        """A tensor of the graph.

        dim, stride: in elements, ints, `dnnc.Dim`s or expressions; stride defaults to row-major.
        uid: unique; None or -1: assigned.  alignment_value: bytes, default 16.
        ragged_offset: where the sequences of a packed operand of `sdpa` begin, in elements divided
        by ragged_offset_multiplier.
        vector_count: dim and stride count vectors of 4 or 32 elements along vector_dimension:
        see `GraphTensor.set_vector_count_and_dimension`.
        """
        self._require_unplanned()
        where = f"tensor '{name}'" if name else "tensor"
        dims = sizes(dim, "dim", where)
        made = GraphTensor(
            uid=None if uid in (None, -1) else uid,
            name=name,
            dims=dims,
            strides=packed_strides(dims) if stride is None else sizes(stride, "stride", where),
            dtype=data_type_of(data_type),
            is_virtual=is_virtual,
            is_by_value=is_pass_by_value,
            alignment=alignment_value,
            reordering=enums.choice_of(reordering_type, enums.REORDERINGS),
            ragged_offset=ragged_offset,
        )
        # All but the data type, which a graph may give, is known here, and refused here.
        replace(made, dtype=dtypes.f32).verify()
        made.ragged_offset_multiplier = ragged_offset_multiplier
        made._is_laid_out = True
        if vector_count != 1:
            made.set_vector_count_and_dimension(vector_count, vector_dimension)
        return self._adopt(made)

    def _adopt(self, tensor: GraphTensor) -> GraphTensor:
        tensor._graph = self
        tensor.made_at = current_place()
        self.graph.add_tensor(tensor)
        return tensor

    def tensor_like(self, source: Any, name: str = "") -> GraphTensor:
        """A tensor with the descriptor of another (without its uid), or of an array.

        A host array of one element becomes a by-value tensor with that default.
        """
        if isinstance(source, Tensor):
            return self.tensor(
                source.shape,
                source.layout,
                source.dtype,
                is_pass_by_value=source.is_by_value,
                reordering_type=source.reordering,
                name=name or source.name,
                alignment_value=source.alignment,
                vector_count=source.vector_count,
                vector_dimension=-1 if source.vector_dim is None else source.vector_dim,
            )
        import numpy as np

        if isinstance(source, np.ndarray | np.generic) or _is_host_tensor(source):
            dims = tuple(source.shape)
            if math.prod(dims) != 1:
                what = f"a host array of {math.prod(dims)} elements"
                raise DnncError(Status.BAD_PARAM, what, "one element", name)
            made = self.tensor([1] * max(1, len(dims)), data_type=source.dtype, name=name)
            made.is_by_value, made.value = True, source.item()
            return made
        from ..runtime.buffers import buffer_of

        buffer = buffer_of(source, name)
        if buffer.dims is None:
            raise DnncError(Status.BAD_PARAM, "an address", "a tensor or an array", name)
        return self.tensor(buffer.dims, buffer.strides, buffer.dtype, name=name)

    def tensor_scalar(
        self,
        value: float | int | bool,
        scalar_type: Any = "COMPILE_TIME_CONST",
        data_type: Any = None,
    ) -> GraphTensor:
        """A number as a tensor of dims [1].

        RUNTIME_PARAM: the default of a by-value tensor; COMPILE_TIME_CONST: part of the kernel.
        data_type: default FLOAT, INT32 for an int.
        """
        default = dtypes.i32 if isinstance(value, int) else dtypes.f32
        made = self.tensor([1], data_type=data_type_of(data_type) or default)
        made.value = value
        kind = enums.member_of("scalar_type", scalar_type, enums.scalar_type)
        made.is_by_value = kind == enums.scalar_type.RUNTIME_PARAM.value
        return made

    def constant(
        self,
        value: float | int | bool,
        dim: Sizes = (),
        data_type: DataType | None = None,
        name: str = "",
    ) -> GraphTensor:
        """A tensor of one number.

        dim: its dims; none by default.  data_type: FLOAT by default, INT32 of an int, BOOLEAN of a
        bool.  The number is part of the kernels that read the tensor; no memory holds it.
        """
        return broadcasts.constant(self, value, dim, data_type, name)

    def bound(self, product: Any, *, max: int) -> pygraph:
        """States that a product of sizes is `max` at most, as `g.bound(batch * length, max=65536)`.

        Two sizes that may both be large would have a product beyond what engines take.  A plan
        refuses sizes whose product is larger.
        """
        self._require_unplanned()
        self.graph.bound(product, max=max)
        return self

    def query_tensor_attributes_of_uid(self, uid: int) -> Tensor:
        """The tensor with a uid; unknown ones are an error."""
        return self.graph.tensor(uid)

    # ---- what operation methods call

    def _require_unplanned(self) -> None:
        if self._plans is not None:
            raise DnncError(
                Status.BAD_PARAM_NOT_FINALIZED,
                "the graph has plans and can't change",
                "a new graph",
                f"graph '{self.graph.name}'",
            )
        self.graph.is_finalized = False

    def _operand(self, value: Any, rank: int) -> Tensor:
        """A tensor of this graph; a number becomes a constant of as many dims."""
        if isinstance(value, Tensor):
            owner = getattr(value, "_graph", self)
            if owner is not self:
                raise value.error(Status.BAD_PARAM, "of another graph", "a tensor of this graph")
            if value.value is not None and value.rank == 1 != rank:
                value.dims, value.strides = sizes([1] * rank), sizes([1] * rank)
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            # f32 has every integer up to 2**24, which is all that most graphs need.
            is_wide = isinstance(value, int) and abs(value) > 1 << 24
            kind = (dtypes.i32 if abs(value) < 1 << 31 else dtypes.i64) if is_wide else dtypes.f32
            made = self.tensor([1] * rank, data_type=kind)
            made.value = value if is_wide else float(value)
            return made
        what = f"a {type(value).__name__} is no tensor of the graph"
        wanted = "what `tensor` and operations give, or a number"
        raise DnncTypeError(Status.BAD_PARAM, what, wanted)

    def _label(self, method: str, name: str) -> str:
        """The text that a call's results are named after: its name, else method and number."""
        if name:
            return name
        count = self._calls.get(method, 0)
        self._calls[method] = count + 1
        return f"{method}.{count}"

    def _append(self, kind: type[Op], values: dict[str, Any], label: str) -> Any:
        """Adds an operation with new virtual results, and returns those.

        label: what the results are named after.
        """
        self._require_unplanned()
        place = current_place()
        results: list[GraphTensor | None] = []
        left_out = kind.left_out(values)
        for field in kind.fields_of("result"):
            if field.name in left_out:
                results.append(None)
                continue
            if values.get(field.name) is not None:  # the caller's own
                results.append(values[field.name])
                continue
            name = f"{label}::{field.suffix}"
            made = GraphTensor(is_virtual=True, name=name, made_at=place)
            made._graph = self
            values[field.name] = made
            results.append(made)
        made = kind(**values)
        made.made_at = place
        require_fit(self.graph, made)
        self.graph.add(made)
        self._infer_waiting()
        return results[0] if len(results) == 1 else tuple(results)

    def _infer_waiting(self) -> None:
        """Infers what the operands' dims allow, so that users can read dims as they build."""
        self._waiting.infer(self.graph)

    # ---- planning

    def validate(self) -> None:
        """Infers and checks the whole graph; ValueError or cudnnGraphNotSupportedError."""
        self._infer_again()
        self.graph.validate()

    def _infer_again(self) -> None:
        self._require_unplanned()
        self._packing.apply(self.graph)
        infer_again(self.graph)
        self._waiting.again()

    def build_operation_graph(self) -> None:
        """Validates and fixes the graph: uids are assigned, operations ordered."""
        if not self.graph.is_finalized:
            self._infer_again()
            self.graph.finalize()

    def create_execution_plans(
        self, modes: Sequence[Any] = ("A", "FALLBACK"), *, tuning: Any = None, errata: Any = None
    ) -> None:
        """Ranks the ways to run the graph, in mode order; none is an error with the nearest
        engine's reason.

        tuning: a tuning record or its file, whose config for the graph comes first.
        errata: a file of rules that bar configs (default: what DNNC_ERRATA_FILE names).
        """
        from .. import errata as rules
        from .. import record
        from ..options import Options
        from .plans import PlanList

        self.build_operation_graph()
        if self._plans is not None:
            raise DnncError(
                Status.BAD_PARAM_NOT_FINALIZED, "the graph has plans already", "a new graph"
            )
        options = Options(errata=rules.text_of(errata), tuning=record.text_for(self.graph, tuning))
        names = enums.modes_of(modes)
        self._plans = PlanList(self.graph, self._targets(), names, options)

    def _asked_target(self) -> AskedTarget:
        return AskedTarget(self._target, self._device_property, self._sm_version, self.sm_count)

    def _targets(self) -> tuple[Target, ...]:
        """The targets to compile for: asked for, else the device that is here."""
        return self._asked_target().rows(self.handle.device if self.handle else None)

    @property
    def named_target(self) -> str | DeviceProperties | None:
        """The target that it names, as `dnnc.compile` takes it; None: the device here.

        With `sm_count`, one target is a device that has so many SMs.
        """
        return self._asked_target().named

    def _planned(self) -> Any:
        if self._plans is None:
            raise DnncError(
                Status.BAD_PARAM_NOT_FINALIZED,
                "the graph has no plans",
                "create_execution_plans() or build() first",
                f"graph '{self.graph.name}'",
            )
        return self._plans

    def check_support(self) -> None:
        """At least one plan is left after the filters; else cudnnGraphNotSupportedError."""
        self._planned().check_support()

    def build_plans(self, policy: Any = "HEURISTICS_CHOICE", *, report: Report = silent) -> None:
        """Compiles the first plan that builds, or all of them.

        report: called with (what is done, how much is done, of how much), see `dnnc.progress`.
        """
        self._planned().build(enums.build_all_of(policy), report)

    def build(self, modes: Sequence[Any] = ("A", "FALLBACK"), *, report: Report = silent) -> None:
        """Does everything from `validate` to `build_plans`; report: as there."""
        self.validate()
        self.build_operation_graph()
        self.create_execution_plans(modes)
        self.check_support()
        self.build_plans(report=report)

    # ---- the graph as data

    def serialize(self) -> bytes:
        """The selected plan, as the bytes of a `.dnnplan` file."""
        from ..plan import format

        return format.to_bytes(self.plan.plan)

    def deserialize(self, *arguments: Any) -> None:
        """Makes this new graph the one that was serialized: `deserialize(data)`, or
        `deserialize(handle, data)`, whose handle it takes.

        data: the bytes of `serialize`, with a plan that can be executed at once; buffers are
        bound by the original uids.  A str is the JSON form of a graph (its `repr`), which is
        planned as any other.
        """
        data = self._received(arguments)
        if isinstance(data, str):
            self._become(_json(data))
            return
        from ..plan import format
        from .restored import RestoredPlans

        plan = format.read(bytes(data))
        self._become(dict(plan.graph))
        self._plans = RestoredPlans(plan)

    def _received(self, arguments: Sequence[Any]) -> Any:
        """The data that `deserialize` is given, after a handle."""
        *handles, data = arguments or (None,)
        if len(handles) > 1 or not isinstance(data, str | bytes | bytearray | memoryview | list):
            kinds = ", ".join(type(argument).__name__ for argument in arguments)
            what = f"deserialize({kinds})"
            raise DnncTypeError(Status.BAD_PARAM, what, "data, or a handle and data")
        if self.graph.tensors or self._plans is not None:
            raise DnncError(
                Status.BAD_PARAM_NOT_FINALIZED,
                "deserialize() of a graph that has tensors",
                "a new graph",
                f"graph '{self.graph.name}'",
            )
        if handles:
            get_stream(handles[0])  # one that is closed, or none, is an error
            (self.handle,) = handles
        return data

    def _become(self, data: Any) -> None:
        self.graph = from_json(data, GraphTensor)
        self._waiting.again()
        for tensor in self.graph.tensors:
            if isinstance(tensor, GraphTensor):
                tensor._graph = self

    def key(self) -> int:
        """A hash of topology, sizes and types, for caches of graphs."""
        self.build_operation_graph()
        return int(self.graph.key()[:16], 16)

    def __repr__(self) -> str:
        """The JSON form; while the graph is being built, of what there is, and nothing changes."""
        if self.graph.is_finalized:
            return json.dumps(to_json(self.graph))
        copied, copies = draft.copied(self.graph)
        with contextlib.suppress(DnncError):  # what is wrong is shown as it is
            self._packing.copied(copies).apply(copied)
        infer_again(copied)
        return json.dumps(draft.to_json(copied), default=str)  # fields that nothing checked yet


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise DnncError(
            Status.BAD_PARAM, f"not JSON: {error}", "the JSON form of a graph", "deserialize"
        ) from error


def _is_host_tensor(value: Any) -> bool:
    device = getattr(value, "device", None)
    return getattr(device, "type", None) == "cpu"


explain_keywords(pygraph)
explain_keywords(GraphTensor)
