"""Engine conv_depthwise in the interpreter: filters, layouts, types, knobs, neighbours."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.codegen.tiles.strips import met
from dnnc.compiler import compile_graph
from dnnc.dialect.fusion import partition
from dnnc.engines.conv.depthwise import CONV_DEPTHWISE
from dnnc.engines.conv.depthwise_tile import DepthwiseChoice, fragments_of_block
from dnnc.errors import DnncError
from dnnc.target import of
from tests.support import machine
from tests.support.checked import check, random_inputs

from ..elementwise.test_resample import channels_last
from .convs import around
from .test_pattern import convolved, new_graph

N = dnnc.Dim("N", max=16)
H, W = dnnc.Dim("H", max=64), dnnc.Dim("W", max=64)

ENGINE = "conv_depthwise"

# X, W, parameters, layout.
CASES = {
    "3x3": ([2, 8, 5, 6], [8, 1, 3, 3], around(1), "NHWC"),
    "5x5 with stride": ([1, 16, 9, 8], [16, 1, 5, 5], around(2, 2), "NHWC"),
    "dilation": ([1, 8, 7, 6], [8, 1, 3, 3], around(2, dilation=2), "NHWC"),
    "uneven": (
        [1, 8, 6, 5], [8, 1, 2, 3],
        {"pre_padding": [0, 2], "post_padding": [3, 0], "stride": [2, 3], "dilation": [3, 1]},
        "NHWC",
    ),
    "flipped": ([1, 8, 5, 6], [8, 1, 2, 3], around(1, convolution_mode="CONVOLUTION"), "NHWC"),
    "odd channels": ([1, 5, 4, 5], [5, 1, 3, 3], around(1), "NHWC"),
    "four channels": ([1, 12, 4, 5], [12, 1, 3, 3], around(1), "NHWC"),
    "two outputs a channel": ([1, 8, 4, 5], [16, 1, 3, 3], around(1), "NHWC"),
    "three outputs a channel": ([1, 4, 4, 5], [12, 1, 3, 3], around(1), "NHWC"),
    "16 outputs a channel": ([1, 2, 4, 5], [32, 1, 3, 3], around(1), "NHWC"),
    "two channels a group": ([1, 8, 4, 5], [8, 2, 3, 3], around(1), "NHWC"),
    "three channels": ([1, 3, 7, 6], [8, 3, 3, 3], around(1, 2), "NHWC"),
    "1D": ([2, 8, 9], [8, 1, 4], around(2, 2, spatial=1), "NHWC"),
    "3D": ([1, 8, 3, 4, 5], [8, 1, 2, 3, 3], around(1, spatial=3), "NHWC"),
    "NCHW": ([2, 3, 5, 6], [3, 1, 3, 3], around(1), "NCHW"),
    "one pixel": ([1, 8, 1, 1], [8, 1, 3, 3], around(1), "NHWC"),
}  # fmt: skip


@pytest.mark.rotating
@pytest.mark.parametrize("name", CASES)
def test_shapes(name):
    x, w, parameters, layout = CASES[name]
    g = new_graph()
    convolved(g, x, w, layout, **parameters)
    check(g, engine=ENGINE)


# X, W, parameters, knobs.
ROWS = {
    "1D, a tile past the end": (
        [2, 3, 24], [3, 1, 4], {"pre_padding": [3], "post_padding": [0]}, {"TILE_COLS": 16},
    ),
    "padded past an access": (
        [1, 2, 3, 16], [2, 1, 2, 3],
        {"pre_padding": [0, 10], "post_padding": [1, 2], "dilation": [1, 6]},
        {"TILE_COLS": 8, "TILE_ROWS": 2},
    ),
    "longer rows of Y": (
        [1, 4, 4, 8], [4, 1, 3, 3], {"pre_padding": [1, 1], "post_padding": [1, 9]},
        {"TILE_COLS": 8},
    ),
    "gradient, accesses of four": ([1, 4, 5, 12], [4, 2, 3, 3], around(1), {"TILE_COLS": 4}),
    "a symbol": (
        [1, 2, 3, dnnc.Dim("W", max=64, multiple_of=8)], [2, 1, 3, 3], around(1),
        {"TILE_COLS": 8, "ARRAY_SIZE_PER_THREAD": 2},
    ),
}  # fmt: skip


def rows_first(dims):
    strides = [dnnc.expr.product(dims[axis + 1 :]) for axis in range(len(dims))]
    return [stride.constant or stride for stride in strides]


@pytest.mark.rotating
@pytest.mark.parametrize("name", ROWS)
def test_contiguous_rows_are_read_and_stored_by_wide_accesses(name):
    dims, filter_dims, parameters, knobs = ROWS[name]
    g = dnnc.pygraph(io_data_type="f16", intermediate_data_type="f32", compute_data_type="f32")
    x, w = g.tensor(dims), g.tensor(filter_dims)
    if name.startswith("gradient"):
        y = g.conv_dgrad(x, w, **parameters).set_dim([1, 8, 5, 12])
    else:
        bias = g.tensor([1, filter_dims[0], *[1] * (len(dims) - 2)])
        y = g.bias(g.conv_fprop(g.relu(x), w, **parameters), bias)
        y = g.add(y, g.tensor(y.dims, rows_first(y.dims)))  # of which columns past the end are none
    y.set_output().set_stride(rows_first(y.dims))
    knobs = {"LOAD_SIZE": 2, "TILE_ROWS": 1, **knobs}
    plan = check(g, {"W": 24} if name == "a symbol" else {}, engine=ENGINE, knobs=knobs)
    ptx = plan.text(plan.programs[0].modules[0].ptx)
    words = min(8, knobs["TILE_COLS"]) // 2
    assert f"st.global.v{words}.b32" in ptx
    assert f"ld.global.nc.v{words}.b32" in ptx


def test_groups_of_many_taps_and_channels_have_fewer_outputs_a_thread():
    """Eight outputs of seven channels and four taps leave no registers for a pixel."""
    g = dnnc.pygraph(io_data_type="i8", intermediate_data_type="i32", compute_data_type="i32")
    convolved(g, [3, 56, 7], [8, 7, 4], **around(1, spatial=1)).set_data_type(dtypes.i32)
    plan = check(g, engine=ENGINE)
    assert plan.programs[0].fusions[0].knobs["LOAD_SIZE"] == 4


# What is written out, held, gone through in rounds; tiles that the output is no multiple of.
KNOBS = {
    "held": {"SPECFILT": 1, "ARRAY_SIZE_PER_THREAD": 4},
    "rounds": {"SPECFILT": 0, "ARRAY_SIZE_PER_THREAD": 2},
    "one pixel": {"TILE_ROWS": 1, "TILE_COLS": 1},
    "rows": {"TILE_ROWS": 4, "TILE_COLS": 2},
    "columns": {"LOAD_SIZE": 8, "TILE_ROWS": 1, "TILE_COLS": 14},
    "whole rows": {"TILE_ROWS": 1, "TILE_COLS": 7},
    "few bytes": {"LOAD_SIZE": 4, "TILE_ROWS": 2, "TILE_COLS": 4, "BLOCK_SIZE": 256},
}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("name", KNOBS)
@pytest.mark.parametrize("stride", [1, 2])
def test_knobs(name, stride):
    g = new_graph()
    convolved(g, [3, 16, 9, 14], [16, 1, 3, 3], **around(1, stride))
    check(g, engine=ENGINE, knobs=KNOBS[name])


@pytest.mark.in_turn
def test_all_knobs_give_the_same_bits():
    g = new_graph()
    convolved(g, [2, 16, 6, 9], [16, 1, 3, 3], **around(1)).set_data_type(dtypes.f32)
    graph = g.graph.finalize()
    where, inputs = machine.current(), random_inputs(graph, {})
    plans = [compile_graph(graph, where.target, _options(**k)) for k in KNOBS.values()]
    (first,), *others = (where.run(plan, inputs, sizes={}).values() for plan in plans)
    assert all(np.array_equal(first, other) for (other,) in others)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("spatial", [[6, 30], [3, 3, 9]], ids=["2D", "3D"])
@pytest.mark.parametrize("mode", ["CROSS_CORRELATION", "CONVOLUTION"])
@pytest.mark.parametrize("unrolled", ["row", "tap"])
def test_large_filters_are_loops(spatial, mode, unrolled, monkeypatch):
    """Over rows of taps, and over single taps where a row is long."""
    most = {"row": 7 * 8 * 8, "tap": 64}[unrolled]
    monkeypatch.setattr("dnnc.engines.conv.depthwise_tile.MOST_UNROLLED", most)
    g = new_graph()
    filter_ = [3] * (len(spatial) - 1) + [7]
    parameters = around(2, spatial=len(spatial), convolution_mode=mode)
    convolved(g, [1, 8, *spatial], [8, 1, *filter_], **parameters)
    plan = check(g, engine=ENGINE, knobs={"LOAD_SIZE": 16, "TILE_ROWS": 2, "TILE_COLS": 4})
    assert _tilings(g, plan)[0].unrolled == unrolled


def _tilings(g, plan):
    from dnnc.engines.conv.depthwise import _facts_of

    graph = g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    choices = [DepthwiseChoice.of(f.knobs) for f in plan.programs[0].fusions]
    return [_facts_of(fusion).tiling(choice) for choice in choices]


@pytest.mark.rotating
@pytest.mark.parametrize("io", ["bf16", "f32", "f64"])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_types(io, layout):
    io = dtypes.of(io)
    compute = dtypes.f64 if io.bits == 64 else dtypes.f32
    g = new_graph(io, intermediate_data_type=compute, compute_data_type=compute)
    convolved(g, [1, 8, 4, 5], [8, 1, 3, 3], layout, **around(1))
    check(g, engine=ENGINE, slack=8.0)


@pytest.mark.parametrize("x", [dtypes.i8, dtypes.ui8], ids=str)
def test_integers_are_exact(x):
    g = new_graph(dtypes.i8, compute_data_type=dtypes.i32)
    dims, filter_ = [1, 16, 4, 5], [16, 1, 3, 3]
    image = g.tensor(dims, channels_last(dims), data_type=x)
    y = g.conv_fprop(image, g.tensor(filter_, channels_last(filter_)), **around(1))
    y.set_output().set_data_type(dtypes.i32)
    check(g, engine=ENGINE)


@pytest.mark.parametrize("io", [dtypes.f8e4m3, dtypes.f8e5m2], ids=str)
def test_fp8(io):
    g = new_graph(io, target="sm_90")
    y = convolved(g, [1, 16, 4, 5], [16, 1, 3, 3], **around(1))
    y.set_data_type(dtypes.f16)
    check(g, target="sm_90", engine=ENGINE)


# ---- sizes that are arguments


def _options(**knobs):
    from dnnc.options import Options

    return Options(engine=ENGINE, knobs=tuple(knobs.items()))


# ---- neighbours


def test_relu6_and_a_scalar():
    """Outputs are clipped at 6, as in MobileNet, then scaled by a number that execution gives."""
    g = new_graph()
    y = convolved(g, [1, 8, 4, 5], [8, 1, 3, 3], **around(1))
    y = g.min(g.relu(y), 6.0)
    g.mul(y, g.tensor_scalar(0.5)).set_output()
    check(g, engine=ENGINE, slack=4.0)


# ---- what is chosen, and what is not taken


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_90a", "sm_120"])
@pytest.mark.parametrize("dims", [[32, 96, 56, 56], [1, 960, 7, 7], [N, 192, 28, 28]], ids=str)
def test_heuristics_take_it_for_depthwise(dims, target):
    g = new_graph()
    y = convolved(g, dims, [dims[1], 1, 3, 3], **around(1))
    y.set_output(False)
    g.relu(g.add(y, g.tensor([1, dims[1], 1, 1]))).set_output()
    assert [
        c.engine.name for c in heuristics.best_config(g.graph.finalize(), of(target)).choices
    ] == [ENGINE]


def test_heuristics_leave_many_channels_to_tensor_cores():
    g = new_graph()
    convolved(g, [32, 64, 28, 28], [64, 64, 3, 3], **around(1))
    (choice,) = heuristics.best_config(g.graph.finalize(), of("sm_90a")).choices
    assert choice.engine.name == "conv_sm90"


def reasons(g, target="sm_80"):
    graph = g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    return {reason.clause: reason for reason in CONV_DEPTHWISE.supports(fusion, of(target))}


def test_many_channels_of_a_group_are_refused():
    for x, w, said in (
        (
            [1, 34, 4, 5],
            [16, 17, 3, 3],
            "17 input channels a group, 2 groups; accepted: at most 16 a group",
        ),
        (
            [1, 8, 4, 5],
            [16, 8, 3, 3],
            "8 input channels, one group; accepted: at most 7 in one group, 16 a group in several",
        ),
    ):
        g = new_graph()
        convolved(g, x, w, **around(1))
        assert str(reasons(g)["channels of a group"]) == f"channels of a group: {said}"


@pytest.mark.rotating
@pytest.mark.parametrize("channels", [8, 12, 16])
def test_groups_of_several_channels(channels):
    g = new_graph()
    g.relu(convolved(g, [2, 3 * channels, 5, 6], [24, channels, 3, 3], **around(1))).set_output()
    check(g, engine="conv_depthwise")


def test_a_huge_filter_is_refused():
    g = new_graph()
    convolved(g, [1, 8, 128, 128], [8, 1, 120, 120], **around(0))
    assert set(reasons(g)) == {"filter"}


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"LOAD_SIZE": 16, "TILE_ROWS": 8, "TILE_COLS": 8}, "512 sums"),
        ({"LOAD_SIZE": 1}, "LOAD_SIZE=1"),
        ({"LOAD_SIZE": 16, "TILE_ROWS": 2, "TILE_COLS": 4, "OCCUPANCY": 4}, "OCCUPANCY=4"),
        ({"SPECFILT": 1, "LOAD_SIZE": 16, "TILE_ROWS": 1, "TILE_COLS": 4}, "SPECFILT=1"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value,
)
def test_knobs_that_are_not_legal(knobs, said):
    g = new_graph()
    convolved(g, [1, 8, 9, 9], [8, 1, 5, 5], **around(2))
    with pytest.raises(DnncError, match=said):
        compile_graph(g.graph.finalize(), "sm_80", _options(**knobs))


def test_a_convolution_of_one_dim_has_no_rows():
    g = new_graph()
    convolved(g, [1, 8, 9], [8, 1, 3], **around(1, spatial=1))
    with pytest.raises(DnncError, match="TILE_ROWS=2"):
        compile_graph(g.graph.finalize(), "sm_80", _options(TILE_ROWS=2))


# ---- arithmetic of tiles


def test_what_two_outputs_meet():
    from dnnc.codegen.hopper.im2col import Window

    assert met(2, Window(3)) == {0: [(0, 0)], 1: [(0, 1), (1, 0)], 2: [(0, 2), (1, 1)], 3: [(1, 2)]}
    assert list(met(2, Window(2, stride=3))) == [0, 1, 3, 4]
    assert list(met(1, Window(3, dilation=2))) == [0, 2, 4]


@pytest.mark.parametrize(
    ("count", "bytes_", "expected"),
    [(12, 16, 12), (24, 16, 8), (120, 16, 8), (18, 16, 9), (1, 16, 1), (127, 16, 127)],
)
def test_fragments_of_a_block_divide_the_channels(count, bytes_, expected):
    assert fragments_of_block(count, bytes_, 128, 128) == expected


def test_every_candidate_is_legal():
    g = new_graph()
    convolved(g, [32, 96, 56, 56], [96, 1, 3, 3], **around(1))
    graph = g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    target = of("sm_90a")
    found = CONV_DEPTHWISE.candidates(fusion, target)
    assert len(found) > 4
    assert not any(CONV_DEPTHWISE.legal(knobs, fusion, target) for knobs in found)


# Configurations in the order of the times that an H100 took, in microseconds, f16:
# LOAD_SIZE, rows, columns, rounds, SPECFILT, OCCUPANCY.
MEASURED = {
    "128x56x56x144 3x3": (
        [128, 144, 56, 56], 3,
        {(8, 4, 4, 1, 0, 3): 87.8, (16, 2, 4, 1, 0, 3): 92.7, (8, 4, 4, 2, 0, 3): 95.7,
         (16, 1, 7, 1, 0, 3): 97.4, (8, 4, 7, 1, 0, 2): 102.1, (8, 4, 7, 4, 1, 0): 111.6},
    ),
    "128x28x28x192 5x5": (
        [128, 192, 28, 28], 5,
        {(8, 2, 7, 1, 0, 3): 40.1, (16, 1, 7, 1, 0, 3): 43.3, (8, 4, 4, 1, 0, 2): 48.2,
         (16, 2, 4, 1, 0, 2): 50.7, (8, 1, 7, 2, 1, 0): 53.6, (8, 4, 4, 4, 1, 0): 54.9},
    ),
}  # fmt: skip
KNOB_NAMES = ("LOAD_SIZE", "TILE_ROWS", "TILE_COLS", "ARRAY_SIZE_PER_THREAD", "SPECFILT")


@pytest.mark.parametrize("name", MEASURED)
def test_predictions_are_near_what_was_measured(name):
    dims, size, measured = MEASURED[name]
    g = new_graph(target="sm_90a")
    convolved(g, dims, [dims[1], 1, size, size], **around(size // 2))
    graph = g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    found = {}
    for key in measured:
        knobs = dict(zip((*KNOB_NAMES, "OCCUPANCY"), key, strict=True), BLOCK_SIZE=128)
        found[key] = 1e6 * CONV_DEPTHWISE.predict(fusion, knobs, of("sm_90a")).seconds
    assert min(found, key=lambda key: found[key]) == min(measured, key=lambda key: measured[key])
    assert all(0.9 < found[key] / measured[key] < 1.1 for key in measured), found


def test_few_channels_of_each_pixel_take_whole_sectors():
    """85 blocks read the same pixels and write two channels of each; of 8 channels, 282 us."""
    g = new_graph(dtypes.bf16, target="sm_90a")
    convolved(g, [17, 7, 160, 209], [170, 7, 1, 1], **around(0, 2))
    graph = g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    knobs = dict(zip((*KNOB_NAMES, "OCCUPANCY"), (4, 4, 7, 1, 0, 3), strict=True), BLOCK_SIZE=128)
    assert 250e-6 < CONV_DEPTHWISE.predict(fusion, knobs, of("sm_90a")).seconds < 310e-6


@pytest.mark.in_turn
def test_it_runs_where_the_choice_is_left_to_heuristics():
    g = new_graph()
    convolved(g, [2, 96, 14, 14], [96, 1, 5, 5], **around(2))
    plan = check(g)
    if machine.current().target:
        assert [fusion.engine for fusion in plan.programs[0].fusions] == [ENGINE]


@pytest.mark.rotating
@pytest.mark.parametrize("name", ["channels before it", "filter", "columns after it"])
def test_nothing_is_read_past_the_end_of_what_is_no_whole_number_of_16_bytes(name):
    """LLVM would make seven loads that follow an aligned address one of eight elements."""
    g = new_graph()
    before = name == "channels before it"
    x = g.tensor([1, 7, 6, 7], channels_last([1, 7, 6, 7]))
    if before:
        x = g.mul(x, g.tensor([1, 7, 1, 1])).set_data_type(dtypes.f16)
    y = g.conv_fprop(x, g.tensor([3, 7, 1, 1]), **around(0))
    (g.add(y, g.tensor([1, 1, 1, 7])) if name == "columns after it" else y).set_output()
    knobs = {"LOAD_SIZE": 2, "TILE_ROWS": 1, "TILE_COLS": 7, "SPECFILT": 1}
    check(g, engine="conv_depthwise", knobs={**knobs, "ARRAY_SIZE_PER_THREAD": 2, "OCCUPANCY": 0})
