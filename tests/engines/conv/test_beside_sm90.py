"""Groups of few channels side by side in engine conv_sm90, in the interpreter."""

import numpy as np
import pytest

from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.dialect.fusion import partition
from dnnc.dialect.reference import reference
from dnnc.engines import engine_named
from dnnc.target import of
from tests.support import machine
from tests.support.checked import check, random_inputs

from .convs import H, N, W, around, convolved, image, ptx_of
from .test_sm90 import SMALL, new_graph
from .test_sm90 import run as run_one

TARGET = "sm_90a"
TOGETHER = {**SMALL, "TILE_M": 128, "STAGES": 3}


def run(g, sizes=None, *, knobs=(), **options):
    return run_one(g, sizes, knobs={**TOGETHER, **dict(knobs)}, **options)


def columns_of(plan):
    """In the plan's products, one instruction has the results of one group."""
    found = {text.split(".m64n")[1].split("k")[0] for text in ptx_of(plan).split(";")
             if "wgmma.mma_async" in text}  # fmt: skip
    (columns,) = found
    return int(columns)


# (channels of a group, its results, groups): a panel has four groups, or two.
@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize(
    ("channels", "results", "groups"),
    [(16, 16, 4), (16, 16, 12), (32, 32, 4), (16, 8, 8), (16, 24, 4), (32, 96, 2), (16, 64, 4)],
    ids=str,
)
def test_groups(channels, results, groups):
    g = new_graph()
    x, w = [2, groups * channels, 6, 7], [groups * results, channels, 3, 3]
    convolved(g, x, w, **around(1)).set_output()
    beside = 64 // channels
    plan = run(g, knobs={"TILE_N": beside * results})
    assert columns_of(plan) == results


@pytest.mark.in_turn
@pytest.mark.parametrize("tile_m", [64, 256])
def test_tiles(tile_m):
    g = new_graph(dtypes.bf16)
    convolved(g, [3, 128, 9, 11], [128, 16, 3, 2], **around(1, 2)).set_output()
    assert columns_of(run(g, knobs={"TILE_M": tile_m})) == 16


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    "knobs",
    [{"TILE_CGA_M": 2}, {"SPLIT_K_SLC": 4}],
    ids=str,
)
def test_ways_through_the_tiles(knobs):
    g = new_graph()
    convolved(g, [3, 128, 7, 9], [128, 32, 3, 3], **around(1)).set_output()
    assert columns_of(run(g, knobs=knobs)) == 32


@pytest.mark.in_turn
def test_nothing_of_a_group_reaches_another():
    g = new_graph()
    convolved(g, [1, 64, 5, 5], [64, 16, 3, 3], **around(1)).set_output()
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {}, low=1.0, high=2.0)
    inputs[graph.inputs[0].uid][0, 20] = np.nan
    inputs[graph.inputs[0].uid][0, 40] = np.inf
    values = reference(graph, inputs)[graph.outputs[0].uid]
    assert np.isfinite(values[:, :16]).all()
    assert np.isfinite(values[:, 48:]).all()
    assert columns_of(run(g, inputs=inputs)) == 16


@pytest.mark.in_turn
def test_an_epilogue_of_all_groups_and_symbols():
    g = new_graph()
    y = g.conv_fprop(image(g, [N, 128, H, W]), image(g, [128, 16, 3, 3]), **around(1))
    scale, residual = g.tensor([1, 128, 1, 1]), image(g, [N, 128, H, W])
    y = g.relu(g.add(g.mul(y, scale), residual)).set_output()
    plan = run(g, {"N": 2, "H": 7, "W": 5}, slack=3.0)
    assert columns_of(plan) == 16
    check(g, {"N": 1, "H": 4, "W": 9}, plan=plan, slack=3.0)


@pytest.mark.in_turn
def test_statistics_of_channels():
    g = new_graph()
    y = convolved(g, [2, 64, 6, 6], [64, 16, 3, 3], **around(1))
    y.set_output()
    for tensor in g.genstats(y):
        tensor.set_output().set_data_type(dtypes.f32)
    assert columns_of(run(g, slack=4.0, allowance=1e-5 + machine.current().cut)) == 16


@pytest.mark.in_turn
def test_bytes_and_words():
    g = new_graph(dtypes.i8, compute_data_type=dtypes.i32)
    y = convolved(g, [1, 128, 5, 4], [128, 32, 3, 3], **around(1))
    y.set_output().set_data_type(dtypes.i32)
    assert columns_of(run(g, knobs={"TILE_N": 128})) == 32
    g = new_graph(dtypes.f8e4m3)
    y = convolved(g, [1, 128, 5, 4], [64, 64, 3, 3], **around(1))
    y.set_output().set_data_type(dtypes.f16)
    assert columns_of(run(g, allowance=2.0**-11)) == 32
    g = new_graph(dtypes.f32)
    convolved(g, [1, 64, 5, 4], [64, 8, 3, 3], **around(1)).set_output()
    assert columns_of(run(g, knobs={"TILE_N": 32}, allowance=2.0**-10)) == 8


@pytest.mark.in_turn
def test_where_groups_are_not_side_by_side():
    """A tile has too few columns for the groups of a panel, or X is computed first."""
    g = new_graph()
    convolved(g, [1, 64, 5, 5], [64, 16, 3, 3], **around(1)).set_output()
    assert columns_of(run(g, knobs={"TILE_N": 32})) == 32
    g = new_graph()
    x = g.relu(image(g, [1, 64, 5, 5]))
    g.conv_fprop(x, image(g, [64, 16, 3, 3]), **around(1)).set_output()
    assert columns_of(run(g)) == 64


def test_heuristics_take_groups_together():
    g = new_graph()
    convolved(g, [64, 512, 14, 14], [512, 16, 3, 3], **around(1)).set_output()
    graph = g.graph.finalize()
    (whole,) = partition(graph, [graph.live_ops])
    engine = engine_named("conv_sm90")
    best = heuristics.choices(whole, of(TARGET), [engine])[0].knobs
    assert (best["TILE_N"], best["SWAP_AB"], best["TILE_ROWS"]) == (64, 0, 0)
