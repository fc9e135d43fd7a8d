"""moe_grouped_matmul by the engine fallback, in the interpreter."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.dialect.fusion import partition
from dnnc.engines import ENGINES
from dnnc.errors import Status, cudnnGraphNotSupportedError
from dnnc.target import of
from tests.support.checked import check, random_inputs

from ..elementwise.test_pointwise import new_graph

T = dnnc.Dim("T", max=4096)


def operands(g, rows, experts, k, n):
    """Token, weight with contiguous columns (as cuDNN wants it), offsets."""
    token = g.tensor([1, rows, k], name="token")
    weight = g.tensor([experts, k, n], [k * n, 1, k], name="weight")
    first = g.tensor([experts, 1, 1], data_type=dtypes.i32, name="first")
    return token, weight, first


def check_offsets(g, first, sizes=None, **options):
    """Compares with the reference, and that with a product of each expert's rows."""
    graph = g.graph.finalize()
    inputs = random_inputs(graph, sizes or {})
    inputs[graph.tensor("first").uid] = np.array(first, np.int32).reshape(-1, 1, 1)
    return check(g, sizes, inputs=inputs, engine="fallback", **options)


# What f32 sums of a few products may differ by from exact ones, where the result is f32.
ALLOWANCE = {dtypes.f32: 2.0**-20}

OFFSETS = {
    "uneven": [0, 1, 9, 11],
    "none in the middle": [0, 6, 6, 7],
    "none first": [0, 0, 0, 5],
    "none last": [0, 3, 13, 13],
    "all in the first": [0, 13, 13, 13],
}


@pytest.mark.rotating
@pytest.mark.parametrize("first", OFFSETS.values(), ids=OFFSETS.keys())
@pytest.mark.parametrize("io", [dtypes.f16, dtypes.bf16, dtypes.f32], ids=str)
def test_offsets_and_types(io, first):
    g = new_graph(io)
    g.moe_grouped_matmul(*operands(g, 13, 4, 10, 6)).set_output()
    check_offsets(g, first, allowance=ALLOWANCE.get(io, 0.0))


@pytest.mark.rotating
@pytest.mark.parametrize("io", [dtypes.i8, dtypes.f8e4m3, dtypes.f8e5m2], ids=str)
def test_bytes(io):
    g = new_graph(io, target="sm_90")
    y = g.moe_grouped_matmul(*operands(g, 5, 3, 8, 4)).set_output()
    y.set_data_type(dtypes.bf16)
    check_offsets(g, [0, 1, 3], target="sm_90")


def test_one_expert():
    g = new_graph(dtypes.f16)
    g.moe_grouped_matmul(*operands(g, 5, 1, 8, 8)).set_output()
    check_offsets(g, [0])


def test_rows_known_at_run_time():
    g = new_graph(dtypes.bf16)
    g.moe_grouped_matmul(*operands(g, T, 3, 8, 4)).set_output()
    plan = check_offsets(g, [0, 2, 3], {"T": 7})
    check_offsets(g, [0, 0, 1], {"T": 1}, plan=plan)


def test_experts_known_at_run_time():
    g = new_graph(dtypes.f16)
    experts = dnnc.Dim("E", max=64)
    g.moe_grouped_matmul(*operands(g, 6, experts, 8, 4)).set_output()
    check_offsets(g, [0, 2, 2, 5, 5], {"E": 5})


def test_weights_of_other_experts_do_not_matter():
    """A NaN stays with the rows of its expert."""
    g = new_graph(dtypes.f32)
    y = g.moe_grouped_matmul(*operands(g, 6, 3, 4, 4)).set_output()
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {})
    inputs[graph.tensor("first").uid] = np.array([0, 2, 5]).reshape(3, 1, 1)
    inputs[graph.tensor("weight").uid][1] = np.nan
    expected = dnnc.reference(graph, inputs)[y.uid]
    assert np.isnan(expected).all(axis=(0, 2)).tolist() == [False, False, True, True, True, False]
    assert not np.isnan(expected[0, [0, 1, 5]]).any()
    check(g, inputs=inputs, engine="fallback", allowance=ALLOWANCE[dtypes.f32])


def test_operations_before_and_after():
    g = new_graph(dtypes.f16)
    token, weight, first = operands(g, T, 3, 8, 6)
    scaled = g.mul(weight, g.tensor([3, 1, 6])).set_data_type(dtypes.f16)
    shifted = g.add(first, 1, compute_data_type=dtypes.i32).set_data_type(dtypes.i32)
    first = g.sub(shifted, 1, compute_data_type=dtypes.i32).set_data_type(dtypes.i32)
    y = g.moe_grouped_matmul(g.relu(token).set_data_type(dtypes.f16), scaled, first)
    g.swish(g.add(y, g.tensor([1, 1, 6]))).set_output().set_data_type(dtypes.f32)
    check_offsets(g, [0, 4, 4], {"T": 9}, allowance=2.0**-18)


def test_two_products_that_share_the_tokens():
    """A gated feed-forward layer's first half."""
    g = new_graph(dtypes.bf16)
    token, gate, first = operands(g, 7, 3, 8, 4)
    up = g.tensor([3, 8, 4])
    y = g.mul(
        g.swish(g.moe_grouped_matmul(token, gate, first)), g.moe_grouped_matmul(token, up, first)
    )
    y.set_output()
    check_offsets(g, [0, 3, 4], slack=3.0)


def test_the_random_offsets_are_in_order():
    g = new_graph(dtypes.f16)
    g.moe_grouped_matmul(*operands(g, T, 6, 2, 2)).set_output()
    graph = g.graph.finalize()
    for seed in range(8):
        first = random_inputs(graph, {"T": 9}, seed)[graph.tensor("first").uid].reshape(-1)
        assert first[0] == 0
        assert (np.diff(first) >= 0).all()
        assert first[-1] <= 9


# ---- the reference


def test_the_reference_is_a_product_of_each_experts_rows():
    g = new_graph(dtypes.f32)
    y = g.moe_grouped_matmul(*operands(g, 6, 3, 4, 5)).set_output()
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {})
    inputs[graph.tensor("first").uid] = np.array([0, 4, 4]).reshape(3, 1, 1)
    token, weight = (inputs[graph.tensor(name).uid] for name in ("token", "weight"))
    made = dnnc.reference(graph, inputs)[y.uid]
    np.testing.assert_allclose(made[0, :4], token[0, :4] @ weight[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(made[0, 4:], token[0, 4:] @ weight[2], rtol=1e-5, atol=1e-6)


# ---- refusals


@pytest.mark.parametrize("name", [e.name for e in ENGINES if e.name != "fallback"])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_other_engines_say_what_they_take(name, target):
    g = new_graph(dtypes.f16, target=target)
    g.moe_grouped_matmul(*operands(g, 128, 4, 64, 64), name="experts").set_output()
    graph = g.graph.finalize()
    (whole,) = partition(graph, [graph.live_ops])
    engine = next(e for e in ENGINES if e.name == name)
    reasons = engine.supports(whole, of(target))
    if name == "matmul_sm90":
        assert [reason.supported for reason in reasons] == ["sm_90a"] * (target != "sm_90a")
        return
    assert any("moe_grouped_matmul 'experts'" in reason.what for reason in reasons)
    for reason in reasons:
        assert reason.status.category is Status.NOT_SUPPORTED
        assert reason.supported


@pytest.mark.parametrize("mode", ["GATHER", "SCATTER", "COMBINE"])
def test_other_modes_are_refused(mode):
    g = new_graph(dtypes.f16)
    token, weight, first = operands(g, 8, 2, 4, 4)
    index = g.tensor([1, 8, 1], data_type=dtypes.i32)
    chosen = dnnc.moe_grouped_matmul_mode[mode]
    g.moe_grouped_matmul(token, weight, first, token_index=index, mode=chosen).set_output()
    with pytest.raises(
        cudnnGraphNotSupportedError, match=f"mode {mode} with token_index"
    ) as caught:
        g.validate()
    assert caught.value.status is Status.NOT_SUPPORTED
    assert "mode NONE without" in caught.value.supported


@pytest.mark.parametrize("name", ["token_index", "token_ks", "top_k_scores"])
def test_routing_tensors_are_refused(name):
    g = new_graph(dtypes.f16)
    routing = {name: g.tensor([1, 8, 1], data_type=dtypes.i32)}
    g.moe_grouped_matmul(*operands(g, 8, 2, 4, 4), **routing).set_output()
    with pytest.raises(cudnnGraphNotSupportedError, match=f"mode NONE with {name}"):
        g.validate()
