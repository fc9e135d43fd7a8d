"""Engine conv_stem_sm90 in the interpreter: shapes, epilogues, knobs, refusals."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.dialect.reference import reference
from dnnc.engines.conv.pattern import conv_of, shape_of
from dnnc.engines.conv.stem import GROUP, Stem
from dnnc.engines.conv.stem_sm90 import CONV_STEM_SM90
from dnnc.target import of
from tests.support import multiprocessors
from tests.support.checked import check, random_inputs

from .convs import H, N, W, around, convolved, image, ptx_of
from .test_sm90 import layer, new_graph

TARGET = "sm_90a"
SMALL = {"TILE_M": 128, "TILE_N": 64, "STAGES": 2}


def run(g, sizes=None, *, knobs=SMALL, **options):
    return check(g, sizes, engine="conv_stem_sm90", knobs=knobs, target=TARGET, **options)


# X, W, parameters.
CASES = {
    "7x7 stride 2": ([1, 3, 30, 40], [64, 3, 7, 7], around(3, 2)),
    "3x3 stride 2": ([2, 3, 17, 24], [24, 3, 3, 3], around(1, 2)),
    "four channels": ([1, 4, 9, 18], [16, 4, 3, 3], around(1)),
    "one channel, stride 4": ([1, 1, 19, 72], [8, 1, 5, 5], around(2, 4)),
    "six channels": ([1, 6, 8, 20], [40, 6, 3, 2], around(0)),
    "uneven": ([2, 2, 14, 20], [24, 2, 2, 5], {
        "pre_padding": [0, 3], "post_padding": [4, 1], "stride": [3, 1], "dilation": [2, 1]}),
    "an odd number of groups": ([1, 2, 7, 16], [16, 2, 3, 3], around(1)),
    "three channels, stride 1": ([2, 3, 6, 24], [24, 3, 3, 3], around(1)),
    "one channel, runs at odd places": ([1, 1, 9, 24], [8, 1, 4, 7], around(3)),
    "wide rows": ([1, 8, 9, 21], [24, 8, 3, 3], around(1, 2)),
    "shares of k": ([1, 8, 5, 18], [16, 8, 7, 7], around(3)),
    "units of 16": ([1, 16, 6, 19], [32, 16, 3, 5], around(2)),
    "units of 16, runs of three": ([1, 12, 5, 24], [16, 12, 3, 3], {
        "pre_padding": [1, 3], "post_padding": [1, 0], "stride": [1, 4], "dilation": [1, 1]}),
    "units of 16, runs at odd places": ([1, 1, 6, 272], [8, 1, 5, 9], around(3, 16)),
    "units of 32": ([1, 16, 6, 20], [16, 16, 3, 3], around(1, 2)),
    "units of 64": ([1, 32, 6, 20], [16, 32, 2, 3], around(1, 2)),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", CASES)
def test_shapes(name):
    x, w, parameters = CASES[name]
    g = new_graph()
    convolved(g, x, w, **parameters).set_output()
    ptx = ptx_of(run(g))
    before = ptx[: ptx.rindex("wgmma.mma_async")]
    # Threads' reads of pixels end before they give them up.
    assert before.rindex("ld.shared") < before.rindex("fence.proxy.async")
    assert before.rindex("fence.proxy.async") < before.rindex("mbarrier.arrive")


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("columns", [96, 128, 192, 256])
def test_channels(columns):
    g = new_graph(dtypes.bf16)
    convolved(g, [1, 3, 9, 24], [columns - 8, 3, 3, 3], **around(1, 2)).set_output()
    run(g, knobs={**SMALL, "TILE_N": columns})


@pytest.mark.in_turn
@pytest.mark.feature
@pytest.mark.parametrize("outputs", [3, 42])
def test_outputs_that_are_no_multiple_of_16_bytes(outputs):
    """They are stored from registers, those of pixels past an image's end not at all."""
    g = new_graph(dtypes.bf16)
    y = convolved(g, [2, 4, 5, 18], [outputs, 4, 3, 3], **around(1))
    y.set_output().set_data_type(dtypes.f32)
    g.add(g.mul(y, g.tensor([1, outputs, 1, 1])), image(g, y.get_dim())).set_output()
    run(g, knobs={**SMALL, "TILE_N": 32}, slack=3.0)


@pytest.mark.in_turn
@pytest.mark.feature
def test_tiles_of_output_channels(monkeypatch):
    """Four of them, and blocks that work through several tiles, each of the same channels."""
    blocks = multiprocessors.few(monkeypatch, 6)
    g = new_graph()
    y = convolved(g, [blocks // 2, 3, 9, 24], [104, 3, 3, 3], **around(1, 2))
    scaled = g.add(g.mul(y, g.tensor([1, 104, 1, 1])), image(g, y.get_dim()))
    scaled.set_output()
    run(g, knobs={**SMALL, "TILE_N": 32}, slack=3.0)


def test_a_flipped_filter():
    g = new_graph(dtypes.bf16)
    mode = {"convolution_mode": "CONVOLUTION"}
    convolved(g, [1, 3, 9, 16], [24, 3, 3, 2], **around(1, 2), **mode).set_output()
    run(g, knobs={**SMALL, "TILE_M": 256})


def test_a_filter_with_channels_first():
    g = new_graph()
    w = g.tensor([24, 3, 3, 3], [27, 9, 3, 1])
    g.conv_fprop(image(g, [1, 3, 9, 16]), w, **around(1, 2)).set_output()
    run(g)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("io", ["f16", "bf16"])
@pytest.mark.parametrize("rows", [128, 256])
def test_scale_bias_residual_relu_and_two_outputs(io, rows):
    g = new_graph(dtypes.of(io))
    y = convolved(g, [2, 3, 14, 40], [72, 3, 3, 3], **around(1, 2))
    biased = g.add(g.mul(y, g.tensor([1, 72, 1, 1])), g.tensor([1, 72, 1, 1]))
    biased.set_output().set_data_type(dtypes.f32)
    residual = image(g, [2, 72, 7, 20])
    g.relu(g.add(biased, residual)).set_output()
    run(g, slack=3.0, knobs={**SMALL, "TILE_M": rows, "TILE_N": 96})


@pytest.mark.in_turn
def test_what_varies_along_images_rows_and_columns():
    g = new_graph()
    y = convolved(g, [3, 3, 10, 40], [16, 3, 3, 3], **around(1, 2))
    g.add(g.mul(y, g.tensor([3, 1, 1, 1])), g.mul(y, g.tensor([1, 16, 5, 20]))).set_output()
    run(g, slack=4.0)


@pytest.mark.in_turn
@pytest.mark.parametrize(("n", "h"), [(1, 4), (5, 31)])
def test_one_plan_serves_every_height_and_number_of_images(n, h):
    g = new_graph()
    y = g.conv_fprop(image(g, [N, 3, H, 40]), image(g, [24, 3, 3, 3]), **around(1, 2))
    g.relu(g.bias(y, g.tensor([1, 24, 1, 1]))).set_output()
    run(g, {"N": n, "H": h})


@pytest.mark.in_turn
def test_widths_that_are_symbols():
    g = new_graph()
    w = dnnc.Dim("W", min=8, max=64, multiple_of=8)
    y = g.conv_fprop(image(g, [2, 3, 9, w]), image(g, [24, 3, 3, 3]), **around(1, 2))
    y.set_output()
    run(g, {"W": 40})


def test_any_width():
    """Rows are copied to where they begin at whole 16 bytes."""
    g = new_graph()
    y = g.conv_fprop(image(g, [1, 3, 5, W]), image(g, [24, 3, 3, 3]), **around(1, 2))
    y.set_output()
    run(g, {"W": 21})


@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize(
    ("channels", "strides"),
    [(3, [180, 1, 45, 3]), (2, [192, 1, 48, 3]), (1, [60, 60, 15, 1])],
    ids=["odd rows", "a gap behind pixels", "one channel"],
)
def test_rows_that_the_copy_engine_can_not_take_are_copied(channels, strides):
    g = new_graph()
    x = g.tensor([2, channels, 4, 15], strides)
    g.conv_fprop(x, image(g, [16, channels, 3, 3]), **around(1)).set_output()
    plan = run(g)
    steps = plan.programs[0].variants[0].steps
    assert ["_copy" in step.launch.kernel for step in steps] == [True, False]


def test_blocks_work_through_many_tiles(monkeypatch):
    """More tiles than SMs: the ring goes on from tile to tile."""
    blocks = multiprocessors.few(monkeypatch, 6)
    g = new_graph()
    convolved(g, [blocks // 6 + 1, 1, 24, 16], [8, 1, 1, 2], **around(0, 2)).set_output()
    run(g)
    g = new_graph()
    convolved(g, [blocks // 2 + 4, 1, 16, 24], [8, 1, 1, 2], **around(0, 2)).set_output()
    run(g)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_infinities_beside_a_window_stay_there():
    """A run is read with what follows it: that is no part of the sum."""
    g = new_graph()
    convolved(g, [1, 3, 9, 16], [8, 3, 3, 3], **around(1, 2)).set_output()
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {}, low=1.0, high=2.0)
    x, _ = graph.inputs
    inputs[x.uid][0, 2, 4, 5] = np.inf
    values = reference(graph, inputs)[graph.outputs[0].uid]
    assert np.isinf(values).any()
    assert np.isfinite(values).any()
    run(g, inputs=inputs)


# ---- the geometry, by what it is for


@pytest.mark.rotating
@pytest.mark.parametrize("name", CASES)
def test_every_element_of_a_window_has_one_place(name):
    """Group by group, offsets lead to the elements that the filter's rows meet."""
    shape = shape_of(conv_of(layer(*CASES[name])))
    stem = Stem.of(shape, 2)
    height, width = stem.windows
    seen = set()
    for group in range(2 * stem.steps):
        offset = stem.offset(group)
        if offset is None:
            continue
        assert offset % 4 == 0
        row, start = divmod(offset // 2, stem.pitch)
        for element in stem.valid(group):
            seen.add((row, start + element - stem.lead))
    runs = range(width.taps * stem.channels)
    assert seen == {(r * height.dilation, e) for r in range(height.taps) for e in runs}
    last = (stem.rows - 1) * height.stride + height.reach
    assert last == stem.input_rows - 1
    assert stem.lead - stem.before + 15 * stem.step + stem.groups * GROUP <= stem.pitch
    assert (width.lower * stem.channels - stem.lead) % (stem.unit or GROUP) == 0


@pytest.mark.parametrize("name", CASES)
def test_every_step_of_k_is_in_one_share(name):
    stem = Stem.of(shape_of(conv_of(layer(*CASES[name]))), 2)
    for sums in (32, 128):
        assert [s for share in stem.shares(sums) for s in share] == list(range(stem.steps))


@pytest.mark.parametrize(
    ("channels", "stride", "width", "unit", "conflicts"),
    [
        (3, 2, 224, 0, 1), (3, 1, 224, 0, 2), (8, 1, 56, 0, 1), (8, 2, 56, 16, 1),
        (8, 2, 55, 0, 2), (16, 1, 55, 16, 1), (16, 2, 56, 32, 1), (16, 2, 55, 16, 2),
        (24, 2, 56, 16, 1), (32, 1, 55, 32, 1), (32, 2, 56, 64, 1), (32, 2, 55, 32, 2),
    ],
)  # fmt: skip
def test_units_keep_words_in_different_banks(channels, stride, width, unit, conflicts):
    """With 3 channels and stride 1 each word is two loads."""
    fusion = layer([1, channels, 56, width], [64, channels, 3, 3], around(1, stride))
    stem = Stem.of(shape_of(conv_of(fusion)), 2)
    assert (stem.unit, stem.conflicts) == (unit, conflicts)


# ---- knobs, choices, refusals


def test_the_first_layer_of_a_network_gets_this_engine():
    fusion = layer([256, 3, 224, 224], [64, 3, 7, 7], around(3, 2))
    best = heuristics.choices(fusion, of(TARGET))[0]
    assert best.engine is CONV_STEM_SM90
    assert best.knobs["TILE_N"] == 64
    moved = 256 * (224 * 224 * 3 + 112 * 112 * 64) * 2
    assert moved / 4.5e12 < best.prediction.seconds < 2 * moved / 3e12


def test_64_channels_stay_with_im2col():
    fusion = layer([32, 64, 56, 56], [64, 64, 3, 3], around(1))
    assert heuristics.choices(fusion, of(TARGET))[0].engine is not CONV_STEM_SM90


@pytest.mark.parametrize(
    ("knobs", "what"),
    [
        ({"TILE_M": 256, "TILE_N": 256}, "tile 256x256"),
        ({"TILE_M": 256}, "TILE_M=256 and 63 steps of k"),
        ({"TILE_N": 256}, "bytes"),
    ],
    ids=str,
)
def test_knobs_that_do_not_go_together(knobs, what):
    fusion = layer([1, 16, 24, 24], [72, 16, 9, 7], around(1))
    (reason,) = CONV_STEM_SM90.legal({**SMALL, "TILE_N": 96, **knobs}, fusion, of(TARGET))
    assert what in reason.what


@pytest.mark.parametrize(
    ("build", "what"),
    [
        ([[1, 4, 16], [8, 4, 3], around(1, spatial=1)], "1 spatial dim"),
        ([[1, 40, 16, 16], [8, 40, 3, 3], around(1)], "40 channels"),
        ([[1, 4, 16, 16], [8, 2, 3, 3], around(1)], "2 groups"),
        ([[1, 4, 16, 16], [8, 4, 3, 3], around(2, dilation=2)], "a dilation of 2"),
        ([[1, 4, 16, 16], [1032, 4, 3, 3], around(1)], "1032 output channels"),
        ([[1, 32, 16, 16], [8, 32, 9, 7], around(1)], "9 rows of 224 elements"),
        ([[1, 4, 512, 512], [8, 4, 16, 16], around(0, 16)], "bytes"),
        ([[1, 3, 64, 504], [8, 3, 8, 32], around(0, 32)], "rows of 1536 elements"),
        ([[1, 2, 512, 512], [8, 2, 40, 1], around(0, 32)], "264 rows of X"),
    ],
    ids=str,
)
def test_refusals(build, what):
    fusion = layer(*build)
    assert any(what in reason.what for reason in CONV_STEM_SM90.supports(fusion, of(TARGET)))


def test_other_architectures_are_refused():
    fusion = layer([1, 3, 16, 16], [8, 3, 3, 3], around(1, 2))
    (reason,) = CONV_STEM_SM90.supports(fusion, of("sm_80"))
    assert reason.clause == "architecture"
