"""Inferred results as users read them and as the compiler takes them."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.dialect.tensor import Tensor, channels_last, packed_like, sizes


def new_graph(**options):
    types = {"io_data_type": "f16", "intermediate_data_type": "f32", **options}
    return dnnc.pygraph(**types, target="sm_90")


def numbers(strides):
    return [size.constant for size in strides]


@pytest.mark.parametrize(
    ("dims", "strides"),
    [
        ([], []),
        ([5], [1]),
        ([4, 5], [5, 1]),
        ([2, 3, 4], [12, 1, 3]),
        ([2, 3, 4, 5], [60, 1, 15, 3]),
    ],
)
def test_channels_last(dims, strides):
    assert numbers(channels_last(dims)) == strides


def test_of_equal_strides_the_first_is_the_inner_one():
    model = Tensor(dims=sizes([8, 1, 6]), strides=sizes([6, 1, 1]))
    assert numbers(packed_like([8, 2, 3], model)) == [6, 1, 2]


def test_virtual_results_have_other_strides_inside():
    """Results of a reduction with many rows would lie apart, those of a slice would have gaps."""
    g = new_graph()
    x = g.tensor([2, 8, 4, 6], name="x")
    largest = g.reduction(x, "max").set_dim([2, 8, 4, 1])
    part = g.slice(x, [slice(None), slice(0, 4), slice(None), slice(None)])
    y = g.sub(part, g.slice(largest, [slice(None), slice(0, 4)])).set_output()
    shown = [[32, 1, 8, 8], [192, 24, 6, 1]]
    g.validate()
    assert [t.get_stride() for t in (largest, part)] == shown
    g.build_operation_graph()
    assert [t.get_stride() for t in (largest, part)] == shown
    assert [numbers(t.layout) for t in (largest, part)] == [[32, 4, 1, 1], [96, 24, 6, 1]]
    assert y.get_stride() == [192, 24, 6, 1]


def test_a_result_that_becomes_an_output_later():
    g = new_graph()
    y = g.relu(g.tensor([4, 8], [32, 2]))
    g.relu(y).set_output()
    g.validate()
    y.set_output()
    g.build_operation_graph()
    assert numbers(y.layout) == y.get_stride() == [32, 2]


@pytest.mark.parametrize("is_output", [False, True])
def test_a_view_of_a_transposed_tensor_keeps_the_memory(is_output):
    """Neither view moves anything, as in cuDNN: elements come in the order of x."""
    g = new_graph(io_data_type="f32")
    x = g.tensor([2, 3], name="x")
    transposed = g.transpose(x, [1, 0])
    if is_output:
        transposed.set_output()
    g.reshape(transposed).set_dim([6]).set_output().set_name("y")
    given = np.arange(6.0).reshape(2, 3)
    results = dnnc.reference(g, {"x": given})
    y = results[g.graph.tensor("y").uid]
    np.testing.assert_array_equal(y, np.arange(6.0))


def test_new_dims_have_new_strides():
    g = new_graph()
    y = g.conv_dgrad(g.tensor([1, 4, 5, 5]), g.tensor([4, 2, 3, 3]), stride=[2, 2])
    assert (y.get_dim(), y.get_stride()) == ([1, 2, 11, 11], [242, 1, 22, 2])
    y.set_dim([1, 2, 12, 12])
    assert y.get_stride() == [288, 1, 24, 2]


def test_a_comparison_is_of_the_intermediate_type():
    """Inside it is bits, which hold as much."""
    g = new_graph()
    x = g.tensor([4, 8])
    mask = g.cmp_gt(x, 0.0)
    y = g.binary_select(x, 0.0, mask).set_output()
    g.validate()
    assert (mask.get_data_type(), mask.dtype) == (dtypes.f32, dtypes.i1)
    assert mask.set_data_type("BOOLEAN").get_data_type() == dtypes.i1
    assert y.get_data_type() == dtypes.f16


def test_names_count_calls_without_one():
    g = new_graph()
    x = g.tensor([4, 8])
    results = [g.relu(x), g.relu(x, name="mine"), g.relu(x), g.add(x, x)]
    names = [result.get_name() for result in results]
    assert names == ["relu.0::OUT_0", "mine::OUT_0", "relu.1::OUT_0", "add.0::OUT_0"]
