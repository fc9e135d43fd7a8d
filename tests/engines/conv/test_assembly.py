"""Convolutions with mma.sync, grouped and depthwise ones, assembled: no spills."""

import pytest

from dnnc import dtypes
from dnnc.dialect.fusion import partition
from dnnc.engines import engine_named
from dnnc.engines.conv.grouped_tile import GroupedFacts
from dnnc.engines.conv.pattern import conv_of, shape_of
from dnnc.engines.product.knobs_sm80 import WARPS
from dnnc.engines.product.model_sm80 import TILE_REGISTERS
from dnnc.target import of
from tests.engines.assembling import (
    ARCHITECTURES,
    IMAGES,
    assembled,
    assert_fits,
    channels_last,
    depthwise,
    filter_gradient,
    packed_channels,
    scaled_with_residual,
)
from tests.engines.conv.test_assembly_sm90 import (
    EDGE,
    FILTER,
    FUSED,
    IMAGE,
    STATISTICS,
    THREE,
    convolution,
)
from tests.engines.elementwise.test_pointwise import new_graph

pytestmark = pytest.mark.registers


def convolution_of_scaled():
    g = new_graph(dtypes.f16, compute_data_type=dtypes.f32)
    x = g.tensor(IMAGE, packed_channels(IMAGE))
    scale, bias = (g.tensor([1, IMAGE[1], 1, 1]) for _ in range(2))
    x = g.relu(g.add(g.mul(x, scale), bias)).set_data_type(dtypes.f16)
    y = g.conv_fprop(x, g.tensor(FILTER, packed_channels(FILTER)), **THREE)
    scaled_with_residual(g, y).set_output()
    return g


STEM = convolution(
    [IMAGES, 3, 224, 224], [64, 3, 7, 7], padding=[3, 3], stride=[2, 2], dilation=[1, 1]
)
GROUPS = convolution(IMAGE, [128, 8, 3, 3], after=scaled_with_residual, **THREE)
FEW_CHANNELS = convolution([IMAGES, 6, EDGE, EDGE], [192, 6, 3, 3], **THREE)

# Graph, knobs.
GATHERED = {
    "fused": (FUSED, {}),
    "first layer": (STEM, {"TILE_M": 128, "TILE_N": 64, "TILEK": 32}),
    "statistics": (STATISTICS, {}),
}


@pytest.mark.in_turn
@pytest.mark.rotating
@ARCHITECTURES
@pytest.mark.parametrize("name", GATHERED)
def test_conv_sm80_on_every_architecture(name, target):
    build, knobs = GATHERED[name]
    assert_fits(assembled("conv_sm80", build, knobs, target), target)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("tile", WARPS, ids=str)
def test_no_tile_of_pixels_spills_or_takes_many_more_registers(tile):
    """Than predictions take for granted, of matmuls: for where its pixels are."""
    knobs = {"TILE_M": tile[0], "TILE_N": tile[1], "TILEK": 64, "STAGES": 3}
    plan = assembled("conv_sm80", FUSED, knobs, "sm_80")
    assert_fits(plan, "sm_80")
    assert plan.programs[0].kernels[0].registers <= TILE_REGISTERS[tile] + 16


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("build", "knobs"),
    [
        (convolution_of_scaled, {"TILE_M": 128, "TILE_N": 64, "TILEK": 32}),
        (convolution_of_scaled, {"TILE_M": 128, "TILE_N": 256, "TILEK": 64, "STAGES": 3}),
        (STEM, {"TILE_M": 128, "TILE_N": 128, "TILEK": 64, "STAGES": 3}),
        (STEM, {"TILE_M": 256, "TILE_N": 128, "TILEK": 32, "STAGES": 3}),
        (FEW_CHANNELS, {"TILE_M": 128, "TILE_N": 128, "TILEK": 32, "STAGES": 3}),
        (FEW_CHANNELS, {"TILE_M": 256, "TILE_N": 128, "TILEK": 64, "STAGES": 3}),
        (GROUPS, {"TILE_M": 64, "TILE_N": 64, "TILEK": 32, "STAGES": 2}),
        (GROUPS, {"TILE_M": 32, "TILE_N": 64, "TILEK": 64, "STAGES": 2}),
        (convolution(IMAGE, FILTER, "FLOAT", **THREE), {"TF32": 3}),
        (convolution(IMAGE, FILTER, "INT8", **THREE), {"TILE_M": 128, "TILE_N": 256, "STAGES": 3}),
        (convolution([IMAGES, 64, 8, 28, 28], [256, 64, 3, 3, 3], padding=[1] * 3), {}),
    ],
    ids=(
        "before",
        "before 256",
        "stem",
        "stem 256",
        "6 channels",
        "6 channels 256",
        "groups",
        "groups, flat",
        "tf32",
        "i8",
        "3D",
    ),
)
def test_no_gather_spills(build, knobs):
    assert_fits(assembled("conv_sm80", build, knobs, "sm_80"), "sm_80")


@pytest.mark.rotating
@ARCHITECTURES
def test_filter_gradients_of_bytes_on_every_architecture(target):
    knobs = {"TILE_M": 128, "TILE_N": 128, "TILEK": 128, "STAGES": 3, "SPLIT_K_BUF": 4}
    knobs |= {"STAGES": 2} if target in ("sm_86", "sm_89", "sm_120", "sm_120a") else {}
    assert_fits(assembled("conv_wgrad_sm80", filter_gradient(io="INT8"), knobs, target), target)


@pytest.mark.rotating
@pytest.mark.parametrize("tile", WARPS, ids=str)
def test_no_tile_of_filter_gradients_of_bytes_spills(tile):
    knobs = {"TILE_M": tile[0], "TILE_N": tile[1], "TILEK": 128, "STAGES": 3, "SPLIT_K_BUF": 4}
    plan = assembled("conv_wgrad_sm80", filter_gradient(io="INT8"), knobs, "sm_80")
    assert_fits(plan, "sm_80")
    assert plan.programs[0].kernels[0].registers <= TILE_REGISTERS[tile] + 16


def image_gradient_of_bytes():
    g = new_graph(dtypes.i8, compute_data_type=dtypes.i32)
    dy, w = [IMAGES, 128, EDGE, EDGE], [128, 128, 3, 3]
    tensors = [g.tensor(dims, packed_channels(dims)) for dims in (dy, w)]
    dx = g.conv_dgrad(*tensors, padding=[1, 1]).set_dim([IMAGES, 128, EDGE, EDGE])
    dx.set_output().set_data_type(dtypes.i32)
    return g


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("tile", WARPS, ids=str)
def test_no_tile_of_image_gradients_of_bytes_spills(tile):
    knobs = {"TILE_M": tile[0], "TILE_N": tile[1], "TILEK": 128, "STAGES": 3}
    assert_fits(assembled("conv_sm80", image_gradient_of_bytes, knobs, "sm_80"), "sm_80")


@pytest.mark.in_turn
def test_registers_for_three_blocks_of_groups_side_by_side():
    knobs = {"TILE_M": 64, "TILE_N": 64, "TILEK": 32, "STAGES": 2}
    main = assembled("conv_sm80", GROUPS, knobs, "sm_90").programs[0].kernels[0]
    assert 3 * main.threads * main.registers <= of("sm_90").limits.registers_sm


# X, W.
CONVERTED = (("HALF", "INT8"), ("INT8", "BFLOAT16"), ("FP8_E4M3", "FP8_E5M2"), ("BFLOAT16", "HALF"))
LARGEST = {"TILE_M": 128, "TILE_N": 256, "STAGES": 3}


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "types",
    [pytest.param(t, marks=() if t == CONVERTED[2] else pytest.mark.slow) for t in CONVERTED],
    ids=str,
)
def test_no_conversion_of_operands_spills(types):
    build = convolution(IMAGE, FILTER, types[0], scaled_with_residual, types[1], **THREE)
    assert_fits(assembled("conv_sm80", build, LARGEST, "sm_90"), "sm_90")


def candidates_of_depthwise(size):
    graph = depthwise(size)().graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    return engine_named("conv_depthwise").candidates(fusion, of("sm_90a"))


def assert_depthwise_fits(size, found):
    for knobs in found:
        for target in ("sm_80", "sm_90a"):
            assert_fits(assembled("conv_depthwise", depthwise(size), knobs, target), target)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("size", [3, 5])
def test_large_tiles_of_depthwise_filters_fit_their_registers(size):
    """The candidate of most sums fits, for each way of loading and holding."""
    most = {}
    for knobs in sorted(
        candidates_of_depthwise(size), key=lambda c: c["TILE_ROWS"] * c["TILE_COLS"]
    ):
        most[knobs["LOAD_SIZE"], knobs["SPECFILT"]] = knobs
    assert len(most) >= 3
    assert_depthwise_fits(size, most.values())


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("size", "channels"), [(3, 8), (5, 8), (7, 8), (9, 8), (10, 8), (3, 16), (7, 16)]
)
def test_filters_of_groups_fit_their_registers(size, channels, target):
    """The candidate that holds most of the filter, of sums and of pixels does not spill."""
    build = depthwise(size, "HALF", channels, 29)
    graph = build().graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    engine = engine_named("conv_grouped_sm80")
    facts = GroupedFacts(shape_of(conv_of(fusion)), dtypes.f16)
    found = sorted(
        (k for k in engine.candidates(fusion, of(target)) if k["ARRAY_SIZE_PER_THREAD"] == 2),
        key=lambda k: (facts.live(k["TILE_ROWS"], k["TILE_N"]), k["BLOCK_SIZE"]),
    )
    assert_fits(assembled("conv_grouped_sm80", build, found[-1], target), target)


@pytest.mark.in_turn
def test_a_strip_of_groups_is_under_way_at_once():
    """Seven of nine lines, two loads of 16 bytes each, before the first product; of those each line
    has two for each row of outputs that meets it."""
    knobs = {"TILE_ROWS": 7, "TILE_N": 8, "ARRAY_SIZE_PER_THREAD": 1}
    plan = assembled("conv_grouped_sm80", depthwise(3, "HALF", 8, 29), knobs, "sm_90a")
    ptx = plan.blobs[plan.programs[0].modules[0].ptx].decode()
    assert ptx.count("mma.sync") == 2 * 3 * 7
    pixels = "@%p"
    before = ptx[: ptx.index("mma.sync")]
    assert sum("ld.global.nc.v4" in line and pixels in line for line in before.splitlines()) >= 14


def depthwise_with_epilogue():
    """14 columns, which tiles of 4 do not divide, then scale, bias and ReLU."""
    g = new_graph(dtypes.f16)
    x, w = channels_last(g, 32, 14, 14, 384), channels_last(g, 384, 3, 3, 1)
    y = g.conv_fprop(x, w, padding=[1, 1], stride=[1, 1], dilation=[1, 1])
    scaled = g.mul(y, g.tensor([1, 384, 1, 1]))
    g.relu(g.add(scaled, g.tensor([1, 384, 1, 1]))).set_output()
    return g


@pytest.mark.in_turn
def test_pixels_that_may_be_outside_are_computed_before_the_branches_that_store_them():
    """Computed later, all taps and pixels of their sums live until there: 233 registers."""
    knobs = {"LOAD_SIZE": 16, "TILE_ROWS": 1, "TILE_COLS": 4, "ARRAY_SIZE_PER_THREAD": 1}
    plan = assembled("conv_depthwise", depthwise_with_epilogue, knobs, "sm_90a")
    (kernel,) = plan.programs[0].kernels
    assert kernel.registers < 200
    crowded = {**knobs, "TILE_ROWS": 2, "OCCUPANCY": 3}
    assert_fits(assembled("conv_depthwise", depthwise_with_epilogue, crowded, "sm_90a"), "sm_90a")


@pytest.mark.in_turn
def test_a_small_strip_of_a_depthwise_convolution_is_under_way_at_once():
    """36 loads of its pixels before the first multiply-add, where registers hold them."""
    knobs = {"LOAD_SIZE": 8, "TILE_ROWS": 2, "TILE_COLS": 7, "ARRAY_SIZE_PER_THREAD": 1}
    plan = assembled("conv_depthwise", depthwise(3), {**knobs, "OCCUPANCY": 4}, "sm_90a")
    assert_fits(plan, "sm_90a")
    ptx = plan.blobs[plan.programs[0].modules[0].ptx].decode()
    assert ptx[: ptx.index("fma.rn.f32")].count(".v2.b32") == 36


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 5, 7])
def test_every_candidate_of_depthwise_filters_fits_its_registers(size):
    assert_depthwise_fits(size, candidates_of_depthwise(size))
