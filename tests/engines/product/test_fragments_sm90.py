"""Operands of matmul_sm90 that its consumers compute in their registers (WARP_SPEC_CFG=3).

As code of "sm_90a".
"""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.engines.product.choice_sm90 import FRAGMENTS
from dnnc.errors import cudnnGraphNotSupportedError
from tests.support.checked import random_inputs

from .test_matmul_sm80 import depth_allowance, strides
from .test_matmul_sm90 import SMALL, TALL, new_graph, run

ROWS = {**SMALL, "WARP_SPEC_CFG": FRAGMENTS}
SWAPPED = {**ROWS, "SWAP_AB": 1}


def weights_of_8_bits(dtype, m, n, k, layout="column", operand=dtypes.bf16):
    """C = A @ (W * scale of each column), W of 8 bits."""
    g = new_graph(operand)
    a = g.tensor([1, m, k], name="a")
    w = g.tensor([1, k, n], strides(k, n, layout), data_type=dtype, name="w")
    scale = g.tensor([1, 1, n], data_type=dtypes.f32)
    b = g.mul(w, scale).set_data_type(operand)
    g.matmul(a, b).set_output().set_data_type(dtypes.f32)
    return g


def run_weights(g, sizes=None, **options):
    """Scales are multiples of 1/64, whose products with 8 bits f32 holds: they are rounded once."""
    graph = g.graph.finalize()
    inputs = random_inputs(graph, sizes or {})
    scale = next(t.uid for t in graph.inputs if t.type == dtypes.f32)
    inputs[scale] = np.round(64 * inputs[scale]) / 64
    return run(g, sizes, inputs=inputs, **options)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("dtype", [dtypes.i8, dtypes.f8e4m3, dtypes.f8e5m2], ids=str)
@pytest.mark.parametrize("operand", [dtypes.bf16, dtypes.f16], ids=str)
def test_weights_of_8_bits(dtype, operand):
    g = weights_of_8_bits(dtype, 72, 96, 192, operand=operand)
    plan = run_weights(g, knobs=SWAPPED, allowance=depth_allowance(192))
    assert "stmatrix" not in plan.blobs[1].decode()
    assert " {%r" in plan.blobs[1].decode().split("wgmma.mma_async")[1]


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(("n", "k"), [(70, 64), (150, 208), (300, 16)])
def test_edges(n, k):
    """Rows past the end are clamped, k past it is zero."""
    g = weights_of_8_bits(dtypes.i8, 70, n, k)
    run_weights(g, knobs={**SWAPPED, "TILE_N": 128}, allowance=depth_allowance(k))


@pytest.mark.in_turn
def test_what_is_not_zero_where_k_ends():
    """g1 of the zeros that TMA brings may be anything, infinity too."""
    g = new_graph(dtypes.f16)
    a = g.tensor([1, 64, 72])
    b = g.tensor([1, 72, 64], strides(72, 64, "column"))
    inverse = g.reciprocal(g.add(g.abs(a), 0.0)).set_data_type(dtypes.f16)
    g.matmul(g.min(inverse, 4.0).set_data_type(dtypes.f16), b).set_output()
    run(g, knobs=ROWS)
    g = new_graph(dtypes.f16)
    a = g.tensor([1, 64, 72])
    b = g.tensor([1, 72, 64], strides(72, 64, "column"))
    g.matmul(g.log(g.abs(a)).set_data_type(dtypes.f16), b).set_output()
    run(g, knobs=ROWS, allowance=2.0**-9)


@pytest.mark.in_turn
def test_scales_along_k_and_along_rows():
    """An operand that k does not change is loaded before the loop, the rest inside it."""
    g = new_graph(dtypes.f16)
    a, by_k, by_row = g.tensor([1, 100, 136]), g.tensor([1, 1, 136]), g.tensor([1, 100, 1])
    b = g.tensor([1, 136, 72], strides(136, 72, "column"))
    scaled = g.relu(g.mul(g.mul(a, by_k), by_row)).set_data_type(dtypes.f16)
    g.matmul(scaled, b).set_output()
    run(g, knobs={**TALL, "WARP_SPEC_CFG": FRAGMENTS})


@pytest.mark.in_turn
@pytest.mark.feature
def test_two_blocks_of_rows_of_a_warpgroup():
    g = weights_of_8_bits(dtypes.i8, 40, 300, 192)
    knobs = {**SWAPPED, "TILE_M": 64, "TILE_N": 256}
    run_weights(g, knobs=knobs, allowance=depth_allowance(192))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("cluster", [(2, 1), (1, 2)], ids=str)
def test_clusters_share_raw_tiles(cluster):
    g = weights_of_8_bits(dtypes.i8, 150, 150, 200 - 8)
    blocks = {"TILE_CGA_M": cluster[0], "TILE_CGA_N": cluster[1]}
    plan = run_weights(g, knobs={**SWAPPED, **blocks}, allowance=depth_allowance(192))
    assert ".multicast::cluster" in plan.blobs[1].decode()


@pytest.mark.in_turn
def test_split_k():
    g = weights_of_8_bits(dtypes.i8, 60, 128, 320)
    knobs = {**SWAPPED, "TILE_N": 128, "SPLIT_K_SLC": 2}
    run_weights(g, knobs=knobs, allowance=depth_allowance(320))


@pytest.mark.in_turn
def test_batches_and_many_tiles():
    g = new_graph(dtypes.bf16)
    a = g.tensor([3, 64, 64])
    w = g.tensor([3, 64, 136], [136 * 64, 1, 64], data_type=dtypes.i8)
    scale = g.tensor([3, 1, 136], data_type=dtypes.f32)
    b = g.mul(w, scale).set_data_type(dtypes.bf16)
    g.gelu(g.matmul(a, b)).set_output()
    run(g, knobs=SWAPPED, slack=3.0)


@pytest.mark.in_turn
def test_a_gated_pair_of_one_computed_operand():
    g = new_graph(dtypes.bf16)
    a, s = g.tensor([1, 80, 128]), g.tensor([1, 1, 128])
    scaled = g.mul(a, s).set_data_type(dtypes.bf16)
    gate, up = (g.tensor([1, 128, 64], strides(128, 64, "column")) for _ in range(2))
    g.mul(g.swish(g.matmul(scaled, gate)), g.matmul(scaled, up)).set_output()
    run(g, knobs=ROWS, slack=3.0)


@pytest.mark.in_turn
def test_experts_of_weights_of_8_bits():
    g = new_graph(dtypes.bf16)
    token = g.tensor([1, 50, 64], name="token")
    w = g.tensor([3, 64, 72], [64 * 72, 1, 64], data_type=dtypes.i8)
    scale = g.tensor([3, 1, 72], data_type=dtypes.f32)
    first = g.tensor([3, 1, 1], data_type=dtypes.i32, name="first")
    b = g.mul(w, scale).set_data_type(dtypes.bf16)
    g.moe_grouped_matmul(token, b, first).set_output()
    run(g, knobs={**SWAPPED, "TILE_M": 16})


@pytest.mark.in_turn
def test_sizes_known_at_run_time():
    rows = dnnc.Dim("M", max=4096)
    g = weights_of_8_bits(dtypes.f8e4m3, rows, 72, 80)
    plan = run_weights(g, {"M": 5}, knobs=SWAPPED, allowance=depth_allowance(80))
    run_weights(g, {"M": 130}, knobs=SWAPPED, plan=plan, allowance=depth_allowance(80))


# ---- refusals


def refusal(g, knobs):
    with pytest.raises(cudnnGraphNotSupportedError) as caught:
        run(g, knobs=knobs)
    return str(caught.value)


def test_the_operand_along_the_rows_has_to_be_computed_from_bytes_with_k_contiguous():
    column = weights_of_8_bits(dtypes.i8, 64, 64, 64)
    assert "no operand along the rows that is computed" in refusal(column, ROWS)
    row = weights_of_8_bits(dtypes.i8, 64, 64, 64, layout="row")
    assert "k contiguous" in refusal(row, SWAPPED)
    wide = weights_of_8_bits(dtypes.f32, 64, 64, 64)
    assert "16 bits" in refusal(wide, SWAPPED)


def test_both_computed_operands_are_refused():
    g = new_graph(dtypes.f16)
    a, b = g.tensor([1, 64, 64]), g.tensor([1, 64, 64], strides(64, 64, "column"))
    first, second = (g.relu(t).set_data_type(dtypes.f16) for t in (a, b))
    g.matmul(first, second).set_output()
    assert "does not come by TMA" in refusal(g, ROWS)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("mode", ["identity", "mul", "cmp_lt"])
def test_fragments_that_cost_nothing_to_compute(mode):
    """Registers that products still read are not written, and constants are written in time."""
    g = new_graph(dtypes.f16)
    a = g.tensor([1, 70, 256])
    b = g.tensor([1, 256, 72], strides(256, 72, "column"))
    made = {
        "identity": lambda: g.identity(a),
        "mul": lambda: g.mul(a, 1.0),
        "cmp_lt": lambda: g.cmp_lt(a, a),
    }[mode]()
    g.matmul(made.set_data_type(dtypes.f16), b).set_output()
    for seed in range(3):
        run(g, knobs=ROWS, seed=seed, allowance=2.0**-12)
