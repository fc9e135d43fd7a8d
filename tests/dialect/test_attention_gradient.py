"""The gradient of attention: its reference against differences of the forward pass, and what it
stands for against its reference."""

from random import Random

import numpy as np
import pytest

from dnnc.dialect.reference import reference
from tests.attention_gradients import inputs_of, loss_along, operands_of, past_the_lengths
from tests.random_attention_gradients import draw

from .attention_gradient_examples import CASES, FORWARD, HALF, SYMBOLS, forward, gradient
from .test_attention import decomposed

GRADIENTS = {"q": "dq", "k": "dk", "v": "dv", "bias": "dbias", "sink_token": "dsink_token"}


def operation(build):
    return build().graph.finalize().ops[-1]


def case(name, seed=0):
    """(graph of the gradient, its operation, that of the forward pass, operands by name)."""
    graph = CASES[name]().graph.finalize()
    op, other = graph.ops[-1], operation(FORWARD[name])
    return graph, op, other, operands_of(op, other, seed)


def results(graph, given, of_steps):
    """The reference's results by name; of_steps: computed by the operations that the gradient
    stands for."""
    op = graph.ops[-1]
    made = decomposed(graph) if of_steps else graph
    found = reference(made, inputs_of(op, given), exact_outputs=True)
    return {field.name: found[tensor.uid] for field, tensor in op.tensors("result")}


@pytest.mark.parametrize("name", CASES)
def test_the_reference_is_the_slope_of_the_forward_pass(name):
    _, op, other, given = case(name)
    assert_slopes(op, other, given)


def assert_slopes(op, other, given):
    found = op.computed(given, {})
    rng = np.random.default_rng(1)
    for operand, result in GRADIENTS.items():
        if operand not in given or getattr(op, result) is None:
            continue
        direction = rng.normal(size=given[operand].shape)
        wanted = loss_along(other, given, operand, direction)
        assert np.sum(found[result] * direction) == pytest.approx(wanted, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_what_it_stands_for_gives_the_same(name):
    graph, _, _, given = case(name)
    assert_steps_give_the_reference(graph, given)


def assert_steps_give_the_reference(graph, given):
    whole, parts = (results(graph, given, of_steps) for of_steps in (False, True))
    assert whole.keys() == parts.keys() >= {"dq", "dk", "dv"}
    for result, wanted in whole.items():
        size = max(1.0, np.abs(wanted).max(initial=0.0))
        np.testing.assert_allclose(parts[result], wanted, rtol=1e-4, atol=2e-5 * size)


@pytest.mark.rotating
@pytest.mark.parametrize("seed", range(30))
def test_random_options(seed):
    arguments, dims = draw(Random(seed))
    graph = gradient(arguments, **dims)().graph.finalize()
    op, other = graph.ops[-1], operation(forward(arguments, **dims))
    given = operands_of(op, other, seed)
    assert_slopes(op, other, given)
    assert_steps_give_the_reference(graph, given)


def test_products_of_16_bits():
    """P and dS are rounded on their way."""
    graph = HALF().graph.finalize()
    other = operation(forward({"attn_scale": 0.5, "use_causal_mask": True}))
    given = operands_of(graph.ops[-1], other, 0)
    whole, parts = (results(graph, given, of_steps) for of_steps in (False, True))
    for result, wanted in whole.items():
        np.testing.assert_allclose(parts[result], wanted, rtol=0.02, atol=0.02)
        assert not np.array_equal(parts[result], wanted)


def test_sizes_that_are_symbols():
    graph = SYMBOLS().graph.finalize()
    op, sizes = graph.ops[-1], {"B": 2, "M": 3}
    options = {"use_causal_mask_bottom_right": True, "attn_scale": 0.5}
    other = operation(forward(options, rows=3, columns=6))
    given = operands_of(op, other, 0, sizes)
    found = reference(decomposed(graph), inputs_of(op, given), sizes=sizes)
    for field, tensor in op.tensors("result"):
        wanted = op.computed(given, sizes)[field.name]
        np.testing.assert_allclose(found[tensor.uid], wanted, 1e-4, 1e-4)


# ---- masks never give NaN


@pytest.mark.parametrize("of_steps", [False, True])
@pytest.mark.parametrize("name", ["padding", "padded_window", "sink", "dropout_by_mask"])
def test_memory_past_the_lengths_may_hold_anything(name, of_steps):
    graph, _, other, given = case(name)
    for lengths in ((0, 3), (5, 0), (4, 5)):
        given["seq_len_q"] = np.reshape([lengths[0], 5], (2, 1, 1, 1))
        given["seq_len_kv"] = np.reshape([lengths[1], 7], (2, 1, 1, 1))
        given |= {n: other.computed(given, {})[n] for n in ("o", "stats")}
        wanted = results(graph, past_the_lengths(given, 0.0), of_steps)
        found = results(graph, past_the_lengths(given, np.nan), of_steps)
        for result, array in found.items():
            assert np.isfinite(array).all()
            np.testing.assert_array_equal(array, wanted[result])
        assert not found["dq"][0, :, lengths[0] :].any()
        assert not found["dk"][0, :, lengths[1] :].any()
        assert not found["dv"][0, :, lengths[1] :].any()


@pytest.mark.parametrize("of_steps", [False, True])
def test_rows_that_see_no_key_get_zeros(of_steps):
    graph, _, _, given = case("rows_without_keys")
    assert np.isneginf(given["stats"][:, :, :5]).all()
    found = results(graph, given, of_steps)
    assert not found["dq"][:, :, :5].any()
    assert found["dq"][:, :, 6:].any()
    assert all(np.isfinite(array).all() for array in found.values())


@pytest.mark.parametrize("of_steps", [False, True])
def test_a_bias_of_minus_infinity_masks(of_steps):
    graph, _, other, given = case("bias")
    given["bias"][:, :, 2] = -np.inf
    given |= {n: other.computed(given, {})[n] for n in ("o", "stats")}
    found = results(graph, given, of_steps)
    assert all(np.isfinite(array).all() for array in found.values())
    assert not found["dq"][:, :, 2].any()
    assert not found["dbias"][:, :, 2].any()


@pytest.mark.parametrize("of_steps", [False, True])
def test_scores_of_ten_thousand(of_steps):
    """Scores of -10,000 too, whose log of the sum of exponentials is negative."""
    for sign in (1, -1):
        graph, _, other, given = case("full")
        given["q"] = np.full_like(given["q"], sign * 70.0)
        given["k"] = np.full_like(given["k"], 72.0)
        given |= {n: other.computed(given, {})[n] for n in ("o", "stats")}
        assert np.all(np.abs(given["stats"]) > 9e3)
        found = results(graph, given, of_steps)
        # All keys are alike: each has an equal share of dO.
        share = np.broadcast_to(given["do"].sum(axis=2, keepdims=True) / 7, found["dv"].shape)
        np.testing.assert_allclose(found["dv"], share, rtol=1e-2, atol=1e-2)
        assert all(np.isfinite(array).all() for array in found.values())


# ---- steps


def test_the_mask_of_dropout_is_drawn_once():
    for name, draws in (("dropout", 1), ("full", 0)):
        titles = [op.title for op in CASES[name]().graph.finalize().live_ops]
        assert titles.count("rng:BERNOULLI") == draws


def test_heads_that_share_keys_are_one_product():
    """Their rows follow each other: nothing is summed up after it."""
    for name, reductions in (("grouped", 1), ("one_key_head", 1), ("sink", 2)):
        titles = [op.title for op in CASES[name]().graph.finalize().live_ops]
        assert titles.count("matmul") == 5
        assert titles.count("reduction:add") == reductions  # delta, dsink_token
