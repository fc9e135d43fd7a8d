"""Random attention of large scores, what it is compared by, and what seeds are of it."""

from random import Random

import numpy as np
import pytest

from dnnc import dtypes
from dnnc.dialect.reference import reference, single_steps
from dnnc.rounding import round_to, widen
from tests import small_weights
from tests.attention_graphs import Pattern
from tests.gpu.random_attention import KINDS, kind_of
from tests.large_scores import assert_statistics_close
from tests.random_large_attention import draw

_GRID = 2.0**-12


@pytest.mark.parametrize("seed", range(12))
def test_scores_are_large_and_f32_holds_them(seed):
    drawn = draw(Random(seed), 150, keeps=True)
    graph = drawn.graph.graph.finalize()
    with np.errstate(all="ignore"):
        steps = list(single_steps(graph, drawn.inputs(seed), sizes=drawn.sizes))
    first = next(i for i, step in enumerate(steps) if step.op.op_name == "matmul")
    (_, products, _) = steps[first].results[0]
    products = products[np.isfinite(products)]
    assert np.max(np.abs(products)) < 2.0**24 * _GRID
    np.testing.assert_array_equal(products % _GRID, 0)
    for step in steps[first:]:
        result, exact, rounded = step.results[0]
        if result.type == dtypes.f32:
            np.testing.assert_array_equal(exact, widen(rounded))
        if result is drawn.maximum:
            large = np.abs(exact[np.isfinite(exact)])
            assert large.size == 0 or np.max(large) > 30  # none, where all of it is masked
            return
    raise AssertionError("no maximum")


def test_kinds_of_seeds():
    """Each is as it was, but for those that are of large scores and one in eight of fp8."""
    kinds = [kind_of(seed) for seed in range(1600)]
    before = ("hopper", "any", "hopper", "fp8")
    for seed, kind in enumerate(kinds):
        if not KINDS[kind].is_large:
            assert kind == ("any-fp8" if seed % 8 == 6 else before[seed % 4])
    assert kinds.count("any-fp8") == 200
    assert 200 < sum(KINDS[kind].is_large for kind in kinds) < 300
    assert kind_of(2, "any-large") == "any-large"


@pytest.mark.parametrize(("is_sum", "off"), [(True, 3 * 2.0**-24), (False, 6 * 2.0**-24)])
def test_what_blocks_lose_is_more_than_statistics_may(is_sum, off):
    """Where the maximum is 1000."""
    wanted = np.full((1, 1, 4, 1), 4.0 if is_sum else 1004.0)
    size = wanted if is_sum else 1.0
    maxima = np.full(wanted.shape, 1000.0)
    assert_statistics_close(wanted, wanted, maxima, 64, is_sum=is_sum)
    lost = wanted + 1000 * off * size
    with pytest.raises(AssertionError, match="of its bound"):
        assert_statistics_close(lost, wanted, maxima, 64, is_sum=is_sum)


# ---- small weights


# What types are called; the lift; how far scores are; what 8 steps of values up to 2 may cost.
TYPES = {dtypes.f16: ("HALF", 0, 14.0, 2.0**-20), dtypes.f8e4m3: ("FP8_E4M3", 8, 11.0, 2.0**-13)}


def selected(dtype, distance):
    """(graph, inputs) of rows whose largest weight is left out, and others `distance` below it."""
    pattern = Pattern(
        batch=(1, 1), queries=1, keys=9, depth=16, dtype=dtype, weight_type="FLOAT",
        out_type="FLOAT", scores=lambda p, s: p.g.mul(s, 1.0),
        weights=lambda p, x: p.g.binary_select(x, 0.0, p.integer("cmp_gt", p.column(x), 0)),
    )  # fmt: skip
    graph = pattern.g.graph.finalize()
    rng, inputs = np.random.default_rng(0), {}
    for tensor in graph.inputs:
        inputs[tensor.uid] = np.zeros([int(str(n)) for n in tensor.shape], tensor.type.numpy)
    q, k, v = (
        inputs[tensor.uid] for name in "qkv" for tensor in graph.inputs if tensor.name == name
    )
    q[..., :2], k[..., 1:, 0] = 1, -distance
    k[..., 1:, 1] = np.linspace(-1, 1, 8)
    v[:] = rng.uniform(-2, 2, v.shape)
    return graph, inputs, (widen(k[0, 0, :, 0]) + widen(k[0, 0, :, 1]), widen(v[0, 0]))


def by_kernel(scores, values, type_, lift):
    """The result of such a row where exponentials times 2 ** lift are rounded to a type."""
    e = np.exp(scores)
    weights = widen(round_to(e[1:] * 2.0**lift, type_)) / 2.0**lift
    return weights @ values[1:] / np.sum(e)


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_small_weights_cost_what_is_allowed(type_):
    """More than a unit of the result, but no more than that; large ones nothing."""
    dtype, lift, distance, most = TYPES[type_]
    graph, inputs, (scores, values) = selected(dtype, distance)
    (o,) = (tensor for tensor in graph.outputs if tensor.name == "o")
    wanted = reference(graph, inputs, exact_outputs=True)[o.uid][0, 0, 0]
    cost = small_weights.costs(graph, inputs, {})[o.uid][0, 0, 0]
    found = by_kernel(scores, values, type_, lift)
    off = np.abs(found - wanted)
    assert np.all(off <= cost)
    assert np.max(off) > 2.0**-9 * np.max(np.abs(wanted))
    np.testing.assert_allclose(small_weights.without(cost, found, wanted), wanted, rtol=1e-12)
    beyond = small_weights.without(cost, wanted + 3 * cost, wanted)
    np.testing.assert_allclose(beyond, wanted + 2 * cost, rtol=1e-12)
    assert np.max(cost) <= most
    graph, inputs, _ = selected(dtype, 1.0)
    assert not np.any(small_weights.costs(graph, inputs, {})[o.uid])
