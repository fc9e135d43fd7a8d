"""Engine conv_sm90 in the interpreter: shapes, layouts, epilogues, knobs, refusals."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.dialect.fusion import partition
from dnnc.dialect.reference import reference
from dnnc.engines import engine_named
from dnnc.engines.conv.sm90 import CONV_SM90
from dnnc.expr import typical
from dnnc.target import of
from tests.support.checked import check, random_inputs

from . import test_pattern as test_conv
from .convs import CASES, MORE, H, N, W, around, convolved, image, packed, ptx_of

TARGET = "sm_90a"
SMALL = {
    "TILE_M": 64, "TILE_N": 64, "STAGES": 2, "TILE_CGA_M": 1, "TILE_CGA_N": 1, "SPLIT_K_SLC": 1,
    "SWAP_AB": 0, "TILE_ROWS": 0, "WARP_SPEC_CFG": 1, "SWIZZLE": 2048,
}  # fmt: skip


def new_graph(io=dtypes.f16, **options):
    return test_conv.new_graph(io, target=TARGET, **options)


def run(g, sizes=None, *, knobs=SMALL, **options):
    return check(g, sizes, engine="conv_sm90", knobs=knobs, target=TARGET, **options)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", CASES)
def test_shapes(name):
    x, w, parameters = CASES[name]
    g = new_graph()
    convolved(g, x, w, **parameters).set_output()
    plan = run(g)
    assert ".im2col" in ptx_of(plan)
    assert "wgmma" in ptx_of(plan)


@pytest.mark.rotating
@pytest.mark.parametrize("io", ["f16", "bf16"])
def test_a_flipped_filter(io):
    g = new_graph(dtypes.of(io))
    mode = {"convolution_mode": "CONVOLUTION"}
    convolved(g, [1, 16, 6, 5], [24, 16, 3, 2], **around(1), **mode).set_output()
    run(g)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("n", [0, 1, 3])
def test_one_plan_serves_every_size(n):
    g, images = new_graph(), dnnc.Dim("N", min=0, max=64)
    y = g.conv_fprop(image(g, [images, 16, H, W]), image(g, [24, 16, 3, 3]), **around(1, 2))
    g.relu(g.add(y, image(g, [images, 24, *y.get_dim()[2:]]))).set_output()
    run(g, {"N": n, "H": 7, "W": 4 + n})


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("rows", "columns"),
    [(128, 8), (128, 32), (128, 96), (128, 192), (256, 8), (256, 32), (256, 96)],
)
def test_tiles(rows, columns):
    g = new_graph()
    convolved(g, [1, 16, 13, 12], [columns + 8, 16, 1, 2], **around(0)).set_output()
    run(g, knobs={**SMALL, "TILE_M": rows, "TILE_N": columns})


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("cluster", [(2, 1), (1, 2), (2, 2)], ids=str)
def test_clusters_share_their_loads(cluster):
    """One of them has tiles past the end."""
    g = new_graph()
    convolved(g, [3, 72, 5, 10], [136, 72, 1, 2], **around(1)).set_output()
    blocks = {"TILE_CGA_M": cluster[0], "TILE_CGA_N": cluster[1]}
    plan = run(g, knobs={**SMALL, **blocks})
    assert ".multicast::cluster" in ptx_of(plan)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("knobs", [{"SPLIT_K_SLC": 4}, {"STAGES": 5}], ids=str)
def test_ways_through_the_tiles(knobs):
    g = new_graph()
    convolved(g, [2, 72, 6, 7], [72, 72, 3, 3], **around(1)).set_output()
    run(g, knobs={**SMALL, **knobs})


@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize(
    ("c", "more", "products"),
    [
        (40, {}, 3),
        pytest.param(40, {"SPLIT_K_SLC": 2}, 3, marks=pytest.mark.exchange),
        (72, {}, 4 + 1),
        (112, {"WARP_SPEC_CFG": 4, "TILE_M": 64, "TILE_N": 128, "STAGES": 4}, 4 + 3),
        (136, {"STAGES": 3}, 4 + 4 + 1),
        (136, {"SPLIT_K_SLC": 2}, 4),
        (200, {}, 4),
        (128, {}, 4),
    ],
    ids=str,
)
def test_zeros_of_a_panel_are_not_multiplied(c, more, products):
    """Where the loop knows which panel of a pixel it is at, and has three panels at most."""
    g = new_graph()
    convolved(g, [1, c, 5, 6], [72, c, 2, 2], **around(1)).set_output()
    plan = run(g, knobs={**SMALL, **more})
    times_unrolled = (1, 2)
    assert ptx_of(plan).count("wgmma.mma_async") in [n * products for n in times_unrolled]


@pytest.mark.in_turn
def test_blocks_work_through_many_tiles():
    """More tiles than SMs: the rings go on from tile to tile."""
    g = new_graph()
    convolved(g, [11, 8, 11, 80], [8, 8, 1, 1], **around(0)).set_output()
    run(g, knobs={**SMALL, "TILE_N": 8})


# ---- other dims, groups, types


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", MORE)
def test_dims_and_groups(name):
    x, w, parameters = MORE[name]
    g = new_graph()
    convolved(g, x, w, **parameters).set_output()
    run(g)


@pytest.mark.in_turn
def test_groups_of_volumes_that_fill_half_of_a_panel():
    """A panel of 64 bytes ends with their channels."""
    g = new_graph()
    convolved(g, [1, 64, 3, 4, 3], [48, 32, 2, 2, 2], **around(1, 2, spatial=3)).set_output()
    run(g)


@pytest.mark.in_turn
def test_groups_with_an_epilogue_and_symbols():
    """More tiles than one a group; what is read beside has the channels of all groups."""
    g = new_graph()
    y = g.conv_fprop(image(g, [N, 32, H, W]), image(g, [144, 16, 3, 3]), **around(1))
    scale, residual = g.tensor([1, 144, 1, 1]), image(g, [N, 144, H, W])
    g.relu(g.add(g.mul(y, scale), residual)).set_output()
    for cluster in ((1, 1), (2, 1), (1, 2)):
        blocks = {"TILE_CGA_M": cluster[0], "TILE_CGA_N": cluster[1]}
        run(g, {"N": 3, "H": 7, "W": 5}, slack=3.0, knobs={**SMALL, **blocks})


@pytest.mark.in_turn
def test_an_infinite_channel_stays_in_its_group():
    """A panel of channels reaches past the group's; what comes next is not multiplied."""
    g = new_graph()
    convolved(g, [1, 32, 4, 4], [32, 16, 3, 3], **around(1)).set_output()
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {}, low=1.0, high=2.0)
    inputs[graph.inputs[0].uid][0, 20] = np.inf
    values = reference(graph, inputs)[graph.outputs[0].uid]
    assert np.isfinite(values[:, :16]).all()
    run(g, inputs=inputs)


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("compute", "allowance"), [("FLOAT", 2.0**-11), ("FAST_FLOAT_FOR_FP8", 2.0**-9)]
)
def test_fp8_and_sums_are_promoted_where_float_is_asked_for(compute, allowance):
    g = new_graph(dtypes.f8e4m3, compute_data_type=dtypes.of(compute))
    w = image(g, [32, 80, 3, 3], data_type=dtypes.f8e5m2)
    y = g.conv_fprop(image(g, [1, 80, 5, 4]), w, **around(1))
    y.set_output().set_data_type(dtypes.f16)
    plan = run(g, allowance=allowance)
    assert ("add.rn.f32" in plan.blobs[1].decode()) == (compute == "FLOAT")


def test_integers_are_exact():
    g = new_graph(dtypes.i8, compute_data_type=dtypes.i32)
    y = convolved(g, [2, 48, 5, 4], [40, 48, 3, 3], **around(1))
    y.set_output().set_data_type(dtypes.i32)
    run(g)


@pytest.mark.in_turn
def test_f32_is_rounded_to_tf32_and_says_so():
    g = new_graph(dtypes.f32)
    convolved(g, [1, 36, 5, 4], [24, 36, 3, 3], **around(1)).set_output()
    plan = run(g, allowance=2.0**-10)
    (fusion,) = plan.programs[0].fusions
    assert "DOWN_CONVERT_INPUTS" in fusion.notes


def test_groups_of_3d_convolutions_have_whole_panels():
    g = new_graph()
    convolved(g, [1, 32, 3, 4, 5], [32, 16, 2, 2, 2], **around(1, spatial=3)).set_output()
    assert "X of groups of 16 channels" in refused(g)["operands by TMA"].what


# ---- what comes after


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("io", ["f16", "bf16"])
def test_scale_bias_residual_relu_and_two_outputs(io):
    g = new_graph(dtypes.of(io))
    y = convolved(g, [2, 16, 6, 7], [72, 16, 3, 3], **around(1))
    scale, bias = g.tensor([1, 72, 1, 1]), g.tensor([1, 72, 1, 1], data_type=dtypes.f32)
    biased = g.add(g.mul(y, scale), bias).set_output().set_data_type(dtypes.f32)
    g.relu(g.add(biased, image(g, [2, 72, 6, 7]))).set_output()
    plan = run(g, slack=3.0)
    maps = [a for a in plan.programs[0].variants[0].steps[0].launch.args if a.tensor_map]
    assert len(maps) == 5  # X, W, the residual, both outputs
    assert [fusion.engine for fusion in plan.programs[0].fusions] == ["conv_sm90"]


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("output", ["f32", "f8E4M3FN", "i8", "i32"])
def test_output_types(output):
    g = new_graph()
    convolved(g, [1, 16, 5, 6], [48, 16, 3, 3], **around(1)).set_output().set_data_type(
        dtypes.of(output)
    )
    run(g)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("layout", ["gaps between rows", "gaps between pixels"])
def test_output_layouts(layout):
    """Where pixels are not one distance apart, they are stored from registers."""
    g = new_graph()
    y = convolved(g, [2, 16, 5, 6], [40, 16, 3, 3], **around(1)).set_output()
    strides = {
        "gaps between rows": [40 * 40, 1, 8 * 40, 40],
        "gaps between pixels": [30 * 48, 1, 6 * 48, 48],
    }
    y.set_stride(strides[layout])
    stores = "cp.async.bulk.tensor.2d.global" in ptx_of(run(g))
    assert stores == (layout == "gaps between pixels")


@pytest.mark.in_turn
def test_broadcasts_along_images_and_pixels():
    """An operand that is read at a few of the pixel's axes takes its number apart."""
    g = new_graph()
    y = convolved(g, [2, 16, 5, 6], [24, 16, 3, 3], **around(1))
    of_images, of_rows = g.tensor([2, 1, 1, 1]), g.tensor([1, 24, 5, 1])
    g.add(g.mul(y, of_images), g.mul(y, of_rows)).set_output()
    run(g, slack=4.0)


@pytest.mark.in_turn
@pytest.mark.parametrize("knobs", [{"SPLIT_K_SLC": 2}, {}], ids=str)
def test_two_residuals_one_of_another_layout(knobs):
    """ConvBiasAct with a number that is passed by value, and an NCHW tensor beside."""
    g = new_graph()
    y = convolved(g, [2, 32, 6, 7], [72, 32, 3, 3], **around(1))
    alpha = g.tensor([1, 1, 1, 1], data_type=dtypes.f32, is_pass_by_value=True)
    beside, other = image(g, [2, 72, 6, 7]), g.tensor([2, 72, 6, 7], packed([2, 72, 6, 7]))
    sums = g.add(g.mul(y, alpha), g.mul(beside, alpha))
    g.tanh(g.add(g.bias(sums, g.tensor([1, 72, 1, 1])), other)).set_output()
    run(g, knobs={**SMALL, **knobs}, slack=4.0)


@pytest.mark.in_turn
def test_a_residual_that_is_the_input():
    g = new_graph()
    x = image(g, [1, 64, 5, 6])
    g.relu(g.add(g.conv_fprop(x, image(g, [64, 64, 3, 3]), **around(1)), x)).set_output()
    run(g, slack=3.0)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_infinities_fall_where_the_reference_has_them():
    g = new_graph()
    convolved(g, [1, 8, 5, 5], [8, 8, 3, 3], **around(1)).set_output()
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {}, low=1.0, high=2.0)
    x, w = graph.inputs
    inputs[x.uid][0, 3, 2, 2] = np.inf
    inputs[w.uid][2, 1, 0, 0] = -np.inf
    values = reference(graph, inputs)[graph.outputs[0].uid]
    assert np.isnan(values).any()
    assert np.isinf(values).any()
    run(g, inputs=inputs)


# ---- knobs


def the_fusion(g):
    (fusion,) = partition(g.graph.finalize(), [g.graph.live_ops])
    return fusion


def layer(x, w, parameters, io=dtypes.f16):
    g = new_graph(io)
    convolved(g, x, w, **parameters).set_output()
    return the_fusion(g)


LAYERS = {
    "56x56x64": ([256, 64, 56, 56], [64, 64, 3, 3], around(1)),
    "28x28x128": ([256, 128, 28, 28], [128, 128, 3, 3], around(1)),
    "14x14x256": ([256, 256, 14, 14], [256, 256, 3, 3], around(1)),
    "7x7x512": ([32, 512, 7, 7], [512, 512, 3, 3], around(1)),
    "56x56x64->256": ([256, 64, 56, 56], [256, 64, 1, 1], around(0)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_the_best_candidate_of_layers(name):
    """Every candidate is legal; the engine comes first; time is near what tensor cores take."""
    fusion = layer(*LAYERS[name])
    target = of(TARGET)
    found = CONV_SM90.candidates(fusion, target)
    assert found
    for knobs in found:
        assert CONV_SM90.legal(knobs, fusion, target) == ()
        assert set(knobs) == {knob.name for knob in CONV_SM90.knobs(fusion, target)}
    best = heuristics.choices(fusion, target)[0]
    assert best.engine is CONV_SM90
    (op,) = fusion.ops
    terms = typical(op.y.elements()) * np.prod([n.constant for n in op.w.shape[1:]])
    floor = 2 * terms / 800e12
    moved = sum(typical(t.elements()) * 2 for t in (op.x, op.w, op.y))
    assert max(floor, moved / 4.5e12) < best.prediction.seconds
    assert best.prediction.seconds < 3 * max(floor, moved / 2.0e12) + 5e-6


def test_pixels_of_64_channels_wait_for_the_second_cache():
    """Nine loads of each pixel: no more than some 400 TFLOP/s, as was measured; a product of
    matrices of the same sizes has none of that, nor have pixels that come with their halo."""
    found = heuristics.choices(layer(*LAYERS["56x56x64"]), of(TARGET))
    best = next(choice for choice in found if not choice.knobs["TILE_ROWS"])
    assert found[0].prediction.seconds < 0.8 * best.prediction.seconds
    flops = 2 * 256 * 56 * 56 * 64 * 64 * 9
    assert 250e12 < flops / best.prediction.seconds < 420e12
    assert best.knobs["TILE_N"] == 64


@pytest.mark.parametrize(
    ("knobs", "what"),
    [
        ({"TILE_M": 96}, "tile 96x64"),
        ({"TILE_M": 256, "TILE_N": 256}, "512 sums"),
        ({"SPLIT_K_SLC": 8}, "SPLIT_K_SLC=8"),
        ({"TILE_M": 128, "TILE_N": 256, "STAGES": 12}, "bytes"),
    ],
    ids=str,
)
def test_knobs_that_do_not_go_together(knobs, what):
    fusion = layer([1, 128, 9, 9], [64, 128, 1, 1], around(0))
    whole = {**SMALL, "SWIZZLE": 2048, **knobs}
    (reason,) = CONV_SM90.legal(whole, fusion, of(TARGET))
    assert what in reason.what


# ---- refusals


def refused(g, target=TARGET):
    return {r.clause: r for r in CONV_SM90.supports(the_fusion(g), of(target))}


def _depthwise(g):
    convolved(g, [1, 16, 9, 9], [16, 1, 3, 3], **around(1)).set_output()


def _far(g):
    convolved(g, [1, 16, 300, 9], [16, 16, 3, 1], padding=[0, 0], stride=[1, 1],
              dilation=[130, 1]).set_output()  # fmt: skip


def _wide_stride(g):
    convolved(g, [1, 16, 30, 30], [16, 16, 3, 3], **around(1, 9)).set_output()


def _computed_filter(g):
    w = g.relu(image(g, [16, 16, 3, 3]))
    g.conv_fprop(image(g, [1, 16, 5, 5]), w, **around(1)).set_output()


def _mask(g):
    y = convolved(g, [1, 16, 5, 5], [12, 16, 3, 3], **around(1))
    g.cmp_gt(y, 0).set_output().set_data_type(dtypes.i1)


def _sums(g):
    y = convolved(g, [2, 16, 5, 5], [16, 16, 3, 3], **around(1))
    g.reduction(y, "add").set_dim([2, 16, 1, 1]).set_output()


@pytest.mark.parametrize(
    ("build", "clause", "what"),
    [
        (_depthwise, "operands by TMA", "a stride of 1 elements"),
        (_far, "operands by TMA", "a corner of -260"),
        (_wide_stride, "operands by TMA", "a convolution stride of 9"),
        (_computed_filter, "operations", "is computed before it"),
        (_mask, "boolean output", "of dims [1, 12, 5, 5]"),
        (_sums, "operations", "reduction"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_refusals(build, clause, what):
    g = new_graph()
    build(g)
    reason = refused(g)[clause]
    assert what in reason.what
    assert reason.supported


def test_other_architectures_are_refused():
    g = new_graph()
    convolved(g, [1, 16, 5, 5], [16, 16, 3, 3], **around(1)).set_output()
    assert "architecture" in refused(g, "sm_90")
    assert not refused(g)


def test_the_engine_is_found_by_its_name():
    assert engine_named("conv_sm90") is CONV_SM90


def test_a_computed_tensor_that_is_both_x_and_w():
    g = new_graph()
    both = g.relu(image(g, [16, 16, 3, 3]))
    g.conv_fprop(both, both, **around(1)).set_output()
    assert "W of conv_fprop is computed before it" in refused(g)["operations"].what
