"""Bounds around elements hold where f32 has only subnormal numbers, and are tight elsewhere."""

import numpy as np
import pytest

import dnnc
from dnnc.compiler import compile_graph
from dnnc.interpreter.plans import run_plan

from .random_bounds import bounds, informative, violations

SMALL = {
    "products": lambda g, x, y: g.mul(x, y),
    "signs of products": lambda g, x, y: g.cmp_gt(g.mul(x, y), 0).set_data_type("i1"),
    "quotients": lambda g, x, y: g.mul(g.div(x, 1e12), y),
    "exponentials": lambda g, x, y: g.exp(g.mul(g.log(x), g.add(y, 1.5))),
    "whether exponentials are 0": lambda g, x, y: g.identity(
        g.exp(g.mul(g.log(x), g.add(y, 1.25)))
    ).set_data_type("i1"),
    "swishes": lambda g, x, y: g.swish(g.sub(g.log(x), 8)).set_data_type("bf16"),
    "whether swishes are 0": lambda g, x, y: g.swish(g.sub(g.log(x), 8)).set_data_type("i1"),
    "swishes of a small beta": lambda g, x, y: g.swish(
        g.mul(g.sub(g.log(x), 8), 1e3), swish_beta=1e-3
    ).set_data_type("bf16"),
    "softplus of a small beta": lambda g, x, y: g.softplus(
        g.mul(g.sub(g.log(x), 8), 1e3), softplus_beta=1e-3
    ).set_data_type("bf16"),
    "gradients of elu of a large alpha": lambda g, x, y: g.elu_backward(
        y, g.mul(g.log(x), 1 / 64), elu_alpha=1e3
    ),
    "quotients in bf16": lambda g, x, y: g.div(g.div(x, 3e8), g.add(y, 2)).set_data_type("bf16"),
    "whether quotients are 0": lambda g, x, y: g.cmp_gt(
        g.div(g.div(x, 3e8), g.add(y, 2)), 0
    ).set_data_type("i1"),
    "what is not 0": lambda g, x, y: g.identity(g.mul(x, y)).set_data_type("i1"),
    "norms": lambda g, x, y: g.reduction(g.mul(x, y), "norm2").set_dim([8, 1]),
    "whether norms are 0": lambda g, x, y: g.cmp_gt(
        g.reduction(g.mul(x, y), "norm2").set_dim([8, 1]), 0
    ).set_data_type("i1"),
    "averages": lambda g, x, y: g.reduction(g.mul(x, y), "avg").set_dim([8, 1]),
    "matrix products": lambda g, x, y: g.matmul(x, g.transpose(y, [1, 0])),
    "squares": lambda g, x, y: g.add_square(x, y),
}


def made_of(build, x, y):
    """(graph, boxes of its outputs, what kernels give)."""
    g = dnnc.pygraph("small", io_data_type="f32", intermediate_data_type="f32")
    build(g, *(g.tensor([8, 32], name=name) for name in "xy")).set_output()
    graph = g.graph.finalize()
    given = {"x": x.astype(np.float32), "y": y.astype(np.float32)}
    inputs = {tensor.uid: given[tensor.name] for tensor in graph.inputs}
    actual = run_plan(compile_graph(graph, "sm_80"), inputs)
    return graph, bounds(graph, inputs, {}, tf32=3), actual


@pytest.mark.parametrize("name", SMALL)
def test_results_below_the_smallest_normal_number(name):
    rng = np.random.default_rng(0)
    x = rng.uniform(1, 2, (8, 32)) * 10.0 ** rng.uniform(-36, -30, (8, 32))
    y = rng.choice([-1, 1], (8, 32)) * 10.0 ** rng.uniform(-16, -3, (8, 32))
    graph, boxes, actual = made_of(SMALL[name], x, y)
    assert violations(graph, boxes, actual) == []


@pytest.mark.parametrize("name", SMALL)
def test_ordinary_results_have_tight_bounds(name):
    rng = np.random.default_rng(0)
    x, y = (rng.uniform(0.5, 2, (8, 32)) for _ in "xy")
    graph, boxes, actual = made_of(SMALL[name], x, y)
    assert violations(graph, boxes, actual) == []
    telling, total = informative(graph, boxes)
    assert telling == total
    ((uid, values),) = actual.items()
    wrong, factor = values.copy(), 1.001 if values.dtype == np.float32 else 1.02
    wrong[3, 0] = ~wrong[3, 0] if values.dtype == bool else float(wrong[3, 0]) * factor
    assert len(violations(graph, boxes, {uid: wrong})) == 1
