"""Operands that repeat, in the engines' kernels: none has a kernel of its own beside other work."""

import numpy as np
import pytest

import dnnc
from dnnc.choosing.heuristics import best_config
from dnnc.target import of
from tests.support import machine
from tests.support.checked import check, random_inputs


def new_graph():
    return dnnc.pygraph("repeated", io_data_type="f16", intermediate_data_type="f32")


def product():
    g = new_graph()
    x, w, b = g.tensor([2, 32, 64]), g.tensor([64, 64]), g.tensor([64])
    r, s = g.tensor([2, 32, 64], [0, 64, 1]), g.tensor([], data_type="f32")
    y = g.add(g.mul(g.add(g.matmul(x, w), b), s), r)
    return g, g.max(y, g.constant(-1.0, [64]))


def product_of_one_matrix():
    g = new_graph()
    return g, g.relu(g.matmul(g.tensor([2, 32, 64], [0, 64, 1]), g.tensor([2, 64, 64])))


def product_of_equal_rows():
    g = new_graph()
    return g, g.relu(g.matmul(g.tensor([2, 32, 64], [64, 0, 1]), g.tensor([2, 64, 64])))


def norm():
    g = new_graph()
    x = g.add(g.tensor([6, 256]), g.tensor([6, 256], [0, 1]))
    scale, bias = g.tensor([1, 256]), g.tensor([1, 256], [0, 0])
    return g, g.layernorm("INFERENCE", x, scale, bias, 1e-5)[0]


def softmax_of_equal_rows():
    g = new_graph()
    return g, g.softmax(g.tensor([6, 256], [0, 1]))


def convolution():
    g = new_graph()
    x = g.tensor([2, 16, 6, 6], [0, 1, 96, 16])
    w, b = g.tensor([16, 16, 3, 3], [144, 1, 48, 16]), g.tensor([16, 1, 1])
    return g, g.relu(g.bias(g.conv_fprop(x, w, padding=1), b))


def attention():
    g = new_graph()
    q = g.tensor([2, 4, 16, 32])
    k, v = (g.tensor([2, 4, 16, 32], [512, 0, 32, 1]) for _ in range(2))
    bias = g.tensor([2, 4, 16, 16], [0, 0, 16, 1])
    return g, g.sdpa(q, k, v, attn_scale=0.2, bias=bias, generate_stats=False)[0]


def sum_of_equal_columns():
    g = new_graph()
    return g, g.reduction(g.tensor([6, 64], [1, 0]), "add").set_dim([6, 1])


def pooling():
    g = new_graph()
    x = g.tensor([2, 3, 8, 8], [192, 0, 8, 1])
    window = {"window": [2, 2], "stride": [2, 2], "pre_padding": [0, 0], "post_padding": [0, 0]}
    return g, g.resample(x, "MAXPOOL", **window)[0]


GRAPHS = {
    product: "matmul",
    product_of_one_matrix: "matmul",
    product_of_equal_rows: "matmul",
    norm: "rows",
    softmax_of_equal_rows: "rows",
    convolution: "conv",
    attention: "sdpa",
    sum_of_equal_columns: "reduction",
    pooling: "resample",
}


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("build", GRAPHS, ids=lambda build: build.__name__)
def test_one_kernel_does_all(build, target):
    g, y = build()
    y.set_output()
    choices = best_config(g.graph.finalize(), of(target)).choices
    assert len(choices) == 1
    assert choices[0].engine.name.startswith(GRAPHS[build])


@pytest.mark.rotating
@pytest.mark.parametrize("build", GRAPHS, ids=lambda build: build.__name__)
def test_values(build):
    g, y = build()
    y.set_output()
    check(g, slack=4.0)


def test_buffers_hold_each_element_once():
    """All that is read of an input of stride 0 lies within its one row."""
    g = new_graph()
    x = g.tensor([4, 24], [0, 1], name="x")
    g.add(x, g.tensor([4, 24])).set_output().set_name("y")
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {})
    plan = check(g, inputs=inputs)
    assert [t.strides for t in plan.tensors if t.name == "x"] == [("0", "1")]
    (found,) = machine.current().run(plan, inputs, sizes={}).values()
    rows = np.asarray(found, np.float64) - np.asarray(inputs[graph.inputs[1].uid], np.float64)
    np.testing.assert_allclose(rows, np.broadcast_to(rows[0], rows.shape), atol=4e-3)
