"""Indices along the axes of what a reduction leaves: their values need none of it, its dims do."""

import pytest

import dnnc
from dnnc import dtypes
from tests.support.checked import check


def new_graph():
    return dnnc.pygraph(
        io_data_type=dtypes.f16, intermediate_data_type=dtypes.f32, compute_data_type=dtypes.f32
    )


def product(g):
    return g.matmul(g.tensor([1, 40, 64]), g.tensor([1, 64, 72])), [1, 40, 72]


def convolution(g):
    x, w = g.tensor([2, 16, 5, 6], [480, 1, 96, 16]), g.tensor([24, 16, 1, 1], [16, 1, 16, 16])
    return g.conv_fprop(x, w, padding=[0, 0], stride=[1, 1], dilation=[1, 1]), [2, 24, 5, 6]


def activation(g):
    return g.relu(g.tensor([3, 40, 72])), [3, 40, 72]


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("rows", [True, False], ids=["rows", "all"])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("make", [product, convolution, activation])
def test_an_index_of_what_is_reduced_is_an_output(make, target, rows):
    """Beside the sums, after which an epilogue or a reduction's end would not compute it."""
    g = new_graph()
    y, dims = make(g)
    total = g.reduction(y, "add").set_dim([*dims[:-1], 1] if rows else [1] * len(dims))
    total.set_output().set_data_type(dtypes.f32)
    g.add(g.gen_index(total, axis=1), 1).set_output().set_data_type(dtypes.f32)
    check(g, target=target, slack=4.0, allowance=1e-5)
