"""Engine conv_sm90 with tiles of some columns of an image (TILE_COLS > 0), in the interpreter: of a
width that is known at run time, and of wide images."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.choosing.variants import guarded_configs
from dnnc.dialect.fusion import partition
from dnnc.engines.conv.before_sm90 import computes
from dnnc.engines.conv.choice_sm90 import ConvChoice
from dnnc.engines.conv.halo_knobs_sm90 import halo_candidates, halo_work
from dnnc.engines.conv.sm90 import CONV_SM90
from dnnc.expr import assuming
from dnnc.target import of
from tests.support import multiprocessors

from .convs import N, around, convolved, image, ptx_of
from .test_exits_sm90 import genstats
from .test_halo_sm90 import fusion_of, with_halo
from .test_sm90 import SMALL, layer, new_graph, run

TARGET = "sm_90a"


def width(least=1, most=64):
    return dnnc.Dim("W", min=least, max=most)


# X, W, parameters, rows and columns of the tile, channels of it, widths.  Of 8 columns, widths are
# less than a tile, a tile, part of the second one, and of the third.
EVERY = (1, 5, 8, 17)
CASES = {
    "3x3": ([1, 16, 5, width()], [24, 16, 3, 3], around(1), (4, 8), 64, EVERY),
    "128 channels": ([1, 40, 4, width()], [136, 40, 3, 3], around(1), (3, 8), 128, (7, 19)),
    "256 channels, no padding": (
        [1, 72, 3, width(2)], [256, 72, 2, 2], around(0), (2, 8), 256, (2, 18)),
    "uneven": ([2, 16, 6, width(4)], [72, 16, 2, 3], {
        "pre_padding": [0, 2], "post_padding": [3, 1], "stride": [1, 1], "dilation": [1, 3]},
        (2, 8), 64, (4, 11)),
    "dilation": ([1, 16, 6, width()], [16, 16, 3, 3], around(2, dilation=2), (4, 8), 64, (3, 16)),
    "stride 2": (
        [1, 16, 9, width(2)], [24, 16, 3, 3], around(1, stride=2), (2, 8), 64, (2, 13, 16)),
    "stride 2, 5x5": (
        [1, 16, 7, width(2)], [24, 16, 5, 5], around(2, stride=2), (2, 8), 64, (3, 18)),
    "strides of columns": ([2, 16, 5, width(9)], [24, 16, 1, 9], {
        "pre_padding": [0, 4], "post_padding": [0, 4], "stride": [1, 4], "dilation": [1, 1]},
        (4, 8), 64, (9, 37)),
    "volumes": (
        [2, 16, 3, 4, width()], [24, 16, 3, 3, 3], around(1, spatial=3), (4, 8), 64, (3, 10)),
    "volumes, stride 2": ([1, 8, 5, 7, width(2)], [16, 8, 3, 3, 3],
        around(1, stride=2, spatial=3), (2, 8), 64, (6, 21)),
    "groups": ([2, 128, 3, width()], [144, 64, 3, 3], around(1), (2, 8), 64, (4, 9)),
    "wide tiles": ([1, 8, 5, width()], [24, 8, 3, 3], around(1), (4, 40), 64, (2, 45)),
    "a known width": ([1, 16, 5, 19], [24, 16, 3, 3], around(1), (4, 8), 64, (19,)),
}  # fmt: skip
QUICK = ("3x3", "256 channels, no padding", "stride 2", "wide tiles", "a known width")


def some(name):
    return name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", [some(name) for name in CASES])
def test_one_plan_serves_every_width(name):
    x, w, parameters, (rows, columns), channels, widths = CASES[name]
    g, plan = new_graph(), None
    convolved(g, x, w, **parameters).set_output()
    knobs = with_halo(g, rows, channels, columns)
    for size in widths:
        plan = run(g, {"W": size}, plan=plan, knobs=knobs, seed=size)
    assert ".im2col" not in ptx_of(plan)


@pytest.mark.in_turn
def test_each_size_of_an_image_is_of_the_run(monkeypatch):
    """More tiles than blocks; what is added has columns beyond a tile's, which are not its own."""
    multiprocessors.few(monkeypatch, 12)
    g, height = new_graph(), dnnc.Dim("H", min=1, max=64)
    y = g.conv_fprop(image(g, [N, 8, height, width()]), image(g, [64, 8, 3, 3]), **around(1))
    biased = g.add(g.mul(y, g.tensor([1, 64, 1, 1])), g.tensor([1, 64, 1, 1]))
    g.relu(g.add(biased, image(g, [N, *y.get_dim()[1:]]))).set_output()
    y.set_output()
    plan = None
    for n, h, w in ((2, 1, 1), (5, 3, 11)):
        sizes, knobs = {"N": n, "H": h, "W": w}, with_halo(g, 2, 64, 8)
        plan = run(g, sizes, plan=plan, knobs=knobs, slack=3.0)
    assert "ldmatrix.sync.aligned.m8n8.x4.trans" in ptx_of(plan)


@pytest.mark.in_turn
@pytest.mark.parametrize("w", [3, 13])
def test_statistics_are_of_pixels_alone(w):
    """Some of a tile's last columns are another tile's, or no image's."""
    g = new_graph()
    y = convolved(g, [1, 16, 5, width()], [40, 16, 3, 3], **around(1))
    genstats(g, y.set_data_type(dtypes.f16).set_output())
    run(g, {"W": w}, knobs=with_halo(g, 4, 64, 8), slack=4.0, allowance=1e-4)


@pytest.mark.in_turn
def test_what_varies_along_rows_and_columns():
    g = new_graph()
    y = convolved(g, [2, 16, 5, width()], [72, 16, 3, 3], **around(1))
    of_rows, of_columns = g.tensor([1, 72, 5, 1]), g.tensor([2, 1, 1, width()])
    g.add(g.mul(y, of_rows), of_columns).set_output()
    run(g, {"W": 11}, slack=4.0, knobs=with_halo(g, 4, 128, 8))


@pytest.mark.in_turn
def test_padding_of_computed_pixels_is_seen_from_where_a_tile_begins():
    g, plan = new_graph(), None
    x = g.relu(g.add(image(g, [2, 16, 5, width()]), g.tensor([1, 16, 1, 1])))
    g.conv_fprop(x.set_data_type(dtypes.f16), image(g, [24, 16, 3, 3]), **around(1)).set_output()
    assert computes(fusion_of(g))
    for w in (2, 17):
        plan = run(g, {"W": w}, plan=plan, knobs=with_halo(g, 4, 64, 8))


@pytest.mark.in_turn
def test_images_that_are_copied_first():
    """Channels first, and of a number that TMA does not take."""
    g = new_graph()
    x = g.tensor([1, 18, 5, width()])
    g.conv_fprop(x, image(g, [24, 18, 3, 3]), **around(1)).set_output()
    knobs = {**SMALL, "TILE_N": 64, "SWAP_AB": 1, "TILE_ROWS": 4, "TILE_COLS": 8}
    plan = run(g, {"W": 11}, knobs=knobs)
    assert ".im2col" not in ptx_of(plan)


@pytest.mark.in_turn
def test_tiles_that_are_taken_one_by_one(monkeypatch):
    n = multiprocessors.few(monkeypatch, 12) // 2 + 1
    g = new_graph()
    convolved(g, [n, 8, 2, width()], [64, 8, 3, 3], **around(1)).set_output()
    run(g, {"W": 9}, knobs=with_halo(g, 2, 64, 8))


# ---- choices


def test_wide_images_whose_rows_fit_no_tile_have_halos():
    fusion, target = layer([8, 64, 56, 512], [64, 64, 3, 3], around(1)), of(TARGET)
    for knobs in halo_candidates(fusion, target):
        assert knobs["TILE_COLS"]
        assert CONV_SM90.legal(knobs, fusion, target) == ()
    assert heuristics.choices(fusion, target)[0].knobs["TILE_ROWS"]


def test_whole_rows_are_taken_where_they_fit():
    fusion = layer([8, 64, 56, 56], [64, 64, 3, 3], around(1))
    assert {knobs["TILE_COLS"] for knobs in halo_candidates(fusion, of(TARGET))} == {0}


def test_candidates_of_a_symbolic_width_are_those_of_the_width_that_is_assumed():
    target = of(TARGET)
    fusion = layer([32, 64, 56, width(4, 512)], [64, 64, 3, 3], around(1))
    columns = {}
    for size in (4, 28, 512, 4):
        with assuming({"W": size}):
            found = halo_candidates(fusion, target)
            assert all(CONV_SM90.legal(knobs, fusion, target) == () for knobs in found)
            columns[size] = {knobs["TILE_COLS"] for knobs in found}
            best = heuristics.choices(fusion, target)[0]
        assert best.engine is CONV_SM90
        assert (best.knobs["TILE_ROWS"] > 0) == (size > 4)
    assert columns[4] == set()  # of the positions, few are pixels
    assert columns[28] == {8, 16, 28, 32, 40}
    assert columns[512] > columns[28]


def test_predictions_count_the_tiles_of_the_width_that_is_assumed():
    fusion = layer([2, 64, 8, width(4, 512)], [64, 64, 3, 3], around(1))
    knobs = {**SMALL, "TILE_M": 384, "TILE_ROWS": 8, "TILE_COLS": 32, "SWAP_AB": 1}
    assert CONV_SM90.legal(knobs, fusion, of(TARGET)) == ()
    positions = 2 * 136  # of two parts: three rows of 34, and 32
    for size, across in ((4, 1), (32, 1), (33, 2), (500, 16)):
        with assuming({"W": size}):
            assert halo_work(ConvChoice.of(knobs), fusion).m == 2 * across * positions


@pytest.mark.in_turn
def test_a_plan_has_halos_for_widths_that_they_pay_for():
    g, target = new_graph(), of(TARGET)
    convolved(g, [32, 64, 56, width(4, 512)], [64, 64, 3, 3], **around(1)).set_output()
    graph = g.graph.finalize()
    found = guarded_configs(graph, target, heuristics.best_config(graph, target))
    *narrow, wide = [guarded.config.choices[0].knobs["TILE_COLS"] for guarded in found]
    assert 0 in narrow
    assert wide > 0
    assert found[0].guard.startswith("W <= ")


@pytest.mark.parametrize(
    ("dims", "knobs", "what", "supported"),
    [
        ([1, 64, 9, width()], {"TILE_COLS": 0}, "whole rows of images of a width of W", "(8, 16"),
        ([1, 64, 9, 300], {"TILE_COLS": 0}, "1208 positions", "columns"),
        ([1, 64, 9, width()], {"TILE_COLS": 112}, "positions", "columns"),
        ([1, 64, 9, width()], {"TILE_ROWS": 0}, "TILE_COLS=8 by im2col", "TILE_COLS=0"),
        ([dnnc.Dim("N", max=65536), 64, 4, width(1, 8000)], {}, "positions", "N (now 65536)"),
    ],
    ids=str,
)
def test_columns_that_are_declined(dims, knobs, what, supported):
    g = new_graph()
    convolved(g, dims, [64, 64, 3, 3], **around(1)).set_output()
    graph = g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    base = {**SMALL, "TILE_ROWS": 8, "TILE_COLS": 8, "SWAP_AB": 1, "TILE_M": 128}
    (reason,) = CONV_SM90.legal({**base, **knobs}, fusion, of(TARGET))
    assert what in reason.what
    assert supported in reason.supported


@pytest.mark.parametrize("pixels", np.arange(1, 40, 7))
def test_tiles_of_an_image_hold_its_pixels(pixels):
    """Tiles of 4 rows of 8 columns hold each pixel once."""
    fusion = layer([1, 64, 9, width()], [64, 64, 3, 3], around(1))
    knobs = {**SMALL, "TILE_M": 128, "TILE_ROWS": 4, "TILE_COLS": 8, "SWAP_AB": 1}
    with assuming({"W": int(pixels)}):
        work = halo_work(ConvChoice.of(knobs), fusion)
    assert work.m == 3 * -(-pixels // 8) * 2 * 24
