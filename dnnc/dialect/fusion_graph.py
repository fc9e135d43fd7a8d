"""A fusion as a graph of its own, to be compiled apart from the graph that it is part of."""

from __future__ import annotations

from dataclasses import fields

from ..errors import DnncError
from .fusion import Fusion
from .graph import OperationGraph
from .tensor import Tensor


def graph_of(fusion: Fusion) -> OperationGraph | None:
    """The graph of a fusion's operations, on copies of its tensors; None: it can't stand alone.

    What other fusions make are inputs of it, what they read are outputs.  A tensor whose memory
    is another's, or in an order of its own, means something in the whole graph only.
    """
    fusion = fusion.in_graph
    if any(t.prior_of is not None or t.reordering != "NONE" for t in fusion.tensors):
        return None
    twins = {tensor: _copy(tensor) for tensor in fusion.tensors}
    for tensor, twin in twins.items():
        twin.is_output = tensor in fusion.outputs
        twin.is_virtual = tensor in fusion.producers and not twin.is_output
    graph = OperationGraph("fusion")
    graph.repeats = fusion.must_repeat
    graph.ops = [op.with_tensors(twins) for op in fusion.ops]
    try:
        graph.finalize()
    except DnncError:  # a tensor that may be stored between fusions may be no output
        return None
    same = [type(op) for op in graph.live_ops] == [type(op) for op in fusion.ops]
    return graph if same else None


def _copy(tensor: Tensor) -> Tensor:
    return Tensor(**{field.name: getattr(tensor, field.name) for field in fields(Tensor)})
