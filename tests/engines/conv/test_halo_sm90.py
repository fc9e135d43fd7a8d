"""Engine conv_sm90 with pixels that come once for all taps (TILE_ROWS > 0), in the interpreter."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.codegen.hopper.im2col import Window
from dnnc.dialect.fusion import partition, rewritten_fusion
from dnnc.engines.conv.halo import Halo, halo_refusal
from dnnc.engines.conv.halo_knobs_sm90 import halo_candidates, halo_of, pixels_of
from dnnc.engines.conv.pattern import conv_of, shape_of
from dnnc.engines.conv.phases import axis_phases
from dnnc.engines.conv.sm90 import CONV_SM90
from dnnc.expr import Expr
from dnnc.target import of
from tests.support import multiprocessors

from .convs import H, N, around, channels_last, convolved, image, packed, ptx_of
from .test_sm90 import SMALL, layer, new_graph, run

TARGET = "sm_90a"


def fusion_of(g):
    graph = g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    return fusion


def with_halo(g, rows, channels=64, columns=0, **knobs):
    """Knobs of tiles of some rows, and of some columns or all."""
    halo = halo_of(rewritten_fusion(fusion_of(g), CONV_SM90.patterns), rows, channels, columns)
    assert halo is not None
    own = {"TILE_M": pixels_of(halo), "TILE_N": channels, "SWAP_AB": 1}
    return {**SMALL, **own, "TILE_ROWS": rows, "TILE_COLS": columns, **knobs}


# X, W, parameters, rows of the tile, channels of it.  Up to 32 input channels, or 64 of 8 bits,
# have panels of 64 bytes.
CASES = {
    "3x3": ([1, 64, 4, 7], [64, 64, 3, 3], around(1), 4, 64),
    "rows past the image": ([1, 16, 5, 9], [24, 16, 3, 3], around(1), 4, 64),
    "two panels": ([1, 72, 4, 6], [40, 72, 3, 3], around(1), 2, 64),
    "three panels": ([1, 152, 4, 6], [40, 152, 3, 3], around(1), 2, 64),
    "32 channels": ([2, 32, 4, 7], [32, 32, 3, 3], around(1), 4, 64),
    "128 channels": ([2, 16, 5, 6], [136, 16, 3, 3], around(1), 3, 128),
    "256 channels": ([1, 40, 3, 6], [256, 40, 2, 2], around(0), 2, 256),
    "uneven": ([2, 16, 9, 7], [72, 16, 2, 3], {
        "pre_padding": [0, 2], "post_padding": [3, 1], "stride": [1, 1], "dilation": [1, 3]},
        2, 64),
    "dilation": ([1, 40, 9, 8], [16, 40, 3, 3], around(2, dilation=2), 4, 64),
    "5x5": ([1, 16, 6, 8], [24, 16, 5, 5], around(2), 2, 64),
    "rows of one tap": ([1, 16, 6, 20], [24, 16, 1, 5], around(0), 4, 64),
    "columns of one tap": ([1, 16, 9, 11], [24, 16, 3, 1], around(0), 4, 64),
    "volumes": ([2, 16, 3, 5, 6], [24, 16, 3, 3, 3], around(1, spatial=3), 4, 64),
    "volumes of one image": ([2, 8, 1, 3, 6], [16, 8, 3, 3, 3], around(1, spatial=3), 2, 64),
    "volumes, two panels": ([1, 72, 2, 3, 6], [136, 72, 2, 3, 3], around(1, spatial=3), 3, 128),
    "volumes, uneven": ([2, 8, 7, 5, 6], [16, 8, 3, 2, 3], {
        "pre_padding": [2, 0, 1], "post_padding": [1, 1, 2], "stride": [2, 1, 1],
        "dilation": [2, 1, 1]}, 2, 64),
    "volumes of flat filters": ([1, 8, 3, 4, 6], [16, 8, 1, 3, 3], around(0, spatial=3), 2, 64),
    "stride 2": ([2, 16, 9, 10], [24, 16, 3, 3], around(1, stride=2), 2, 64),
    "stride 2, two panels": ([1, 72, 8, 7], [136, 72, 3, 3], around(1, stride=2), 3, 128),
    "stride 2, 5x5": ([1, 16, 7, 8], [256, 16, 5, 5], around(2, stride=2), 2, 256),
    "stride 2, 7x7 without padding": ([1, 40, 15, 13], [16, 40, 7, 7], around(0, stride=2), 2, 64),
    "strides of one phase": (
        [1, 16, 11, 9], [24, 16, 3, 3], around(2, stride=2, dilation=2), 2, 64),
    "stride 2, dilation 3": (
        [1, 16, 11, 12], [24, 16, 3, 3], around(3, stride=2, dilation=3), 2, 64),
    "strides of rows": ([1, 16, 11, 6], [24, 16, 5, 2], {
        "pre_padding": [3, 0], "post_padding": [0, 2], "stride": [3, 1], "dilation": [1, 2]},
        2, 64),
    "strides of columns": ([2, 16, 5, 17], [24, 16, 1, 9], {
        "pre_padding": [0, 4], "post_padding": [0, 4], "stride": [1, 4], "dilation": [1, 1]},
        4, 64),
    "volumes, stride 2": (
        [1, 8, 5, 7, 6], [16, 8, 3, 3, 3], around(1, stride=2, spatial=3), 2, 64),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", CASES)
def test_shapes(name):
    x, w, parameters, rows, channels = CASES[name]
    g = new_graph()
    convolved(g, x, w, **parameters).set_output()
    plan = run(g, knobs=with_halo(g, rows, channels))
    assert ".im2col" not in ptx_of(plan)


@pytest.mark.in_turn
def test_strides_of_pixels_that_are_copied_first():
    """Each phase begins at a pixel of its own in the workspace."""
    g = new_graph()
    convolved(g, [1, 18, 9, 10], [24, 18, 3, 3], **around(1, stride=2)).set_output()
    knobs = {**SMALL, "TILE_M": 64, "TILE_N": 64, "SWAP_AB": 1, "TILE_ROWS": 4, "STAGES": 3}
    plan = run(g, knobs=knobs)
    assert sum("copy" in kernel.name for kernel in plan.programs[0].kernels) == 2
    assert ".im2col" not in ptx_of(plan)


@pytest.mark.in_turn
def test_a_flipped_filter():
    g = new_graph(dtypes.bf16)
    mode = {"convolution_mode": "CONVOLUTION"}
    convolved(g, [1, 16, 6, 5], [24, 16, 3, 2], **around(1), **mode).set_output()
    run(g, knobs=with_halo(g, 2))
    g = new_graph(dtypes.bf16)
    around_volumes = around(1, spatial=3)
    convolved(g, [1, 16, 3, 4, 5], [24, 16, 2, 3, 2], **around_volumes, **mode).set_output()
    run(g, knobs=with_halo(g, 2))


@pytest.mark.in_turn
def test_volumes_with_residuals_exits_and_what_varies_along_depth(monkeypatch):
    """More tiles than blocks."""
    multiprocessors.few(monkeypatch, 12)
    g = new_graph()
    y = convolved(g, [2, 8, 6, 2, 3], [72, 8, 2, 3, 3], **around(1, spatial=3))
    y = g.add(y, g.tensor([1, 1, 7, 1, 1])).set_output()
    g.add(g.mul(y, g.tensor([1, 72, 1, 1, 1])), image(g, [2, 72, 7, 2, 3])).set_output()
    total = g.reduction(y, "add").set_dim([1, 72, 1, 1, 1])
    total.set_output().set_data_type(dtypes.f32)
    run(g, slack=4.0, knobs=with_halo(g, 2), allowance=1e-4)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("n", [1, 2])
def test_one_plan_serves_every_number_and_depth_of_volumes(n):
    g = new_graph()
    depth = dnnc.Dim("T", min=2, max=9)
    w = image(g, [24, 16, 2, 3, 3])
    g.conv_fprop(image(g, [N, 16, depth, H, 6]), w, **around(1, spatial=3)).set_output()
    run(g, {"N": n, "H": 7 - n, "T": 2}, knobs=with_halo(g, 4))


@pytest.mark.in_turn
@pytest.mark.parametrize(("n", "h"), [(1, 4), (3, 9)])
def test_one_plan_serves_every_height_and_number_of_images(n, h):
    g = new_graph()
    y = g.conv_fprop(image(g, [N, 16, H, 6]), image(g, [24, 16, 3, 3]), **around(1))
    g.relu(g.add(y, image(g, [N, *y.get_dim()[1:]]))).set_output()
    run(g, {"N": n, "H": h}, knobs=with_halo(g, 4))


@pytest.mark.in_turn
@pytest.mark.parametrize("channels", [32, 64])
def test_groups_end_inside_a_tile(channels):
    g = new_graph()
    y = convolved(g, [2, 2 * channels, 4, 5], [48, channels, 3, 3], **around(1))
    g.add(y, g.tensor([1, 48, 1, 1])).set_output()
    run(g, knobs=with_halo(g, 2))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize(("io", "stages"), [("f16", 9), ("bf16", 2)])
def test_filters_that_stay_and_residuals(io, stages, monkeypatch):
    """More tiles than blocks: the rings go on from tile to tile."""
    n = multiprocessors.few(monkeypatch, 12) + 4
    g = new_graph(dtypes.of(io))
    y = convolved(g, [n, 8, 2, 2], [64, 8, 3, 3], **around(1))
    y.set_output()
    biased = g.add(g.mul(y, g.tensor([1, 64, 1, 1])), g.tensor([1, 64, 1, 1]))
    g.relu(g.add(biased, image(g, [n, 64, 2, 2]))).set_output()
    plan = run(g, slack=3.0, knobs=with_halo(g, 2, STAGES=stages))
    assert "ldmatrix.sync.aligned.m8n8.x4.trans" in ptx_of(plan)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("stages", [9, 4])
def test_strides_with_a_residual_and_more_tiles_than_blocks(stages, monkeypatch):
    n = multiprocessors.few(monkeypatch, 12) + 4
    g = new_graph()
    y = convolved(g, [n, 8, 5, 3], [64, 8, 3, 3], **around(1, stride=2))
    g.relu(g.add(y, image(g, [n, 64, 3, 2]))).set_output()
    run(g, slack=3.0, knobs=with_halo(g, 4, STAGES=stages))


@pytest.mark.in_turn
@pytest.mark.parametrize(("n", "h"), [(1, 2), (3, 9)])
def test_one_plan_with_a_stride_serves_every_height(n, h):
    g = new_graph()
    height = dnnc.Dim("H", min=2, max=40)
    x, w = image(g, [N, 16, height, 6]), image(g, [24, 16, 5, 3])
    padding = {"pre_padding": [2, 1], "post_padding": [2, 1], "stride": [2, 2], "dilation": [1, 1]}
    g.conv_fprop(x, w, **padding).set_output()
    run(g, {"N": n, "H": h}, knobs=with_halo(g, 4))


@pytest.mark.in_turn
def test_filters_of_volumes_that_stay(monkeypatch):
    """Each image of a volume meets a third of them."""
    multiprocessors.few(monkeypatch, 2)
    g = new_graph()
    convolved(g, [1, 32, 4, 4, 3], [24, 32, 3, 3, 3], **around(1, spatial=3)).set_output()
    run(g, knobs=with_halo(g, 2, STAGES=27))


@pytest.mark.in_turn
def test_tiles_that_are_taken_one_by_one(monkeypatch):
    n = multiprocessors.few(monkeypatch, 12) + 4
    g = new_graph()
    convolved(g, [n, 8, 2, 2], [64, 8, 3, 3], **around(1)).set_output()
    run(g, knobs=with_halo(g, 2))


@pytest.mark.in_turn
def test_what_varies_along_images_rows_and_columns():
    g = new_graph()
    y = convolved(g, [3, 16, 5, 7], [72, 16, 3, 3], **around(1))
    of_images, of_rows = g.tensor([3, 1, 1, 1]), g.tensor([1, 72, 5, 1])
    other = g.tensor([3, 72, 5, 7], packed([3, 72, 5, 7]))
    out = g.add(g.add(g.mul(y, of_images), g.mul(y, of_rows)), other).set_output()
    out.set_stride(channels_last([3, 72, 5, 7]))
    run(g, slack=4.0, knobs=with_halo(g, 4, 128))


@pytest.mark.in_turn
def test_gaps_between_rows():
    g = new_graph()
    y = convolved(g, [2, 16, 5, 6], [40, 16, 3, 3], **around(1)).set_output()
    y.set_stride([40 * 48, 1, 8 * 40, 40])
    run(g, knobs=with_halo(g, 2))


@pytest.mark.in_turn
@pytest.mark.parametrize("channels", [64, 144])
def test_integers(channels):
    g = new_graph(dtypes.i8, compute_data_type=dtypes.i32)
    y = convolved(g, [1, channels, 5, 14], [24, channels, 3, 3], **around(1))
    g.identity(y, compute_data_type=dtypes.f32).set_output().set_data_type(dtypes.bf16)
    run(g, knobs=with_halo(g, 2))


@pytest.mark.in_turn
def test_tf32():
    g = new_graph(dtypes.f32)
    y = convolved(g, [1, 40, 5, 4], [24, 40, 3, 3], **around(1))
    y.set_output().set_data_type(dtypes.f16)
    run(g, slack=8.0, knobs=with_halo(g, 2))


# ---- the geometry, by what it is for


@pytest.mark.parametrize(("rows", "parts"), [(1, 1), (3, 1), (2, 2)])
@pytest.mark.parametrize("channels", [32, 40])
@pytest.mark.parametrize(
    "parameters",
    [around(1), around(2, dilation=2), around(1, stride=2), around(3, stride=2, dilation=3)],
    ids=str,
)
def test_shifts_lead_to_what_a_tap_meets(rows, parts, parameters, channels):
    fusion = layer([1, channels, 11, 9], [16, channels, 3, 3], parameters)
    halo = Halo.of(shape_of(conv_of(fusion)), rows, parts, 2)
    window, taps = halo.windows[0], set()
    assert halo.row_bytes == (64 if channels == 32 else 128)
    for phase in halo.phases:
        for i, j in np.ndindex(phase.rows.taps, phase.columns.taps):
            tap = [
                axis.first_tap + k * axis.tap_step
                for axis, k in ((phase.rows, i), (phase.columns, j))
            ]
            taps.add(tuple(tap))
            for part, y, x in np.ndindex(parts, rows, halo.columns):
                assert y * halo.pitch + x < halo.positions
                met = part * halo.part_step + y * halo.pitch + x + halo.shift(phase, i, j)
                down, across = divmod(met, halo.pitch)
                assert down < halo.input_rows(phase)
                places = ((phase.rows, down), (phase.columns, across))
                pixel = [(axis.corner + at) * axis.stride + axis.origin for axis, at in places]
                own = part * rows + y, x
                assert pixel == [
                    at * window.stride - window.pre + k * window.dilation
                    for at, k in zip(own, tap, strict=True)
                ]
        last = halo.shift(phase, phase.rows.taps - 1, phase.columns.taps - 1)
        last += (parts - 1) * halo.part_step + halo.positions - 1
        assert (last + 1) * halo.row_bytes <= halo.slot_bytes
        assert halo.load_bytes(phase) <= halo.slot_bytes
    assert len(taps) == 9


@pytest.mark.parametrize("window", [Window(7, 2, 1, 3), Window(5, 3, 2), Window(4, 4, 6, 1, 2)])
def test_each_tap_is_of_one_phase_and_each_phase_has_its_pixels(window):
    taps = [
        phase.first_tap + k * phase.tap_step
        for phase in axis_phases(window)
        for k in range(phase.taps)
    ]
    assert sorted(taps) == list(range(window.taps))
    for phase in axis_phases(window):
        assert 0 <= phase.origin < window.stride
        for pixels in range(phase.origin, 20):
            there = len(range(phase.origin, pixels, window.stride))
            assert phase.extent(Expr.of(pixels)).constant == there


@pytest.mark.parametrize(
    ("x", "w", "parameters", "what"),
    [
        ([1, 16, 9, 9], [16, 16, 3, 3], around(1, stride=3), "convolution strides of 3 and 3"),
        ([1, 16, 9, 9], [16, 16, 2, 2], around(0, stride=2), "no two of which meet"),
        ([1, 16, 1, 9], [16, 16, 3, 3], around(1, stride=2), "a stride may be larger than"),
    ],
    ids=["phases", "no shared pixels", "small"],
)
def test_strides_that_have_no_halos(x, w, parameters, what):
    refusal = halo_refusal(shape_of(conv_of(layer(x, w, parameters))), 64)
    assert refusal is not None
    assert what in refusal


# ---- knobs


@pytest.mark.parametrize("channels", [32, 64])
def test_candidates_are_legal_and_the_best_of_few_channels_has_a_halo(channels):
    fusion = layer([256, channels, 56, 56], [channels, channels, 3, 3], around(1))
    target = of(TARGET)
    found = halo_candidates(fusion, target)
    assert found
    for knobs in found:
        assert CONV_SM90.legal(knobs, fusion, target) == ()
    best = heuristics.choices(fusion, target)[0]
    assert best.engine is CONV_SM90
    assert best.knobs["TILE_ROWS"] > 0


@pytest.mark.parametrize(
    ("x", "w", "parameters", "rows"),
    [
        ([24, 400, 143, 143], [56, 400, 7, 7], around(0, stride=2), [2]),
        ([213, 152, 67, 67], [8, 152, 7, 7], around(3, stride=2), [6, 8]),
        ([64, 32, 112, 112], [64, 32, 3, 3], around(1, stride=2), [4, 6, 8]),
        ([256, 256, 28, 28], [256, 256, 3, 3], around(1, stride=2), [0]),
    ],
    ids=str,
)
def test_strides_have_halos_where_these_were_timed_to_be_faster(x, w, parameters, rows):
    """sweep-conv-strides-h100.json"""
    best = heuristics.choices(layer(x, w, parameters), of(TARGET))[0]
    assert best.engine is CONV_SM90
    assert best.knobs["TILE_ROWS"] in rows


def test_all_filters_of_volumes_of_32_channels_stay():
    fusion = layer([2, 32, 128, 128, 128], [32, 32, 3, 3, 3], around(1, spatial=3))
    target = of(TARGET)
    found = halo_candidates(fusion, target)
    best = min(found, key=lambda knobs: CONV_SM90.predict(fusion, knobs, target).seconds)
    assert best["STAGES"] == 27


def test_half_of_a_panel_takes_little_more_than_half_as_long():
    """Layers of 32 and of 64 channels have 64 output channels each: equal tiles and stores."""
    target = of(TARGET)
    seconds = []
    for channels in (32, 64):
        fusion = layer([256, channels, 56, 56], [64, channels, 3, 3], around(1))
        found = [CONV_SM90.predict(fusion, k, target) for k in halo_candidates(fusion, target)]
        seconds.append(min(prediction.seconds for prediction in found))
    assert seconds[0] < 0.7 * seconds[1]


@pytest.mark.parametrize(
    ("build", "what"),
    [
        ([[1, 64, 9, 9], [64, 64, 1, 1], around(0)], "a filter of 1 x 1 taps"),
        ([[1, 64, 9, 9], [64, 64, 3, 3], around(1, 3)], "convolution strides of 3 and 3"),
        ([[1, 64, 9], [64, 64, 3], around(1, spatial=1)], "1 spatial dim"),
        ([[1, 32, 9, 9], [64, 16, 3, 3], around(1)], "groups of 16 channels"),
        ([[1, 128, 4, 9, 9], [64, 64, 3, 3, 3], around(1, spatial=3)], "volumes of several groups"),
        ([[1, 64, 4, 9, 9], [64, 64, 3, 1, 1], around(0, spatial=3)], "a filter of 3 x 1 x 1"),
        ([[1, 64, 9, 9], [60, 64, 3, 3], around(1)], "channels last by 16 bytes"),
    ],
    ids=str,
)
def test_convolutions_without_halos(build, what):
    fusion, target = layer(*build), of(TARGET)
    knobs = {**SMALL, "TILE_ROWS": 2, "SWAP_AB": 1}
    (reason,) = CONV_SM90.legal(knobs, fusion, target)
    assert what in reason.what
    assert halo_candidates(fusion, target) == ()


@pytest.mark.parametrize(
    ("knobs", "what"),
    [
        ({"SWAP_AB": 0}, "SWAP_AB=0"),
        ({"TILE_CGA_M": 2}, "TILE_CGA_M=2"),
        ({"TILE_ROWS": 3}, "TILE_ROWS=3 with TILE_N=64"),
        ({"TILE_ROWS": 32}, "positions"),
        ({"TILE_M": 512}, "TILE_M=512"),
        ({"STAGES": 12, "TILE_N": 256, "TILE_ROWS": 5, "TILE_M": 256}, "bytes"),
    ],
    ids=str,
)
def test_knobs_that_do_not_go_together(knobs, what):
    fusion, target = layer([1, 64, 28, 28], [256, 64, 3, 3], around(1)), of(TARGET)
    base = {**SMALL, "TILE_ROWS": 4, "SWAP_AB": 1, "TILE_M": 128}
    assert CONV_SM90.legal(base, fusion, target) == ()
    (reason,) = CONV_SM90.legal({**base, **knobs}, fusion, target)
    assert what in reason.what
