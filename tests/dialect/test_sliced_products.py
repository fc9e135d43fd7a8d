"""Parts of a product's result as products of parts: when, and the same numbers."""

import numpy as np

import dnnc
from dnnc.dialect.ops import Matmul
from dnnc.dialect.reference import reference, single_steps

F64 = {"io_data_type": "f64", "intermediate_data_type": "f64", "compute_data_type": "f64"}


def parts_of(*cuts, batch=2, columns=12, epilogue=None):
    """Outputs that are columns of x @ w + b."""
    g = dnnc.pygraph(**F64)
    y = g.matmul(g.tensor([batch, 5, 4]), g.tensor([1, 4, columns]))
    y = g.add(g.bias(y, g.tensor([1, 1, columns])), g.tensor([batch, 5, 1]))
    y = epilogue(g, y) if epilogue else y
    for first, end in cuts:
        g.slice(y, [slice(0, batch), slice(0, 5), slice(first, end)]).set_output()
    return g


def products(g):
    """How many products there are, whose results are those of the graph."""
    graph = g.graph.finalize()
    rng = np.random.default_rng(3)
    given = {t.uid: rng.integers(-3, 4, [n.constant for n in t.shape]) for t in graph.inputs}
    wanted = reference(graph, given)
    steps = list(single_steps(graph, given))
    found = {t.uid: values for step in steps for t, _, values in step.results}
    for tensor in graph.outputs:
        np.testing.assert_array_equal(found[tensor.uid], wanted[tensor.uid])
    return sum(isinstance(step.op, Matmul) for step in steps)


def test_each_part_is_a_product():
    assert products(parts_of((0, 4), (4, 8), (8, 12))) == 3
    assert products(parts_of((2, 3), (8, 12), epilogue=lambda g, y: g.mul(y, g.relu(y)))) == 1
    assert products(parts_of((2, 3), (8, 12), epilogue=lambda g, y: g.mul(y, y))) == 2
    assert products(parts_of((0, 8), (8, 12))) == 1  # a store knows where each lies


def test_views_of_parts_are_outputs():
    g = parts_of((0, 6))
    y = g.graph.ops[-1].x
    part = g.slice(y, [slice(0, 2), slice(0, 5), slice(6, 12)])
    g.transpose(part, [1, 0, 2]).set_output()
    assert products(g) == 2


def test_results_that_others_read_are_one_product():
    assert products(parts_of((0, 6), (4, 12))) == 1  # columns in both
    assert products(parts_of((0, 8))) == 1
    g = parts_of((0, 4), (4, 8))
    g.relu(g.graph.ops[-1].x).set_output()
    assert products(g) == 1
    g = dnnc.pygraph(**F64)
    x = g.tensor([1, 6, 6])
    y = g.matmul(x, x)
    for first in (0, 3):
        g.slice(y, [slice(0, 1), slice(0, 6), slice(first, first + 3)]).set_output()
    assert products(g) == 1
