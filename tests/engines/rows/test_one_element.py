"""Layer norms over axes of size 1, and indices of INT64."""

import numpy as np
import pytest

import dnnc
from dnnc.errors import DnncError
from tests.support.checked import check


def new_graph():
    return dnnc.pygraph("ones", io_data_type="f32", intermediate_data_type="f32")


@pytest.mark.parametrize("dims", [[2, 4, 1], [6, 1, 1, 1], [3, 1]])
def test_a_layer_norm_over_an_axis_of_one_gives_the_bias(dims):
    g, ones = new_graph(), [1] * len(dims)
    x, scale, bias = (g.tensor(d, name=n) for d, n in ((dims, "x"), (ones, "s"), (ones, "b")))
    y, mean, inv_variance = g.layernorm("TRAINING", x, scale, bias, 1e-4)
    for tensor in (y, mean, inv_variance):
        tensor.set_output().set_data_type("f32")
    plan = check(g)
    assert (y.get_dim(), mean.get_dim()) == (dims, dims)
    value = np.full(dims, 3.1, np.float32)
    inputs = {1: value, 2: np.full(ones, 2.0), 3: np.full(ones, -0.7)}
    made = dnnc.reference(plan, inputs)
    np.testing.assert_array_equal(made[y.get_uid()], np.full(dims, np.float32(-0.7)))
    np.testing.assert_array_equal(made[mean.get_uid()], value)


def test_its_gradients():
    g = new_graph()
    dy, x, mean, deviation = (g.tensor([2, 4, 1], name=name) for name in ("dy", "x", "m", "d"))
    scale = g.tensor([1, 1, 1], name="s")
    results = g.layernorm_backward(dy, x, scale, mean, deviation)
    for tensor in results:
        tensor.set_output()
    assert [tensor.get_dim() for tensor in results] == [[2, 4, 1], [1, 1, 1], [1, 1, 1]]
    check(g, allowance=1e-5)  # dx is a difference


def test_a_scale_of_one_element_for_longer_rows_is_refused():
    g = new_graph()
    x, scale = g.tensor([1, 4, 8], name="x"), g.tensor([1, 1, 1], name="s")
    with pytest.raises(DnncError, match="scale has dims"):
        g.layernorm("INFERENCE", x, scale, scale, 1e-5)


@pytest.mark.parametrize("strides", [[288, 1, 48, 8], [288, 36, 6, 1]])
def test_indices_of_64_bits(strides):
    g = new_graph()
    y, index = g.resample(
        g.tensor([2, 8, 6, 6], strides), "MAXPOOL", 0, 0, 2, 3, generate_index=True
    )
    y.set_output()
    index.set_output().set_data_type("i64")
    check(g)
    back = new_graph()
    index = back.tensor([2, 8, 2, 2], data_type="i64")
    made = back.resample_backward(back.tensor([2, 8, 2, 2]), "MAXPOOL", 0, 0, 2, 3, index=index)
    made.set_dim([2, 8, 6, 6]).set_output()
    check(back)
