# pyright: basic
"""The recording of a graph: tensors and nodes as calls made them, nothing checked.

cudnn-frontend's methods refuse no graph; its `validate` and `create_execution_plans` do.  So the
methods here only write down what was asked for; `lowering` makes a `dnnc.pygraph` of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import DnncError, DnncTypeError, Status
from . import enums
from .arrays import described, is_array
from .enums import (
    data_type,
    member_of,
    norm_forward_phase,
    reduction_mode,
    reshape_mode,
    type_of,
)
from .operations import ALIASES, OPERATIONS, Operation
from .tensors import Node, Tensor, row_major


class Uids:
    """The numbers of a graph's tensors, those of its score modifications too."""

    def __init__(self) -> None:
        self.tensors: dict[int, Tensor] = {}
        self._next = 1

    def new(self) -> int:
        while self._next in self.tensors:
            self._next += 1
        self._next += 1
        return self._next - 1

    def take(self, tensor: Tensor, uid: int) -> None:
        """Gives a tensor the number that its caller wants; who had it by chance gets another."""
        holder = self.tensors.get(uid)
        if holder is not None and holder is not tensor:
            if holder.uid_assigned:
                what = f"uid {uid}, which {holder.label} has"
                raise DnncError(Status.BAD_PARAM_DUPLICATED_ENTRIES, what, "one for each tensor")
            holder.uid = self.new()
            self.tensors[holder.uid] = holder
        if self.tensors.get(tensor.uid) is tensor:
            del self.tensors[tensor.uid]
        self.tensors[uid] = tensor


class GraphContext:
    """The types of tensors and operations that set none."""

    def __init__(
        self,
        io_data_type: Any = None,
        intermediate_data_type: Any = None,
        compute_data_type: Any = None,
    ):
        self.io_data_type = type_of(io_data_type)
        self.intermediate_data_type = type_of(intermediate_data_type) or self.io_data_type
        self.compute_data_type = type_of(compute_data_type)


class Recording:
    """Tensors and nodes, and the methods that add them.

    io_data_type, intermediate_data_type, compute_data_type: of tensors and nodes that set none.
    """

    def __init__(
        self,
        io_data_type: Any = None,
        intermediate_data_type: Any = None,
        compute_data_type: Any = None,
        uids: Uids | None = None,
        bindings: dict[Tensor, Any] | None = None,
    ):
        self.context = GraphContext(io_data_type, intermediate_data_type, compute_data_type)
        self._recorded: list[Node] = []
        self._all: list[Tensor] = []
        self._uids = Uids() if uids is None else uids
        self._counts: dict[str, int] = {}
        # Arrays that calls were given in place of tensors.
        self._bindings = {} if bindings is None else bindings

    if TYPE_CHECKING:  # the methods of `OPERATIONS`, which are set below

        def __getattr__(self, name: str) -> Any: ...

    # ---- what tensors ask for

    def require_mutable(self, what: str) -> None:
        """Raises where the graph can't change any more."""

    def infer_early(self) -> None:
        """Infers dims, strides and types as far as the graph is recorded."""

    def take_uid(self, tensor: Tensor, uid: int) -> None:
        self._uids.take(tensor, uid)

    # ---- tensors

    def tensor(
        self,
        dim: Sequence[Any],
        stride: Sequence[Any] | None = None,
        data_type: Any = None,
        is_virtual: bool = False,
        is_pass_by_value: bool = False,
        ragged_offset: Tensor | None = None,
        reordering_type: Any = None,
        name: str = "",
        uid: int | None = None,
        ragged_offset_multiplier: int = 1,
        alignment_value: int = 1,
    ) -> Tensor:
        """A tensor of the graph.

        dim, stride: in elements; stride defaults to row-major.  data_type: default that of the
        graph's inputs and outputs.  uid: unique; None or -1: assigned.  alignment_value: promises
        that it holds multiples of a number.
        """
        default = self.context.intermediate_data_type if is_virtual else self.context.io_data_type
        made = Tensor(
            name or f"tensor_{len(self._all)}",
            type_of(data_type) or default,
            dim,
            row_major(dim) if stride is None or not len(stride) else stride,
            is_virtual,
            is_pass_by_value,
            reordering_type=reordering_type,
            ragged_offset=ragged_offset,
            ragged_offset_multiplier=ragged_offset_multiplier,
            alignment_value=alignment_value,
        )
        made.stride_assigned = stride is not None
        if uid not in (None, -1):
            self._uids.take(made, uid)
            made.uid, made.uid_assigned = uid, True
        return self._adopt(made)

    def _adopt(self, tensor: Tensor) -> Tensor:
        self.require_mutable("add a tensor")
        tensor.owner = self
        if not tensor.uid_assigned:
            tensor.uid = self._uids.new()
        self._uids.tensors[tensor.uid] = tensor
        self._all.append(tensor)
        return tensor

    def tensor_like(self, template: Any, name: str = "", is_virtual: bool = False) -> Tensor:
        """A tensor with the descriptor of another, without its uid, or of an array.

        An array of the host becomes a by-value tensor; its number, if it is one, is the default.
        """
        if isinstance(template, Tensor):
            return self.tensor(
                template.get_dim(),
                template.get_stride(),
                template.get_data_type(),
                is_virtual,
                template.is_pass_by_value,
                reordering_type=template.reordering_type,
                name=name,
            )
        found = described(template)
        made = self.tensor(
            found.dim or [1], found.stride or [1], found.data_type, is_virtual, found.is_host,
            name=name,
        )  # fmt: skip
        made.pass_by_value = found.value
        return made

    def tensor_scalar(
        self,
        value: float | int,
        scalar_type: Any = enums.scalar_type.COMPILE_TIME_CONST,
        name: str = "",
    ) -> Tensor:
        """A number as a by-value tensor of dims [1, 1, 1, 1].

        RUNTIME_PARAM: variant packs may give another; COMPILE_TIME_CONST: it is part of the kernel.
        """
        made = Tensor(
            name or f"scalar_{len(self._all)}",
            data_type.INT32 if isinstance(value, int) else data_type.FLOAT,
            [1, 1, 1, 1],
            [1, 1, 1, 1],
            is_pass_by_value=True,
            pass_by_value=value,
            scalar_type=member_of(enums.scalar_type, scalar_type),
        )
        return self._adopt(made)

    # ---- operations

    def _operand(self, value: Any, name: str) -> Any:
        """An array as a tensor that is bound to it; all else as it is."""
        if isinstance(value, Tensor) or not is_array(value):
            return value
        made = self.tensor_like(value, name=name)
        self._bindings[made] = value
        return made

    def _record(self, row: Operation, given: Mapping[str, Any], out_dims: Any) -> Any:
        """Adds a node; gives its result, or a list with None for those that the call has not."""
        self.require_mutable(f"add {row.method}")
        values = {key: value for key, value in given.items() if value is not None}
        node = Node(
            self._name(row, values.pop("name", "")),
            row.family,
            row.method,
            values.pop("compute_data_type", None),
            self.context.compute_data_type,
        )
        node.arguments = {
            port: self._operands(value, f"{node.name}::{port}") for port, value in values.items()
        }
        _describe(node, row)
        dims = out_dims if isinstance(out_dims, Mapping) else {row.results[0]: out_dims}
        made: list[Tensor | None] = []
        for port in row.results:
            if port in row.conditions and not row.conditions[port](node.arguments):
                made.append(None)
                continue
            result = self._adopt(Tensor(f"{node.name}::{row.label(port)}", is_virtual=True))
            result.is_result = True
            if dims.get(port):
                result.set_dim(dims[port])
            node.outputs[port] = result
            made.append(result)
        self._recorded.append(node)
        return made if row.is_listed else made[0]

    def _operands(self, value: Any, name: str) -> Any:
        if isinstance(value, list | tuple) and any(
            isinstance(item, Tensor) or is_array(item) for item in value
        ):
            return type(value)([self._operand(item, f"{name}_{i}") for i, item in enumerate(value)])
        return self._operand(value, name)

    def _name(self, row: Operation, name: str) -> str:
        if name:
            return name
        count = self._counts[row.method] = self._counts.get(row.method, -1) + 1
        return f"{row.method}.{count}"

    # ---- looking at it

    @property
    def nodes(self) -> list[Node]:
        """The operations, in the order they were added."""
        return list(self._recorded)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors whose names are unique, by name."""
        found: dict[str, list[Tensor]] = {}
        for tensor in self._all:
            found.setdefault(tensor.name, []).append(tensor)
        return {name: same[0] for name, same in found.items() if len(same) == 1}

    def find_tensor(self, name_or_uid: str | int) -> Tensor | None:
        """The tensor of a uid or a name; a name that several have is a ValueError."""
        if isinstance(name_or_uid, int):
            return self._uids.tensors.get(name_or_uid)
        same = [tensor for tensor in self._all if tensor.name == name_or_uid]
        if len(same) > 1:
            what = f"the name {name_or_uid!r}, which {len(same)} tensors have"
            raise DnncError(Status.BAD_PARAM_DUPLICATED_ENTRIES, what, "a uid, or the tensor")
        return same[0] if same else None

    def get_node(self, name: str) -> Node | None:
        """The first operation of a name."""
        return next((node for node in self._recorded if node.name == name), None)

    def _made(self) -> set[Tensor]:
        return {tensor for node in self._recorded for tensor in node.outputs.values()}

    def get_inputs(self) -> list[Tensor]:
        """The tensors that a caller gives."""
        made = self._made()
        return [t for t in self._all if not t.is_virtual and t not in made]

    def get_outputs(self) -> list[Tensor]:
        """The tensors that are written to a caller's buffers."""
        made = self._made()
        return [t for t in self._all if not t.is_virtual and t in made]

    def inspect(self) -> dict[str, Any]:
        """The graph as plain data."""
        return {
            "context": {
                "io_data_type": str(self.context.io_data_type),
                "compute_data_type": str(self.context.compute_data_type),
            },
            "nodes": [
                {
                    "name": node.name,
                    "type": node.node_type.name,
                    "inputs": {port: tensor.name for port, tensor in node.inputs.items()},
                    "outputs": {port: tensor.name for port, tensor in node.outputs.items()},
                    "params": node.params,
                }
                for node in self._recorded
            ],
            "tensors": {
                name: {
                    "dim": tensor.dim,
                    "stride": tensor.stride,
                    "dtype": str(tensor.data_type),
                    "is_virtual": tensor.is_virtual,
                    "uid": tensor.uid,
                }
                for name, tensor in self.tensors.items()
            },
        }


def _describe(node: Node, row: Operation) -> None:
    """Sorts a node's arguments into tensors that are read, tensors that are written, and others."""
    if row.is_pointwise:
        node.params["mode"] = row.method
    tensors = 0
    for port, value in node.arguments.items():
        listed = isinstance(value, list | tuple)
        many = list(value) if listed else [value]
        for i, item in enumerate(many):
            label = f"{port}_{i}" if listed else port
            if not isinstance(item, Tensor):
                continue
            if row.is_pointwise:
                label = f"IN_{tensors}"
            tensors += 1
            (node.outputs if port in row.written else node.inputs)[label] = item
        if not any(isinstance(item, Tensor) for item in many):
            node.params[port] = value


# ---- methods


def _signature(row: Operation) -> inspect.Signature:
    self_ = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    empty = inspect.Parameter.empty
    found = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=empty if name in row.required else "" if name == "name" else None,
        )
        for name in row.arguments
    ]
    if not row.is_pointwise:
        kind = inspect.Parameter.KEYWORD_ONLY
        found.append(inspect.Parameter("out_dims", kind, default=None))
    if row.is_open:
        found.append(inspect.Parameter("others", inspect.Parameter.VAR_KEYWORD))
    return inspect.Signature([self_, *found])


def _method(row: Operation, name: str) -> Callable[..., Any]:
    signature = _signature(row)

    def method(self: Recording, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = _as_1_32(row, args, kwargs)
        try:
            bound = signature.bind(self, *args, **kwargs)
        except TypeError as error:
            raise DnncTypeError(Status.BAD_PARAM, f"{name}(): {error}", str(signature)) from None
        given = dict(bound.arguments)
        del given["self"]
        if absent := [port for port in row.required if given[port] is None]:
            what = f"{name}(): {absent[0]} is None"
            raise DnncTypeError(Status.BAD_PARAM, what, str(signature))
        given.update(given.pop("others", {}))
        out_dims = given.pop("out_dims", None)
        return self._record(row, _sorted_out(row, given), out_dims)

    method.__name__ = method.__qualname__ = name
    method.__signature__ = signature  # type: ignore[attr-defined]
    results = ", ".join(row.results)
    method.__doc__ = f"Records {row.method}; gives {results}."
    if row.missing is not None:
        method.__doc__ += f"  dnnc has no engine for it: {row.missing.reason}."
    return method


def _as_1_32(row: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Positional arguments in the order of 1.32, of a call in the order of 1.23 to 1.31.

    Those put the phase of a norm first, the mode of a reduction second, and that of a reshape last.
    """
    if "norm_forward_phase" in row.arguments and args and _names(norm_forward_phase, args[0]):
        return args[1:], {**kwargs, "norm_forward_phase": args[0]}
    if row.method == "reduction" and len(args) > 1 and _names(reduction_mode, args[1]):
        later = zip(("compute_data_type", "name", "group_offset"), args[2:], strict=False)
        return args[:1], {**kwargs, "mode": args[1], **dict(later)}
    if row.method == "reshape" and len(args) > 1 and _names(reshape_mode, args[1]):
        return (args[0], *args[2:]), {**kwargs, "reshape_mode": args[1]}
    return args, kwargs


def _names(kind: Any, value: Any) -> bool:
    """Whether a value is a member of an enumeration, or its name."""
    return isinstance(value, kind) or (isinstance(value, str) and value.upper() in kind.__members__)


_NUMBERS = ("swish_beta", "top_k")


def _sorted_out(row: Operation, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments where they belong: older orders exchange names, types and numbers."""
    number = next((name for name in _NUMBERS if name in row.arguments), None)
    slots = [k for k in ("name", "compute_data_type", number) if k in given]
    checked = [k for k in slots if k != "compute_data_type" and given[k] is not None]
    if all(_slot_of(given[k], number) == k for k in checked):
        return given
    for value in [given.pop(k) for k in slots]:
        if value is not None:
            given[_slot_of(value, number)] = value
    return given


def _slot_of(value: Any, number: str | None) -> str:
    """The argument that a value is for, by its type."""
    if isinstance(value, str):
        return "name"
    if isinstance(value, int | float) and number is not None:
        return number
    return "compute_data_type"


for _name, _row in (*OPERATIONS.items(), *((a, OPERATIONS[m]) for a, m in ALIASES.items())):
    setattr(Recording, _name, _method(_row, _name))
