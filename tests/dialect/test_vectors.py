"""Vectorized tensors: the graph that stands for them, what it computes, what is refused."""

import json

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.dialect.graph import OperationGraph
from dnnc.dialect.json_form import from_json, to_json
from dnnc.dialect.ops import Pointwise
from dnnc.dialect.tensor import Tensor, packed_strides, sizes
from dnnc.errors import DnncError, Status
from tests.vectors import layer, new_graph, stored, vectorized


def numbers(sizes_):
    return [size.constant for size in sizes_]


def form(tensor):
    return numbers(tensor.shape), numbers(tensor.layout)


def relu(x, y, io=dtypes.i8):
    graph = OperationGraph(io_type=io)
    graph.add(Pointwise(mode="relu_fwd", x=x, y=y))
    return graph


def tensor(dims, **fields):
    return Tensor(**{"dims": sizes(dims), "strides": packed_strides(sizes(dims)), **fields})


def nchw32(**fields):
    return tensor([2, 3, 5, 7], **{"vector_count": 32, "vector_dim": 1, **fields})


def test_what_lies_in_memory_has_a_dim_more_and_its_uid():
    x, y = nchw32(uid=7, name="x"), nchw32(uid=3)
    graph = relu(x, y).finalize()
    assert [op.title for op in graph.ops] == ["reshape", "pointwise:relu_fwd", "reshape"]
    assert (graph.inputs, graph.outputs) == ((x,), (y,))
    assert (x.uid, y.uid) == (7, 3)
    wanted = [2, 3, 32, 5, 7], [3 * 35 * 32, 35 * 32, 1, 7 * 32, 32]
    assert form(x) == form(y) == wanted
    for inner in (graph.ops[1].x, graph.ops[1].y):
        assert inner.is_virtual
        assert inner.type == dtypes.i8
        assert inner.uid not in (3, 7)
        assert form(inner) == ([2, 96, 5, 7], [96 * 35, 1, 96 * 7, 96])  # channels last
    assert graph.ops[1].x.name == "x::ELEMENTS"


@pytest.mark.parametrize(
    ("dims", "strides", "wanted"),
    [
        ([2, 1, 5, 7], [35, 35, 7, 1], [35 * 32, 1, 7 * 32, 32]),
        ([2, 3, 5, 7], [105, 1, 21, 3], [105 * 32, 1, 21 * 32, 96]),
        ([1, 3, 1, 1], [3, 1, 1, 1], [96, 1, 32, 32]),
    ],
    ids=["one vector", "channels last", "a bias"],
)
def test_vectors_that_follow_each_other_take_no_reshape(dims, strides, wanted):
    x, y = (
        Tensor(dims=sizes(dims), strides=sizes(strides), vector_count=32, vector_dim=1)
        for _ in range(2)
    )
    graph = relu(x, y).finalize()
    assert [op.title for op in graph.ops] == ["pointwise:relu_fwd"]
    assert form(x) == form(y) == ([dims[0], 32 * dims[1], *dims[2:]], wanted)


def test_virtual_ones_are_of_elements():
    x, middle, y = nchw32(), nchw32(is_virtual=True), nchw32()
    graph = relu(x, middle)
    graph.add(Pointwise(mode="neg", x=middle, y=y))
    titles = [op.title for op in graph.finalize().ops]
    assert titles == ["reshape", "pointwise:relu_fwd", "pointwise:neg", "reshape"]
    assert numbers(middle.shape) == [2, 96, 5, 7]


def test_one_that_is_read_often_is_unfolded_once():
    x, y, z = nchw32(), nchw32(), nchw32()
    graph = relu(x, y)
    graph.add(Pointwise(mode="add", x=x, b=y, y=z))
    titles = [op.title for op in graph.finalize().ops]
    assert titles.count("reshape") == 3
    assert graph.ops[titles.index("pointwise:add")].b.is_virtual  # not what y has in memory


@pytest.mark.parametrize("count", [4, 32])
def test_a_layer_is_what_it_is_of_elements(count):
    rng = np.random.default_rng(0)
    x, w = rng.integers(-9, 9, (2, 64, 5, 6)), rng.integers(-9, 9, (64, 64, 3, 3))
    beside = {name: rng.normal(size=(1, 64, 1, 1)) / 50 for name in ("scale", "bias")}
    (y,) = dnnc.reference(layer(1), {"x": x, "w": w, **beside}).values()
    given = {"x": stored(x, count), "w": stored(w, count), **beside}
    (found,) = dnnc.reference(layer(count), given).values()
    assert np.array_equal(found, stored(y, count))


def test_a_filter_is_vectorized_along_its_second_dim():
    graph = layer(32).graph.finalize()
    (conv,) = (op for op in graph.ops if op.op_name == "conv_fprop")
    assert numbers(conv.x.shape) == [2, 64, 5, 6]
    assert numbers(conv.w.shape) == [64, 64, 3, 3]
    assert conv.x.layout[1].constant == conv.w.layout[1].constant == 1


def test_sizes_may_be_symbols():
    n, c = dnnc.Dim("N", max=8), dnnc.Dim("C", min=1, max=9)
    g = new_graph()
    x = g.tensor([n, c, 3, 3], name="x", vector_count=4, vector_dimension=1)
    y = g.relu(x).set_output()
    y.set_vector_count_and_dimension(4, 1)
    graph = g.graph.finalize()
    assert [str(size) for size in x.shape] == ["N", "C", "4", "3", "3"]
    array = np.random.default_rng(0).integers(-9, 9, (2, 5, 4, 3, 3))
    (found,) = dnnc.reference(graph, {"x": array}).values()
    assert np.array_equal(found, np.maximum(array, 0))


def test_the_json_form_of_an_open_graph_may_have_vectors():
    data = {
        "dnnc_graph": 1, "symbols": [],
        "tensors": [
            {"uid": uid, "dims": [2, 3, 5, 7], "strides": [105, 35, 7, 1], "dtype": "i8",
             "vector_count": 32, "vector_dim": 1} for uid in (7, 3)],
        "ops": [{"op": "pointwise", "operands": {"x": 7}, "results": {"y": 3},
                 "attributes": {"mode": "relu_fwd"}}],
    }  # fmt: skip
    graph = from_json(data)
    assert graph == from_json(json.loads(json.dumps(to_json(graph))))
    assert numbers(graph.inputs[0].shape) == [2, 3, 32, 5, 7]
    assert "vector_count" not in graph.canonical_text()
    data["tensors"][0]["vector_dim"] = "1"
    with pytest.raises(DnncError, match="vector_dim = '1'; accepted"):
        from_json(data)


@pytest.mark.parametrize(
    ("fields", "status", "what"),
    [
        ({"vector_count": 8}, Status.NOT_SUPPORTED_LAYOUT, "vectors of 8 elements"),
        ({"vector_count": 0}, Status.NOT_SUPPORTED_LAYOUT, "vectors of 0 elements"),
        ({"vector_dim": None}, Status.BAD_PARAM, "dimension None"),
        ({"vector_dim": 4}, Status.BAD_PARAM_OUT_OF_BOUND, "dimension 4; accepted: 0 to 3"),
        ({"vector_dim": -1}, Status.BAD_PARAM_OUT_OF_BOUND, "dimension -1"),
        ({"dtype": dtypes.i1}, Status.NOT_SUPPORTED_DATA_TYPE, "types of whole bytes"),
        ({"is_by_value": True}, Status.BAD_PARAM, "a scalar of"),
        ({"ragged_offset": tensor([3])}, Status.NOT_SUPPORTED_LAYOUT, "ragged"),
        ({"strides": sizes([105, 35, 7])}, Status.BAD_PARAM_SHAPE_MISMATCH, "3 strides"),
    ],
)
def test_vectors_that_are_refused(fields, status, what):
    for x, y in ((nchw32(**fields), nchw32()), (nchw32(), nchw32(**fields))):
        if y.is_by_value or y.ragged_offset:
            continue
        with pytest.raises(DnncError, match=what) as caught:
            relu(x, y).finalize()
        assert caught.value.status is status


def test_a_rank_that_leaves_no_dim_is_refused():
    x = tensor([1] * 8, vector_count=4, vector_dim=1)
    with pytest.raises(DnncError, match="rank 1 to 7") as caught:
        relu(x, Tensor()).finalize()
    assert caught.value.status is Status.NOT_SUPPORTED_SHAPE


def test_elements_that_are_no_whole_vectors_are_refused():
    x = tensor([2, 48, 5, 7])
    y = Tensor(vector_count=32, vector_dim=1)
    with pytest.raises(DnncError, match="a multiple of 32 along dimension 1") as caught:
        relu(x, y).finalize()
    assert caught.value.status is Status.BAD_PARAM_SHAPE_MISMATCH


def test_outputs_whose_vectors_overlap_are_refused():
    y = Tensor(dims=sizes([2, 3]), strides=sizes([2, 1]), vector_count=4, vector_dim=0)
    with pytest.raises(DnncError, match="two elements in one place"):
        relu(tensor([8, 3]), y).finalize()


def test_an_error_leaves_vectors_to_be_mended():
    g = new_graph()
    x, w = vectorized(g, [1, 64, 5, 5], 32), vectorized(g, [64, 16, 3, 3], 4)
    ones = {"padding": [1, 1], "stride": [1, 1], "dilation": [1, 1]}
    y = g.conv_fprop(x, w, **ones, compute_data_type="i32").set_output()
    y.set_vector_count_and_dimension(32, 1)
    w.set_dim([64, 6, 3, 3]).set_stride([54, 9, 3, 1])
    for check in (g.validate, g.build_operation_graph):
        with pytest.raises(DnncError, match="W's second dim divides C"):
            check()
        assert (x.get_dim(), w.get_dim()) == ([1, 2, 5, 5], [64, 6, 3, 3])
    w.set_dim([64, 16, 3, 3]).set_stride([144, 9, 3, 1])
    g.validate()
    assert (y.get_dim(), y.get_uid(), y.get_data_type()) == ([1, 2, 5, 5], 3, dtypes.i8)
    x.set_dim([3, 2, 5, 5])  # y follows
    g.build_operation_graph()
    assert (x.get_dim(), y.get_dim()) == ([3, 2, 32, 5, 5],) * 2
    assert y.get_vector_count() == 32
    y.set_name("y")  # which opens the graph again
    g.build_operation_graph()
    assert y.get_dim() == [3, 2, 32, 5, 5]
