"""im2col boxes: places and offsets as plain numbers, recipes, and what the engine can't bring."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from dnnc import Dim, dtypes
from dnnc.codegen.hopper import im2col
from dnnc.codegen.hopper.im2col import Im2colBox, Window
from dnnc.dialect.tensor import packed_strides

from .kernels import tensor
from .numpy_im2col import im2col as expected
from .numpy_im2col import output_pixels
from .test_schedule import Numbers

N, H = Dim("N", max=64), Dim("H", min=4, max=256)
SAME = Window(3, pre=1, post=1)


def channels_last(dims, dtype=dtypes.f16):
    spatial = range(2, len(dims))
    return tensor(1, dtype, dims, packed_strides(dims, (0, *spatial, 1)))


def test_the_reference_on_a_row_that_can_be_read_off():
    x = np.arange(1, 5).reshape(1, 1, 4)
    taps = [list(row[:, 0]) for row in expected(x, (SAME,))]
    assert taps == [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 0]]


# ---- places


@pytest.mark.parametrize(
    ("dims", "windows"),
    [
        ((2, 1, 4), (SAME,)),
        ((2, 1, 7), (Window(3, stride=3, dilation=2, pre=2, post=3),)),
        ((3, 1, 4, 5), (SAME, SAME)),
        ((2, 1, 5, 6), (Window(2, stride=2, post=1), Window(4, stride=1, dilation=2, pre=3))),
        ((1, 1, 4, 4), (Window(1, stride=8), Window(1))),
        ((2, 1, 4, 3, 5), (Window(2), SAME, Window(2, stride=2, dilation=2, post=1))),
    ],
)
def test_places_and_offsets_are_where_each_tap_lies(dims, windows):
    box = Im2colBox(channels_last(dims), windows, 8, 8)
    x = np.arange(1, 1 + np.prod(dims)).reshape(dims)
    wanted = expected(x, windows)
    assert wanted.shape[:2] == (box.taps, output_pixels(box).constant)
    for tap, pixel in np.ndindex(wanted.shape[:2]):
        *places, image = im2col.first_pixel(Numbers(), box, pixel)
        offsets = im2col.offsets_of(box, im2col.tap_of(box.windows, tap))
        at = [place + offset for place, offset in zip(places, offsets, strict=True)][::-1]
        inside = all(0 <= i < extent for i, extent in zip(at, dims[2:], strict=True))
        assert wanted[tap, pixel, 0] == (x[image, 0, *at] if inside else 0)


def test_taps_are_counted_with_the_last_axis_fastest():
    windows = (Window(2), Window(3), Window(4))
    box = Im2colBox(channels_last((1, 8, 4, 4, 4)), windows, 8, 8)
    found = [tuple(im2col.tap_of(box.windows, number)) for number in range(box.taps)]
    assert found == list(itertools.product(range(2), range(3), range(4)))
    assert im2col.offsets_of(Im2colBox(
        channels_last((1, 8, 9, 9)), (Window(3, dilation=2), Window(3, dilation=3)), 8, 8
    ), (2, 1)) == [3, 4]  # fmt: skip


def test_pixels_beyond_the_last_are_in_no_image():
    box = Im2colBox(channels_last((2, 8, 4, 4)), (SAME, SAME), 8, 8)
    assert im2col.first_pixel(Numbers(), box, 31) == [2, 2, 1]
    assert im2col.first_pixel(Numbers(), box, 32) == [-1, -1, 2]


@pytest.mark.parametrize("window", [SAME, Window(3, 2, 2, 4, 1), Window(1, 5), Window(5, 8, 3, 7)])
def test_the_bounding_box_has_as_many_places_as_there_are_outputs(window):
    for extent in range(13, 30):
        places = range(window.lower, extent + window.upper, window.stride)
        assert window.outputs(extent).constant == len(places)


def test_outputs_are_expressions_of_the_extent():
    windows = (SAME, Window(5, dilation=2), Window(3, stride=2, pre=1, post=2))
    texts = [str(window.outputs(H)) for window in windows]
    assert texts == ["H", "H - 8", "(H // 2) + 1"]


# ---- recipes


def test_a_recipe_has_sizes_as_expressions_innermost_first():
    windows = (Window(3, stride=2, pre=1, post=2), Window(5, stride=1, dilation=2, pre=4, post=3))
    box = Im2colBox(channels_last((N, 64, H, 56)), windows, 32, 128)
    recipe = box.recipe
    assert recipe.mode == "im2col"
    assert recipe.dims == ("64", "56", "H", "N")
    assert recipe.strides == ("128", "7168", "H*7168")
    assert recipe.element_strides == (1, 1, 2, 1)
    assert (recipe.lower, recipe.upper) == ((-4, -1), (-5, 0))
    assert (recipe.channels_per_pixel, recipe.pixels_per_column) == (32, 128)
    assert recipe.swizzle == "64B"
    assert (box.row_bytes, box.bytes) == (64, 64 * 128)


def test_axes_of_one_stay_and_their_strides_are_made_valid():
    t = tensor(1, dtypes.f16, (1, 24, 1, 9), (0, 1, 5, 24))
    assert im2col.refusal(t, (Window(1), SAME)) is None
    recipe = Im2colBox(t, (Window(1), SAME), 8, 8, is_swizzled=False).recipe
    assert recipe.dims == ("24", "9", "1", "1")
    assert recipe.strides == ("48", "48", "48")
    assert recipe.swizzle == "NONE"


@pytest.mark.parametrize(
    ("channels", "pixels", "is_swizzled", "what"),
    [
        (512, 8, False, "512 channels"),
        (64, 2048, True, "2048 pixels"),
        (12, 8, True, "rows of 24 bytes"),
        (24, 8, True, "no swizzle for rows of 48"),
    ],
)
def test_boxes_that_are_none(channels, pixels, is_swizzled, what):
    with pytest.raises(AssertionError, match=what):
        Im2colBox(channels_last((2, 64, 8, 8)), (SAME, SAME), channels, pixels,
                  is_swizzled=is_swizzled)  # fmt: skip
    with pytest.raises(AssertionError, match="not an axis each"):
        Im2colBox(channels_last((2, 64, 8, 8)), (SAME,), 64, 8)


# ---- refusals


@pytest.mark.parametrize(
    ("dims", "windows"),
    [
        ((2, 8, 65536), (Window(32769, dilation=1, pre=32768),)),
        ((2, 8, 300), (Window(8, dilation=36),)),  # taps 252 pixels apart: few with one axis
        ((2, 8, 300, 300), (Window(129, pre=128, post=127), Window(9, dilation=16, stride=8))),
        ((2, 8, 40, 40, 40), (Window(17, pre=16, post=15),) * 3),
        ((2, 8, H, H), (SAME, SAME)),
    ],
)
def test_what_the_copy_engine_can_bring(dims, windows):
    assert im2col.refusal(channels_last(dims), windows) is None


PLANE = (2, 8, 300, 300)
VOLUME = (2, 8, 40, 40, 40)
ONE = Window(1)


@pytest.mark.parametrize(
    ("dims", "windows", "what"),
    [
        ((2, 8), (), "2 axes, 0 of them"),
        ((2, 8, 9, 9), (SAME,), "4 axes, 1 of them"),
        ((2, 8, 3, 3, 3, 3), (SAME,) * 4, "6 axes, 4 of them"),
        (PLANE, (ONE, Window(1, stride=9)), "a convolution stride of 9"),
        (PLANE, (ONE, Window(1, stride=0)), "a convolution stride of 0"),
        ((2, 8, 65536), (Window(1, pre=32769),), "a corner of -32769 with 1 spatial axes"),
        ((2, 8, 65536), (Window(1, post=32768),), "a corner of 32768 with 1 spatial axes"),
        (PLANE, (Window(1, pre=129), ONE), "a corner of -129 with 2 spatial axes"),
        (PLANE, (ONE, Window(1, post=128)), "a corner of 128 with 2 spatial axes"),
        (PLANE, (Window(2, dilation=129), ONE), "a corner of -129 with 2 spatial axes"),
        (VOLUME, (ONE, Window(1, pre=17), ONE), "a corner of -17 with 3 spatial axes"),
        (VOLUME, (ONE, ONE, Window(1, post=16)), "a corner of 16 with 3 spatial axes"),
        (PLANE, (Window(2, dilation=256, post=128), ONE), "taps 256 pixels apart with 2"),
        (VOLUME, (Window(9, dilation=4, post=16), ONE, ONE), "taps 32 pixels apart with 3"),
        ((2, 8, 4, 4), (ONE, Window(5)), "an output extent of 0"),
        ((2, 8, 4, H), (ONE, Window(5)), "an output extent of H - 4"),
        ((2, 12, 8, 8), (SAME, SAME), "a stride of 12 elements"),
    ],
)
def test_what_the_copy_engine_cannot_bring(dims, windows, what):
    reason = im2col.refusal(channels_last(dims), windows)
    assert reason is not None
    assert what in reason


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"strides": packed_strides((2, 8, 8, 8))}, "not contiguous"),
        ({"dtype": dtypes.f64}, "f64 elements"),
        ({"dtype": dtypes.i1}, "i1 elements"),
        ({"alignment": 8}, "an alignment of 8 bytes"),
    ],
)
def test_tensors_that_no_copy_takes(change, what):
    made = replace(channels_last((2, 8, 8, 8)), **change)
    reason = im2col.refusal(made, (SAME, SAME))
    assert reason is not None
    assert what in reason
