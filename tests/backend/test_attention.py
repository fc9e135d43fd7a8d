"""Attention by descriptors: what its descriptor says, and what it can't."""

import pytest

import dnnc
from dnnc import DnncError, Status
from dnnc import backend as b

from .building import D, graph_of, made, name_of, tensor

PREFIX = "OPERATION_SDPA_FWD"


def attention(**more):
    """Eight query heads share two of keys; more: attribute's end -> tensor."""
    half, single = b.CUDNN_DATA_HALF, b.CUDNN_DATA_FLOAT
    given = {
        "QDESC": tensor(1, [2, 8, 5, 16], dtype=half),
        "KDESC": tensor(2, [2, 2, 7, 16], dtype=half),
        "VDESC": tensor(3, [2, 2, 7, 8], dtype=half),
        "ODESC": tensor(4, [2, 8, 5, 8], dtype=half),
        "STATSDESC": tensor(5, [2, 8, 5, 1], dtype=single),
        **more,
    }
    rows = [(name_of(PREFIX, end), D, [value]) for end, value in given.items()]
    return made(b.CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR, *rows)


def lengths(uid):
    return tensor(uid, [2, 1, 1, 1], dtype=b.CUDNN_DATA_INT32)


def test_the_graph_holds_the_operation():
    scale = tensor(6, [1, 1, 1, 1], dtype=b.CUDNN_DATA_FLOAT)
    given = {"SCALEDESC": scale, "SEQ_LEN_QDESC": lengths(7), "SEQ_LEN_KVDESC": lengths(8)}
    graph = b.operation_graph(graph_of(attention(**given)))
    (op,) = graph.ops
    assert op.op_name == "sdpa"
    assert (op.attn_scale.uid, op.seq_len_kv.uid, op.stats.uid) == (6, 8, 5)
    assert [op.title for op in graph.live_ops].count("matmul") == 2
    assert dnnc.compile(graph, "sm_80", cache=False, in_process=True).programs


def test_lengths_come_together():
    with pytest.raises(DnncError, match="C7") as caught:
        attention(SEQ_LEN_QDESC=lengths(7))
    assert caught.value.status is Status.BAD_PARAM


def test_a_missing_output_is_asked_for():
    rows = [(name_of(PREFIX, "QDESC"), D, [tensor(1, [2, 8, 5, 16])])]
    with pytest.raises(DnncError, match="it is not set"):
        made(b.CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR, *rows)


def test_a_block_mask():
    mask = tensor(9, [2, 8, 1, 1], dtype=b.CUDNN_DATA_UINT8)
    graph = b.operation_graph(graph_of(attention(BLOCK_MASK_DESC=mask)))
    assert "block_mask_load" in [op.op_name for op in graph.live_ops]
    assert dnnc.compile(graph, "sm_80", cache=False, in_process=True).programs


BACKWARD = "OPERATION_SDPA_BWD"


def gradient(**more):
    half, single = b.CUDNN_DATA_HALF, b.CUDNN_DATA_FLOAT
    dims = {
        "QDESC": [2, 8, 5, 16], "KDESC": [2, 2, 7, 16], "VDESC": [2, 2, 7, 8],
        "ODESC": [2, 8, 5, 8], "DODDESC": [2, 8, 5, 8],
        "DQDESC": [2, 8, 5, 16], "DKDESC": [2, 2, 7, 16], "DVDESC": [2, 2, 7, 8],
    }  # fmt: skip
    given = {end: tensor(uid, n, dtype=half) for uid, (end, n) in enumerate(dims.items(), 1)}
    given = {**given, "STATSDESC": tensor(9, [2, 8, 5, 1], dtype=single), **more}
    rows = [(name_of(BACKWARD, end), D, [value]) for end, value in given.items()]
    return made(b.CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR, *rows)


def test_a_graph_of_the_gradient():
    scale = tensor(10, [1, 1, 1, 1], dtype=b.CUDNN_DATA_FLOAT)
    given = {"SCALEDESC": scale, "SEQ_LEN_QDESC": lengths(11), "SEQ_LEN_KVDESC": lengths(12)}
    graph = b.operation_graph(graph_of(gradient(**given)))
    (op,) = graph.ops
    assert op.op_name == "sdpa_backward"
    assert [t.uid for t in op.results] == [6, 7, 8]
    assert (op.do.uid, op.o.uid, op.stats.uid, op.attn_scale.uid) == (5, 4, 9, 10)
    assert [op.title for op in graph.live_ops].count("matmul") == 5


def test_the_gradient_of_what_does_not_fit():
    with pytest.raises(DnncError, match=r"sdpa_backward.*C4.*accepted: \[2, 8, 5, 8\]"):
        gradient(DODDESC=tensor(5, [2, 8, 5, 16], dtype=b.CUDNN_DATA_HALF))
    rows = [(name_of(BACKWARD, "QDESC"), D, [tensor(1, [2, 4, 5, 16])])]
    with pytest.raises(DnncError, match="it is not set"):
        made(b.CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR, *rows)
