"""Small groups of channels side by side in tiles of conv_sm80."""

import numpy as np
import pytest

from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.dialect.reference import reference
from dnnc.engines.conv.beside_sm80 import shape_of_choice
from dnnc.engines.conv.pattern import conv_of, shape_of
from dnnc.engines.conv.sm80 import CONV_SM80
from dnnc.engines.product.choice_sm80 import Sm80Choice
from dnnc.engines.product.shared_layout_sm80 import SharedLayout
from dnnc.target import of
from tests.support import machine
from tests.support.checked import check, random_inputs

from .convs import H, N, W, around, convolved, image
from .test_pattern import new_graph
from .test_sm80 import run as run_one
from .test_sm80 import the_fusion

slow = pytest.mark.slow
TOGETHER = {"TILE_M": 32, "TILE_N": 64, "TILEK": 32, "STAGES": 2}


def run(g, sizes=None, *, knobs=(), **options):
    return run_one(g, sizes, knobs={**TOGETHER, **dict(knobs)}, **options)


def blocks_along_channels(plan, pixels, tile=32):
    """Tiles of all groups of a plan of a few pixels."""
    launch = plan.programs[0].variants[0].steps[0].launch
    return int(launch.grid[0]) // -(-pixels // tile)


# (channels of a group, its results, groups).
@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize(
    ("channels", "results", "groups"),
    [
        (8, 8, 16),
        pytest.param(16, 16, 4, marks=slow),
        pytest.param(8, 32, 4, marks=slow),
        (24, 16, 8),
    ],
    ids=str,
)
def test_groups(channels, results, groups):
    g = new_graph()
    x, w = [2, groups * channels, 5, 6], [groups * results, channels, 3, 3]
    convolved(g, x, w, **around(1)).set_output()
    assert blocks_along_channels(run(g), 60) == groups * results // 64


@pytest.mark.parametrize(
    ("channels", "results", "groups", "alignment"),
    [(8, 8, 12, 16), (8, 24, 8, 16), (8, 64, 2, 16), (4, 8, 8, 16), (8, 8, 8, 8)],
    ids=str,
)
def test_groups_that_have_tiles_of_their_own(channels, results, groups, alignment):
    """Eight that are no whole tiles, results that do not fill one, channels that copies of 16
    bytes do not bring."""
    g = new_graph()
    x = image(g, [1, groups * channels, 9, 9]).set_alignment(alignment)
    g.conv_fprop(x, image(g, [groups * results, channels, 3, 3]), **around(1)).set_output()
    fusion = the_fusion(g)
    op = conv_of(fusion)
    assert shape_of_choice(shape_of(op), op.x, Sm80Choice.of(TOGETHER)).beside == 1


@pytest.mark.in_turn
def test_a_tile_of_more_columns_has_one_group():
    g = new_graph()
    convolved(g, [1, 64, 5, 6], [64, 8, 3, 3], **around(1)).set_output()
    plan = run(g, knobs={"TILE_N": 128, "STAGES": 3})
    assert blocks_along_channels(plan, 30) == 8


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    "knobs",
    [{"TILE_M": 64}, pytest.param({"TILEK": 64, "STAGES": 3}, marks=slow), {"STAGES": 4}],
    ids=str,
)
def test_tiles(knobs):
    g = new_graph(dtypes.bf16)
    convolved(g, [3, 64, 7, 9], [64, 8, 3, 2], **around(1, 2)).set_output()
    run(g, knobs=knobs)


@pytest.mark.in_turn
def test_nothing_of_a_group_reaches_another():
    """Its neighbour in the instruction's k are taps: there are no zeros to meet."""
    g = new_graph()
    convolved(g, [1, 64, 5, 5], [64, 8, 3, 3], **around(1)).set_output()
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {}, low=1.0, high=2.0)
    inputs[graph.inputs[0].uid][0, 11] = np.nan
    inputs[graph.inputs[0].uid][0, 16] = np.inf
    values = reference(graph, inputs)[graph.outputs[0].uid]
    assert np.isfinite(values[:, :8]).all()
    assert np.isfinite(values[:, 24:]).all()
    run(g, inputs=inputs)


@pytest.mark.in_turn
def test_an_epilogue_of_all_groups_and_symbols():
    g = new_graph()
    y = g.conv_fprop(image(g, [N, 128, H, W]), image(g, [128, 8, 3, 3]), **around(1))
    scale, residual = g.tensor([1, 128, 1, 1]), image(g, [N, 128, H, W])
    g.relu(g.add(g.mul(y, scale), residual)).set_output()
    plan = run(g, {"N": 2, "H": 5, "W": 4}, slack=3.0)
    check(g, {"N": 1, "H": 4, "W": 7}, plan=plan, slack=3.0)


@pytest.mark.in_turn
def test_statistics_of_channels():
    g = new_graph()
    y = convolved(g, [2, 64, 5, 5], [128, 8, 3, 3], **around(1))
    y.set_output()
    for tensor in g.genstats(y):
        tensor.set_output().set_data_type(dtypes.f32)
    run(g, slack=4.0, allowance=1e-5 + machine.current().cut)


@pytest.mark.in_turn
def test_bytes_and_words():
    g = new_graph(dtypes.i8, compute_data_type=dtypes.i32)
    y = convolved(g, [1, 64, 5, 4], [64, 16, 3, 3], **around(1))
    y.set_output().set_data_type(dtypes.i32)
    run(g, knobs={"TILEK": 64})
    g = new_graph(dtypes.f32)
    convolved(g, [1, 32, 5, 4], [64, 4, 3, 3], **around(1)).set_output()
    run(g, knobs={"TILEK": 16, "TF32": 3}, allowance=2.0**-20)


# ---- knobs


def fusion_of_groups(n=32, c=256, c_group=8, edge=28, **options):
    g = new_graph()
    convolved(g, [n, c, edge, edge], [c, c_group, 3, 3], **around(1, **options)).set_output()
    return the_fusion(g)


def test_a_stage_holds_each_groups_pixels():
    assert (
        SharedLayout.of_choice(Sm80Choice(64, 64, 32, 2), 2, 8).bytes == 2 * (64 * 8 + 64) * 32 * 2
    )
    fusion = fusion_of_groups()
    whole = {**TOGETHER, "TILE_M": 64, "TILEK": 64, "STAGES": 6}
    (reason,) = CONV_SM80.legal(whole, fusion, of("sm_80"))
    assert reason.what == f"{6 * (64 * 8 + 64) * 64 * 2} bytes"


def test_as_many_copies_as_registers_have_pixels_for():
    (reason,) = CONV_SM80.legal({**TOGETHER, "TILE_M": 128}, fusion_of_groups(), of("sm_90"))
    assert reason.what == "tile 128x64x32 of 8 groups"
    assert reason.supported == "16 copies a thread, not 32"


def test_candidates_have_blocks_side_by_side():
    target = of("sm_90")
    found = [k for k in CONV_SM80.candidates(fusion_of_groups(), target) if k["TILE_N"] == 64]
    assert {k["STAGES"] for k in found if k["TILE_M"] == 64} >= {2, 3}
    assert len({tuple(k.items()) for k in found}) == len(found)


def test_they_are_chosen_for_wide_groups_where_hopper_has_no_engine_of_its_own():
    for target in ("sm_80", "sm_90"):
        best = heuristics.choices(fusion_of_groups(256, c_group=32), of(target))[0]
        assert best.engine is CONV_SM80
        assert best.knobs["TILE_N"] == 64


@pytest.mark.parametrize("target", ["sm_90", "sm_90a"])
def test_groups_of_8_come_last(target):
    """28x28x256: 37 us by multiply-adds where these take 70, timed on an H100."""
    found = heuristics.choices(fusion_of_groups(256, c_group=8), of(target))
    order = list(dict.fromkeys(choice.engine.name for choice in found))
    assert order.index("conv_depthwise") < order.index("conv_sm80")
