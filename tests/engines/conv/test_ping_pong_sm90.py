"""Warpgroups of conv_sm90 that ping-pong (WARP_SPEC_CFG=4), as code of "sm_90a"."""

import pytest

from dnnc import dtypes
from dnnc.engines.conv.sm90 import CONV_SM90
from dnnc.target import of
from tests.support import multiprocessors

from .convs import H, N, around, convolved, image, ptx_of
from .test_dgrad_sm90 import dgrad, of_norm
from .test_halo_sm90 import fusion_of
from .test_sm90 import SMALL, layer, new_graph, run

PING_PONG = {**SMALL, "WARP_SPEC_CFG": 4}


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """An interpreted device of a few: several tiles of each warpgroup."""
    multiprocessors.few(monkeypatch, 2)


@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("images", [1, 2, 5])
def test_numbers_of_tiles_of_one_step_of_k(images):
    """None, one and several tiles of a warpgroup."""
    g = new_graph()
    convolved(g, [images, 64, 8, 8], [64, 64, 1, 1], **around(0)).set_output()
    run(g, knobs={**PING_PONG, "STAGES": 3}, seed=images)


@pytest.mark.in_turn
@pytest.mark.feature
@pytest.mark.parametrize("swap", [0, 1])
def test_scale_bias_and_a_residual(swap):
    g = new_graph()
    y = convolved(g, [2, 40, 9, 9], [136, 40, 1, 1], **around(0))
    y = g.add(g.mul(y, g.tensor([1, 136, 1, 1])), g.tensor([1, 136, 1, 1]))
    g.relu(g.add(y, image(g, [2, 136, 9, 9]))).set_output()
    run(g, slack=3.0, knobs={**PING_PONG, "SWAP_AB": swap})


@pytest.mark.in_turn
def test_filters_strides_and_groups():
    g = new_graph(dtypes.bf16)
    convolved(g, [2, 48, 13, 11], [80, 24, 3, 3], **around(1, stride=2)).set_output()
    run(g, knobs=PING_PONG)


@pytest.mark.in_turn
def test_tiles_of_phases_have_as_many_steps_as_their_taps():
    """A warpgroup lets the steps of the other's tile go by, which are not those of its own."""
    g = new_graph()
    dgrad(g, [2, 72, 8, 9], [72, 72, 3, 3], around(0, 2)).set_output()
    run(g, knobs={**PING_PONG, "STAGES": 3})


@pytest.mark.in_turn
def test_groups_side_by_side():
    g = new_graph()
    convolved(g, [2, 64, 7, 11], [64, 16, 3, 3], **around(1)).set_output()
    plan = run(g, knobs={**PING_PONG, "TILE_N": 64})
    assert "n16k16" in ptx_of(plan)  # a group's results alone
    assert plan.programs[0].fusions[0].knobs["WARP_SPEC_CFG"] == 4


@pytest.mark.in_turn
@pytest.mark.feature
def test_statistics():
    g = new_graph()
    y = convolved(g, [2, 64, 9, 9], [72, 64, 1, 1], **around(0)).set_output()
    for mode in ("add", "norm2"):
        total = g.reduction(y, mode).set_dim([1, 72, 1, 1])
        total.set_output().set_data_type(dtypes.f32)
    run(g, knobs=PING_PONG, slack=4.0, allowance=1e-4)


@pytest.mark.in_turn
def test_a_batch_norm_beside_swapped_tiles():
    """Each warpgroup loads x of its own tile, and its reads end before it gives up the stage."""
    g = new_graph()
    of_norm(g, dgrad(g, [2, 136, 9, 9], [64, 136, 1, 1], around(0)))
    knobs = {**PING_PONG, "SWAP_AB": 1, "TILE_M": 128}
    *_, after = ptx_of(run(g, knobs=knobs, slack=4.0, allowance=1e-3)).split("ldmatrix")
    assert after.index("fence.proxy.async") < after.index("mbarrier.arrive")


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("dtype", [dtypes.i8, dtypes.f32], ids=str)
def test_other_types(dtype):
    compute = dtypes.i32 if dtype == dtypes.i8 else dtypes.f32
    g = new_graph(dtype, compute_data_type=compute)
    y = convolved(g, [1, 48, 12, 12], [72, 48, 1, 1], **around(0))
    y.set_output().set_data_type(compute)
    run(g, knobs=PING_PONG, allowance=2.0**-10)  # f32 operands are cut to tf32


@pytest.mark.in_turn
def test_one_plan_serves_every_size():
    g = new_graph()
    w = image(g, [72, 32, 1, 1])
    g.relu(g.conv_fprop(image(g, [N, 32, H, 6]), w, **around(0))).set_output()
    plan = run(g, {"N": 1, "H": 4}, knobs=PING_PONG)
    run(g, {"N": 5, "H": 40}, plan=plan)


@pytest.mark.in_turn
def test_clusters():
    g = new_graph()
    convolved(g, [3, 64, 10, 10], [136, 64, 1, 1], **around(0)).set_output()
    run(g, knobs={**PING_PONG, "TILE_CGA_N": 2, "STAGES": 3})


@pytest.mark.parametrize(
    ("knobs", "what"),
    [
        ({"SPLIT_K_SLC": 2}, "split k"),
        ({"TILE_ROWS": 2, "SWAP_AB": 1}, "WARP_SPEC_CFG=4"),
        ({"TILE_M": 128, "TILE_N": 256}, "sums"),
    ],
    ids=["split", "halo", "sums"],
)
def test_what_ping_pong_refuses(knobs, what):
    fusion = layer([1, 64, 9, 9], [256, 64, 3, 3], around(1))
    (reason,) = CONV_SM90.legal({**PING_PONG, **knobs}, fusion, of("sm_90a"))
    assert what in f"{reason.what} {reason.supported}"


def test_statistics_beside_large_tiles_would_spill():
    fusion = statistics_of([1, 64, 9, 9], [256, 64, 3, 3])
    knobs = {**PING_PONG, "TILE_M": 128, "TILE_N": 128}
    (reason,) = CONV_SM90.legal(knobs, fusion, of("sm_90a"))
    assert "ping-pong" in reason.what
    assert not CONV_SM90.legal({**knobs, "TILE_N": 64}, fusion, of("sm_90a"))


def statistics_of(x, w):
    g = new_graph()
    y = convolved(g, x, w, **around(1)).set_output()
    total = g.reduction(y, "add").set_dim([1, w[0], 1, 1])
    total.set_output().set_data_type(dtypes.f32)
    return fusion_of(g)


def test_an_x_that_is_computed_takes_none():
    g = new_graph()
    x = g.relu(image(g, [1, 64, 9, 9])).set_data_type(dtypes.f16)
    g.conv_fprop(x, image(g, [64, 64, 1, 1]), **around(0)).set_output()
    (reason,) = CONV_SM90.legal(PING_PONG, fusion_of(g), of("sm_90a"))
    assert "X that is computed" in reason.what
