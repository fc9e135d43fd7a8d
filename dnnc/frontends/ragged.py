# pyright: basic
"""Packed sequences of a pygraph, as `sdpa` takes and gives them.

A tensor with a ragged offset is declared as if its sequences were padded, [B, H, S, D], and holds
their rows one after the other.  In the graph it is the tensor [1, H, T, D] of all these rows, under
its uid and name, and next to it stands a `ragged_load` or a `ragged_store`.  Results may become
ragged after the call that makes them, so that tensors are packed when the graph is validated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .. import dtypes
from ..dialect.graph import OperationGraph
from ..dialect.op import Op
from ..dialect.ops import RaggedLoad, RaggedStore
from ..dialect.tensor import Tensor, is_injective, packed_strides, sizes, stride_order, text
from ..errors import Status
from ..expr import Expr
from .graph_tensor import GraphTensor

_SUPPORTED = "an operand or a result of sdpa, and of it alone; else ragged_load and ragged_store"


@dataclass(frozen=True)
class Side:
    """The queries of one call, or its keys.

    name: of the call.
    lengths: of each sequence, [B, 1, 1, 1]; None: all have the size.  cumulative: where each
    begins and the last ends, [B + 1, 1, 1, 1], in rows: Q and O, or K and V, are packed then.
    total: the rows of packed ones; None: B * S.
    """

    name: str = ""
    lengths: Tensor | None = None
    cumulative: Tensor | None = None
    total: Expr | None = None

    def is_packed(self, tensor: Tensor) -> bool:
        return tensor.ragged_offset is not None or self.cumulative is not None

    def moved(self, copies: Mapping[Tensor, Tensor]) -> Side:
        """The side in a copy of the graph."""
        lengths, cumulative = (t and copies.get(t, t) for t in (self.lengths, self.cumulative))
        return replace(self, lengths=lengths, cumulative=cumulative)

    def of_statistics(self) -> Side:
        """The side of tensors that only a ragged offset packs."""
        return replace(self, cumulative=None)

    def places(self, tensor: Tensor) -> dict[str, Any]:
        """The fields of an operation that say where the sequences of a tensor are."""
        offset, multiplier = tensor.ragged_offset, getattr(tensor, "ragged_offset_multiplier", 1)
        if offset is None:
            offset, multiplier = self.cumulative, _row_stride(tensor)
        return {
            "offset": offset,
            "sequence": self.lengths,
            "offset_multiplier": multiplier,
            "name": self.name,
        }


def side_of(graph: Any, name: str, lengths: Any, cumulative: Any, total: Any) -> Side:
    """Queries or keys, as a call gives them; lengths follow from where sequences begin.

    Lengths of INT64 are cast: operations take those of INT32.
    """
    whole = None if total is None else sizes((total,))[0]
    if cumulative is None:
        return Side(name, as_int32(graph, lengths, name), None, whole)
    cumulative = as_int32(graph, cumulative, name)
    begins, ends = (
        graph.slice(cumulative, [part], name=name) for part in (slice(-1), slice(1, None))
    )
    made = graph.sub(ends, begins, compute_data_type=dtypes.i32, name=name).set_data_type(
        dtypes.i32
    )
    return Side(name, made, cumulative, whole)


def as_int32(graph: Any, given: Any, name: str) -> Any:
    """Lengths or a page table as operations take them: cast if they are INT64."""
    if not isinstance(given, Tensor) or given.dtype is not dtypes.i64:
        return given
    cast = graph.identity(given, compute_data_type=dtypes.i32, name=name)
    return cast.set_data_type(dtypes.i32)


class Packing:
    """The tensors of a pygraph that are packed, or may become so until it is validated."""

    def __init__(self) -> None:
        self._operands: dict[GraphTensor, Side] = {}
        self._results: dict[GraphTensor, Side] = {}

    def loaded(self, graph: Any, tensor: Any, side: Side) -> Any:
        """An operand of a call as the operation takes it: in padded form."""
        if not side.is_packed(tensor):
            return tensor
        if side.lengths is None:
            raise tensor.error(
                Status.BAD_PARAM,
                "ragged, without lengths",
                "use_padding_mask=True with seq_len_q and seq_len_kv, or cu_seq_len_q and _kv",
            )
        _verify_rank(tensor)
        known = self._operands.setdefault(tensor, side)
        if known.total != side.total:
            what = f"{known.total or 'no'} and {side.total or 'no'} max_total_seq_len"
            raise tensor.error(Status.BAD_PARAM, what, "one in all calls that take it")
        inner = (1 + axis for axis in stride_order(tensor.shape[1:], tensor.layout[1:]))
        made = GraphTensor(
            name=_padded_name(tensor),
            dims=tensor.dims,
            strides=packed_strides(tensor.shape, (0, *inner)),
            dtype=tensor.dtype or graph.graph.io_type,
            is_virtual=True,
            made_at=tensor.made_at,
        )
        made._graph = graph
        op = graph.graph.add(RaggedLoad(packed=tensor, y=made, **side.places(tensor)))
        op.made_at = tensor.made_at
        return made

    def may_be_stored(self, tensor: Any, side: Side) -> None:
        """A result of a call, which the caller may set a ragged offset on."""
        if isinstance(tensor, GraphTensor) and side.lengths is not None:
            self._results[tensor] = side

    def copied(self, copies: Mapping[Any, Any]) -> Packing:
        """The packing of a copy of the graph."""
        made = Packing()
        for own, its in ((self._operands, made._operands), (self._results, made._results)):
            its.update({copies[t]: side.moved(copies) for t, side in own.items() if t in copies})
        return made

    def apply(self, graph: OperationGraph) -> None:
        """Packs what is ragged; an error leaves the tensor as it was."""
        for tensor, side in list(self._operands.items()):
            _require_alone(graph, tensor, RaggedLoad)
            _pack(tensor, _packed_form(tensor, side.total))
            del self._operands[tensor]
        for tensor, side in list(self._results.items()):
            if side.is_packed(tensor) and tensor.dims is not None:
                _store(graph, tensor, side)
                del self._results[tensor]


Form = tuple[tuple[Expr, ...], tuple[Expr, ...]]


def _store(graph: OperationGraph, tensor: GraphTensor, side: Side) -> None:
    """A result, packed, is stored by an operation of its own."""
    _verify_rank(tensor)
    if not tensor._is_laid_out:  # the strides are those of padded rows
        tensor.strides = packed_strides(tensor.shape, (0, 2, 1, 3))
    form = _packed_form(tensor, side.total)
    for known in graph.declared:  # what is new gets its uid after them
        graph.add_tensor(known)
    maker = graph.producers[tensor]
    _require_alone(graph, tensor, type(maker))
    io_type = None if tensor.is_virtual else graph.io_type
    padded = GraphTensor(
        name=_padded_name(tensor), dtype=tensor.dtype or io_type, is_virtual=True, dims=tensor.dims,
        made_at=tensor.made_at,
    )  # fmt: skip
    padded._graph = tensor._graph
    for field, made in maker.tensors("result"):
        if made is tensor:
            setattr(maker, field.name, padded)
    graph.add(RaggedStore(x=padded, packed=tensor, **side.places(tensor))).made_at = maker.made_at
    _pack(tensor, form)


def _packed_form(tensor: Tensor, total: Expr | None) -> Form:
    """Dims of all rows together, and strides: those of heads, rows and elements stay."""
    if tensor.is_vectorized:
        what = "packed sequences, of vectors"
        raise tensor.error(Status.NOT_SUPPORTED_LAYOUT, what, "packed sequences of elements")
    batch, heads, rows, depth = tensor.shape
    dims = (heads, total if total is not None else batch * rows, depth)
    strides = tensor.layout[1:]
    outermost = stride_order(dims, strides)[0]
    whole = dims[outermost] * strides[outermost]
    form = (Expr.of(1), *dims), (whole, *strides)
    if not is_injective(*form):
        raise tensor.error(
            Status.NOT_SUPPORTED_LAYOUT,
            f"ragged, and strides {text(strides)} of {dims[0]} heads, {dims[1]} rows and "
            f"{depth} elements put two in one place",
            "heads within a row, as of [B, S, H, D] in memory, or as far apart as all rows",
        )
    return form


def _pack(tensor: GraphTensor, form: Form) -> None:
    tensor.dims, tensor.strides = form
    tensor.ragged_offset = None
    tensor._inferred -= {"dims", "strides"}


def _require_alone(graph: OperationGraph, tensor: Tensor, kind: type[Op]) -> None:
    """No operation but those of one kind has a packed tensor."""
    for op in graph.ops:
        if tensor in (*op.operands, *op.results) and not isinstance(op, kind):
            what = f"ragged, and a tensor of {op.label}"
            raise tensor.error(Status.NOT_SUPPORTED_LAYOUT, what, _SUPPORTED)


def _verify_rank(tensor: Tensor) -> None:
    if tensor.dims is None or tensor.strides is None or not tensor.rank == len(tensor.layout) == 4:
        shown = "unknown dims" if tensor.dims is None else f"dims {text(tensor.dims)}"
        raise tensor.error(
            Status.BAD_PARAM_SHAPE_MISMATCH, f"ragged, with {shown}", "[B, H, S, D] with strides"
        )


def _row_stride(tensor: Tensor) -> int:
    stride = tensor.layout[2].constant
    if stride is None:
        raise tensor.error(
            Status.NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE,
            f"cumulative lengths, and rows {tensor.layout[2]} elements apart",
            "a fixed stride of rows; else a ragged offset",
        )
    return stride


def _padded_name(tensor: Tensor) -> str:
    return f"{tensor.name}::PADDED" if tensor.name else ""
