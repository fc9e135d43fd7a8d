# pyright: basic
"""Inference while a graph is being built, so that users can read dims before it is whole."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from copy import copy

from .. import dtypes
from ..dialect import vectors
from ..dialect.graph import OperationGraph, separate
from ..dialect.op import Op
from ..dialect.ops import Reduction
from ..dialect.tensor import Tensor
from ..errors import DnncError, Status
from .graph_tensor import GraphTensor


def infer_again(graph: OperationGraph) -> None:
    """Forgets what was inferred of a graph's tensors and not set since.

    What follows from vectors and from reordered tensors is inferred at once, so that finalizing
    sees how they lie.
    """
    for tensor in graph.tensors:
        if isinstance(tensor, GraphTensor):
            tensor.infer_again()
    if any(tensor.is_vectorized or tensor.reordering != "NONE" for tensor in graph.tensors):
        infer_waiting(graph)


def infer_waiting(graph: OperationGraph) -> None:
    """Infers what the operands' dims allow, operation by operation."""
    Waiting().infer(graph)


class Waiting:
    """The operations of a growing graph whose results' dims or strides are still open.

    A step of building looks at these and at new ones, not at the whole graph.
    """

    def __init__(self) -> None:
        self._ops: list[Op] = []
        self._seen = 0  # operations of the graph that were looked at

    def again(self) -> None:
        """Has every operation looked at again, since what was inferred is forgotten."""
        self._ops, self._seen = [], 0

    def infer(self, graph: OperationGraph) -> None:
        """Infers what the operands' dims allow, operation by operation."""
        left: list[Op] = []
        for op in (*self._ops, *graph.ops[self._seen :]):
            if _is_open(op):
                open_strides = [tensor for tensor in op.results if tensor.strides is None]
                _infer_early(op)
                graph.inferred_strides |= {t: t.strides for t in open_strides if t.strides}
                if _is_open(op):
                    left.append(op)
        self._ops, self._seen = left, len(graph.ops)


def _is_open(op: Op) -> bool:
    return any(t.dims is None or t.strides is None for t in op.results)


def require_fit(graph: OperationGraph, op: Op) -> None:
    """Raises at once where the dims of an operation's operands, all known, don't fit each other.

    What else may be wrong is left to `validate`: types and results may be set later.
    """
    if any(len(t.dims or ()) != len(t.strides or ()) or t.dims is None for t in op.operands):
        return
    if not _has_single_symbols(op):
        return
    twins = {tensor: copy(tensor) for tensor in (*op.operands, *op.results)}
    trial = op.with_tensors(twins)
    try:
        trial = vectors.of_elements(trial)
        _with_types(trial.operands, graph)
        trial.verify_rank_0()
        trial.infer()
        _with_types(trial.results, graph)
        trial.verify()
    except DnncError as error:
        if error.status == Status.BAD_PARAM_SHAPE_MISMATCH:
            raise
    except (AssertionError, ValueError):
        pass  # dims that are to be set yet


def _has_single_symbols(op: Op) -> bool:
    """Whether no two sizes have one name; `validate` has an error of its own for these."""
    sizes = [size for tensor in op.operands for size in (*tensor.shape, *tensor.layout)]
    symbols = {dim for size in sizes for dim in size.dims()}
    return len({dim.name for dim in symbols}) == len(symbols)


def _with_types(tensors: Sequence[Tensor], graph: OperationGraph) -> None:
    for tensor in tensors:
        tensor.dtype = tensor.dtype or graph.io_type or dtypes.f32


def _infer_early(op: Op) -> None:
    """Infers the results' dims where the operands are known, so that users can read them.

    What can't be inferred yet is left to `validate`, which reports it.
    """
    if any(len(t.dims or ()) != len(t.strides or ()) or t.dims is None for t in op.operands):
        return  # `validate` says what is missing
    if isinstance(op, Reduction) and op.y.dims is None:
        return  # the user sets them mostly, and what follows should not show others until then
    open_fields = [
        (tensor, [f for f in ("dims", "strides", "dtype") if getattr(tensor, f) is None])
        for tensor in op.results
    ]
    with contextlib.suppress(DnncError, ValueError):
        on_elements = vectors.of_elements(op)
        on_elements.verify_rank_0()
        on_elements.infer()
        for elements, tensor in zip(on_elements.results, op.results, strict=True):
            vectors.fold(elements, tensor)
    for tensor, fields in open_fields:
        if "strides" in fields:
            separate(tensor)
        found = {field for field in fields if getattr(tensor, field) is not None}
        if isinstance(tensor, GraphTensor):
            tensor._inferred |= found
