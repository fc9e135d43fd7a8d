"""Reductions at the exit of engine conv_sm90, and packed booleans, in the interpreter."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.compiler import compile_graph
from dnnc.dialect.fusion import partition
from dnnc.engines.conv.choice_sm90 import ConvChoice
from dnnc.engines.conv.exits_sm90 import exit_seconds_of
from dnnc.engines.conv.facts_sm90 import panel_steps_of
from dnnc.engines.conv.pattern import conv_of, shape_of
from dnnc.engines.conv.sm90 import CONV_SM90
from dnnc.options import Options
from dnnc.target import of
from tests.support import machine
from tests.support.checked import random_inputs

from .test_halo_sm90 import with_halo
from .test_pattern import around, packed
from .test_sm90 import SMALL, H, N, convolved, image, new_graph, ptx_of, refused
from .test_sm90 import run as run_one

TARGET = "sm_90a"
SWAPPED = {**SMALL, "SWAP_AB": 1}
slow = pytest.mark.slow
# What one launch sums up in another order than the reference does.
ROUNDED = 1e-5


def run(g, sizes=None, *, knobs=SMALL, **options):
    allowance = ROUNDED + machine.current().cut
    return run_one(g, sizes, knobs=knobs, allowance=allowance, **options)


def genstats(g, y):
    for total in g.genstats(y):
        total.set_output()


def factors(g, channels):
    """An output of a number for each channel, of tensors beside the convolution."""
    scale, deviation = (g.tensor([1, channels, 1, 1]) for _ in range(2))
    g.mul(scale, deviation).set_output().set_data_type(dtypes.f32)


def reduced(g, y, mode, dims, type_=dtypes.f32):
    return g.reduction(y, mode).set_dim(dims).set_output().set_data_type(type_)


def launches(plan):
    (variant,) = plan.programs[0].variants
    return [step.launch.kernel for step in variant.steps if step.launch is not None]


def layer(x, w, parameters=None, io=dtypes.f16, **options):
    """(graph, ReLU of a convolution with a bias, in f32, whose rounded values are stored)."""
    g = new_graph(io, **options)
    y = convolved(g, x, w, **(parameters or around(1)))
    y = g.relu(g.add(y, g.tensor([1, w[0], 1, 1])))
    g.identity(y).set_output()
    return g, y


# ---- statistics of channels, in each form


FORMS = {
    "rows": SMALL,
    "rows 128x32": {**SMALL, "TILE_M": 128, "TILE_N": 32},
    "rows 256x64": {**SMALL, "TILE_M": 256},
    "swapped": SWAPPED,
    "swapped, side by side": {**SWAPPED, "TILE_M": 384},
    "swapped 128x128": {**SWAPPED, "TILE_M": 128, "TILE_N": 128},
    "halo": (4, 64),
    "halo of 128 channels": (3, 128),
}
SLOW = ("rows 128x32", "rows 256x64", "swapped 128x128")


def knobs_of(g, form):
    """Reductions of a tile's rows and channels, where pixels come with their halo."""
    found = FORMS[form]
    return found if isinstance(found, dict) else with_halo(g, *found)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize(
    "form", [pytest.param(form, marks=slow if form in SLOW else ()) for form in FORMS]
)
def test_statistics_of_each_channel(form):
    """Pixels and channels end inside tiles; with a halo, rows end inside pairs of positions."""
    g, y = layer([2, 16, 7, 9], [72, 16, 3, 3], io=dtypes.bf16 if "128" in form else dtypes.f16)
    genstats(g, y)
    plan = run(g, knobs=knobs_of(g, form))
    assert len(launches(plan)) == 2


# Of input channels, in panels of 64, and stages for two rounds of them.
in_part = pytest.mark.parametrize(
    ("channels", "stages"),
    [(72, 4), *(pytest.param(*c, marks=slow) for c in ((72, 6), (96, 4), (96, 6), (160, 6)))],
)
OF_PARTS = {
    "rows": {},
    "rows, cluster": {"TILE_CGA_M": 2},
    "swapped": {"SWAP_AB": 1, "TILE_M": 128},
    "halo": {},
}


def knobs_in_part(g, form, stages):
    """With which a pixel's last panel is multiplied without its zeros."""
    knobs = {**SMALL, "STAGES": stages, **OF_PARTS[form]}
    if form == "halo":
        knobs = with_halo(g, 4, STAGES=stages)
    *_, last = panel_steps_of(shape_of(conv_of(fusion_of(g))), 2, ConvChoice.of(knobs))
    assert last < 4
    return knobs


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "form", ["rows", *(pytest.param(form, marks=slow) for form in OF_PARTS if form != "rows")]
)
@in_part
def test_statistics_where_a_last_panel_is_multiplied_in_part(channels, stages, form):
    """Values and statistics are of all products, after several rounds of the main loop."""
    g, y = layer([2, channels, 5, 7], [72, channels, 3, 3])
    genstats(g, y)
    run(g, knobs=knobs_in_part(g, form, stages))


@pytest.mark.in_turn
@pytest.mark.parametrize("form", ["rows", "halo"])
def test_one_plan_serves_every_size(form):
    g = new_graph()
    y = g.conv_fprop(image(g, [N, 16, H, 6]), image(g, [24, 16, 3, 3]), **around(1))
    genstats(g, y)
    plan = run(g, {"N": 1, "H": 4}, knobs=knobs_of(g, form))
    run(g, {"N": 3, "H": 11}, plan=plan)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("knobs", [SMALL, SWAPPED], ids=["rows", "swapped"])
def test_statistics_alone(knobs):
    """Sums are of rounded values that are stored nowhere; other outputs are stored with them."""
    g = new_graph()
    y = convolved(g, [2, 16, 5, 7], [40, 16, 3, 3], **around(1)).set_data_type(dtypes.f16)
    genstats(g, y)
    factors(g, 40)
    plan = run(g, knobs=knobs)
    assert len(launches(plan)) == 2
    _, second = [step.launch for step in plan.programs[0].variants[0].steps if step.launch]
    assert second.programmatic
    before, _, after = ptx_of(plan).partition("griddepcontrol.wait;")
    assert "ld.global" in after
    assert "ld.global" not in before.rpartition(".entry")[2]


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("form", [pytest.param("rows", marks=slow), "swapped", "halo"])
def test_batch_norm_is_finished_by_the_second_launch(form):
    g, y = layer([2, 16, 5, 6], [40, 16, 3, 3])
    total, squares = g.genstats(y)
    of_channels = [g.tensor([1, 40, 1, 1], data_type=dtypes.f32) for _ in range(2)]
    found = g.bn_finalize(total, squares, *of_channels, g.tensor_scalar(1e-3), 60.0)
    for tensor in found:
        if tensor is not None:
            tensor.set_output()
    plan = run(g, knobs=knobs_of(g, form), slack=64.0)
    assert len(launches(plan)) == 2


@pytest.mark.in_turn
@pytest.mark.parametrize("form", ["rows", pytest.param("halo", marks=slow)])
def test_a_residual_before_them_comes_by_tma(form):
    def plan_of(has_residual):
        g = new_graph()
        y = convolved(g, [2, 16, 5, 6], [40, 16, 3, 3], **around(1))
        y = g.add(y, image(g, [2, 40, 5, 6])) if has_residual else y
        g.identity(y).set_output()
        genstats(g, y)
        return run(g, knobs=knobs_of(g, form))

    copies = [ptx_of(plan_of(has)).count("cp.async.bulk.tensor") for has in (True, False)]
    assert copies[0] > copies[1]


# ---- other reductions

DIMS = {"channels": [1, 40, 1, 1], "pixels": [2, 1, 5, 7], "everything": [1, 1, 1, 1]}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize(
    ("mode", "kept", "form"),
    [
        ("add", "pixels", "rows"),
        ("add", "everything", "rows"),
        ("norm2", "channels", "rows"),
        ("max", "pixels", "swapped"),
        ("amax", "everything", "swapped"),
        ("min", "channels", "halo"),
        ("avg", "everything", "halo"),
        *(pytest.param(mode, "channels", "swapped", marks=slow) for mode in ("min", "norm1")),
    ],
)
def test_modes_and_what_is_kept(mode, kept, form):
    g, y = layer([2, 16, 5, 7], [40, 16, 3, 3])
    reduced(g, y, mode, DIMS[kept])
    run(g, knobs=knobs_of(g, form))


@pytest.mark.in_turn
@pytest.mark.parametrize("knobs", [SMALL, SWAPPED], ids=["rows", "swapped"])
def test_groups(knobs):
    g = new_graph()
    y = convolved(g, [3, 24, 6, 5], [48, 8, 3, 3], **around(1))
    for kept in ([1, 48, 1, 1], [3, 1, 6, 5], [1, 1, 1, 1]):
        reduced(g, y, "add", kept)
    run(g, knobs=knobs)


@pytest.mark.in_turn
@pytest.mark.parametrize("spatial", [pytest.param(1, marks=slow), 3])
def test_other_numbers_of_spatial_dims(spatial):
    g = new_graph()
    x, w = [2, 16, *[5] * spatial], [24, 16, *[3] * spatial]
    y = convolved(g, x, w, **around(1, spatial=spatial)).set_output()
    for mode in ("add", "max"):
        reduced(g, y, mode, [1, 24, *[1] * spatial])
    run(g)


@pytest.mark.in_turn
@pytest.mark.parametrize("knobs", [SMALL, SWAPPED], ids=["rows", "swapped"])
def test_integers_are_exact(knobs):
    g = new_graph(dtypes.i8, compute_data_type=dtypes.i32)
    y = convolved(g, [2, 32, 5, 6], [40, 32, 3, 3], **around(1)).set_data_type(dtypes.i32)
    for mode, kept in (("add", [1, 40, 1, 1]), ("max", [1, 1, 1, 1])):
        reduced(g, y, mode, kept, dtypes.i32)
    run(g, knobs=knobs)


@pytest.mark.in_turn
def test_amax_for_fp8_scaling_beside_the_scaled_output():
    g = new_graph(dtypes.f8e4m3)
    y = convolved(g, [2, 32, 5, 6], [48, 32, 3, 3], **around(1))
    descale, scale = (g.tensor([1, 1, 1, 1], data_type=dtypes.f32) for _ in range(2))
    y = g.mul(y, descale)
    reduced(g, y, "amax", [1, 1, 1, 1])
    g.mul(y, scale).set_output().set_data_type(dtypes.f8e4m3)
    run_one(g, allowance=2.0**-11)


@pytest.mark.in_turn
@pytest.mark.parametrize("columns", [37, 8])
def test_channels_that_have_no_pairs_or_few(columns):
    g = new_graph()
    y = convolved(g, [2, 16, 6, 5], [columns, 16, 3, 3], **around(1)).set_output()
    genstats(g, y)
    run(g, knobs={**SMALL, "TILE_N": 8})


# ---- schedules


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"SPLIT_K_SLC": 2}, marks=pytest.mark.exchange),
        pytest.param({"SPLIT_K_SLC": 8, "TILE_N": 32}, marks=(slow, pytest.mark.exchange)),
        pytest.param({"TILE_CGA_M": 2}, marks=slow),
        {"TILE_CGA_N": 2, "TILE_M": 128, "TILE_N": 32},
        {"TILE_CGA_M": 2, "SWAP_AB": 1},
        pytest.param({"TILE_CGA_N": 2, "SWAP_AB": 1}, marks=slow),
    ],
    ids=str,
)
def test_schedules(more):
    """Blocks of a cluster lie past the end, along pixels and along channels."""
    g, y = layer([1, 72, 9, 8], [80, 72, 3, 3])
    genstats(g, y)
    reduced(g, y, "amax", [1, 1, 1, 1])
    run(g, knobs={**SMALL, **more})


@pytest.mark.in_turn
def test_many_partials_are_combined_in_three_launches():
    """136 of each channel, in two runs; there may be more than one kernel combines."""
    g = new_graph()
    n = dnnc.Dim("N", max=1 << 12)
    y = g.conv_fprop(image(g, [n, 8, 8, 8]), image(g, [16, 8, 1, 1]), **around(0))
    genstats(g, y)
    reduced(g, y, "max", [1, 1, 1, 1])
    plan = run(g, {"N": 34}, knobs={**SMALL, "TILE_N": 16})
    assert [name.removeprefix("fusion0_conv_sm90") for name in launches(plan)] == [
        "", "_fold0", "_exit0", "_fold1", "_exit1",
    ]  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.parametrize("form", [pytest.param("rows", marks=slow), "halo"])
def test_every_run_gives_the_same_bits(form):
    g, y = layer([3, 8, 7, 6], [24, 8, 3, 3])
    genstats(g, y)
    options = Options(engine="conv_sm90", knobs=tuple(knobs_of(g, form).items()))
    graph = g.graph.finalize()
    plan, inputs = compile_graph(graph, TARGET, options), random_inputs(graph, {})
    first, *others = (machine.current().run(plan, inputs, sizes={}, seed=seed) for seed in (1, 2))
    for other in others:
        for uid, value in first.items():
            assert np.array_equal(value, other[uid])


# ---- booleans


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize(
    ("w", "rows"), [([40, 16, 3, 3], 128), ([8, 16, 3, 3], 64), ([48, 8, 3, 3], 64)], ids=str
)
def test_relu_and_its_mask(w, rows):
    """Without groups, and with two."""
    g = new_graph()
    y = convolved(g, [3, 16, 7, 5], w, **around(1))
    biased = g.add(y, g.tensor([1, w[0], 1, 1]))
    g.relu(biased).set_output()
    mask = g.cmp_gt(biased, 0).set_output().set_data_type(dtypes.i1)
    genstats(g, y)
    run(g, knobs={**SMALL, "TILE_M": rows})
    assert mask.get_stride()[1] == 1
    (reason,) = CONV_SM90.legal(SWAPPED, fusion_of(g), of(TARGET))
    assert "boolean" in reason.what


@pytest.mark.in_turn
def test_a_mask_of_split_k():
    g = new_graph()
    y = convolved(g, [1, 72, 5, 5], [64, 72, 3, 3], **around(1))
    g.cmp_gt(y, 0).set_output().set_data_type(dtypes.i1)
    run(g, knobs={**SMALL, "SPLIT_K_SLC": 4})


# ---- the surface and the choice


def fusion_of(g):
    graph = g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    return fusion


def _sums_of_images(g, y):
    reduced(g, y, "add", [2, 40, 1, 1])


def _used_again(g, y):
    mean = g.reduction(y, "avg").set_dim([1, 40, 1, 1])
    g.sub(y, mean).set_output()


def _two_results(g, y):
    of_channels = g.reduction(y, "add").set_dim([1, 40, 1, 1])
    g.div(of_channels, g.reduction(y, "amax").set_dim([1, 1, 1, 1])).set_output()


def _reduced_twice(g, y):
    of_channels = g.reduction(y, "add").set_dim([1, 40, 1, 1])
    reduced(g, of_channels, "max", [1, 1, 1, 1])


def _mask_of_rows(g, y):
    mask = g.cmp_gt(y, 0).set_output().set_data_type(dtypes.i1)
    mask.set_stride(packed(y.get_dim()))


@pytest.mark.parametrize(
    ("after", "clause", "what"),
    [
        (_sums_of_images, "operations", "over axes [2, 3] of [2, 40, 5, 7]"),
        (_used_again, "operations", "used by what follows"),
        (_two_results, "operations", "of reductions to"),
        (_reduced_twice, "operations", "of dims [1, 40, 1, 1]"),
        (_mask_of_rows, "boolean output", "strides [1400, 35, 7, 1]"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_refusals(after, clause, what):
    g = new_graph()
    after(g, convolved(g, [2, 16, 5, 7], [40, 16, 3, 3], **around(1)))
    reason = refused(g)[clause]
    assert what in reason.what
    assert reason.supported


@pytest.mark.parametrize(
    ("engine", "x", "w"),
    [
        ("conv_stem_sm90", [1, 3, 16, 16], [16, 3, 3, 3]),
        ("conv_depthwise", [1, 16, 5, 5], [16, 1, 3, 3]),
    ],
)
def test_other_engines_refuse_them(engine, x, w):
    g = new_graph()
    genstats(g, convolved(g, x, w, **around(1)))
    reasons = dnnc.engines.engine_named(engine).supports(fusion_of(g), of(TARGET))
    assert any("reduction" in reason.what for reason in reasons)


@pytest.mark.parametrize(
    ("knobs", "what"),
    [
        ({"TILE_M": 256, "TILE_N": 128}, "tile 256x128 with reductions"),
        ({"TILE_M": 192, "TILE_N": 256, "SWAP_AB": 1}, "tile 192x256 with reductions"),
    ],
    ids=str,
)
def test_tiles_that_leave_them_no_registers(knobs, what):
    g, y = layer([8, 64, 56, 56], [256, 64, 3, 3])
    genstats(g, y)
    fusion, target = fusion_of(g), of(TARGET)
    (reason,) = CONV_SM90.legal({**SMALL, **knobs}, fusion, target)
    assert what in reason.what
    for found in CONV_SM90.candidates(fusion, target):
        assert CONV_SM90.legal(found, fusion, target) == ()


def test_a_halo_keeps_no_pixels():
    g, y = layer([2, 16, 5, 7], [40, 16, 3, 3])
    knobs = with_halo(g, 2)
    g, y = layer([2, 16, 5, 7], [40, 16, 3, 3])
    reduced(g, y, "add", DIMS["pixels"])
    (reason,) = CONV_SM90.legal(knobs, fusion_of(g), of(TARGET))
    assert "keeps pixels" in reason.what


@pytest.mark.parametrize(
    ("x", "w", "parameters"),
    [
        ([64, 64, 56, 56], [64, 64, 3, 3], around(1)),
        ([64, 64, 56, 56], [256, 64, 1, 1], around(0)),
        ([64, 256, 14, 14], [256, 256, 3, 3], around(1)),
    ],
    ids=str,
)
def test_statistics_go_with_the_convolution(x, w, parameters):
    """One fusion has both, with channels along the instruction's rows, where partials are few."""
    g, y = layer(x, w, parameters)
    genstats(g, y)
    config = heuristics.best_config(g.graph.finalize(), of(TARGET), ["A", "FALLBACK"])
    (choice,) = config.choices
    assert choice.engine is CONV_SM90
    assert choice.knobs["SWAP_AB"] == 1
    seconds = [
        exit_seconds_of(choice.fusion, (128, 256), of(TARGET), swaps=swaps)
        for swaps in (True, False)
    ]
    assert 0 < seconds[0] < seconds[1]
