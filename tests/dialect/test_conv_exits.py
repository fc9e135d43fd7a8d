"""Statistics of a convolution: the reference by hand, and the linalg stage on the CPU."""

import numpy as np
import pytest

from dnnc import dtypes
from dnnc.dialect.reference import reference

from .example_parts import new_graph
from .test_linalg_cpu import check
from .test_ops import random_inputs


@pytest.fixture
def graph():
    """A 1x1 convolution, its genstats, and the largest value of all."""
    g = new_graph()
    x, w = g.tensor([2, 3, 4, 5], name="x"), g.tensor([6, 3, 1, 1], name="w")
    y = g.conv_fprop(x, w, padding=[0, 0], stride=[1, 1], dilation=[1, 1])
    y.set_data_type(dtypes.f32)
    for total in g.genstats(y):
        total.set_output().set_data_type(dtypes.f32)
    g.reduction(y, "amax").set_dim([1, 1, 1, 1]).set_output().set_data_type(dtypes.f32)
    return g.graph.finalize()


def test_the_reference_adds_up_all_pixels_of_a_channel(graph):
    inputs = random_inputs(graph, {})
    x, w = (np.asarray(inputs[t.uid], np.float64) for t in graph.inputs)
    y = np.einsum("ncpq,kc->nkpq", x, w[:, :, 0, 0])
    exact = reference(graph, inputs, exact_outputs=True)
    total, squares, most = (exact[t.uid] for t in graph.outputs)
    np.testing.assert_allclose(total.ravel(), y.sum((0, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(squares.ravel(), (y * y).sum((0, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(most.ravel(), np.abs(y).max(), rtol=1e-5)


def test_linalg_on_the_cpu(graph):
    check(graph, random_inputs(graph, {}), slack=64.0)
