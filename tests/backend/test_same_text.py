"""A descriptor graph and a pygraph of the same work are the same `dnn` text."""

import pytest

from dnnc import backend as b
from dnnc import create_handle
from dnnc.dialect import dnn
from dnnc.dialect.ops import OPS
from tests.dialect.examples import ALL_EXAMPLES, EXAMPLES

from .building import SPELLED, Writer, graph_of, inexpressible


def nameless(graph):
    """The graph, without what descriptors do not have: names, and constants."""
    graph.name = "graph"
    for op in graph.ops:
        op.name = ""
    for tensor in graph.tensors:
        tensor.name = ""
        if tensor.is_constant:
            tensor.value, tensor.is_by_value = None, True
    return graph.finalize()


def text(graph):
    with dnn.context():
        return str(dnn.to_mlir(graph))


# What descriptors say; the others are named below.
EXPRESSIBLE = [
    (f"{op}-{number}", build)
    for op, number, build in ALL_EXAMPLES
    if op in SPELLED and not inexpressible(nameless(build().graph))
]


@pytest.mark.parametrize("build", [b for _, b in EXPRESSIBLE], ids=[n for n, _ in EXPRESSIBLE])
def test_both_doors_write_one_text(build):
    graph = nameless(build().graph)
    ranks = {op.peer_rank for op in graph.ops if getattr(op, "peer_stats", ())}
    handle = create_handle(ranks.pop()) if ranks else None
    made = b.operation_graph(graph_of(*Writer(graph).operations(), handle=handle))
    assert text(made) == text(graph)


def test_every_operation_of_both_is_among_them():
    ours = {op.op_name for op in OPS if f"CUDNN_BACKEND_{op.backend}_DESCRIPTOR" in dir(b)}
    assert ours == set(SPELLED)
    assert {name.rsplit("-", 1)[0] for name, _ in EXPRESSIBLE} == ours


def test_what_can_not_be_said_is_known():
    reasons = {inexpressible(nameless(build().graph)) for op in SPELLED for build in EXAMPLES[op]}
    assert reasons <= {
        "", "a default of a scalar", "a reshape that keeps the order of indices", "transpose",
        "slice", "the index of a reduction", "a norm that computes in another type than FLOAT",
        "softmax", "softmax_backward", "a tensor without dims", "broadcast",
        "what attention does beside scale, lengths and pages",
    }  # fmt: skip
