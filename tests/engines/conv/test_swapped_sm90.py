"""Engine conv_sm90 with channels along the instruction's rows (SWAP_AB=1), in the interpreter."""

import pytest

import dnnc
from dnnc import dtypes

from ..product.test_matmul_sm80 import depth_allowance
from .convs import CASES, MORE, H, N, W, around, convolved, image, packed, ptx_of
from .test_sm90 import SMALL, new_graph, run

TARGET = "sm_90a"
SWAPPED = {**SMALL, "SWAP_AB": 1}


@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", CASES)
def test_shapes(name):
    x, w, parameters = CASES[name]
    g = new_graph()
    convolved(g, x, w, **parameters).set_output()
    plan = run(g, knobs=SWAPPED)
    assert plan.programs[0].target == TARGET
    if w[0] % 8 == 0:
        assert "stmatrix.sync.aligned.m8n8.x4.trans" in ptx_of(plan)


@pytest.mark.rotating
@pytest.mark.parametrize("name", ["1D of groups", "3D", "3D of groups of whole panels"])
def test_dims_and_groups(name):
    x, w, parameters = MORE[name]
    g = new_graph()
    convolved(g, x, w, **parameters).set_output()
    run(g, knobs=SWAPPED)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("pixels", "channels"),
    [(384, 64), (512, 64), (192, 128), (192, 256), (136, 128), (160, 64), (8, 64)],
)
def test_tiles(pixels, channels):
    g = new_graph()
    y = convolved(g, [1, 16, 23, 22], [channels + 8, 16, 1, 2], **around(0))
    g.add(y, g.tensor([1, channels + 8, 1, 1])).set_output()
    run(g, knobs={**SWAPPED, "TILE_M": pixels, "TILE_N": channels})


@pytest.mark.in_turn
@pytest.mark.parametrize("cluster", [(2, 1), (1, 2)], ids=str)
def test_clusters_share_their_loads(cluster):
    g = new_graph()
    convolved(g, [3, 72, 5, 10], [136, 72, 1, 2], **around(1)).set_output()
    blocks = {"TILE_CGA_M": cluster[0], "TILE_CGA_N": cluster[1]}
    run(g, knobs={**SWAPPED, **blocks})


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    "knobs",
    [{"SPLIT_K_SLC": 4}, {"TILE_M": 384}],
    ids=str,
)
def test_ways_through_the_tiles(knobs):
    g = new_graph()
    convolved(g, [2, 72, 6, 7], [72, 72, 3, 3], **around(1)).set_output()
    run(g, knobs={**SWAPPED, **knobs})


@pytest.mark.in_turn
@pytest.mark.parametrize("n", [1, 3])
def test_one_plan_serves_every_size(n):
    """Pixels of an odd number: no pairs of neighbours."""
    g = new_graph()
    y = g.conv_fprop(image(g, [N, 16, H, W]), image(g, [24, 16, 3, 3]), **around(1, 2))
    g.relu(g.add(y, image(g, [N, 24, *y.get_dim()[2:]]))).set_output()
    run(g, {"N": n, "H": 7, "W": 4 + n}, knobs=SWAPPED)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("io", ["f16", "bf16"])
@pytest.mark.parametrize("tile", [(64, 64), (384, 64), (128, 128)], ids=str)
def test_scale_bias_residual_relu_and_two_outputs(io, tile):
    g = new_graph(dtypes.of(io))
    y = convolved(g, [2, 16, 7, 8], [80, 16, 3, 3], **around(1))
    y.set_output()
    one = [1, 80, 1, 1]
    scaled = g.bias(g.mul(y, g.tensor(one)), g.tensor(one))
    g.relu(g.add(scaled, image(g, [2, 80, 7, 8]))).set_output()
    knobs = {**SWAPPED, "TILE_M": tile[0], "TILE_N": tile[1]}
    plan = run(g, slack=3.0, knobs=knobs)
    assert "ldmatrix.sync.aligned.m8n8.x4.trans" in ptx_of(plan)


@pytest.mark.rotating
@pytest.mark.parametrize("output", ["f32", "f8E4M3FN"])
def test_outputs_of_other_widths_are_stored_from_registers(output):
    g = new_graph()
    y = convolved(g, [2, 16, 5, 6], [24, 16, 3, 3], **around(1))
    g.relu(y).set_output().set_data_type(dtypes.of(output))
    run(g, slack=2.0, knobs=SWAPPED, allowance=depth_allowance(16 * 9))


@pytest.mark.in_turn
def test_residuals_that_vary_along_images_and_pixels():
    g = new_graph()
    y = convolved(g, [4, 16, 6, 7], [72, 16, 3, 3], **around(1))
    images, rows = g.tensor([4, 72, 1, 1]), g.tensor([1, 1, 6, 7])
    other = g.tensor([4, 72, 6, 7], packed([4, 72, 6, 7]))
    g.add(g.add(g.add(y, images), rows), other).set_output()
    run(g, slack=3.0, knobs=SWAPPED)


@pytest.mark.in_turn
@pytest.mark.parametrize("compute", ["FLOAT", "FAST_FLOAT_FOR_FP8"])
def test_fp8_of_two_types(compute):
    g = new_graph(dtypes.of("f8E4M3FN"), compute_data_type=compute)
    w = image(g, [24, 16, 3, 3], data_type=dtypes.of("f8E5M2"))
    y = g.conv_fprop(image(g, [2, 16, 6, 5]), w, **around(1))
    y.set_output().set_data_type(dtypes.f16)
    run(g, knobs={**SWAPPED, "TILE_M": 384}, slack=4.0)


@pytest.mark.parametrize(
    ("knobs", "what"),
    [
        ({"TILE_M": 384, "TILE_N": 128}, "tile 384x128"),
        ({"TILE_M": 384, "SPLIT_K_SLC": 2}, "384 columns"),
    ],
    ids=str,
)
def test_knobs_that_do_not_go_together(knobs, what):
    g = new_graph()
    convolved(g, [2, 72, 6, 7], [256, 72, 3, 3], **around(1)).set_output()
    with pytest.raises(dnnc.DnncError, match=what):
        run(g, knobs={**SWAPPED, **knobs})
