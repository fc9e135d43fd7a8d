"""Gradients by the image by engine conv_sm90, in the interpreter."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.target import of
from tests.dialect.conv_gradient_examples import response_dims
from tests.support.checked import random_inputs

from .convs import H, N, W, around, image, packed, ptx_of
from .test_halo_sm90 import with_halo
from .test_sm90 import SMALL, new_graph, refused, run

SWAPPED = {**SMALL, "SWAP_AB": 1}
FLIPPED = {"convolution_mode": "CONVOLUTION"}


def dgrad(g, x, w, parameters, **options):
    """DX of X's dims, of tensors with channels last."""
    dy, filter_ = image(g, response_dims(x, w, parameters)), image(g, w, **options)
    return g.conv_dgrad(dy, filter_, **parameters).set_dim(x)


# X, W, parameters of the forward convolution.
CASES = {
    "channels past a panel": ([1, 24, 5, 4], [72, 24, 3, 2], around(1)),
    "uneven, flipped": ([2, 16, 9, 7], [40, 16, 2, 3], {
        "pre_padding": [0, 2], "post_padding": [1, 1], "stride": [1, 1], "dilation": [1, 3],
        **FLIPPED}),
    "few filters": ([1, 72, 5, 4], [16, 72, 3, 2], around(0)),
    "groups": ([2, 48, 5, 6], [80, 24, 3, 3], around(1)),
    "groups of whole panels": ([1, 32, 4, 5], [128, 16, 2, 2], around(1)),
    "volumes": ([1, 16, 3, 4, 5], [24, 16, 3, 2, 2], around(1, spatial=3)),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("knobs", [SMALL, SWAPPED], ids=["plain", "swapped"])
@pytest.mark.parametrize("name", CASES)
def test_a_filter_that_is_transposed_where_it_is_read(name, knobs):
    g = new_graph()
    dgrad(g, *CASES[name]).set_output()
    plan = run(g, knobs=knobs)
    assert plan.programs[0].target == "sm_90a"
    assert len(plan.programs[0].kernels) == 1


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("x", "w", "parameters", "tile"),
    [
        ([2, 64, 8, 9], [64, 64, 3, 3], around(1), (4, 64)),
        ([1, 136, 7, 7], [72, 136, 3, 3], around(2, dilation=2), (7, 128)),
    ],
    ids=str,
)
def test_pixels_with_their_halo(x, w, parameters, tile):
    g = new_graph()
    dgrad(g, x, w, parameters).set_output()
    run(g, knobs=with_halo(g, *tile))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("io", "compute", "made"),
    [("f32", "f32", "f32"), ("i8", "i32", "i32"), ("f8E4M3FN", "f32", "f16")],
)
def test_types_whose_filter_is_copied(io, compute, made):
    g = new_graph(dtypes.of(io), compute_data_type=compute)
    dx = dgrad(g, [2, 32, 5, 4], [48, 32, 3, 2], around(1))
    dx.set_output().set_data_type(made)
    run(g, slack=4.0, allowance=2e-3 if io == "f32" else 0.0)


@pytest.mark.in_turn
@pytest.mark.parametrize("stride", [1, 2])
def test_filters_that_are_no_multiple_of_16_bytes_get_gaps(stride):
    """dY is copied to pixels that begin at whole 16 bytes; the filter lies so."""
    g = new_graph()
    dgrad(g, [1, 24, 5, 6], [37, 24, 3, 2], around(1, stride)).set_output()
    plan = run(g)
    assert len(plan.programs[0].kernels) == 2


@pytest.mark.in_turn
def test_groups_of_bytes():
    g = new_graph(dtypes.i8, compute_data_type="i32")
    dgrad(g, [1, 16, 4, 4], [96, 8, 3, 3], around(1)).set_output().set_data_type("i32")
    run(g)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("layout", ["first", "cast", "one channel"])
def test_filters_that_are_copied(layout):
    g = new_graph()
    x, w = [1, 24, 5, 4], [40, 24, 3, 2]
    if layout == "one channel":
        x[1] = w[1] = 1
    strides = packed(w) if layout == "first" else None
    type_ = dtypes.i8 if layout == "cast" else dtypes.f16
    filter_ = g.tensor(w, strides, data_type=type_) if strides else image(g, w, data_type=type_)
    dy = image(g, response_dims(x, w, around(1)))
    g.conv_dgrad(dy, filter_, **around(1)).set_dim(x).set_output()
    plan = run(g)
    assert len(plan.programs[0].kernels) == 2


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    "knobs",
    [
        {"TILE_CGA_M": 2}, {"TILE_N": 128, "TILE_CGA_M": 2}, {"SPLIT_K_SLC": 2},
        {"TILE_M": 128, "TILE_N": 192, "WARP_SPEC_CFG": 4}, {"SWAP_AB": 1, "TILE_N": 256},
    ],
    ids=str,
)  # fmt: skip
def test_ways_through_the_tiles(knobs):
    g = new_graph()
    dgrad(g, [2, 136, 6, 7], [72, 136, 2, 2], around(1)).set_output()
    if knobs == {"TILE_CGA_M": 2}:
        with pytest.raises(dnnc.DnncError, match="64 rows of B shared by 2 blocks"):
            run(g, knobs={**SMALL, **knobs})
        return
    run(g, knobs={**SMALL, **knobs})


@pytest.mark.in_turn
@pytest.mark.parametrize("n", [1, 3])
def test_one_plan_serves_every_size(n):
    g = new_graph()
    dgrad(g, [N, 16, H, W], [24, 16, 3, 3], around(1)).set_output()
    run(g, {"N": n, "H": 7, "W": 4 + n})


# ---- strides: phases of the pixels, in one launch

# Gradients whose pixels TMA stores: all phases have all of theirs, and channels are a line or more.
BY_TMA = {
    "whole lines": ([3, 64, 8, 6], [40, 64, 3, 3], around(1, 2)),
    "one tap: zeros beside whole lines": ([2, 64, 8, 6], [72, 64, 1, 1], around(0, 2)),
    "a line and more": ([2, 72, 8, 6], [40, 72, 3, 3], around(1, 2)),
    "whole lines of groups": ([1, 128, 4, 6], [32, 64, 3, 3], around(1, 2)),
    "whole lines of a volume": ([1, 64, 2, 4, 6], [8, 64, 2, 3, 2], around(1, 2, spatial=3)),
    "whole lines of a row": ([2, 64, 10], [24, 64, 4], around(1, 2, spatial=1)),
    "whole lines, a stride of 3": ([2, 64, 5, 9], [24, 64, 2, 3], {
        "padding": [0, 0], "stride": [1, 3], "dilation": [1, 1]}),
}  # fmt: skip
STRIDED = {
    "3x3": ([2, 24, 8, 6], [40, 24, 3, 3], around(1, 2)),
    "pixels past the last window": ([2, 72, 8, 9], [72, 72, 3, 3], around(0, 2)),
    "one tap: most pixels are zeros": ([2, 40, 7, 6], [72, 40, 1, 1], around(0, 2)),
    "uneven, flipped": ([1, 16, 9, 13], [24, 16, 3, 3], {
        "pre_padding": [0, 2], "post_padding": [1, 1], "stride": [2, 3], "dilation": [2, 2],
        **FLIPPED}),
    "one axis": ([2, 16, 9, 7], [24, 16, 2, 3], {
        "pre_padding": [0, 2], "post_padding": [1, 1], "stride": [3, 1], "dilation": [1, 1]}),
    "groups": ([2, 48, 5, 6], [80, 24, 3, 3], around(1, 2)),
    "volumes": ([1, 16, 3, 4, 5], [24, 16, 3, 2, 2], around(1, 2, spatial=3)),
    **BY_TMA,
    "padding beyond the filter": ([2, 16, 7, 8], [24, 16, 1, 2], around(2, 2)),
    "padding beyond it without a stride": ([2, 16, 7, 8], [24, 16, 1, 2], around(2)),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("knobs", [SMALL, SWAPPED], ids=["plain", "swapped"])
@pytest.mark.parametrize("name", STRIDED)
def test_strides_in_one_launch(name, knobs):
    g = new_graph()
    dgrad(g, *STRIDED[name]).set_output()
    plan = run(g, knobs=knobs)
    assert len(plan.programs[0].kernels) == 1
    assert ("im2col_no_offs" in ptx_of(plan)) == (name in BY_TMA)
    by_threads = "without" not in name and (name not in BY_TMA or "zeros" in name)
    assert ("st.global.v4.b32" in ptx_of(plan)) == by_threads


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(("groups", "knobs"), [(1, SMALL), (2, SMALL), (1, SWAPPED), (2, SWAPPED)])
def test_boxes_behind_the_channels_of_a_group_are_not_stored(groups, knobs):
    """Tiles of 128 channels, of which there are 64: TMA would store to the next group."""
    g = new_graph()
    x, w = [1, 64 * groups, 4, 6], [24 * groups, 64, 3, 3]
    dgrad(g, x, w, around(1, 2)).set_output()
    plan = run(g, knobs={**knobs, "TILE_M": 128, "TILE_N": 128})
    assert "im2col_no_offs" in ptx_of(plan)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("channels", [40, 264])
def test_pixels_that_meet_no_tap_are_stored_beside_the_products(channels):
    """A warp stores six pixels at once, or one in two rounds; 9 columns end inside a phase."""
    g = new_graph()
    dgrad(g, [2, channels, 5, 9], [16, channels, 1, 1], around(0, 2)).set_output()
    assert "{0, 0, 0, 0}" in ptx_of(run(g, knobs=SMALL))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("knobs", [SMALL, SWAPPED], ids=["plain", "swapped"])
def test_pixels_that_meet_no_tap_have_tiles_where_something_follows(knobs):
    g = new_graph()
    dx = dgrad(g, [2, 40, 7, 6], [72, 40, 1, 1], around(0, 2))
    g.add(dx, g.tensor([1, 40, 1, 1])).set_output()
    assert "{0, 0, 0, 0}" not in ptx_of(run(g, knobs=knobs))


def of_norm(g, dx):
    """DgradDreluBNBwdWeight of cuDNN's guide, of dX: it is masked by the ReLU of a batch norm of x,
    whose gradients are sums over all pixels."""
    dims = dx.get_dim()
    one = [1, dims[1], *[1] * (len(dims) - 2)]
    mean, rstd, scale, bias = (g.tensor(one, data_type=dtypes.f32) for _ in range(4))
    normal = g.mul(g.sub(image(g, dims), mean), rstd)
    masked = g.relu_backward(dx, g.add(g.mul(normal, scale), bias))
    masked.set_output().set_data_type(dtypes.f16)
    for value in (g.mul(masked, normal), masked):
        g.reduction(value, "add").set_dim(one).set_output().set_data_type(dtypes.f32)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("knobs", [SMALL, SWAPPED], ids=["plain", "swapped"])
@pytest.mark.parametrize("name", [name for name in STRIDED if "without" not in name])
def test_a_mask_and_sums_of_a_batch_norm_join_all_phases(name, knobs):
    """x comes by im2col copies; pixels of a phase that the image has not are no part of sums."""
    g, (x, w, parameters) = new_graph(), STRIDED[name]
    of_norm(g, dgrad(g, x, w, parameters))
    plan = run(g, knobs=knobs, slack=4.0, allowance=1e-4)
    assert [kernel.name.rpartition("_")[2] for kernel in plan.programs[0].kernels] == [
        "sm90", "exit0",
    ]  # fmt: skip
    operands = 2 if name != "one tap: most pixels are zeros" else 3  # a step of zeros is apart
    assert ptx_of(plan).count("im2col.") == operands or name in BY_TMA


@pytest.mark.in_turn
def test_sums_of_phases_of_any_size():
    """Threads load x: where an image ends is known at run time alone.  A maximum is of pixels,
    not of the zeros past them."""
    g = new_graph()
    dx = dgrad(g, [N, 16, H, W], [24, 16, 3, 3], around(1, 2))
    dx = g.sub(g.add(dx, image(g, [N, 16, H, W])), g.tensor_scalar(8.0))
    dx.set_output().set_data_type(dtypes.f16)
    for mode, dims in (("max", [1, 16, 1, 1]), ("add", [1, 1, 1, 1])):
        g.reduction(dx, mode).set_dim(dims).set_output().set_data_type(dtypes.f32)
    plan = run(g, {"N": 2, "H": 7, "W": 8}, slack=4.0, allowance=1e-4)
    run(g, {"N": 3, "H": 8, "W": 5}, plan=plan, slack=4.0, allowance=1e-4)


@pytest.mark.parametrize(
    ("x", "kept"), [([2, 16, 7, 8], [2, 1, 7, 8]), ([1, 16, 1, 1], [1, 1, 1, 1])], ids=str
)
def test_sums_that_keep_pixels_of_phases_are_refused(x, kept):
    g = new_graph()
    dx = dgrad(g, x, [24, 16, 1, 1], around(0, 2))
    g.reduction(dx, "add").set_dim(kept).set_output()
    assert "reductions over all pixels after" in refused(g)["operations"].supported


def test_dgrad_with_a_stride_and_a_batch_norm_is_one_fusion():
    """Puts channels along rows.  On an H200 it took 326 us, in tiles of 192 pixels 367, with pixels
    along rows 416."""
    g = new_graph()
    of_norm(g, dgrad(g, [256, 256, 56, 56], [512, 256, 1, 1], around(0, 2)))
    config = heuristics.best_config(g.graph.finalize(), of("sm_90a"), ["A", "FALLBACK"])
    (choice,) = config.choices
    assert choice.engine.name == "conv_sm90"
    assert [choice.knobs[name] for name in ("SWAP_AB", "TILE_M", "TILE_N")] == [1, 256, 128]


@pytest.mark.in_turn
@pytest.mark.parametrize(("channels", "stride"), [(8, 1), (32, 2)])
def test_tiles_of_few_channels_have_their_filter_transposed_by_a_copy(channels, stride):
    g = new_graph()
    dgrad(g, [2, channels, 6, 9], [24, channels, 3, 3], around(1, stride)).set_output()
    plan = run(g, knobs={**SMALL, "TILE_M": 64, "TILE_N": channels})
    assert [kernel.name.rpartition("_")[2] for kernel in plan.programs[0].kernels] == [
        "sm90", "copy0",
    ]  # fmt: skip


def test_channels_whose_filter_rows_end_inside_sectors_have_narrow_tiles():
    """This one took 18.5 us in tiles of 32 channels, and 24.2 in tiles of 64, on an H200."""
    g = new_graph()
    dgrad(g, [65, 24, 48, 48], [128, 24, 3, 3], around(1, 2)).set_output()
    graph = g.graph.finalize()
    chosen = next(
        config.choices[0] for config in heuristics.configs(graph, of("sm_90a"))
        if config.choices[0].engine.name == "conv_sm90"
    )  # fmt: skip
    assert chosen.knobs["TILE_N"] < 64


@pytest.mark.in_turn
def test_taps_of_other_phases_do_not_meet_infinities():
    """Zeros of pixels that meet no tap are no products; those of the padding are."""
    g = new_graph()
    dgrad(g, [1, 16, 4, 6], [16, 16, 1, 1], around(0, 2)).set_output()
    inputs = random_inputs(g.graph.finalize(), {})
    for array in inputs.values():
        array.reshape(-1)[::3] = np.inf
    with np.errstate(invalid="ignore"):
        run(g, inputs=inputs)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    "knobs",
    [
        {"TILE_CGA_M": 2, "TILE_N": 128}, {"TILE_M": 256, "TILE_N": 64},
    ],
    ids=str,
)  # fmt: skip
def test_ways_through_the_phases(knobs):
    g = new_graph()
    dx = dgrad(g, [2, 72, 10, 9], [72, 72, 3, 3], around(1, 2))
    g.relu(g.add(dx, image(g, [2, 72, 10, 9]))).set_output()
    run(g, knobs={**SMALL, **knobs}, slack=3.0)


@pytest.mark.in_turn
def test_what_is_added_to_groups_that_begin_inside_16_bytes():
    """No box of TMA begins there: the second operand is read by threads."""
    g = new_graph()
    x = [1, 24, 5, 4]
    dx = dgrad(g, x, [32, 12, 3, 3], around(1, 2))
    g.add(dx, image(g, x)).set_output()
    run(g, slack=3.0)


def test_phases_do_not_split_k():
    g = new_graph()
    dgrad(g, [3, 72, 14, 14], [136, 72, 3, 3], around(1, 2)).set_output()
    with pytest.raises(dnnc.DnncError, match="SPLIT_K_SLC=2"):
        run(g, knobs={**SMALL, "SPLIT_K_SLC": 2})


@pytest.mark.in_turn
@pytest.mark.parametrize("n", [0, 3])
def test_one_plan_serves_every_number_of_images_with_a_stride(n):
    g, images = new_graph(), dnnc.Dim("N", min=0, max=64)
    dgrad(g, [images, 64, 4, 6], [24, 64, 3, 3], around(1, 2)).set_output()
    assert "im2col_no_offs" in ptx_of(run(g, {"N": n}))


@pytest.mark.in_turn
def test_one_plan_serves_every_size_with_a_stride():
    g = new_graph()
    dx = dgrad(g, [N, 16, H, W], [24, 16, 3, 3], around(1, 2))
    g.relu(dx).set_output()
    plan = run(g, {"N": 2, "H": 7, "W": 8})
    run(g, {"N": 3, "H": 8, "W": 5}, plan=plan)


@pytest.mark.in_turn
@pytest.mark.parametrize("made", ["f32", "f16"])
def test_results_that_are_stored_one_by_one(made):
    """Channels that are no multiple of 16 bytes, and channels first."""
    g = new_graph()
    x = [1, 20, 6, 5]
    dx = dgrad(g, x, [24, 20, 3, 3], around(1, 2))
    dx.set_output().set_data_type(made)
    if made == "f16":
        dx.set_stride(packed(x))
    run(g, knobs=SWAPPED, slack=3.0, allowance=1e-5)


@pytest.mark.in_turn
@pytest.mark.parametrize("type_", [dtypes.f16, dtypes.i8], ids=str)
def test_work_on_dy_before_a_gradient_with_strides_is_a_kernel_ahead(type_):
    """It is computed in f32, and stored in W's type."""
    g, x, w = new_graph(), [2, 16, 7, 9], [24, 16, 3, 3]
    y = response_dims(x, w, around(1, 2))
    scaled = g.mul(image(g, y, data_type=type_), g.tensor([1, 24, 1, 1], data_type=dtypes.f32))
    before = g.relu_backward(scaled, image(g, y))
    dx = g.conv_dgrad(before, image(g, w), **around(1, 2)).set_dim(x)
    g.add(dx, image(g, x)).set_output()
    plan = run(g, knobs=SMALL)
    assert len(plan.programs[0].kernels) == 2
    assert "DOWN_CONVERT_INPUTS" in plan.programs[0].fusions[0].notes
