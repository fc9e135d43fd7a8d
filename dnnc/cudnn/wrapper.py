# pyright: basic
"""`Graph`: a graph that is built where its `with` block ends, and called as a function.

with cudnn.Graph(io_data_type=cudnn.data_type.HALF) as graph:
    y = graph.relu(x_array, name="act")
    y.set_output(True)
graph.set_io_tuples(["act::input"], ["act::OUT_0"])
y_array = graph(x_array, handle=handle)
"""

from __future__ import annotations

import importlib
import inspect
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..errors import DnncError, DnncRuntimeError, Status
from .arrays import is_array
from .datatypes import cudnn_to_torch_data_type
from .enums import data_type, heur_mode
from .graphs import pygraph
from .handles import Handle, create_handle, destroy_handle, set_stream
from .operations import ALIASES, OPERATIONS
from .tensors import Tensor

_PASSED_ON = (
    "get_workspace_size",
    "get_workspace_size_plan_at_index",
    "serialize",
    "deserialize",
    "query_tensor_attributes_of_uid",
)


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError:
        what = "torch is not installed"
        raise DnncRuntimeError(
            Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
            what,
            "torch, or workspace= and outputs that the caller gives",
            "Graph",
        ) from None


_handles = threading.local()


def get_default_handle(stream: Any = None) -> Handle:
    """This thread's handle of a torch stream's device (default: torch's current stream)."""
    torch = _torch()
    chosen = torch.cuda.current_stream() if stream is None else stream
    known: dict[int, Handle] = _handles.__dict__.setdefault("known", {})
    device = getattr(chosen, "device", None)
    ordinal = torch.cuda.current_device() if device is None else device.index
    if ordinal not in known:
        known[ordinal] = create_handle()
        known[ordinal].own.device = ordinal
    set_stream(known[ordinal], int(getattr(chosen, "cuda_stream", chosen)))
    return known[ordinal]


def destroy_default_handle() -> None:
    """Closes this thread's default handles; later calls make new ones."""
    known: dict[int, Handle] = _handles.__dict__.setdefault("known", {})
    while known:
        destroy_handle(known.popitem()[1])


def _empty_like(tensor: Tensor) -> Any:
    """A torch tensor for a tensor of the graph."""
    torch = _torch()
    kind = cudnn_to_torch_data_type(tensor.get_data_type())
    if kind is None:
        what = f"{tensor.label} has the type {tensor.get_data_type().name}, which torch has not"
        raise DnncError(Status.BAD_PARAM, what, "an output that the caller gives", "Graph")
    return torch.empty_strided(tensor.get_dim(), tensor.get_stride(), device="cuda", dtype=kind)


def _empty_bytes(count: int) -> Any:
    if not count:
        return None
    torch = _torch()
    return torch.empty(count, device="cuda", dtype=torch.uint8)


class Graph:
    """A graph that is built when its `with` block ends, and then called.

    handle: where it runs; "auto": this thread's, on torch's current stream; None: calls give it.
    inputs, outputs: as those of `set_io_tuples`.  heuristics: heuristic modes.  workspace_alloc:
    whether the workspace is allocated here, by torch; else calls give it.  Others: of `pygraph`.
    Inside, methods take arrays where they take tensors.  An input is called `node::argument`, an
    output as cuDNN names it, `node::Y` for one; nodes without a name are `relu.0`, `relu.1`, ...
    """

    def __init__(
        self,
        *,
        handle: Any = None,
        inputs: Sequence[Any] | None = None,
        outputs: Sequence[Any] | None = None,
        heuristics: Sequence[heur_mode] | None = None,
        workspace_alloc: bool = True,
        **kwargs: Any,
    ):
        for name, value in (("inputs", inputs), ("outputs", outputs), ("heuristics", heuristics)):
            if value and not isinstance(value, list | tuple):
                raise _wrong(f"{name} is a {type(value).__name__}", "a list")
        self._handle = handle
        self._heuristics = list(heuristics or (heur_mode.A, heur_mode.FALLBACK))
        self._allocates = workspace_alloc
        self._kwargs = kwargs
        self._graph: pygraph | None = None
        self._is_built = False
        self._workspace: Any = None
        self._ports = _Ports()
        self._asked: tuple[Sequence[Any], Sequence[Any]] = (inputs or (), outputs or ())
        self._order: tuple[list[Tensor], list[Tensor]] | None = None

    def __enter__(self) -> Graph:
        if self._graph is not None:
            raise _out_of_order("a second `with` of one Graph", "a new one")
        given = {} if self._handle in ("auto", None) else {"handle": self._handle}
        self._graph = pygraph(**given, **self._kwargs)
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if kind is not None:
            self._graph = None
            return
        graph = self._made
        graph.build(self._heuristics)
        if self._allocates:
            self._workspace = _empty_bytes(graph.get_workspace_size())
        self._is_built = True
        if any(self._asked):
            self.set_io_tuples(*self._asked)

    @property
    def _made(self) -> pygraph:
        if self._graph is None:
            raise _out_of_order("a Graph that was not entered", "with Graph() as graph")
        return self._graph

    # ---- building

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._made, name)
        if name in _PASSED_ON or not inspect.ismethod(found):
            return found
        if name in ("tensor", "tensor_like", "tensor_scalar"):
            return self._keeping(found)
        row = OPERATIONS.get(ALIASES.get(name, name))
        if row is None:
            raise _out_of_order(f"{name}() of a Graph", "pygraph, to plan by hand")
        return self._naming(name, row.arguments, found)

    def _keeping(self, method: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def kept(*args: Any, **kwargs: Any) -> Tensor:
            made = method(*args, **kwargs)
            self._ports.declared.append(made)
            return made

        return kept

    def _naming(
        self, name: str, arguments: Sequence[str], method: Callable[..., Any]
    ) -> Callable[..., Any]:
        """A method that knows its inputs and outputs by name afterwards."""

        def named(*args: Any, **kwargs: Any) -> Any:
            node = self._ports.node(name, kwargs.get("name"))
            kwargs["name"] = node
            taken = [self._port(value) for value in args]
            given = {key: self._port(value) for key, value in kwargs.items()}
            for place, value in enumerate(taken):
                self._ports.add_input(f"{node}::{place}", value)
                if place < len(arguments):
                    self._ports.add_input(f"{node}::{arguments[place]}", value)
            for key, value in given.items():
                self._ports.add_input(f"{node}::{key}", value)
            made = method(*taken, **given)
            for result in made if isinstance(made, list) else [made]:
                if result is not None:
                    self._ports.outputs[result.get_name()] = result
            return made

        return named

    def _port(self, value: Any) -> Any:
        """A tensor of the graph for an array, one for each array object."""
        if isinstance(value, list | tuple):
            return type(value)([self._port(item) for item in value])
        if isinstance(value, Tensor) or not is_array(value):
            return value
        if id(value) not in self._ports.arrays:
            source = value.detach() if getattr(value, "requires_grad", False) else value
            made = self._made.tensor_like(source)
            self._ports.arrays[id(value)] = (value, made)
        return self._ports.arrays[id(value)][1]

    # ---- calling

    def set_io_tuples(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Sets what positional arguments and results of a call are, in order.

        Names, arrays that the graph was built from, tensors, or uids; every input and output has
        to be among them.
        """
        for name, value in (("inputs", inputs), ("outputs", outputs)):
            if not isinstance(value, list | tuple):
                raise _wrong(f"{name} is a {type(value).__name__}", "a list")
        if not self._is_built:
            self._asked = (inputs, outputs)
            return
        given = self._ports.found("input", inputs, self._ports.inputs)
        made = self._ports.found("output", outputs, self._ports.outputs)
        _require_once([*given, *made])
        _require_all(self._ports.outputs, made, "output")
        _require_all(self._ports.inputs, [*given, *made], "input")
        self._order = (given, made)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Executes: `graph(x, w)` gives new outputs; `graph({name, uid or tensor: array})` adds
        the outputs that are not there to the dictionary and gives that.  handle=, workspace=: in
        place of its own."""
        if not self._is_built:
            raise _out_of_order("a call of a Graph that is not built", "a call after its `with`")
        if len(args) == 1 and isinstance(args[0], dict):
            return self._call_by_name(args[0], kwargs)
        if self._order is None:
            raise _wrong("positional arguments", "set_io_tuples() first, or a dictionary")
        inputs, outputs = self._order
        if len(args) != len(inputs):
            raise _wrong(f"{len(args)} arguments", f"{len(inputs)}, one for each input")
        made = [_empty_like(tensor) for tensor in outputs]
        pack = dict(zip((t.uid for t in (*inputs, *outputs)), (*args, *made), strict=True))
        self._execute(pack, kwargs)
        return made[0] if len(made) == 1 else made

    def _call_by_name(self, arrays: dict[Any, Any], kwargs: dict[str, Any]) -> dict[Any, Any]:
        pack: dict[int, Any] = {}
        missing: dict[Tensor, str] = {}
        for name, tensor in (*self._ports.inputs.items(), *self._ports.outputs.items()):
            if tensor.is_virtual:
                continue
            keys = (name, tensor, tensor.name, tensor.uid)
            value = next((arrays[key] for key in keys if key in arrays), None)
            if value is not None:
                pack[tensor.uid] = value
            elif tensor.pass_by_value is None:
                missing[tensor] = name
        made = {tensor: name for tensor, name in missing.items() if tensor.uid not in pack}
        absent = [name for name in made.values() if name not in self._ports.outputs]
        if absent:
            what = f"no array for {', '.join(absent)}"
            raise DnncRuntimeError(Status.BAD_PARAM, what, "one for each input", "Graph")
        for tensor, name in made.items():
            pack[tensor.uid] = arrays[name] = _empty_like(tensor)
        self._execute(pack, kwargs)
        return arrays

    def _execute(self, pack: Mapping[int, Any], kwargs: dict[str, Any]) -> None:
        given = dict(kwargs)
        if "handle" not in given:
            given["handle"] = get_default_handle() if self._handle == "auto" else self._handle
        if given["handle"] is None:
            raise _out_of_order("a call without a handle", 'handle=, or handle="auto"')
        if "workspace" not in given:
            if not self._allocates:
                raise _out_of_order("a call without a workspace", "workspace=")
            given["workspace"] = self._workspace
        self._made.execute(pack, **given)


class _Ports:
    """The inputs and outputs of a Graph's nodes, by name.

    arrays: id of an array -> the array, which so stays alive, and its tensor.  declared: tensors
    that the caller made.
    """

    def __init__(self) -> None:
        self.inputs: dict[str, Tensor] = {}
        self.outputs: dict[str, Tensor] = {}
        self.arrays: dict[int, tuple[Any, Tensor]] = {}
        self.declared: list[Tensor] = []
        self._nodes: set[str] = set()
        self._counts: dict[str, int] = {}

    def node(self, method: str, name: str | None) -> str:
        """The name of a new node; one that another has is a ValueError."""
        count = self._counts[method] = self._counts.get(method, -1) + 1
        chosen = name or f"{method}.{count}"
        if chosen in self._nodes:
            raise _wrong(f"a second node {chosen!r}", "a name for each node")
        self._nodes.add(chosen)
        return chosen

    def add_input(self, name: str, value: Any) -> None:
        if isinstance(value, list | tuple):
            for place, item in enumerate(value):
                self.add_input(f"{name}::{place}", item)
        elif isinstance(value, Tensor):
            self.inputs[name] = value

    def found(self, kind: str, asked: Sequence[Any], known: Mapping[str, Tensor]) -> list[Tensor]:
        """The tensors that names, arrays, tensors or uids mean."""
        return [self._found(f"{kind} {place}", key, known) for place, key in enumerate(asked)]

    def _found(self, where: str, key: Any, known: Mapping[str, Tensor]) -> Tensor:
        if isinstance(key, str) and key in known:
            found = known[key]
        else:
            everything = (*known.values(), *self.declared)
            array = self.arrays.get(id(key))
            found = next((t for t in everything if _is_meant(t, key, array)), None)
        if found is None:
            raise _wrong(f"{where} is {key!r:.80}, which no tensor is", ", ".join(known))
        if found.is_virtual:
            raise _wrong(f"{where}, {found.label}, is virtual", "set_output(True)")
        return found


def _is_meant(tensor: Tensor, key: Any, array: tuple[Any, Tensor] | None) -> bool:
    if array is not None:
        return tensor is array[1]
    if isinstance(key, str):
        return tensor.name == key
    return tensor.uid == key if isinstance(key, int) else tensor is key


def _require_once(tensors: Iterable[Tensor]) -> None:
    seen: set[Tensor] = set()
    for tensor in tensors:
        if tensor in seen:
            raise _wrong(f"{tensor.label} twice", "each tensor once")
        seen.add(tensor)


def _require_all(known: Mapping[str, Tensor], given: Sequence[Tensor], kind: str) -> None:
    for name, tensor in known.items():
        is_needed = not tensor.is_virtual and tensor.pass_by_value is None
        if is_needed and tensor not in given:
            raise _wrong(f"{kind} {name} is not among the {kind}s", "every tensor of the graph")


def _wrong(what: str, accepted: str) -> DnncError:
    return DnncError(Status.BAD_PARAM, what, accepted, "Graph")


def _out_of_order(what: str, accepted: str) -> DnncError:
    return DnncRuntimeError(Status.BAD_PARAM_NOT_FINALIZED, what, accepted, "Graph")


__all__ = ["Graph", "data_type", "destroy_default_handle", "get_default_handle", "heur_mode"]
