# pyright: basic
"""From a recorded graph to a `dnnc.pygraph`, which infers, checks, plans and compiles.

What cudnn-frontend takes and `dnnc.pygraph` does not is put right here, method by method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

from .. import dtypes
from ..dialect.tensor import sizes
from ..errors import DnncError, DnncTypeError, Status, cudnnGraphNotSupportedError
from ..expr import Dim
from ..frontends import pygraph as own
from ..frontends.graph_tensor import GraphTensor
from ..places import noted
from . import enums
from .operations import OPERATIONS, Operation
from .packs import ROWS
from .recording import Recording
from .tensors import Node, Tensor, plain

# Dims and strides in place of a tensor's own.
Layouts = Mapping[Tensor, tuple[Sequence[int], Sequence[int]]]


class Lowered:
    """The `dnnc.pygraph` of a recording.

    graph: the pygraph.  tensors: its tensors by those of the recording.
    """

    def __init__(self, graph: own.pygraph, layouts: Layouts | None = None):
        self.graph = graph
        self.tensors: dict[Tensor, Any] = {}
        self._layouts = layouts or {}

    def add(self, nodes: Sequence[Node]) -> None:
        """Adds nodes in order; the first that can't be added is the error."""
        for node in nodes:
            try:
                with noted(node.place):
                    self._add(node)
            except DnncError as error:
                _tell(error, node)
                raise

    def _add(self, node: Node) -> None:
        row = OPERATIONS[node.method]
        if row.missing is not None:
            raise Unserved(node)
        _verify_needed(row, node)
        given = {port: self._value(value) for port, value in node.arguments.items()}
        given = _ADAPTERS.get(node.method, _unchanged)(self, node, given)
        made = getattr(self.graph, node.method)(**given, **self._common(row, node))
        results = made if isinstance(made, tuple) else [made]
        for port, result in zip(row.results, results, strict=False):
            if port in node.outputs:
                self._describe(node, port, result)

    def _common(self, row: Operation, node: Node) -> dict[str, Any]:
        found: dict[str, Any] = {"name": node.name}
        if "compute_data_type" in row.arguments and node.method not in _WITHOUT_TYPE:
            found["compute_data_type"] = enums.own_type(node.own_type, node.name)
        return found

    def _value(self, value: Any) -> Any:
        """An argument as `dnnc.pygraph` takes it."""
        if isinstance(value, Tensor):
            return self.tensor(value)
        if isinstance(value, list | tuple):
            return type(value)([self._value(item) for item in value])
        if isinstance(value, enums.data_type):
            return enums.own_type(enums.type_of(value))
        return value.name if isinstance(value, Enum) else value

    # ---- tensors

    def tensor(self, tensor: Tensor) -> Any:
        """The tensor of the pygraph; one that no node made is declared there."""
        found = self.tensors.get(tensor)
        if found is None:
            with noted(tensor.place):
                found = self.tensors[tensor] = self._declared(tensor)
        return found

    def _declared(self, tensor: Tensor) -> Any:
        if tensor.scalar_type is not None:
            made = self.graph.tensor_scalar(
                tensor.pass_by_value or 0,
                tensor.scalar_type.name,
                enums.own_type(tensor.data_type, tensor.label),
            )
            return made.set_name(tensor.name).set_uid(tensor.uid)
        dim, stride = self._layout(tensor)
        made = self.graph.tensor(
            dim,
            stride,
            enums.own_type(tensor.data_type, tensor.label),
            tensor.is_virtual,
            tensor.is_pass_by_value,
            reordering_type=tensor.reordering_type.name,
            name=tensor.name,
            uid=tensor.uid,
        )
        if tensor.is_pass_by_value:
            made.value = tensor.pass_by_value
        self._set_memory(tensor, made)
        return made

    def _set_memory(self, tensor: Tensor, made: Any) -> None:
        """Sets how a tensor lies in memory, beside strides."""
        if tensor.alignment is not None:
            made.set_alignment(tensor.alignment)
        if tensor.vectors is not None:
            made.set_vector_count_and_dimension(*tensor.vectors)
        if tensor.ragged_offset is not None:
            made.set_ragged_offset(self.tensor(tensor.ragged_offset))
            made.set_ragged_offset_multiplier(tensor.ragged_offset_multiplier)

    def _describe(self, node: Node, port: str, made: Any) -> None:
        """Gives a result what its caller said of it."""
        tensor = node.outputs[port]
        self.tensors[tensor] = made
        made.set_name(tensor.name).set_uid(tensor.uid)
        kind = tensor.data_type if tensor.type_assigned else _type_of_result(node, port, tensor)
        if kind is not None:
            made.set_data_type(enums.own_type(kind, tensor.label))
        if tensor.reordering_type.name != "NONE":
            made.set_reordering_type(tensor.reordering_type.name)
        dim, stride = self._layouts.get(tensor, (None, None))
        if dim is None and tensor.dim_assigned:
            dim = tensor.dim
        if stride is None and tensor.stride_assigned:
            stride = tensor.stride
        if dim is not None:
            made.set_dim(dim)
        if stride is not None:
            made.set_stride(stride)
        made.set_output(not tensor.is_virtual)
        self._set_memory(tensor, made)

    def written(self, name: str, tensor: Any) -> Any:
        """A tensor that its caller declared and an operation writes."""
        if not isinstance(tensor, Tensor):
            what = f"{name} is a {type(tensor).__name__}"
            raise DnncTypeError(Status.BAD_PARAM, what, "a tensor of the graph")
        made = self.tensor(tensor)
        return made.set_output(not tensor.is_virtual)

    def _layout(self, tensor: Tensor) -> tuple[Sequence[Any], Sequence[Any]]:
        return self._layouts.get(tensor, (tensor.dim, tensor.stride))

    def rows(self, tensors: Sequence[Tensor]) -> Dim | None:
        """How many rows packed tensors have: a symbol, which the bytes of their buffers tell.

        None where none is packed, and where rows are not the outermost part of memory, so that no
        number of bytes is one of rows.
        """
        packed = [t for t in tensors if t.ragged_offset is not None and len(t.dim) == 4]
        if not packed or not all(_is_by_rows(*self._layout(tensor)) for tensor in packed):
            return None
        batch, _, rows, _ = self._layout(tensors[0])[0]
        return Dim(f"{ROWS}{tensors[0].uid}", max=batch * rows)

    def ones(self, like: Any, axes: Sequence[int]) -> Any:
        """Ones of a tensor's sizes along some axes, and of 1 along others; they take no memory."""
        graph = self.graph
        parts = [slice(None) if axis in axes else slice(0, 1) for axis in range(like.rank)]
        index = graph.gen_index(graph.slice(like, parts), axis=0).set_data_type(dtypes.f32)
        return graph.cmp_ge(index, 0.0).set_data_type(dtypes.f32)

    # ---- what was inferred

    def read_back(self, is_packed_now: bool = False) -> None:
        """Gives the recording's tensors the dims, strides and types that were inferred.

        is_packed_now: whether packed tensors have the dims of their rows by now, which are the
        pygraph's alone.
        """
        for tensor, made in self.tensors.items():
            if not tensor.type_assigned and (dtype := made.get_data_type()) is not None:
                tensor.data_type = enums.type_of_own(dtype)
            if is_packed_now and tensor.ragged_offset is not None:
                continue
            if not tensor.dim_assigned:
                tensor.dim = made.get_dim()
            if not tensor.stride_assigned and len(stride := made.get_stride()) == len(tensor.dim):
                tensor.stride = stride

    # ---- score modifications

    def modification(self, node: Node, function: Callable[[Any, Any], Any]) -> Any:
        """A score modification as `dnnc.pygraph` calls it.

        The caller's function gets a recording and a tensor of the scores, and may use tensors of
        the graph that it was made in; what it records is added then.
        """

        def modified(_: Any, scores: Any) -> Any:
            owner = next(iter(node.outputs.values())).owner
            context = owner.context
            recording = Recording(
                context.io_data_type, context.intermediate_data_type, context.compute_data_type,
                owner._uids, owner._bindings,
            )  # fmt: skip
            given = recording.tensor(
                [plain(size) for size in scores.shape],
                [plain(size) for size in scores.layout],
                enums.type_of_own(scores.dtype),
                is_virtual=True,
                name=scores.name,
            )
            self.tensors[given] = scores
            with noted(None):
                found = function(recording, given)
            if not isinstance(found, Tensor):
                what = f"a score modification that gives a {type(found).__name__}"
                raise DnncTypeError(Status.BAD_PARAM, what, "a tensor", node.name)
            self.add(recording.nodes)
            return self.tensor(found)

        return modified


def _is_by_rows(dim: Sequence[Any], stride: Sequence[Any]) -> bool:
    is_fixed = all(isinstance(size, int) for size in (*dim, *stride))
    return is_fixed and stride[2] == max(stride[1:])


class Unserved(cudnnGraphNotSupportedError):
    """The error of an operation that dnnc lacks.

    step: the step that raises it.
    """

    def __new__(cls, node: Node) -> Unserved:
        return Exception.__new__(cls)

    def __init__(self, node: Node):
        missing = OPERATIONS[node.method].missing
        assert missing is not None, "the caller has looked"
        status = Status.NOT_SUPPORTED_GRAPH_PATTERN
        accepted = "the operations of docs/support.md"
        super().__init__(status, missing.reason, accepted, _place(node), made_at=node.place)
        self.step = missing.step


def _type_of_result(node: Node, port: str, tensor: Tensor) -> enums.data_type | None:
    """The type of an output that its caller gave none: the graph's, whatever the operation gives.

    None: what the operation gives, of a slice, which has its input's, and of attention's
    statistics, which are FLOAT; and of a virtual tensor, for `dnnc.pygraph` to choose.
    """
    is_statistic = node.method in ("sdpa", "sdpa_fp8") and port != "O"
    is_statistic |= node.method == "sdpa_fp8_backward" and port.startswith("amax")
    if tensor.is_virtual or is_statistic or node.method == "slice":
        return None
    return tensor.owner.context.io_data_type


def _verify_needed(row: Operation, node: Node) -> None:
    for name, kind in row.needed.items():
        if node.arguments.get(name) is None:
            raise kind(Status.BAD_PARAM, f"no {name}", ", ".join(row.needed), _place(node))


def _place(node: Node) -> str:
    return f"{node.method} '{node.name}'"


def _tell(error: DnncError, node: Node) -> None:
    """Names the operation and its line in an error that says none."""
    error.where = error.where or _place(node)
    error.made_at = error.made_at or node.place


# ---- methods that differ

Given = dict[str, Any]


def _unchanged(_: Lowered, __: Node, given: Given) -> Given:
    return given


def _without(given: Given, *names: str) -> Given:
    return {name: value for name, value in given.items() if name not in names}


def _dims_of(value: Any) -> list[Any]:
    """The dims of a tensor of the pygraph, as far as they are known; none of anything else."""
    return value.get_dim() if isinstance(value, GraphTensor) else []


def _matmul(_: Lowered, node: Node, given: Given) -> Given:
    """`padding` is a value beyond sizes that a call can't give here, as in cudnn-frontend, whose
    operands have equal ranks; a pygraph broadcasts the batches of others."""
    a, b = (_dims_of(given.get(name)) for name in ("A", "B"))
    if a and b and len(a) != len(b):
        what, where = f"A of {len(a)} dims, B of {len(b)}", f"{_place(node)} (C1)"
        raise DnncError(Status.BAD_PARAM_SHAPE_MISMATCH, what, "equal ranks", where)
    return _without(given, "padding")


def _reduction(_: Lowered, node: Node, given: Given) -> Given:
    if given.pop("group_offset", None) is not None:
        what = "group_offset: sums of groups"
        raise DnncError(Status.NOT_SUPPORTED, what, "none", _place(node))
    return given


def _convolution(_: Lowered, node: Node, given: Given) -> Given:
    has_padding = "padding" in given or {"pre_padding", "post_padding"} <= given.keys()
    wanted = {"padding": has_padding, "stride": "stride" in given, "dilation": "dilation" in given}
    for name, is_given in wanted.items():
        if not is_given:
            raise DnncError(Status.BAD_PARAM, f"no {name}", "one for each axis", _place(node))
    return given


def _slice(_: Lowered, node: Node, given: Given) -> Given:
    slices = given.get("slices") or ()
    rank = len(_dims_of(given.get("input")))
    if rank and len(slices) != rank:
        what, wanted = f"{len(slices)} slices of {rank} dims", "one for each dim"
        raise DnncError(Status.BAD_PARAM_SHAPE_MISMATCH, what, wanted, _place(node))
    return given


def _norm(lowered: Lowered, node: Node, given: Given) -> Given:
    """A norm, or its gradient, may have no scale: then that is ones, over the normalized axes."""
    if given.get("scale") is not None:
        return given
    x = given.get("input")
    dims = _dims_of(x)
    if not dims:
        raise DnncError(Status.BAD_PARAM, "no dims of the input", "an input", _place(node))
    return {**given, "scale": lowered.ones(x, _normalized(node, dims))}


def _normalized(node: Node, dims: Sequence[Any]) -> list[int]:
    """The axes that a norm without a scale is over: those that its statistics, where they are
    known, have not; else all after the first."""
    stats = [
        tensor
        for tensors in (node.outputs, node.inputs)
        for port in ("mean", "inv_var", "inv_variance")
        if (tensor := tensors.get(port)) is not None and tensor.dim_assigned
    ]
    if not stats:
        return list(range(1, len(dims)))
    return [axis for axis, size in enumerate(stats[0].dim) if size == 1]


def _rmsnorm_backward(lowered: Lowered, node: Node, given: Given) -> Given:
    given.setdefault("has_dbias", "scale" in given)
    return _norm(lowered, node, given)


def _sdpa(lowered: Lowered, node: Node, given: Given) -> Given:
    written = OPERATIONS[node.method].written
    found = {
        name: lowered.written(name, node.arguments[name]) if name in written else value
        for name, value in given.items()
    }
    # How scores are rounded is the engine's.
    found.pop("unfuse_fma", None)
    for name in _MODIFICATIONS:
        if found.get(name) is not None:
            found[name] = lowered.modification(node, found[name])
    for parameter, tensors in _sides(node):
        if found.get(parameter) is None and (rows := lowered.rows(tensors)) is not None:
            found[parameter] = rows
    has_pages = any(found.get(f"paged_attention_{k}_table") is not None for k in "kv")
    if not has_pages:
        # It bounds the keys of pages; without pages it says what K's dims say.
        found.pop("paged_attention_max_seq_len_kv", None)
    return found


_MODIFICATIONS = ("score_mod", "score_mod_bprop", "fn")


def _sides(node: Node) -> list[tuple[str, list[Tensor]]]:
    """The tensors of queries and of keys, with the argument that says how many rows there are."""
    given, made = node.arguments, node.outputs
    queries = [given.get("q"), *made.values()]
    keys = [given.get("k"), given.get("v")]
    if node.method in ("sdpa_backward", "sdpa_fp8_backward"):
        queries = [*(given.get(name) for name in ("q", "o", "dO", "stats")), made.get("dQ")]
        keys += [made.get("dK"), made.get("dV")]
    named = (("max_total_seq_len_q", queries), ("max_total_seq_len_kv", keys))
    return [(name, [t for t in side if isinstance(t, Tensor)]) for name, side in named]


def _sdpa_fp8(lowered: Lowered, node: Node, given: Given) -> Given:
    if given.pop("sf_o", None) is not None:
        what = "sf_o: block scales of O are of sm_100"
        raise DnncError(Status.NOT_SUPPORTED, what, "scale_o", _place(node))
    return _own_softmax(lowered, node, given)


def _own_softmax(lowered: Lowered, node: Node, given: Given) -> Given:
    for name in ("softmax_precision", "attn_scale_prefolded"):
        if given.pop(name, None):
            what = f"{name}: only cudnn-frontend's own kernels for sm_100 have it"
            raise DnncError(Status.NOT_SUPPORTED, what, "a softmax in FLOAT", _place(node))
    return _sdpa(lowered, node, given)


_Adapter = Callable[[Lowered, Node, Given], Given]

_ADAPTERS: Mapping[str, _Adapter] = {
    "matmul": _matmul,
    **dict.fromkeys(("conv_fprop", "conv_dgrad", "conv_wgrad"), _convolution),
    "slice": _slice,
    "reduction": _reduction,
    **dict.fromkeys(("layernorm", "layernorm_backward", "rmsnorm"), _norm),
    "rmsnorm_backward": _rmsnorm_backward,
    "sdpa": _sdpa,
    "sdpa_fp8": _sdpa_fp8,
    "sdpa_backward": _sdpa,
    "sdpa_fp8_backward": _own_softmax,
}

# Methods of `dnnc.pygraph` without a compute type.
_WITHOUT_TYPE = ("concatenate",)


def layouts_of(
    tensors: Mapping[int, Tensor],
    uids: Sequence[int] | None,
    shapes: Sequence[Sequence[int]] | None,
    strides: Sequence[Sequence[int]] | None,
) -> Layouts:
    """The dims and strides that a call gives in place of a graph's own."""
    listed = [] if uids is None else [int(uid) for uid in uids]
    for name, rows in (("override_shapes", shapes), ("override_strides", strides)):
        if rows is None or len(rows) != len(listed):
            what = f"{0 if rows is None else len(rows)} {name} of {len(listed)} override_uids"
            raise DnncError(Status.BAD_PARAM, what, "one for each uid", "execute")
    found: dict[Tensor, tuple[Sequence[int], Sequence[int]]] = {}
    for uid, shape, stride in zip(listed, shapes or (), strides or (), strict=True):
        tensor = tensors.get(uid)
        if tensor is None:
            what = f"override of uid {uid}, which no tensor has"
            raise DnncError(Status.BAD_PARAM, what, "a uid of the graph", "execute")
        if len(sizes(shape)) != len(sizes(stride)):
            what = f"shape {list(shape)} and strides {list(stride)}"
            raise DnncError(Status.BAD_PARAM_SHAPE_MISMATCH, what, "one rank", tensor.label)
        found[tensor] = (tuple(map(int, shape)), tuple(map(int, stride)))
    return found
