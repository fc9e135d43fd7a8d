"""Warpgroups of matmul_sm90 that ping-pong (WARP_SPEC_CFG=4), as code of "sm_90a"."""

import numpy as np
import pytest

from dnnc import dtypes
from dnnc.errors import cudnnGraphNotSupportedError
from dnnc.interpreter import plans
from tests.support import machine
from tests.support.checked import random_inputs

from .test_matmul_sm80 import strides
from .test_matmul_sm90 import SMALL, M, new_graph, product, run, softmax

PING_PONG = {**SMALL, "WARP_SPEC_CFG": 4}


@pytest.fixture(params=[2])
def multiprocessors(request, monkeypatch):
    """An interpreted device of a few: several tiles of each warpgroup."""
    found = {"sm_count": request.param, "max_dynamic_smem_bytes": 232448}
    monkeypatch.setattr(plans, "_device_variables", lambda program: found)
    return request.param


@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("tiles", [1, 2, 5])
def test_numbers_of_tiles(tiles, multiprocessors):
    """None, one and several tiles of a warpgroup; stages that do not divide a tile's steps."""
    g, _ = product(dtypes.f16, 64, 64 * tiles, 200)
    run(g, knobs={**PING_PONG, "STAGES": 3}, seed=tiles)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("rows", "columns"), [(128, 64), pytest.param(256, 64, marks=pytest.mark.slow), (64, 128)]
)
def test_large_tiles_and_edges(rows, columns, multiprocessors):
    g, _ = product(dtypes.bf16, 2 * rows + 70, 140, 136)
    run(g, knobs={**PING_PONG, "TILE_M": rows, "TILE_N": columns, "STAGES": 4})


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("cluster", [{"TILE_CGA_M": 2}, {"TILE_CGA_N": 2}], ids=["m", "n"])
def test_clusters(cluster, multiprocessors):
    g, _ = product(dtypes.f16, 300, 260, 136)
    run(g, knobs={**PING_PONG, "STAGES": 3, **cluster})


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("swap", [0, 1])
def test_epilogues_with_residuals_and_reductions(swap, multiprocessors):
    g = new_graph(dtypes.f16)
    a, b = g.tensor([2, 130, 136]), g.tensor([2, 136, 128], [136 * 128, 1, 136])
    y = g.add(g.matmul(a, b), g.tensor([1, 1, 128]))
    y = g.swish(g.add(y, g.tensor([2, 130, 128]))).set_output()
    g.reduction(y, "amax").set_dim([1, 1, 1]).set_output().set_data_type(dtypes.f32)
    run(g, knobs={**PING_PONG, "SWAP_AB": swap}, slack=3.0)


@pytest.mark.in_turn
@pytest.mark.parametrize("kept", ["rows", "columns"])
def test_reductions_at_the_exit(kept, multiprocessors):
    g = new_graph(dtypes.f16)
    a, b = g.tensor([1, 200, 72]), g.tensor([1, 72, 150], strides(72, 150, "column"))
    y = g.relu(g.matmul(a, b))
    dims = [1, 200, 1] if kept == "rows" else [1, 1, 150]
    g.reduction(y, "add").set_dim(dims).set_output().set_data_type(dtypes.f32)
    run(g, knobs=PING_PONG, allowance=2.0**-18)


@pytest.mark.in_turn
@pytest.mark.feature
def test_gated_pairs_and_rows_that_are_reduced(multiprocessors):
    g = new_graph(dtypes.bf16)
    a = g.tensor([1, 330, 136])
    gate, up = (g.tensor([1, 136, 64], strides(136, 64, "column")) for _ in range(2))
    g.mul(g.swish(g.matmul(a, gate)), g.matmul(a, up)).set_output()
    run(g, knobs=PING_PONG, slack=3.0)
    g = new_graph(dtypes.bf16)
    a, b = g.tensor([2, 150, 144]), g.tensor([1, 144, 64], strides(144, 64, "column"))
    softmax(g, g.matmul(a, b), [2, 150, 1]).set_output()
    run(g, knobs=PING_PONG, slack=3.0)


@pytest.mark.rotating
@pytest.mark.parametrize("dtype", [dtypes.i8, dtypes.f32], ids=str)
def test_other_types(dtype, multiprocessors):
    g, _ = product(dtype, 70, 200, 208)
    run(g, knobs=PING_PONG, allowance=2.0**-10)  # f32 operands are cut to tf32


@pytest.mark.in_turn
def test_one_plan_serves_every_size(multiprocessors):
    g = new_graph(dtypes.f16)
    a, b = g.tensor([1, M, 144]), g.tensor([1, 144, 80], strides(144, 80, "column"))
    g.relu(g.matmul(a, b)).set_output()
    plan = run(g, {"M": 3}, knobs=PING_PONG)
    for rows in (64, 500):
        run(g, {"M": rows}, plan=plan)


@pytest.mark.in_turn
def test_results_are_the_same_in_every_run(multiprocessors):
    g, c = product(dtypes.f16, 100, 200, 136, output=dtypes.f32)
    plan = run(g, knobs=PING_PONG, allowance=2.0**-17)
    inputs = random_inputs(g.graph.finalize(), {})
    found = [machine.current().run(plan, inputs, sizes={}, seed=seed)[c.uid] for seed in range(3)]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.parametrize(
    ("made", "knobs", "what"),
    [
        ((dtypes.f16, 70, 66, 131), {}, "pass through registers"),
        ((dtypes.f8e4m3, 70, 200, 400), {}, "summed in FLOAT"),
        ((dtypes.f16, 64, 64, 256), {"SPLIT_K_SLC": 2}, "split k"),
        ((dtypes.f16, 128, 256, 256), {"TILE_M": 128, "TILE_N": 256}, "sums"),
    ],
    ids=["registers", "promoted", "split", "sums"],
)
def test_what_ping_pong_refuses(made, knobs, what):
    g, _ = product(*made)
    with pytest.raises(cudnnGraphNotSupportedError, match=what):
        run(g, knobs={**PING_PONG, **knobs})
