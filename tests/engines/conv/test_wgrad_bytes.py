"""Gradients of filters of bytes, summed in INT32, on tensor cores, in the interpreter: exact."""

import re

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.choosing.heuristics import best_config
from dnnc.dialect.fusion import partition
from dnnc.engines import engine_named
from dnnc.target import of
from tests.dialect.conv_gradient_examples import response_dims
from tests.support import machine
from tests.support.checked import check

from . import test_pattern as test_conv
from .convs import around, image, packed, ptx_of

HOPPER = {
    "TILE_M": 64, "TILE_N": 64, "STAGES": 2, "TILE_CGA_M": 1, "TILE_CGA_N": 1, "SPLIT_K_SLC": 1,
    "SPLIT_K_BUF": 1, "SWIZZLE": 2048, "KERNEL_CFG": 1, "TILE_ROWS": 0,
}  # fmt: skip
GATHERED = {"TILE_M": 32, "TILE_N": 64, "TILEK": 64, "STAGES": 2, "SPLIT_K_BUF": 1}
ENGINES = {
    "conv_wgrad_sm90": ("sm_90a", HOPPER, "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8"),
    "conv_wgrad_sm80": ("sm_80", GATHERED, "m16n8k32.row.col.s32.s8.s8.s32"),
}
BOTH = pytest.mark.parametrize(
    "engine",
    [pytest.param(name, marks=pytest.mark.sm90 if "sm90" in name else ()) for name in ENGINES],
)

# X, W, parameters.
CASES = {
    "3x3": ([2, 64, 5, 6], [80, 64, 3, 3], around(1)),
    "1x1 of odd outputs, strided": ([2, 16, 5, 9], [37, 16, 1, 1], around(0, 2)),
    "1D, flipped, dilated": (
        [3, 32, 19], [48, 32, 3],
        around(1, 2, 2, spatial=1, convolution_mode="CONVOLUTION"),
    ),
    "3D": ([1, 16, 3, 4, 5], [16, 16, 2, 2, 2], around(1, spatial=3)),
    "odd channels, uneven": ([2, 5, 9, 7], [7, 5, 3, 2], {
        "pre_padding": [0, 2], "post_padding": [3, 1], "stride": [2, 1], "dilation": [3, 1]}),
    "groups": ([2, 64, 6, 7], [48, 16, 3, 1], {"padding": [1, 0]}),
}  # fmt: skip
# X, W, parameters, copies.
WORDS = {
    "groups of 4": ([2, 16, 6, 7], [32, 4, 3, 2], around(1), 0),
    "a first layer": ([1, 3, 13, 14], [16, 3, 7, 7], around(3, 2), 1),
    "four channels, flipped": (
        [2, 4, 9, 7], [32, 4, 3, 5], around(2, 1, convolution_mode="CONVOLUTION"), 0
    ),
    "one channel": ([2, 1, 8, 9], [16, 1, 3, 3], around(1), 1),
}  # fmt: skip


def new_graph(engine):
    return test_conv.new_graph(dtypes.i8, target=ENGINES[engine][0], compute_data_type=dtypes.i32)


def gradient(g, x, w, like=image, **parameters):
    """DW of tensors of some dims; like: makes them."""
    dy = like(g, response_dims(x, w, parameters))
    return g.conv_wgrad(like(g, x), dy, **parameters).set_dim(w)


def output(g, *about, **parameters):
    """DW in INT32, an output; see `gradient`."""
    return gradient(g, *about, **parameters).set_output().set_data_type(dtypes.i32)


def all_bytes(g, seed=0):
    """Inputs of bytes of all values, others around 0."""
    rng = np.random.default_rng(seed + machine.current().seed)
    found = {}
    for tensor in g.graph.finalize().inputs:
        dims = [n.evaluate({}) for n in tensor.shape]
        is_byte = tensor.type == dtypes.i8
        drawn = rng.integers(-128, 128, dims) if is_byte else rng.normal(size=dims)
        found[tensor.uid] = drawn.astype(tensor.type.numpy)
    return found


def run(engine, g, knobs=None, **options):
    target, small, _ = ENGINES[engine]
    options = {"inputs": all_bytes(g), **options}
    return check(g, engine=engine, knobs={**small, **(knobs or {})}, target=target, **options)


@pytest.mark.in_turn
@pytest.mark.feature
@pytest.mark.rotating
@pytest.mark.parametrize("name", CASES)
@BOTH
def test_shapes(engine, name):
    x, w, parameters = CASES[name]
    g = new_graph(engine)
    output(g, x, w, **parameters)
    assert ENGINES[engine][2] in ptx_of(run(engine, g))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("name", WORDS)
def test_pixels_of_up_to_four_bytes_are_words(name, parts):
    """A tap has four columns; an image that has such words is not copied."""
    x, w, parameters, copies = WORDS[name]
    g = new_graph("conv_wgrad_sm80")
    output(g, x, w, **parameters)
    plan = run("conv_wgrad_sm80", g, {"SPLIT_K_BUF": parts})
    assert sum("_copy" in kernel.name for kernel in plan.programs[0].kernels) == copies
    assert re.search(r"cp\.async\.ca\.shared\.global[^;]*, 4, ", ptx_of(plan))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("engine", "knobs"),
    [
        pytest.param("conv_wgrad_sm90", {"TILE_M": 128, "TILE_N": 192}, marks=pytest.mark.sm90),
        pytest.param("conv_wgrad_sm90", {"SPLIT_K_SLC": 2}, marks=pytest.mark.sm90),
        pytest.param(
            "conv_wgrad_sm90", {"TILE_N": 128, "TILE_CGA_M": 2}, marks=pytest.mark.sm90
        ),
        ("conv_wgrad_sm80", {"TILE_M": 128, "TILE_N": 128, "TILEK": 128, "STAGES": 3}),
        ("conv_wgrad_sm80", {"TILE_M": 64, "TILE_N": 128}),
        ("conv_wgrad_sm80", {"TILE_M": 256, "TILE_N": 128}),
    ],
)  # fmt: skip
def test_tiles(engine, knobs):
    """A second kernel adds up the sums of two parts."""
    g = new_graph(engine)
    output(g, [3, 72, 9, 8], [136, 72, 3, 2], **around(1))
    run(engine, g, {**knobs, "SPLIT_K_BUF": 2})


def after(g, made, w):
    """A scale for each output channel, a gradient of before, and bytes that saturate."""
    scaled = g.mul(made, g.tensor([w[0], *[1] * (len(w) - 1)], data_type="f32"))
    return g.add(scaled, image(g, w, data_type=dtypes.i8))


@pytest.mark.in_turn
@pytest.mark.feature
@pytest.mark.rotating
@pytest.mark.parametrize("parts", [1, 3])
@BOTH
def test_scaled_sums_to_bytes_that_saturate(engine, parts):
    x, w, parameters = CASES["3x3"]
    g = new_graph(engine)
    made = after(g, gradient(g, x, w, **parameters), w)
    made.set_output().set_data_type(dtypes.i8)
    g.mul(made, 0.5).set_output().set_data_type(dtypes.f32)
    run(engine, g, {"SPLIT_K_BUF": parts})


@pytest.mark.in_turn
@pytest.mark.feature
@BOTH
def test_parts_that_are_added_to_one_place_repeat(engine):
    """Integers have the same sum in any order."""
    x, w, parameters = CASES["odd channels, uneven"]
    g = new_graph(engine)
    output(g, x, w, **parameters)
    g.graph.repeats = True
    plan = run(engine, g, {"SPLIT_K_BUF": 2, "REDUCTION_MODE": 1})
    assert "red.relaxed.gpu.global.add.s32" in ptx_of(plan)
    assert "NONDETERMINISTIC" not in plan.programs[0].fusions[0].notes


@pytest.mark.in_turn
@pytest.mark.rotating
@BOTH
def test_channels_first_and_bytes_that_are_computed(engine):
    """Kernels ahead bring to channels last what neither engine reads as it is."""
    x, w, parameters = CASES["3x3"]
    g = new_graph(engine)

    def first(g, dims):
        return g.tensor(dims, packed(dims))

    output(g, x, w, first, **parameters)
    plan = run(engine, g)
    assert sum("_copy" in kernel.name for kernel in plan.programs[0].kernels) == 2


@pytest.mark.in_turn
@pytest.mark.rotating
@BOTH
def test_any_number_of_images(engine):
    x, w, parameters = CASES["3x3"]
    g, target = new_graph(engine), ENGINES[engine][0]
    dy = response_dims(x, w, parameters)
    n = dnnc.Dim("N", min=1, max=64)
    made = g.conv_wgrad(image(g, [n, *x[1:]]), image(g, [n, *dy[1:]]), **parameters).set_dim(w)
    made.set_output().set_data_type(dtypes.i32)
    plan = check(g, {"N": 1}, engine=engine, target=target)
    check(g, {"N": 5}, plan=plan)


# X, W, parameters, bytes of a load.
DEPTHWISE = {
    "3x3": ([2, 24, 5, 8], [24, 1, 3, 3], around(1), 8),
    "odd channels, flipped, strided": (
        [2, 5, 9, 6], [5, 1, 3, 2], around(1, 2, convolution_mode="CONVOLUTION"), 1,
    ),
    "1D": ([3, 32, 9], [32, 1, 3], around(1, spatial=1), 16),
    "3D": ([1, 6, 3, 4, 5], [6, 1, 2, 2, 2], around(1, spatial=3), 2),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.feature
@pytest.mark.rotating
@pytest.mark.parametrize("name", DEPTHWISE)
def test_depthwise_filters(name):
    x, w, parameters, load = DEPTHWISE[name]
    g = test_conv.new_graph(dtypes.i8, compute_data_type=dtypes.i32)
    output(g, x, w, **parameters)
    knobs = {"LOAD_SIZE": load, "SPLIT_K_BUF": 4}
    check(g, engine="conv_wgrad_depthwise", knobs=knobs, inputs=all_bytes(g))


# ---- what is chosen, and what is refused


@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90a", "sm_120a"])
@pytest.mark.parametrize("channels", [3, 64])
def test_tensor_cores_are_chosen(target, channels):
    g = new_graph("conv_wgrad_sm80")
    output(g, [8, channels, 28, 28], [64, channels, 3, 3], **around(1))
    (choice,) = best_config(g.graph.finalize(), of(target)).choices
    assert choice.engine.name == f"conv_wgrad_{'sm90' if target == 'sm_90a' else 'sm80'}"


def reasons(engine, g):
    graph = g.graph.finalize()
    (whole,) = partition(graph, [graph.live_ops])
    return engine_named(engine).supports(whole, of(ENGINES[engine][0]))


@BOTH
def test_unsigned_bytes_in_integers_are_refused(engine):
    g = test_conv.new_graph(dtypes.ui8, compute_data_type=dtypes.i32)
    x, w, parameters = CASES["3x3"]
    output(g, x, w, **parameters)
    (reason,) = reasons(engine, g)
    assert (reason.clause, reason.what) == ("operand types", "X ui8, DY ui8 in INT32")
    assert "both i8 in INT32" in reason.supported


@pytest.mark.parametrize(("channels", "filters"), [(2, 2), (1, 16), (2, 16), (3, 16), (6, 16)])
def test_groups_that_are_no_whole_words_are_refused(channels, filters):
    """Copies of the second group's words would be misaligned."""
    g, groups = new_graph("conv_wgrad_sm80"), 8
    output(g, [2, channels * groups, 6, 7], [filters * groups, channels, 3, 3])
    assert [reason.clause for reason in reasons("conv_wgrad_sm80", g)] == ["groups"]


def test_the_sum_of_dy_is_not_beside_integers():
    g = new_graph("conv_wgrad_sm90")
    x, w, parameters = CASES["3x3"]
    dy = image(g, response_dims(x, w, parameters))
    made = g.conv_wgrad(image(g, x), dy, **parameters).set_dim(w)
    made.set_output().set_data_type(dtypes.i32)
    g.reduction(dy, "add", compute_data_type=dtypes.f32).set_dim(
        [1, w[0], 1, 1]
    ).set_output().set_data_type(dtypes.f32)
    (reason,) = reasons("conv_wgrad_sm90", g)
    assert "a sum beside" in reason.what


@pytest.mark.parametrize(
    ("knobs", "what"),
    [
        ({"KERNEL_CFG": 0}, "KERNEL_CFG=0 of i8"),
        ({"TILE_ROWS": 2, "TILE_N": 576}, "TILE_ROWS of i8"),
        (
            {"TILE_M": 128, "TILE_N": 192, "SPLIT_K_SLC": 2},
            "SPLIT_K_SLC > 1 with a tile of 128x192",
        ),
    ],
)
def test_knobs_that_bytes_do_not_have(knobs, what):
    g = new_graph("conv_wgrad_sm90")
    output(g, [4, 64, 4, 8], [64, 64, 3, 3], **around(1))
    with pytest.raises(dnnc.DnncError, match=what):
        run("conv_wgrad_sm90", g, knobs)
