"""Engine conv_wgrad_sm90 in the interpreter: shapes, layouts, parts, epilogues, refusals."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.dialect.fusion import partition
from dnnc.engines.conv.wgrad_sm90 import CONV_WGRAD_SM90
from dnnc.errors import Status
from dnnc.target import of
from tests.dialect.conv_gradient_examples import PEERS, response_dims
from tests.support import machine
from tests.support.checked import check, random_inputs

from . import test_pattern as test_conv
from .convs import around, image, packed, ptx_of

TARGET = "sm_90a"
SMALL = {
    "TILE_M": 64, "TILE_N": 64, "STAGES": 2, "TILE_CGA_M": 1, "TILE_CGA_N": 1, "SPLIT_K_SLC": 1,
    "SPLIT_K_BUF": 1, "SWIZZLE": 2048,
}  # fmt: skip

# X, W, parameters, knobs.
CASES = {
    "1x1 of odd outputs": ([2, 64, 5, 9], [37, 64, 1, 1], around(0), {}),
    "1D, flipped, strided": (
        [1, 64, 9], [72, 64, 3], around(1, 2, spatial=1, convolution_mode="CONVOLUTION"), {}
    ),
    "3D of few channels": ([1, 8, 3, 4, 5], [8, 8, 2, 2, 2], around(1, spatial=3), {}),
    "uneven, dilated, channels past a chunk": ([1, 72, 9, 7], [24, 72, 2, 1], {
        "pre_padding": [0, 2], "post_padding": [3, 1], "stride": [2, 1], "dilation": [3, 1]}, {}),
    "groups in parts": ([2, 48, 6, 7], [80, 24, 3, 1], around(1), {"SPLIT_K_BUF": 2}),
    "groups of 4 and 8 side by side": ([2, 16, 5, 6], [32, 4, 3, 2], around(1), {}),
    "depthwise, two filters a channel": ([1, 24, 4, 5], [48, 1, 2, 2], around(0), {}),
    "more parts than pixels": ([1, 128, 9, 9], [64, 64, 1, 1], around(0), {"SPLIT_K_BUF": 12}),
    "wide tiles": ([1, 64, 9, 9], [64, 64, 3, 2], around(1), {"TILE_N": 384}),
    "blocks that share pixels of X": (
        [1, 64, 6, 9], [192, 64, 1, 2], around(0),
        {"TILE_M": 128, "TILE_N": 128, "TILE_CGA_M": 2},
    ),
    "blocks that share DY": (
        [1, 64, 6, 9], [136, 64, 3, 1], around(0), {"TILE_M": 128, "TILE_CGA_N": 2}
    ),
    "blocks that share k": ([2, 64, 9, 9], [64, 64, 1, 1], around(0), {"SPLIT_K_SLC": 2}),
}  # fmt: skip


def new_graph(io=dtypes.f16, **options):
    return test_conv.new_graph(io, target=TARGET, **options)


def gradient(g, x, w, like=image, **parameters):
    """DW of tensors of some dims; like: makes them."""
    dy = like(g, response_dims(x, w, parameters))
    return g.conv_wgrad(like(g, x), dy, **parameters).set_dim(w)


def run(g, sizes=None, knobs=None, **options):
    knobs = {**SMALL, **(knobs or {})}
    return check(
        g, sizes, engine="conv_wgrad_sm90", knobs=knobs, target=TARGET, slack=4.0, **options
    )


HALO = {"TILE_N": 576, "TILE_ROWS": 2, "TILE_COLS": 0}
HALOS = {
    "rows of 8 pixels": ([2, 64, 4, 8], [64, 64, 3, 3], around(1), HALO),
    "columns, parts, flipped": (
        [3, 64, 4, 16], [72, 64, 3, 3], around(1, convolution_mode="CONVOLUTION"),
        {**HALO, "TILE_COLS": 8, "SPLIT_K_BUF": 2},
    ),
    "groups side by side, dilated": (
        [1, 128, 3, 16], [128, 32, 3, 3], around(2, 1, 2), {**HALO, "TILE_ROWS": 1}
    ),
    "3 channels": ([1, 3, 4, 16], [64, 3, 3, 3], around(1), HALO),
    "a first layer": (
        [2, 3, 8, 18], [40, 3, 7, 7], {"pre_padding": [3, 3], "post_padding": [2, 1],
        "stride": [2, 2]}, {**HALO, "SPLIT_K_BUF": 2},
    ),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("name", HALOS)
def test_pixels_with_their_halo(name):
    """Nothing is multiplied that is no part of the gradient: infinities stay where they are."""
    x, w, parameters, knobs = HALOS[name]
    g = new_graph()
    gradient(g, x, w, **parameters).set_output()
    inputs = random_inputs(g.graph.finalize(), {})
    image = inputs[g.graph.inputs[0].uid]
    image[-1, 1, -1, -1] = image[0, 2, 1, 0] = np.inf
    with np.errstate(all="ignore"):
        run(g, knobs=knobs, inputs=inputs)


@pytest.mark.in_turn
@pytest.mark.feature
@pytest.mark.rotating
@pytest.mark.parametrize("name", CASES)
def test_shapes(name):
    x, w, parameters, knobs = CASES[name]
    g = new_graph(dtypes.bf16 if "parts" in name else dtypes.f16)
    gradient(g, x, w, **parameters).set_output()
    ptx = ptx_of(run(g, knobs=knobs))
    assert ".im2col" in ptx
    assert "wgmma" in ptx
    assert (".multicast::cluster" in ptx) == ("TILE_CGA_M" in knobs or "TILE_CGA_N" in knobs)


@pytest.mark.in_turn
def test_where_libraries_were_wrong():
    x, w, parameters = PEERS["pixels past the last window"]
    g = new_graph()
    gradient(g, x, w, **parameters).set_output()
    run(g)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("parts", [1, 2])
def test_one_plan_serves_every_size(parts):
    """A scaled gradient is added to what DW held, beside one of another type and layout."""
    g, images = new_graph(), dnnc.Dim("N", min=1, max=64)
    x, w = [images, 64, dnnc.Dim("H", min=4, max=64), 6], [72, 64, 2, 3]
    dw = g.mul(gradient(g, x, w, **around(1, 2)), g.tensor([1, 1, 1, 1]))
    g.add(dw, image(g, w)).set_output()
    dw.set_output().set_data_type(dtypes.f32).set_stride(packed(w))
    cut = machine.current().cut  # of rows of DW whose sums cancel
    plan = run(g, {"N": 1, "H": 5}, {"SPLIT_K_BUF": parts}, allowance=cut)
    check(g, {"N": 4, "H": 8}, plan=plan, slack=4.0, allowance=cut)


@pytest.mark.in_turn
def test_channels_first_and_unaligned_ones_are_copied():
    g = new_graph()
    dw = gradient(
        g, [2, 5, 7, 6], [7, 5, 3, 2], lambda g, n: g.tensor(n, packed(n)), padding=[1, 1]
    )
    dw.set_output().set_stride(packed([7, 5, 3, 2]))
    assert len(run(g).programs[0].kernels) == 4


@pytest.mark.in_turn
def test_sums_of_parts_are_the_same_bits_in_every_order_of_blocks():
    g = new_graph()
    gradient(g, [3, 64, 8, 8], [64, 64, 1, 1]).set_output()
    run(g, knobs={"SPLIT_K_BUF": 3}, seed=1)
    ptx = ptx_of(run(g, knobs={"SPLIT_K_BUF": 3}, seed=2))
    assert "red.global" not in ptx
    assert "atom.global" not in ptx


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("types", "c"), [(("FP8_E4M3", "FP8_E5M2"), 64), (("f16", "i8"), 64), (("i8", "bf16"), 3)]
)
def test_other_types_are_cast_on_the_way_to_a_copy(types, c):
    g, x, w = new_graph(), [1, c, 4, 16], [64, c, 3, 3]
    x_type, dy_type = map(dtypes.of, types)
    dy = image(g, response_dims(x, w, around(1)), data_type=dy_type)
    image_ = image(g, x, data_type=x_type)
    g.conv_wgrad(image_, dy, **around(1)).set_dim(w).set_output()
    knobs = {"KERNEL_CFG": 0, **({} if c > 3 else HALO)}
    kernels = run(g, knobs=knobs).programs[0].kernels
    assert sum("_copy" in kernel.name for kernel in kernels) == (
        2 if types[0] != "f16" and c > 3 else 1
    )


E4M3, E5M2 = "FP8_E4M3", "FP8_E5M2"
# Types of X and DY, X, W, parameters, knobs, kernels that copy.
MADE = {
    "transposed, parts, uneven": (
        (E5M2, E4M3), [2, 80, 6, 9], [144, 80, 3, 1], around(1),
        {"TILE_M": 128, "TILE_N": 192, "SPLIT_K_BUF": 2}, 0,
    ),
    "transposed, shared by blocks": (
        (E4M3, E4M3), [1, 64, 6, 9], [192, 64, 1, 2], around(0),
        {"TILE_M": 128, "TILE_N": 128, "TILE_CGA_M": 2}, 0,
    ),
    "transposed, groups, two blocks share k": (
        (E4M3, E5M2), [2, 96, 6, 7], [160, 48, 3, 1], around(1), {"SPLIT_K_SLC": 2}, 0,
    ),
    "widened, columns, flipped filter": (
        (E4M3, E5M2), [3, 64, 4, 16], [80, 64, 3, 3], around(1, convolution_mode="CONVOLUTION"),
        {**HALO, "TILE_COLS": 8, "SPLIT_K_BUF": 2}, 0,
    ),
    "widened, groups side by side": (
        (E5M2, E5M2), [1, 128, 3, 16], [128, 32, 3, 3], around(2, 1, 2), {**HALO, "TILE_ROWS": 1},
        0,
    ),
    "X alone widened": (("i8", E5M2), [2, 64, 4, 16], [64, 64, 3, 3], around(1), HALO, 1),
    "a first layer": (
        (E4M3, E4M3), [2, 3, 8, 18], [48, 3, 7, 7], {"pre_padding": [3, 3], "post_padding": [2, 1],
        "stride": [2, 2]}, HALO, 1,
    ),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.feature
@pytest.mark.rotating
@pytest.mark.parametrize("name", MADE)
def test_blocks_make_operands_of_fp8(name):
    """Without a launch ahead, but for what has another layout: bytes that are transposed are
    multiplied as they are, those of a halo as f16."""
    types, x, w, parameters, knobs, copies = MADE[name]
    g = new_graph()
    x_type, dy_type = map(dtypes.of, types)
    dy = image(g, response_dims(x, w, parameters), data_type=dy_type)
    dw = g.conv_wgrad(image(g, x, data_type=x_type), dy, **parameters).set_dim(w)
    g.add(dw, image(g, w)).set_output()
    plan = run(g, knobs={**knobs, "KERNEL_CFG": 1})
    kernels = [kernel.name for kernel in plan.programs[0].kernels]
    assert sum("_copy" in name for name in kernels) == copies
    ptx = ptx_of(plan)
    assert (".f32.e" in ptx) == ("TILE_ROWS" not in knobs)
    assert ("cvt.rn.f16x2.e" in ptx) == ("TILE_ROWS" in knobs)


# ---- refusals


def reasons(g):
    graph = g.graph.finalize()
    (whole,) = partition(graph, [graph.live_ops])
    return CONV_WGRAD_SM90.supports(whole, of(TARGET))


@pytest.mark.parametrize(
    ("build", "clause"),
    [
        (lambda: wgrad_of_types("f32"), "operand types"),
        (lambda: wgrad_of_types("ui8"), "operand types"),
        (lambda: wgrad_of_images(dnnc.Dim("N", min=0, max=8)), "size"),
        (lambda: wgrad_of_groups(36), "operands by TMA"),
        (lambda: wgrad_of_stride(9), "operands by TMA"),
    ],
    ids=["f32", "ui8 in i32", "no images", "two groups of 36 channels", "stride"],
)
def test_refusals(build, clause):
    found = reasons(build())
    assert [reason.clause for reason in found] == [clause]
    assert all(reason.what and reason.supported for reason in found)


def test_a_refusal_of_bytes_says_which_sums_take_them():
    (reason,) = reasons(wgrad_of_types("ui8"))
    assert reason.what == "X ui8, DY ui8 in INT32"
    assert "i8, ui8 and fp8 are converted to these for sums in FLOAT" in reason.supported


def wgrad_of_types(io):
    compute = dtypes.i32 if io == "ui8" else dtypes.f32
    g = new_graph(dtypes.of(io), compute_data_type=compute)
    gradient(g, [1, 16, 5, 5], [16, 16, 3, 3]).set_output()
    return g


def wgrad_of_images(n):
    g = new_graph()
    gradient(g, [n, 16, 5, 5], [16, 16, 3, 3]).set_output()
    return g


def wgrad_of_groups(channels):
    g = new_graph()
    gradient(g, [1, 2 * channels, 5, 5], [16, channels, 3, 3]).set_output()
    return g


def wgrad_of_stride(stride):
    g = new_graph()
    gradient(g, [1, 16, 15, 15], [16, 16, 3, 3], stride=[stride, 1]).set_output()
    return g


def test_work_before_it_in_16_bits_is_refused():
    g = new_graph()
    x = g.relu(image(g, [1, 16, 5, 5])).set_data_type(dtypes.f16)
    g.conv_wgrad(x, image(g, [1, 16, 3, 3])).set_dim([16, 16, 3, 3]).set_output()
    assert reasons(g)[0].status is Status.NOT_SUPPORTED_GRAPH_PATTERN


@pytest.mark.parametrize(
    ("knobs", "what"),
    [
        ({"TILE_ROWS": 3}, "tiles of 3x8 pixels"),
        ({"TILE_COLS": 16}, "tiles of 2x16 pixels"),
        ({"TILE_N": 64}, "TILE_N=64 with TILE_ROWS"),
        ({"KERNEL_CFG": 1}, "KERNEL_CFG=1 of X f16, DY f16"),
    ],
)
def test_tiles_with_a_halo_are_whole_images(knobs, what):
    g = new_graph()
    gradient(g, [1, 64, 4, 8], [64, 64, 3, 3], **around(1)).set_output()
    with pytest.raises(dnnc.DnncError, match=what):
        run(g, knobs={**HALO, **knobs})


def test_parts_need_steps_for_the_blocks_that_share_them():
    g = new_graph()
    gradient(g, [1, 64, 9, 9], [64, 64, 1, 1]).set_output()
    with pytest.raises(dnnc.DnncError, match="SPLIT_K_SLC=2 of parts of 1 times 64 pixels"):
        run(g, knobs={"SPLIT_K_SLC": 2, "SPLIT_K_BUF": 2})


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize(
    ("x", "w", "knobs"),
    [
        ([2, 24, 7, 6], [40, 24, 3, 2], {"SPLIT_K_BUF": 3}),  # columns past the channels
        ([2, 64, 8, 8], [64, 64, 3, 3], {**HALO, "SPLIT_K_BUF": 2}),
    ],
    ids=["im2col", "halo"],
)
def test_parts_that_are_added_to_one_place(x, w, knobs):
    """Vectors of two are added; what follows reads the sums."""
    g = new_graph()
    g.relu(gradient(g, x, w, **around(1))).set_output()
    plan = run(g, knobs={**knobs, "REDUCTION_MODE": 1})
    assert "red.relaxed.gpu.global.add.v2.f32" in ptx_of(plan)
    assert "NONDETERMINISTIC" in plan.programs[0].fusions[0].notes


def test_one_part_is_stored_where_parts_may_be_added():
    g = new_graph()
    gradient(g, [2, 64, 5, 6], [64, 64, 1, 1]).set_output()
    plan = run(g, knobs={"REDUCTION_MODE": 1})
    assert len(plan.programs[0].kernels) == 1
    assert "NONDETERMINISTIC" not in plan.programs[0].fusions[0].notes


def test_results_that_repeat_are_not_added():
    g = new_graph()
    gradient(g, [2, 64, 5, 6], [64, 64, 3, 3], **around(1)).set_output()
    g.graph.repeats = True
    with pytest.raises(dnnc.DnncError, match="REDUCTION_MODE=1 of results that repeat"):
        run(g, knobs={"REDUCTION_MODE": 1, "SPLIT_K_BUF": 3})
