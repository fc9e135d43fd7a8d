"""The attention of small sequences by descriptors, as cuDNN's guide has it."""

import pytest

import dnnc
from dnnc import DnncError, Status
from dnnc import backend as b
from tests.mha_graphs import SmallAttention
from tests.support.checked import check

from .building import Writer, graph_of, pointwise, tensor

SMALL = {"batch": 1, "queries": 20, "depth": 16, "keys": 40}


def by_descriptors(made):
    """The same graph, through descriptors."""
    return b.operation_graph(graph_of(*Writer(made.g.graph.finalize()).operations()))


class Door:
    """What `check` asks for of a graph."""

    def __init__(self, graph):
        self.graph = graph


@pytest.mark.parametrize("options", [{"is_causal": True}, {"dropout": "drawn"}], ids=str)
def test_s_is_stored(options):
    made = SmallAttention(**SMALL, **options)
    plan = check(
        Door(by_descriptors(made)), inputs=made.inputs(), slack=4.0, allowance=2.0**-10,
        engine="sdpa_sm80",
    )  # fmt: skip
    assert len(plan.programs[0].kernels) == 1


def test_virtual_tensors_may_be_reordered():
    """Nobody sees where their elements lie."""
    made = SmallAttention(**SMALL, stored=False, softmax_reordering="F16x16")
    graph = by_descriptors(made)
    assert [t.reordering for t in graph.tensors].count("F16x16") == 1
    assert dnnc.compile(graph, "sm_80", cache=False, in_process=True).programs


def test_a_reordered_output_is_refused_with_the_graph():
    made = SmallAttention(**SMALL, reordering="F16x16")
    with pytest.raises(DnncError, match="F16x16, an order that is documented nowhere") as caught:
        by_descriptors(made)
    assert caught.value.status is Status.NOT_SUPPORTED_LAYOUT


def test_comparisons_in_boolean():
    """As cuDNN's examples of masks have them: of floats in FLOAT, of integers in INT32."""
    for dtype, computed in ((b.CUDNN_DATA_FLOAT, "FLOAT"), (b.CUDNN_DATA_INT32, "INT32")):
        x, y = (tensor(uid, [2, 3], dtype=dtype) for uid in (1, 2))
        z = tensor(3, [2, 3], dtype=b.CUDNN_DATA_BOOLEAN)
        compare = pointwise(b.CUDNN_POINTWISE_CMP_GE, b.CUDNN_DATA_BOOLEAN, X=x, B=y, Y=z)
        (op,) = b.operation_graph(graph_of(compare)).ops
        assert op.compute_type.cudnn == computed
