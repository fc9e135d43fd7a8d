"""References of norms and softmax: gradients against differences, and what has to agree."""

import numpy as np
import pytest

from .example_parts import finish, new_graph
from .norm_examples import (
    batchnorm,
    batchnorm_inference,
    bn_finalize,
    dbn_weight,
    genstats,
    norm,
    norm_backward,
    softmax,
    softmax_backward,
)


def call(build, *arrays):
    """The results of the one operation of a graph; scalars have their own values."""
    graph = build().graph.finalize()
    (op,) = graph.ops
    left = iter(arrays)
    operands = [np.full([1], t.value) if t.value is not None else next(left) for t in op.operands]
    made = op.reference(*operands)
    assert next(left, None) is None
    return made if isinstance(made, tuple) else (made,)


def slope(function, x, weights, step=1e-5):
    """The gradient of sum(function(x) * weights), by central differences."""
    found = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        above, below = x.copy(), x.copy()
        above[place] += step
        below[place] -= step
        found[place] = np.sum((function(above) - function(below)) * weights) / (2 * step)
    return found


def drawn(*shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.uniform(-2, 2, shape) for shape in shapes]


CASES = [
    ("layernorm", (3, 5), (1, 5), (3, 1)),
    ("layernorm", (2, 3, 2, 2), (1, 3, 2, 2), (2, 1, 1, 1)),
    ("rmsnorm", (3, 5), (1, 5), (3, 1)),
    ("rmsnorm", (2, 3, 4), (1, 1, 4), (2, 3, 1)),
    ("adalayernorm", (2, 3, 4), (2, 1, 4), (2, 3, 1)),
    ("adalayernorm", (2, 3, 4), (1, 3, 4), (2, 1, 1)),
    ("instancenorm", (2, 3, 2, 2), (1, 3, 1, 1), (2, 3, 1, 1)),
    ("instancenorm", (2, 3, 4), (1, 3, 1), (2, 3, 1)),
    ("batchnorm", (3, 2, 2, 2), (1, 2, 1, 1), (1, 2, 1, 1)),
    ("batchnorm", (5, 3), (1, 3), (1, 3)),
]


@pytest.mark.parametrize(("name", "dims", "small", "statistics"), CASES, ids=str)
def test_gradients_are_the_slopes_of_the_forward_norm(name, dims, small, statistics):
    x, dy, scale, bias = drawn(dims, dims, small, small)
    forward = batchnorm(dims, False) if name == "batchnorm" else norm(name, dims, small)
    kinds = {"has_dbias": True} if name == "rmsnorm" else {}
    backward = norm_backward(f"{name}_backward", dims, small, statistics, **kinds)
    _, *kept = call(forward, x, scale, bias)
    assert all(array.shape == statistics for array in kept)
    dx, dscale, dbias = call(backward, dy, x, scale, *kept)
    near = {"rtol": 1e-6, "atol": 1e-8}
    for found, at, function in (
        (dx, x, lambda v: call(forward, v, scale, bias)[0]),
        (dscale, scale, lambda v: call(forward, x, v, bias)[0]),
        (dbias, bias, lambda v: call(forward, x, scale, v)[0]),
    ):
        assert found.shape == at.shape
        np.testing.assert_allclose(found, slope(function, at, dy), **near)


AXES = [((3, 5), -1), ((2, 3, 4), 1), ((2, 3, 2, 2), [1, 2, 3])]


@pytest.mark.parametrize(("dims", "axis"), AXES, ids=str)
@pytest.mark.parametrize("algorithm", ["ACCURATE", "LOG", "FAST"])
def test_gradients_are_the_slopes_of_softmax(dims, axis, algorithm):
    x, dy = drawn(dims, dims)
    forward = softmax(dims, axis, algorithm)
    (y,) = call(forward, x)
    (dx,) = call(softmax_backward(dims, axis, algorithm), dy, y)
    wanted = slope(lambda v: call(forward, v)[0], x, dy)
    np.testing.assert_allclose(dx, wanted, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("dims", "axis"), AXES, ids=str)
def test_algorithms_of_softmax_agree(dims, axis):
    (x,) = drawn(dims)
    accurate, log, fast = (call(softmax(dims, axis, a), x)[0] for a in ("ACCURATE", "LOG", "FAST"))
    np.testing.assert_allclose(fast, accurate, rtol=1e-14)
    np.testing.assert_allclose(np.exp(log), accurate, rtol=1e-14)
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    np.testing.assert_allclose(accurate.sum(axis=axes), 1, rtol=1e-14)


def test_only_fast_softmax_overflows():
    x = np.array([[1000.0, 1000.0]])
    np.testing.assert_array_equal(call(softmax([1, 2]), x)[0], [[0.5, 0.5]])
    np.testing.assert_allclose(call(softmax([1, 2], -1, "LOG"), x)[0], np.log([[0.5, 0.5]]))
    assert np.isnan(call(softmax([1, 2], -1, "FAST"), x)[0]).all()


def test_numbers_of_a_layer_norm():
    g = new_graph()
    scale, bias = g.tensor([1, 4]), g.tensor([1, 4])
    made = g.layernorm("TRAINING", g.tensor([1, 4]), scale, bias, g.tensor_scalar(0.75))
    finish(g, *made)
    x, scale, bias = [[1.0, 2, 3, 4]], np.full((1, 4), 2.0), np.ones((1, 4))
    y, mean, inv_variance = call(lambda: g, x, scale, bias)  # of variance 1.25
    np.testing.assert_allclose(inv_variance, [[2**-0.5]])
    np.testing.assert_allclose(mean, [[2.5]])
    np.testing.assert_allclose(y, 2**0.5 * (np.array(x) - 2.5) + 1)


def test_batch_norm_of_its_own_statistics():
    dims, small = (3, 2, 2, 2), (1, 2, 1, 1)
    x, scale, bias = drawn(dims, small, small)
    y, mean, inv_variance = call(batchnorm(dims, False), x, scale, bias)
    (again,) = call(batchnorm_inference(dims), x, mean, inv_variance, scale, bias)
    np.testing.assert_allclose(again, y, rtol=1e-12)


@pytest.mark.parametrize("dims", [(3, 2, 2, 2), (1, 2, 1, 1)], ids=str)
def test_running_statistics(dims):
    """The variance is the unbiased one; of one element there is none, and it stays 0."""
    small = (1, 2, 1, 1)
    x, scale, bias, mean, variance = drawn(dims, small, small, small, small)
    *_, next_mean, next_variance = call(
        batchnorm(dims, momentum=0.25), x, scale, bias, mean, variance
    )
    new = x.mean(axis=(0, 2, 3), keepdims=True)
    np.testing.assert_allclose(next_mean, 0.75 * mean + 0.25 * new)
    n = x.size // 2
    unbiased = x.var(axis=(0, 2, 3), ddof=1, keepdims=True) if n > 1 else 0.0
    np.testing.assert_allclose(next_variance, 0.75 * variance + 0.25 * unbiased)


def test_sums_of_channels_give_batch_norm():
    """genstats, bn_finalize and a scale and shift are batchnorm."""
    dims, small = (4, 6, 4, 2), (1, 6, 1, 1)  # 32 elements a channel, as bn_finalize has it
    x, scale, bias = drawn(dims, small, small)
    *sums, mean, variance = *call(genstats(dims), x), *drawn(small, small, seed=1)
    found = call(bn_finalize(small), *sums, scale, bias, mean, variance)
    wanted = call(batchnorm(dims, momentum=0.25), x, scale, bias, mean, variance)
    np.testing.assert_allclose(found[0] * x + found[1], wanted[0], rtol=1e-9)
    for one, other in zip(found[2:], wanted[1:], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_factors_of_the_gradient_of_batch_norm():
    dims, small = (3, 2, 2, 2), (1, 2, 1, 1)
    dy, x, scale, bias = drawn(dims, dims, small, small)
    _, mean, inv_variance = call(batchnorm(dims, False), x, scale, bias)
    dscale, dbias, of_dy, of_x, shift = call(dbn_weight(dims), dy, x, mean, inv_variance, scale)
    backward = norm_backward("batchnorm_backward", dims, small, small)
    wanted = call(backward, dy, x, scale, mean, inv_variance)
    np.testing.assert_allclose(of_dy * dy + of_x * x + shift, wanted[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(dscale, wanted[1], rtol=1e-12)
    np.testing.assert_allclose(dbias, wanted[2], rtol=1e-12)
