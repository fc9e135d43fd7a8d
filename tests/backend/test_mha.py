"""The attention of small sequences by descriptors, as cuDNN's guide has it."""

import numpy as np
import pytest

import dnnc
from dnnc import DnncError, Status
from dnnc import backend as b
from tests.mha_graphs import SmallAttention
from tests.support.checked import check

from .building import Writer, graph_of, pointwise, tensor

SMALL = {"batch": 1, "queries": 20, "depth": 16, "keys": 40}


def by_descriptors(made):
    """Builds a graph through descriptors, as it was written."""
    made.g.graph.validate()
    return b.operation_graph(graph_of(*Writer(made.g.graph).operations()))


class Door:
    """Stands for a pygraph where `check` asks for one."""

    def __init__(self, graph):
        self.graph = graph


@pytest.mark.rotating
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


def test_s_is_stored_with_signs():
    """Declared F16x16, as cuDNN's guide asks."""
    sizes = {**SMALL, "queries": 32, "keys": 48}
    made = SmallAttention(**sizes, reordering="F16x16", dropout="given")
    graph, given = by_descriptors(made), made.inputs()
    check(Door(graph), inputs=given, slack=4.0, allowance=2.0**-10, engine="sdpa_sm80")
    (mask,) = [tensor.uid for tensor in made.g.graph.inputs if tensor.name == "mask"]
    (s,) = [found for found in dnnc.reference(graph, given).values() if found.ndim == 8]
    np.testing.assert_array_equal(np.signbit(s.reshape(made.dims)), given[mask] == 0)


@pytest.mark.parametrize(
    ("order", "dtype", "accepted"),
    [
        ("INT8x32", b.CUDNN_DATA_HALF, "NONE"),
        ("F16x16", b.CUDNN_DATA_FLOAT, "f16 or bf16"),
        ("F16x16", b.CUDNN_DATA_HALF, "multiples of 16"),
    ],
)
def test_other_orders_are_refused_with_the_graph(order, dtype, accepted):
    mode = b.enums.CONSTANTS[f"CUDNN_TENSOR_REORDERING_{order}"]
    kind = b.CUDNN_TYPE_TENSOR_REORDERING_MODE
    more = (b.CUDNN_ATTR_TENSOR_REORDERING_MODE, kind, [mode])
    x, y = tensor(1, [1, 1, 4, 8], None, dtype, more), tensor(2, [1, 1, 4, 8])
    with pytest.raises(DnncError, match=f"is reordered as {order}.*{accepted}") as caught:
        b.operation_graph(graph_of(pointwise(b.CUDNN_POINTWISE_IDENTITY, X=x, Y=y)))
    assert caught.value.status is Status.NOT_SUPPORTED_LAYOUT


def test_comparisons_in_boolean():
    """cuDNN's examples of masks compare floats in FLOAT, integers in INT32."""
    for dtype, computed in ((b.CUDNN_DATA_FLOAT, "FLOAT"), (b.CUDNN_DATA_INT32, "INT32")):
        x, y = (tensor(uid, [2, 3], dtype=dtype) for uid in (1, 2))
        z = tensor(3, [2, 3], dtype=b.CUDNN_DATA_BOOLEAN)
        compare = pointwise(b.CUDNN_POINTWISE_CMP_GE, b.CUDNN_DATA_BOOLEAN, X=x, B=y, Y=z)
        (op,) = b.operation_graph(graph_of(compare)).ops
        assert op.compute_type.cudnn == computed
