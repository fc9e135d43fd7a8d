"""Operations before the convolution of conv_sm90: X computed in shared memory.

As code of "sm_90a".
"""

import numpy as np
import pytest

from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.engines.conv.sm90 import CONV_SM90
from dnnc.target import of
from tests.support import machine
from tests.support.checked import random_inputs

from . import test_pattern as test_conv
from .convs import H, N, around, image, ptx_of
from .test_exits_sm90 import OF_PARTS, genstats, in_part, knobs_in_part
from .test_exits_sm90 import run as run_of_exits
from .test_halo_sm90 import with_halo
from .test_sm90 import SMALL, TARGET, refused, run, the_fusion

SWAPPED = {**SMALL, "SWAP_AB": 1, "TILE_M": 128}


def some(name, *quick):
    """A parameter that is slow, if it is not one of those."""
    return name if name in quick else pytest.param(name, marks=pytest.mark.slow)


def run_of_sums(g, **options):
    """Bits that a device cuts off products may round an element of a sum the other way."""
    return run(g, allowance=machine.current().cut, **options)


def new_graph(io=dtypes.f16, **options):
    return test_conv.new_graph(io, target=TARGET, **options)


def scaled(g, x, channels, type_=dtypes.f16, **options):
    """relu(x * scale + bias) of each channel; ReLU of the bias is not 0."""
    ones = [1] * (len(x.get_dim()) - 2)
    scale, bias = (g.tensor([1, channels, *ones], **options) for _ in range(2))
    return g.relu(g.add(g.mul(x, scale), bias)).set_data_type(type_)


def layer(x, w, parameters=None, io=dtypes.f16, type_=None):
    g = new_graph(io)
    before = scaled(g, image(g, x), x[1], type_ or io)
    return g, g.conv_fprop(before, image(g, w), **(parameters or around(1)))


FORMS = {
    "rows": SMALL,
    "rows 256x32": {**SMALL, "TILE_M": 256, "TILE_N": 32},
    "swapped": SWAPPED,
    "swapped, side by side": {**SWAPPED, "TILE_M": 384},
    "halo": (4, 64),
    "halo of 128 channels": (3, 128),
}


def knobs_of(g, form):
    found = FORMS[form]
    return found if isinstance(found, dict) else with_halo(g, *found)


@pytest.mark.in_turn
@pytest.mark.feature
@pytest.mark.parametrize("form", [some(form, "rows", "halo") for form in FORMS])
def test_padding_is_of_what_is_computed(form):
    g, y = layer([2, 72, 7, 9], [72, 72, 3, 3])
    y.set_output()
    run(g, knobs=knobs_of(g, form))


@pytest.mark.in_turn
@pytest.mark.parametrize("form", [some(form, "swapped") for form in ("rows", "swapped", "halo")])
def test_statistics_after_it(form):
    """The guide's scale, bias, ReLU, convolution, statistics, in two launches."""
    g, y = layer([3, 64, 5, 6], [72, 64, 3, 3])
    y.set_data_type(dtypes.f16).set_output()
    genstats(g, y)
    plan = run_of_sums(g, knobs=knobs_of(g, form))
    assert ".im2col" in ptx_of(plan) or form == "halo"


@pytest.mark.in_turn
@pytest.mark.parametrize("form", [some(form, "rows") for form in OF_PARTS])
@in_part
def test_statistics_where_a_last_panel_is_multiplied_in_part(channels, stages, form):
    g, y = layer([2, channels, 5, 7], [72, channels, 3, 3])
    y.set_data_type(dtypes.f16).set_output()
    genstats(g, y)
    run_of_exits(g, knobs=knobs_in_part(g, form, stages))


@pytest.mark.in_turn
@pytest.mark.parametrize("form", [some("rows"), "halo"])
def test_one_plan_serves_every_size(form):
    g = new_graph()
    before = scaled(g, image(g, [N, 16, H, 6]), 16)
    g.conv_fprop(before, image(g, [24, 16, 3, 3]), **around(1)).set_output()
    plan = run(g, {"N": 1, "H": 4}, knobs=knobs_of(g, form))
    run(g, {"N": 3, "H": 11}, plan=plan)


LONG = "32 places of taps"
SHAPES = {
    "1x1": ([2, 72, 7, 5], [40, 72, 1, 1], around(0)),
    "1x1 stride 2": ([1, 64, 9, 8], [64, 64, 1, 1], around(0, 2)),
    "uneven": ([2, 16, 9, 7], [72, 16, 2, 3], {
        "pre_padding": [0, 2], "post_padding": [3, 1], "stride": [2, 1], "dilation": [1, 3]}),
    "flipped": ([1, 16, 6, 5], [24, 16, 3, 2], {**around(1), "convolution_mode": "CONVOLUTION"}),
    "1D": ([3, 24, 37], [40, 24, 5], around(2, 2, spatial=1)),
    "3D": ([2, 16, 4, 5, 6], [24, 16, 2, 3, 3], {
        "pre_padding": [0, 1, 2], "post_padding": [1, 1, 0], "stride": [1, 2, 1],
        "dilation": [2, 1, 1]}),
    "groups": ([2, 48, 5, 6], [80, 24, 3, 3], around(1)),
    "groups of whole panels": ([2, 128, 4, 5], [144, 64, 3, 3], around(1)),
    LONG: ([1, 8, 5, 6], [8, 8, 15, 17], around(8)),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("name", [some(n, *SHAPES) if n != LONG else some(n) for n in SHAPES])
def test_shapes(name):
    x, w, parameters = SHAPES[name]
    g, y = layer(x, w, parameters)
    y.set_output()
    run(g)


@pytest.mark.slow
def test_groups_whose_pixels_come_with_a_halo():
    g, y = layer([1, 128, 5, 6], [144, 64, 3, 3])
    y.set_output()
    run(g, knobs=with_halo(g, 4, 64))


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "knobs",
    [
        {"TILE_CGA_M": 2}, some({"TILE_CGA_N": 2}), some({"TILE_CGA_M": 2, "TILE_CGA_N": 2}),
        some({"SPLIT_K_SLC": 4}), some({"STAGES": 5}),
    ],
    ids=str,
)  # fmt: skip
def test_ways_through_the_tiles(knobs):
    g, y = layer([2, 72, 6, 7], [136, 72, 3, 3])
    y.set_output()
    run(g, knobs={**SMALL, **knobs})


@pytest.mark.slow
def test_halo_tiles_that_blocks_take():
    g, y = layer([3, 64, 9, 6], [64, 64, 3, 3])
    y.set_output()
    run(g, knobs=with_halo(g, 2, 64))


# ---- types


TYPES = {
    "bf16": (dtypes.bf16, dtypes.bf16),
    "f16 to bf16": (dtypes.f16, dtypes.bf16),
    "i8 to f16": (dtypes.i8, dtypes.f16),
    "fp8 to bf16": (dtypes.f8e4m3, dtypes.bf16),
    "f32 to f16": (dtypes.f32, dtypes.f16),
    "f32": (dtypes.f32, dtypes.f32),
    "f16 to f32": (dtypes.f16, dtypes.f32),
    "fp8": (dtypes.f8e4m3, dtypes.f8e4m3),
}


@pytest.mark.in_turn
@pytest.mark.parametrize("name", [some(name, "f32 to f16", "f32") for name in TYPES])
def test_types(name):
    raw, operand = TYPES[name]
    g = new_graph()
    before = scaled(g, image(g, [1, 80, 5, 4], data_type=raw), 80, operand)
    w = image(g, [40, 80, 3, 3], data_type=operand)
    g.conv_fprop(before, w, **around(1)).set_output().set_data_type(dtypes.f32)
    run(g, allowance=2e-3 if operand in (dtypes.f32, dtypes.f8e4m3) else 2e-5)


@pytest.mark.in_turn
@pytest.mark.parametrize("raw", [dtypes.i8, some(dtypes.f8e5m2)], ids=str)
def test_an_identity_that_casts(raw):
    """Mixed input types, as the guide writes them."""
    g = new_graph()
    x = g.identity(image(g, [2, 32, 5, 6], data_type=raw)).set_data_type(dtypes.f16)
    g.conv_fprop(x, image(g, [40, 32, 3, 3]), **around(1)).set_output()
    run(g, knobs=SWAPPED)


@pytest.mark.in_turn
@pytest.mark.parametrize("form", [some(form, "halo") for form in ("rows", "swapped", "halo")])
@pytest.mark.parametrize("io", [dtypes.f16, some(dtypes.bf16)], ids=str)
def test_a_virtual_x_of_f32_takes_the_filters_type(form, io):
    """The guide's graphs have intermediates of FLOAT; the plan has a note."""
    g, y = layer([2, 72, 5, 6], [40, 72, 3, 3], io=io, type_=dtypes.f32)
    y.set_data_type(io).set_output()
    genstats(g, y)
    rounding = 2.0**-11 if io == dtypes.f16 else 2.0**-8  # of X, which the sums show
    plan = run(g, knobs=knobs_of(g, form), slack=4.0, allowance=4 * rounding)
    assert "DOWN_CONVERT_INPUTS" in plan.programs[0].fusions[0].notes


def test_what_takes_the_filters_type_comes_first_but_can_be_barred():
    g, y = layer([32, 64, 56, 56], [64, 64, 3, 3], type_=dtypes.f32)
    y.set_data_type(dtypes.f16).set_output()
    config = heuristics.best_config(g.graph.finalize(), of(TARGET), ["A"])
    assert [choice.engine for choice in config.choices] == [CONV_SM90]
    assert not config.choices[0].rounds_operands


@pytest.mark.in_turn
def test_i8_that_is_computed():
    g = new_graph(dtypes.i8, compute_data_type=dtypes.i32)
    x = image(g, [1, 48, 5, 6])
    before = g.max(x, g.tensor([1, 48, 1, 1])).set_data_type(dtypes.i8)
    y = g.conv_fprop(before, image(g, [24, 48, 3, 3]), **around(1))
    y.set_output().set_data_type(dtypes.i32)
    run(g)


# ---- what is read


@pytest.mark.slow
def test_two_images():
    """The guide's dual form, but for its second output."""
    g = new_graph()
    x, dual = (image(g, [2, 72, 5, 6]) for _ in range(2))
    one, other = (g.add(g.mul(t, g.tensor([1, 72, 1, 1])), g.tensor([1, 72, 1, 1]))
                  for t in (x, dual))  # fmt: skip
    before = g.relu(g.add(one, other)).set_data_type(dtypes.f16)
    y = g.conv_fprop(before, image(g, [40, 72, 3, 3]), **around(1))
    y.set_data_type(dtypes.f16).set_output()
    genstats(g, y)
    run_of_sums(g, knobs=SWAPPED)


TIES = 2e-5  # of sums of few elements, one of which f32 rounds the other way to f16


def dual(x, w, *, groups=1, batch=None):
    """The guide's DBARCS: two images, ReLU, which is an output, a 1x1 convolution, statistics."""
    g, dims = new_graph(), [batch or x[0], *x[1:]]
    one, other = (g.add(g.mul(image(g, dims), g.tensor([1, x[1], 1, 1])),
                        g.tensor([1, x[1], 1, 1])) for _ in range(2))  # fmt: skip
    before = g.relu(g.add(one, other)).set_data_type(dtypes.f16).set_output()
    y = g.conv_fprop(before, image(g, [w, x[1] // groups, 1, 1]), **around(0))
    y.set_data_type(dtypes.f16).set_output()
    genstats(g, y)
    return g


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "knobs",
    [
        SMALL, some(SWAPPED), some({**SMALL, "TILE_CGA_N": 2}), some({**SMALL, "TILE_CGA_M": 2}),
    ],
    ids=lambda knobs: str({k: v for k, v in knobs.items() if SMALL[k] != v}),
)  # fmt: skip
def test_x_is_an_output_too(knobs):
    """Channels end inside a panel, pixels inside a tile; two tiles of output channels."""
    run(dual([3, 72, 5, 7], 136), knobs=knobs, allowance=TIES)


@pytest.mark.slow
def test_x_of_as_many_channels_as_y_is_an_output_too():
    run(dual([2, 64, 5, 6], 64, batch=N), {"N": 2}, knobs=SWAPPED, allowance=TIES)


@pytest.mark.in_turn
def test_x_is_an_output_too_beside_one_column_of_tiles():
    run(dual([1, 128, 5, 6], 80, groups=2), allowance=TIES)


@pytest.mark.in_turn
def test_an_image_that_is_read_again_after_it():
    g = new_graph()
    x = image(g, [2, 64, 5, 6])
    y = g.conv_fprop(scaled(g, x, 64), image(g, [64, 64, 3, 3]), **around(1))
    g.add(y, x).set_output()
    run(g, slack=3.0)


@pytest.mark.in_turn
def test_scalars_and_infinities():
    """With an infinite bias, padding stays zero; so do channels past the last."""
    g = new_graph()
    x, bias = image(g, [1, 24, 4, 4]), g.tensor([1, 24, 1, 1])
    before = g.add(g.mul(x, g.tensor_scalar(0.5)), bias).set_data_type(dtypes.f16)
    g.conv_fprop(before, image(g, [32, 24, 3, 3]), **around(1)).set_output()
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {}, low=1.0, high=2.0)
    inputs[bias.get_uid()][0, 23] = np.inf
    run(g, inputs=inputs)


# ---- refusals


def _convolved(g, before, c=16, window=3):
    x = before.set_data_type(dtypes.f16)
    g.conv_fprop(x, image(g, [16, c, window, window]), **around(window // 2)).set_output()


def _of_each_pixel(g):
    _convolved(g, g.add(image(g, [1, 16, 5, 5]), g.tensor([1, 1, 5, 5])))


def _an_index(g):
    _convolved(g, g.add(image(g, [1, 16, 5, 5]), g.gen_index(image(g, [1, 16, 5, 5]), 2)))


def _three_images(g):
    images = [image(g, [1, 16, 5, 5]) for _ in range(3)]
    _convolved(g, g.add(g.add(images[0], images[1]), images[2]))


def _a_part_of_a_fragment(g):
    _convolved(g, g.relu(image(g, [1, 12, 5, 5], data_type=dtypes.f32)), 12)


def _a_wide_filter(g):
    _convolved(g, g.relu(image(g, [1, 16, 5, 5])), window=17)


def _stored_of_many_taps(g):
    before = g.relu(image(g, [1, 16, 5, 5])).set_output()
    _convolved(g, before)


def _booleans(g):
    _convolved(g, g.identity(image(g, [1, 16, 5, 5], data_type=dtypes.i1)))


@pytest.mark.parametrize(
    ("build", "clause", "what"),
    [
        (_of_each_pixel, "operations", "of dims [1, 1, 5, 5]"),
        (_an_index, "operations", "gen_index"),
        (_three_images, "operations", "3 tensors of X's dims"),
        (_a_part_of_a_fragment, "channels", "groups of 12 channels"),
        (_a_wide_filter, "filter", "34 taps along axes with padding"),
        (_stored_of_many_taps, "operations", "before the convolution is stored"),
        (_booleans, "operands of X", "of i1 before the convolution"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_refusals(build, clause, what):
    g = new_graph()
    build(g)
    assert what in refused(g)[clause].what


def test_knobs_that_leave_too_few_registers():
    g, y = layer([2, 64, 9, 9], [256, 64, 3, 3])
    y.set_output()
    genstats(g, y)
    fusion = the_fusion(g)
    knobs = next(k for k in CONV_SM90.candidates(fusion, of(TARGET)) if not k["TILE_ROWS"])
    wide = {**knobs, "TILE_M": 128, "TILE_N": 256, "STAGES": 2, "SWAP_AB": 0, "SPLIT_K_SLC": 1}
    wide |= {"TILE_CGA_M": 1, "TILE_CGA_N": 1}
    (reason,) = CONV_SM90.legal(wide, fusion, of(TARGET))
    assert "with reductions and operations before X" in reason.what
    g, y = layer([2, 64, 9, 9], [64, 64, 3, 3])
    g.add(y, image(g, [2, 64, 9, 9])).set_output()
    halo = {**wide, "TILE_N": 64, "SWAP_AB": 1, "TILE_ROWS": 4}
    (reason,) = CONV_SM90.legal(halo, the_fusion(g), of(TARGET))
    assert "read after it" in reason.what
