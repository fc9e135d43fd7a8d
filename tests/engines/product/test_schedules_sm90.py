"""Tiles of matmul_sm90 that are cut along k (STREAM_K) or taken one by one (SCHED_POLICY).

As code of "sm_90a".
"""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.errors import cudnnGraphNotSupportedError
from dnnc.interpreter import plans
from tests.support import machine
from tests.support.checked import random_inputs

from .test_matmul_sm80 import strides
from .test_matmul_sm90 import SMALL, TALL, M, new_graph, product, run, softmax

SCHEDULES = {"stream": {"STREAM_K": 1}, "dynamic": {"SCHED_POLICY": 1}}
schedules = pytest.mark.parametrize("knobs", SCHEDULES.values(), ids=SCHEDULES.keys())
# In CI tiles are taken one by one in the tests of numbers, sizes and epilogues alone.
mostly_streams = pytest.mark.parametrize(
    "knobs",
    [
        SCHEDULES["stream"],
        pytest.param(SCHEDULES["dynamic"], marks=pytest.mark.slow),
    ],
    ids=SCHEDULES.keys(),
)


@pytest.fixture(params=[3])
def multiprocessors(request, monkeypatch):
    """An interpreted device of a few: rounds of whole tiles, runs over several tiles."""
    found = {"sm_count": request.param, "max_dynamic_smem_bytes": 232448}
    monkeypatch.setattr(plans, "_device_variables", lambda program: found)
    return request.param


@pytest.mark.rotating
@schedules
@pytest.mark.parametrize("tiles", [1, 2, 5, 7])
def test_numbers_of_tiles(knobs, tiles, multiprocessors):
    g, _ = product(dtypes.f16, 64, 64 * tiles, 136)
    run(g, knobs={**SMALL, **knobs}, seed=tiles)


@pytest.mark.feature
@schedules
def test_many_blocks(knobs):
    """As many as there are steps: each has a part of one tile only."""
    g, _ = product(dtypes.f16, 100, 70, 328, output=dtypes.f32)
    run(g, knobs={**SMALL, **knobs}, allowance=2.0**-18)


@pytest.mark.rotating
@schedules
@pytest.mark.parametrize("rows", [128, 256])
def test_large_tiles_and_edges(knobs, rows, multiprocessors):
    g, _ = product(dtypes.bf16, rows + 70, 140, 264)
    run(g, knobs={**SMALL, "TILE_M": rows, "STAGES": 3, **knobs})


@pytest.mark.rotating
@pytest.mark.feature
@schedules
@pytest.mark.parametrize("swap", [0, 1])
def test_epilogues_with_residuals_and_reductions(knobs, swap, multiprocessors):
    g = new_graph(dtypes.f16)
    a, b = g.tensor([2, 130, 136]), g.tensor([2, 136, 128], [136 * 128, 1, 136])
    y = g.add(g.matmul(a, b), g.tensor([1, 1, 128]))
    y = g.swish(g.add(y, g.tensor([2, 130, 128]))).set_output()
    g.reduction(y, "amax").set_dim([1, 1, 1]).set_output().set_data_type(dtypes.f32)
    run(g, knobs={**TALL, **knobs, "SWAP_AB": swap, "TILE_M": 128 - 64 * swap}, slack=3.0)
    g = new_graph(dtypes.f16)
    a, b = g.tensor([1, 130, 136]), g.tensor([1, 136, 128], strides(136, 128, "column"))
    g.add(g.matmul(a, b), g.tensor([1, 130, 128])).set_output()
    run(g, knobs={**TALL, **knobs})


@mostly_streams
def test_promoted_sums_and_integers(knobs, multiprocessors):
    g, _ = product(dtypes.f8e4m3, 70, 200, 400, output=dtypes.f32)
    run(g, knobs={**SMALL, **knobs}, allowance=2.0**-11)
    g, _ = product(dtypes.i8, 70, 200, 400)
    run(g, knobs={**SMALL, **knobs})


@mostly_streams
def test_gated_pairs_and_rows_that_are_reduced(knobs, multiprocessors):
    g = new_graph(dtypes.bf16)
    a = g.tensor([1, 200, 136])
    gate, up = (g.tensor([1, 136, 64], strides(136, 64, "column")) for _ in range(2))
    g.mul(g.swish(g.matmul(a, gate)), g.matmul(a, up)).set_output()
    run(g, knobs={**SMALL, **knobs}, slack=3.0)
    g = new_graph(dtypes.bf16)
    a, b = g.tensor([2, 150, 144]), g.tensor([1, 144, 64], strides(144, 64, "column"))
    softmax(g, g.matmul(a, b), [2, 150, 1]).set_output()
    run(g, knobs={**SMALL, **knobs}, slack=3.0)


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("roles", "rows"), [(3, 64), pytest.param(1, 64, marks=pytest.mark.slow), (2, 128)]
)
def test_operands_in_registers(roles, rows, multiprocessors):
    """Those of consumers, those of one producer, and those of two by turns."""
    g = new_graph(dtypes.bf16)
    w = g.tensor([1, 140, 208], data_type=dtypes.i8)
    a = g.mul(w, g.tensor([1, 140, 1])).set_data_type(dtypes.bf16)
    b = g.tensor([1, 208, 100], strides(208, 100, "column"))
    g.matmul(a, b).set_output()
    run(g, knobs={**SMALL, "TILE_M": rows, "WARP_SPEC_CFG": roles, "STREAM_K": 1})


def test_unaligned_operands(multiprocessors):
    g, _ = product(dtypes.f16, 70, 66, 131)
    run(g, knobs={**SMALL, "STREAM_K": 1})


@mostly_streams
def test_one_plan_serves_every_size(knobs, multiprocessors):
    g = new_graph(dtypes.f16)
    a, b = g.tensor([1, M, 144]), g.tensor([1, 144, 80], strides(144, 80, "column"))
    g.relu(g.matmul(a, b)).set_output()
    plan = run(g, {"M": 3}, knobs={**SMALL, **knobs})
    for rows in (64, 500):
        run(g, {"M": rows}, plan=plan)


@mostly_streams
def test_results_are_the_same_in_every_run(knobs, multiprocessors):
    g, c = product(dtypes.f16, 100, 64, 328, output=dtypes.f32)
    plan = run(g, knobs={**SMALL, **knobs}, allowance=2.0**-17)
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {})
    found = [machine.current().run(plan, inputs, sizes={}, seed=seed)[c.uid] for seed in range(3)]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.parametrize("rows", [512, pytest.param(4096, marks=pytest.mark.slow)])
def test_tiles_may_follow_each_other_in_other_orders(rows):
    """Of a product of 10 x 3 tiles of 64 x 64: groups of 8 rows of tiles, and of all."""
    g, _ = product(dtypes.f16, 640, 192, 64)
    plan = run(g, knobs={**SMALL, "SWIZZLE": rows}, allowance=2.0**-18)
    (fusion,) = plan.programs[0].fusions
    assert fusion.knobs["SWIZZLE"] == rows


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"STREAM_K": 1, "SCHED_POLICY": 1}, "each other"),
        ({"STREAM_K": 1, "SPLIT_K_SLC": 2}, "SPLIT_K_SLC=1"),
        ({"SCHED_POLICY": 1, "TILE_CGA_M": 2}, "TILE_CGA_\\*=1"),
    ],
)
def test_what_does_not_go_together_is_refused(more, said):
    g, _ = product(dtypes.f16, 64, 64, 256)
    with pytest.raises(cudnnGraphNotSupportedError, match=said):
        run(g, knobs={**SMALL, **more})


def test_dynamic_tiles_want_operands_that_tma_brings():
    g, _ = product(dtypes.f16, 64, 64, 61)
    with pytest.raises(cudnnGraphNotSupportedError, match="pass through registers"):
        run(g, knobs={**SMALL, "SCHED_POLICY": 1})
    g = dnnc.pygraph("experts", io_data_type="f16", target="sm_90a")
    token, weight = g.tensor([1, 64, 64]), g.tensor([2, 64, 64])
    g.moe_grouped_matmul(token, weight, g.tensor([2, 1, 1], data_type=dtypes.i32)).set_output()
    with pytest.raises(cudnnGraphNotSupportedError, match="a plain matmul"):
        run(g, knobs={**SMALL, "STREAM_K": 1})
