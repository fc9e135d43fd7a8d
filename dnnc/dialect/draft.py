"""The JSON form of a graph that is being built.

A graph that can be finalized has the form that it would have then.  Of any other, the form holds
what there is: tensors that no operation uses yet, too; dims, strides and data types that are not
known are left out, tensors without a uid have one of those that are free.
"""

from __future__ import annotations

import contextlib
import copy
from typing import Any

from ..errors import DnncError
from . import json_form
from .graph import OperationGraph, give_uids
from .tensor import Tensor


def copied(graph: OperationGraph) -> tuple[OperationGraph, dict[Tensor, Tensor]]:
    """An open graph with copies of the tensors and operations, and each tensor's copy."""
    made = OperationGraph(
        graph.name, io_type=graph.io_type, intermediate_type=graph.intermediate_type
    )
    tensors = {tensor: copy.copy(tensor) for tensor in graph.declared}
    for tensor in tensors.values():
        if tensor.ragged_offset is not None:
            tensor.ragged_offset = tensors.get(tensor.ragged_offset, tensor.ragged_offset)
        made.add_tensor(tensor)
    made.bounds, made.repeats = [*graph.bounds], graph.repeats
    for op in graph.ops:
        made.add(op.with_tensors(tensors))
    inferred = graph.inferred_strides.items()
    made.inferred_strides = {tensors[t]: strides for t, strides in inferred if t in tensors}
    return made, tensors


def to_json(graph: OperationGraph) -> dict[str, Any]:
    """The JSON form of a copy that `copied` made, which this may finalize."""
    as_it_is, _ = copied(graph)
    with contextlib.suppress(DnncError):
        return json_form.to_json(graph.finalize())
    give_uids(as_it_is.declared)
    sizes = [s for t in as_it_is.declared for s in (*(t.dims or ()), *(t.strides or ()))]
    symbols = {dim for size in sizes for dim in size.dims()}
    return {
        "dnnc_graph": json_form.VERSION,
        "name": graph.name,
        "symbols": [
            json_form.symbol_to_json(d) for d in sorted(symbols, key=lambda d: (d.name, d.max))
        ],
        **json_form.bounds_to_json(sorted(bound for bound, _ in graph.bounds)),
        "tensors": [_tensor_to_json(tensor) for tensor in as_it_is.declared],
        "ops": [json_form.op_to_json(op) for op in as_it_is.ops],
    }


def _tensor_to_json(tensor: Tensor) -> dict[str, Any]:
    """A tensor, without what is not known."""
    data: dict[str, Any] = {"uid": tensor.uid}
    if tensor.dims is not None:
        data["dims"] = json_form.sizes_to_json(tensor.dims)
    if tensor.strides is not None:
        data["strides"] = json_form.sizes_to_json(tensor.strides)
    if tensor.dtype is not None:
        data["dtype"] = tensor.dtype.name
    data |= json_form.options_to_json(tensor)
    if tensor.ragged_offset is not None:
        data["ragged_offset"] = tensor.ragged_offset.uid
    return data
