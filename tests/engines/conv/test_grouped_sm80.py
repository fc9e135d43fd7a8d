"""Engine conv_grouped_sm80 in the interpreter: filters, layouts, types, knobs, neighbours."""

from dataclasses import replace

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.compiler import compile_graph
from dnnc.dialect.fusion import partition
from dnnc.dialect.reference import reference
from dnnc.engines.conv.grouped_sm80 import CONV_GROUPED_SM80
from dnnc.engines.conv.grouped_tile import units_of_block
from dnnc.errors import DnncError
from dnnc.options import Options
from dnnc.target import of
from tests.support import machine
from tests.support.checked import check, random_inputs

from .convs import around
from .test_pattern import convolved, new_graph

N = dnnc.Dim("N", max=16)
H, W = dnnc.Dim("H", max=64), dnnc.Dim("W", max=64)

ENGINE = "conv_grouped_sm80"

# X, W, parameters, layout.
CASES = {
    "3x3": ([2, 16, 5, 6], [16, 8, 3, 3], around(1), "NHWC"),
    "5x5 with stride": ([1, 16, 9, 20], [16, 8, 5, 5], around(2, 2), "NHWC"),
    "7x7": ([1, 16, 9, 8], [16, 8, 7, 7], around(3), "NHWC"),
    "dilation": ([1, 16, 9, 19], [16, 8, 3, 3], around(2, dilation=2), "NHWC"),
    "five taps with gaps": ([1, 16, 3, 24], [16, 8, 1, 5], around(3, dilation=3), "NHWC"),
    "one tap": ([3, 16, 4, 5], [16, 8, 1, 1], around(0), "NHWC"),
    "four taps": ([1, 16, 4, 7], [16, 8, 2, 4], around(1), "NHWC"),
    "uneven": (
        [1, 16, 6, 5], [16, 8, 2, 3],
        {"pre_padding": [0, 2], "post_padding": [3, 0], "stride": [2, 3], "dilation": [3, 1]},
        "NHWC",
    ),
    "flipped": ([1, 16, 5, 6], [16, 8, 2, 5], around(2, convolution_mode="CONVOLUTION"), "NHWC"),
    "three groups of 16": ([2, 48, 5, 6], [48, 16, 3, 3], around(1), "NHWC"),
    "more results than channels": ([1, 16, 5, 6], [48, 8, 3, 3], around(1), "NHWC"),
    "fewer results": ([1, 48, 5, 6], [24, 16, 3, 3], around(1), "NHWC"),
    "1D": ([2, 16, 19], [16, 8, 4], around(2, 2, spatial=1), "NHWC"),
    "3D": ([1, 16, 3, 4, 5], [16, 8, 2, 3, 3], around(1, spatial=3), "NHWC"),
    "NCHW": ([2, 16, 5, 6], [16, 8, 3, 3], around(1), "NCHW"),
    "one pixel": ([1, 16, 1, 1], [16, 8, 3, 3], around(1), "NHWC"),
    "whole sixteens": ([2, 16, 4, 8], [16, 8, 3, 3], around(1), "NHWC"),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("name", CASES)
def test_shapes(name):
    x, w, parameters, layout = CASES[name]
    g = new_graph()
    convolved(g, x, w, layout, **parameters)
    check(g, engine=ENGINE)


# Rows that the output is no multiple of, parts of a group's results, several strips.
KNOBS = {
    "one row": {"TILE_ROWS": 1, "TILE_N": 16, "ARRAY_SIZE_PER_THREAD": 1, "BLOCK_SIZE": 128},
    "two rows": {"TILE_ROWS": 2, "TILE_N": 8, "ARRAY_SIZE_PER_THREAD": 4, "BLOCK_SIZE": 128},
    "four rows": {"TILE_ROWS": 4, "TILE_N": 16, "ARRAY_SIZE_PER_THREAD": 2, "BLOCK_SIZE": 256},
    "eight rows": {"TILE_ROWS": 8, "TILE_N": 8, "ARRAY_SIZE_PER_THREAD": 1, "BLOCK_SIZE": 256},
    "strips": {"TILE_ROWS": 1, "TILE_N": 8, "ARRAY_SIZE_PER_THREAD": 8, "BLOCK_SIZE": 128},
}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", KNOBS)
@pytest.mark.parametrize("stride", [1, 2])
def test_knobs(name, stride):
    g = new_graph()
    convolved(g, [3, 32, 9, 14], [64, 8, 3, 3], **around(1, stride))
    check(g, engine=ENGINE, knobs=KNOBS[name])


@pytest.mark.in_turn
def test_all_knobs_give_the_same_bits():
    g = new_graph()
    convolved(g, [2, 16, 6, 9], [32, 8, 3, 3], **around(1)).set_data_type(dtypes.f32)
    graph = g.graph.finalize()
    where, inputs = machine.current(), random_inputs(graph, {})
    plans = [compile_graph(graph, where.target, _options(**k)) for k in KNOBS.values()]
    (first,), *others = (where.run(plan, inputs, sizes={}).values() for plan in plans)
    assert all(np.array_equal(first, other) for (other,) in others)


def _options(**knobs):
    return Options(engine=ENGINE, knobs=tuple(knobs.items()))


@pytest.mark.rotating
@pytest.mark.parametrize("groups", [2, 3, 4, 5, 7, 8, 9, 12])
def test_groups_that_a_block_shares(groups):
    """With 3, 7 and 9 groups the last block has warps without one."""
    g = new_graph()
    convolved(g, [1, 8 * groups, 3, 4], [8 * groups, 8, 3, 3], **around(1))
    check(g, engine=ENGINE)


@pytest.mark.rotating
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("channels", [8, 16])
def test_bf16(layout, channels):
    g = new_graph(dtypes.bf16)
    convolved(g, [1, 2 * channels, 4, 5], [16, channels, 3, 3], layout, **around(1))
    check(g, engine=ENGINE)


@pytest.mark.parametrize("channels", [8, 16])
def test_bytes_are_exact(channels):
    g = new_graph(dtypes.i8, compute_data_type=dtypes.i32)
    y = convolved(g, [1, 2 * channels, 4, 5], [16, channels, 3, 3], **around(1))
    y.set_data_type(dtypes.i32)
    check(g, engine=ENGINE)


@pytest.mark.rotating
@pytest.mark.parametrize("place", [(0, 5, 2, 3), (0, 9, 0, 0), (1, 15, 3, 6)])
@pytest.mark.parametrize("number", [np.inf, np.nan])
def test_nothing_reaches_other_groups_or_pixels(place, number):
    """Lanes without a tap would bring a fourth pixel, and zeros would not undo it."""
    g = new_graph()
    y = convolved(g, [2, 16, 4, 7], [16, 8, 3, 3], **around(1))
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {}, low=1.0, high=2.0)
    inputs[graph.inputs[0].uid][place] = number
    expected = reference(graph, inputs)[y.get_uid()]
    touched = ~np.isfinite(expected)
    first = place[1] // 8 * 8
    assert touched[place[0], first : first + 8].any()
    assert touched.sum() == touched[place[0], first : first + 8].sum() <= 72
    check(g, inputs=inputs, engine=ENGINE)


# ---- sizes that are arguments


# ---- neighbours


def test_outputs_whose_channels_are_in_twos():
    """Eight bits of two results of a lane, beside 32."""
    g = new_graph()
    y = convolved(g, [1, 16, 4, 5], [16, 8, 3, 3], **around(1))
    g.mul(y, g.tensor_scalar(0.25)).set_output().set_data_type(dtypes.i8)
    y.set_data_type(dtypes.f32)
    check(g, engine=ENGINE, slack=4.0)


# ---- what is chosen, and what is not taken


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_90a", "sm_120"])
@pytest.mark.parametrize("dims", [[32, 256, 28, 28], [1, 64, 7, 7], [N, 256, 56, 56]], ids=str)
def test_heuristics_take_it_for_groups_of_8(dims, target):
    g = new_graph()
    y = convolved(g, dims, [dims[1], 8, 3, 3], **around(1))
    y.set_output(False)
    g.relu(g.add(y, g.tensor([1, dims[1], 1, 1]))).set_output()
    found = heuristics.best_config(g.graph.finalize(), of(target)).choices
    assert [choice.engine.name for choice in found] == [ENGINE]


def whole(g):
    """All of a graph as one fusion."""
    graph = g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    return fusion


def reasons(g, target="sm_80"):
    return {reason.clause: reason for reason in CONV_GROUPED_SM80.supports(whole(g), of(target))}


@pytest.mark.parametrize(
    ("x", "w", "said"),
    [
        ([1, 24, 4, 5], [16, 12, 3, 3], "2 groups of 12 input and 8 output channels"),
        ([1, 16, 4, 5], [12, 8, 3, 3], "2 groups of 8 input and 6 output channels"),
        ([1, 8, 4, 5], [8, 8, 3, 3], "1 group of 8 input and 8 output channels"),
    ],
)
def test_other_channels_are_refused(x, w, said):
    g = new_graph()
    convolved(g, x, w, **around(1))
    accepted = "accepted: several of 8 or 16 and a multiple of 8"
    assert str(reasons(g)["channels of a group"]) == f"channels of a group: {said}; {accepted}"


@pytest.mark.parametrize(
    ("channels", "taps", "found"),
    [
        (8, [10, 10], set()),
        (8, [11, 11], {"filter"}),
        (8, [4, 4, 4], set()),
        (8, [5, 5, 5], {"filter"}),
        (16, [7, 7], set()),
        (16, [8, 8], {"filter"}),
        (16, [4, 4, 4], set()),
    ],
    ids=str,
)
def test_filters_that_registers_do_not_hold_are_refused(channels, taps, found):
    g, axes = new_graph(), len(taps)
    parameters = around(0, spatial=axes)
    convolved(g, [1, 2 * channels, *[16] * axes], [16, channels, *taps], "NHWC", **parameters)
    assert set(reasons(g)) == found


@pytest.mark.parametrize("io", [dtypes.f32, dtypes.ui8, dtypes.f8e4m3], ids=str)
def test_other_types_are_refused(io):
    g = new_graph(io, target="sm_90")
    convolved(g, [1, 16, 4, 5], [16, 8, 3, 3], **around(1)).set_data_type(dtypes.f32)
    assert "operand types" in reasons(g, "sm_90")


@pytest.mark.parametrize(
    ("w", "parameters", "knobs", "said"),
    [
        ([16, 8, 3, 3], around(1), {"TILE_N": 16}, "TILE_N=16 of 8 output channels a group"),
        ([64, 8, 7, 7], around(3), {"TILE_N": 32}, "registers of the filter"),
        ([16, 8, 3], around(1, spatial=1), {"TILE_ROWS": 2}, "TILE_ROWS=2 of one spatial dim"),
    ],
    ids=["results", "filter", "rows"],
)
def test_knobs_that_are_not_legal(w, parameters, knobs, said):
    g = new_graph()
    convolved(g, [1, 16, *[9] * (len(w) - 2)], w, **parameters)
    with pytest.raises(DnncError, match=said):
        compile_graph(g.graph.finalize(), "sm_80", _options(**knobs))


@pytest.mark.parametrize(
    ("x", "w", "parameters", "rows", "results"),
    [
        ([32, 256, 28, 28], [256, 8, 3, 3], around(1), {1, 2, 4, 7, 8}, {8}),
        ([32, 256, 28, 28], [1536, 8, 3, 3], around(1), {1, 2, 4, 7, 8}, {8, 16}),
        ([32, 256, 28], [1024, 8, 3], around(1, spatial=1), {1}, {8, 16, 32}),
        ([32, 256, 28, 28], [256, 16, 7, 7], around(3), {1}, {8}),
    ],
    ids=["all rows", "parts of 48 results", "one dim", "a filter that registers just hold"],
)
def test_candidates(x, w, parameters, rows, results):
    g = new_graph()
    convolved(g, x, w, **parameters)
    found = CONV_GROUPED_SM80.candidates(whole(g), of("sm_90a"))
    assert {knobs["TILE_ROWS"] for knobs in found} == rows
    assert {knobs["TILE_N"] for knobs in found} == results


def test_products_take_as_long_as_the_architecture_s_tensor_cores():
    g = new_graph()
    convolved(g, [32, 256, 28, 28], [256, 16, 7, 7], **around(3))
    fusion, target = whole(g), of("sm_120")
    slower = replace(target, mma_tflops={n: rate / 4 for n, rate in target.mma_tflops.items()})
    knobs = CONV_GROUPED_SM80.candidates(fusion, target)[0]
    seconds = [CONV_GROUPED_SM80.predict(fusion, knobs, t).seconds for t in (target, slower)]
    assert seconds[1] > 1.5 * seconds[0]


@pytest.mark.parametrize(
    ("parts", "warps", "expected"),
    [(32, 8, 8), (32, 4, 4), (3, 8, 4), (5, 8, 2), (7, 8, 8), (9, 8, 4), (19, 8, 8), (1, 8, 1)],
)
def test_parts_that_a_block_has(parts, warps, expected):
    assert units_of_block(parts, warps) == expected
