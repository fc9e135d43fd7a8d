"""Tensor descriptors with VECTOR_COUNT and VECTORIZED_DIMENSION in graphs and plans."""

import numpy as np
import pytest

import dnnc
from dnnc import backend as b
from dnnc.errors import DnncError, Status
from dnnc.interpreter.plans import run_plan
from tests.vectors import layer, stored

from .building import (
    DATA_TYPE,
    I64,
    D,
    Writer,
    got,
    graph_of,
    heuristics,
    made,
    plan_of,
    pointwise,
    tensor,
)
from .test_same_text import nameless, text


def vectors(uid, dims, count, along=1, dtype=b.CUDNN_DATA_INT8, strides=None):
    return tensor(
        uid, dims, strides, dtype,
        (b.CUDNN_ATTR_TENSOR_VECTOR_COUNT, I64, [count]),
        (b.CUDNN_ATTR_TENSOR_VECTORIZED_DIMENSION, I64, [along]),
    )  # fmt: skip


def convolution(x, w, y, beta=0.0):
    """Convolutions with filters of 3x3 in two dims."""
    prefix = "CUDNN_ATTR_CONVOLUTION_"
    pairs = {"DILATIONS": 1, "FILTER_STRIDES": 1, "PRE_PADDINGS": 1, "POST_PADDINGS": 1}
    parameters = made(
        b.CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
        (b.CUDNN_ATTR_CONVOLUTION_COMP_TYPE, DATA_TYPE, [b.CUDNN_DATA_INT32]),
        (b.CUDNN_ATTR_CONVOLUTION_CONV_MODE, b.CUDNN_TYPE_CONVOLUTION_MODE,
         [b.CUDNN_CROSS_CORRELATION]),
        (b.CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, I64, [2]),
        *((b.cudnnBackendAttributeName_t[prefix + end], I64, [n] * 2) for end, n in pairs.items()),
    )  # fmt: skip
    return made(
        b.CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
        (b.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, D, [x]),
        (b.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, D, [w]),
        (b.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, D, [y]),
        (b.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, D, [parameters]),
        (b.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, b.CUDNN_TYPE_FLOAT, [1.0]),
        (b.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, b.CUDNN_TYPE_FLOAT, [beta]),
    )


def test_vectors_are_not_added_to_what_they_held():
    """A reshape lies between the elements and what is in memory."""
    x, w = vectors(1, [2, 3, 5, 7], 32), vectors(2, [64, 3, 3, 3], 32)
    operation = convolution(x, w, vectors(3, [2, 2, 5, 7], 32), beta=1.0)
    with pytest.raises(DnncError, match="before vectors of elements there are others") as caught:
        graph_of(operation)
    assert caught.value.status is Status.NOT_SUPPORTED_GRAPH_PATTERN
    assert "a tensor of its own" in caught.value.supported


def test_attributes_are_as_they_were_set():
    x = vectors(1, [2, 3, 5, 7], 32)
    assert got(x, b.CUDNN_ATTR_TENSOR_VECTOR_COUNT, I64) == [32]
    assert got(x, b.CUDNN_ATTR_TENSOR_VECTORIZED_DIMENSION, I64) == [1]
    assert got(x, b.CUDNN_ATTR_TENSOR_DIMENSIONS, I64) == [2, 3, 5, 7]


@pytest.mark.parametrize("count", [4, 32])
def test_both_doors_write_one_text(count):
    g = layer(count)
    g.validate()  # which leaves vectors as they are
    graph = b.operation_graph(graph_of(*Writer(g.graph).operations()))
    assert text(graph) == text(nameless(g.graph))


def test_a_dimension_of_single_elements_is_ignored():
    x, y = vectors(1, [2, 3], 1, along=9), tensor(2, [2, 3], None, b.CUDNN_DATA_INT8)
    graph = b.operation_graph(graph_of(pointwise(b.CUDNN_POINTWISE_IDENTITY, X=x, Y=y)))
    assert [op.op_name for op in graph.ops] == ["pointwise"]


def test_factors_are_of_elements():
    factor = (b.CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, b.CUDNN_TYPE_FLOAT, [3.0])
    x, y = vectors(1, [1, 2, 3], 4), tensor(2, [1, 8, 3], None, b.CUDNN_DATA_INT8)
    op = pointwise(b.CUDNN_POINTWISE_RELU_FWD, X=x, Y=y, factors=[factor])
    graph = b.operation_graph(graph_of(op))
    array = np.arange(-12, 12).reshape(1, 2, 4, 3)
    (found,) = dnnc.reference(graph, {1: array}).values()
    assert np.array_equal(found, np.maximum(3 * array.reshape(1, 8, 3), 0))


def test_groups_may_be_a_dim_beside_vectors():
    grouped = [[2, 4, 1, 5, 6], [4, 16, 1, 3, 3], [2, 4, 4, 5, 6]]
    packed = [[2, 4, 5, 6], [64, 1, 3, 3], [2, 16, 5, 6]]
    (op,), (other,) = (
        [
            op
            for op in b.operation_graph(
                graph_of(convolution(*(vectors(i, n, 4, along) for i, n in enumerate(dims))))
            ).ops
            if op.op_name == "conv_fprop"
        ]
        for dims, along in ((grouped, 2), (packed, 1))
    )
    assert op.groups == other.groups == 4
    for field in ("x", "w", "y"):
        assert getattr(op, field).shape == getattr(other, field).shape
    with pytest.raises(DnncError, match="vectors of groups of tensor 0") as caught:
        convolution(*(vectors(i, n, 4, 1) for i, n in enumerate(grouped)))
    assert caught.value.status is Status.NOT_SUPPORTED_LAYOUT


def test_groups_of_vectors_may_lie_apart():
    x, w, y = [1, 2, 2, 3, 4], [2, 4, 2, 3, 3], [1, 2, 1, 3, 4]
    apart = [60, 30, 12, 4, 1]  # six vectors between groups

    def found(strides, array):
        tensors = vectors(0, x, 4, 2, strides=strides), vectors(1, w, 4, 2), vectors(2, y, 4, 2)
        graph = b.operation_graph(graph_of(convolution(*tensors)))
        return dnnc.reference(graph, {0: array, 1: weights}, exact_outputs=True)[2]

    rng = np.random.default_rng(5)
    elements = rng.integers(-3, 4, size=[1, 4, 4, 3, 4])
    weights = rng.integers(-3, 4, size=[8, 2, 4, 3, 3])
    packed = found(None, elements)
    assert np.array_equal(found(apart, elements.reshape(1, 2, 2, 4, 3, 4)), packed)


def test_one_uid_of_other_vectors_is_refused():
    one, other = vectors(1, [1, 2, 4], 4), vectors(1, [1, 2, 4], 32)
    y = vectors(2, [1, 2, 4], 4)
    first = pointwise(b.CUDNN_POINTWISE_IDENTITY, X=one, Y=y)
    second = pointwise(b.CUDNN_POINTWISE_IDENTITY, X=other, Y=vectors(3, [1, 2, 4], 32))
    with pytest.raises(DnncError) as caught:
        graph_of(first, second)
    assert caught.value.status is Status.BAD_PARAM_DUPLICATED_ENTRIES


def test_a_plan_binds_the_uid():
    x, y = vectors(11, [1, 2, 3, 5], 4), tensor(7, [1, 8, 3, 5], None, b.CUDNN_DATA_INT8)
    graph = graph_of(pointwise(b.CUDNN_POINTWISE_RELU_FWD, X=x, Y=y))
    plan = b.execution_plan(plan_of(heuristics(graph)[0])).plan
    elements = np.random.default_rng(0).integers(-9, 9, (1, 8, 3, 5))
    found = run_plan(plan, {11: stored(elements, 4)})
    assert np.array_equal(found[7], np.maximum(elements, 0))
