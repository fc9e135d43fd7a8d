"""Causal convolutions: their meaning, the one kernel they are, and their gradients."""

import numpy as np
import pytest

import dnnc
from dnnc.choosing import heuristics
from dnnc.dialect.reference import reference
from dnnc.target import of
from tests.dialect.causal_conv1d_examples import causal, causal_backward
from tests.support.checked import check


def values(build, given):
    graph = build().graph.finalize()
    arrays = {t.uid: array for t, array in zip(graph.inputs, given, strict=True)}
    return list(reference(graph, arrays, exact_outputs=True).values())


def random(*shapes, seed=1):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def silu(x):
    return x / (1 + np.exp(-x))


def test_each_channel_is_convolved_with_what_is_ahead():
    x, w, bias, states = random((2, 6, 9), (6, 4), (6,), (2, 6, 3))
    (found,) = values(causal(bias=[6], states=[2, 6, 3], activation="silu"), (x, w, bias, states))
    whole = np.concatenate([states, x], axis=2, dtype=np.float64)
    for b, d in np.ndindex(2, 6):
        sums = np.convolve(whole[b, d], w[d, ::-1], "valid") + bias[d]
        np.testing.assert_allclose(found[b, d], silu(sums), rtol=1e-10, atol=1e-12)


def test_gradients_are_differences_of_the_convolution():
    """Along one direction of all operands, with a step whose square is below rounding."""
    given, ways = random((2, 6, 9), (6, 4), (6,)), random((2, 6, 9), (6, 4), (6,), seed=2)
    (dy,) = random((2, 6, 9), seed=3)
    options = {"bias": [6], "activation": "silu"}
    found = values(causal_backward(**options), (dy, *given))
    step = 2.0**-12

    def moved(by):
        return [x + np.float32(by) * way for x, way in zip(given, ways, strict=True)]

    ends = [values(causal(**options), moved(by)) for by in (step, -step)]
    wanted = np.sum(dy * (ends[0][0] - ends[1][0])) / (2 * step)
    along = sum(np.sum(gradient * way) for gradient, way in zip(found, ways, strict=True))
    np.testing.assert_allclose(along, wanted, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("states", [None, [2, 16, 3]])
def test_it_is_one_kernel(states):
    """Bias, activation and the elements ahead are no copies and no launches."""
    build = causal((2, 16, 21), bias=[16], states=states, activation="silu", io=dnnc.dtypes.f16)
    plan = check(build(), engine="conv_depthwise")
    assert len(plan.programs[0].kernels) == 1


def test_the_engine_of_long_sequences():
    graph = causal((8, 2048, 4096), bias=[2048], activation="silu", io=dnnc.dtypes.bf16)()
    best = next(iter(heuristics.configs(graph.graph.finalize(), of("sm_90a"))))
    assert [choice.engine.name for choice in best.choices] == ["conv_depthwise"]


@pytest.mark.in_turn
def test_gradients_in_kernels():
    check(causal_backward((2, 16, 21), bias=[16], activation="silu")(), allowance=1e-4)
