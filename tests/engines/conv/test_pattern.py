"""Convolutions by engine fallback, in the interpreter."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.dialect.reference import reference
from tests.support import machine
from tests.support.checked import check, random_inputs

from ..elementwise.test_resample import channels_last
from .convs import around, packed

N = dnnc.Dim("N", max=16)


def new_graph(io=dtypes.f16, **options):
    defaults = {
        "io_data_type": io,
        "intermediate_data_type": dtypes.f32,
        "compute_data_type": dtypes.f32,
        "target": "sm_80",
    }
    return dnnc.pygraph("conv", **{**defaults, **options})


def convolved(g, x, w, layout="NHWC", **parameters):
    """Y of tensors of some dims, as the graph's output in the layout of X."""
    strides = channels_last if layout == "NHWC" else packed
    y = g.conv_fprop(g.tensor(x, strides(x)), g.tensor(w, strides(w)), **parameters)
    y.set_output()
    if layout == "NCHW":
        y.set_stride(packed(y.get_dim()))
    return y


CASES = {
    "NCHW": ([2, 4, 5, 6], [6, 4, 3, 3], around(1), "NCHW"),
    "three channels": ([1, 3, 9, 9], [4, 3, 7, 7], around(3, 2), "NHWC"),
    "depthwise": ([2, 8, 5, 4], [8, 1, 3, 3], around(1), "NHWC"),
    "two outputs a channel": ([1, 3, 4, 4], [6, 1, 3, 3], around(1), "NHWC"),
    "groups": ([1, 8, 4, 5], [4, 4, 3, 3], around(2, dilation=2), "NHWC"),
    "uneven": (
        [1, 2, 6, 5], [3, 2, 2, 3],
        {"pre_padding": [0, 2], "post_padding": [3, 0], "stride": [2, 3], "dilation": [3, 1]},
        "NHWC",
    ),
    "flipped": ([1, 3, 5, 6], [2, 3, 2, 3], around(1, convolution_mode="CONVOLUTION"), "NHWC"),
    "1D": ([2, 3, 9], [4, 3, 4], around(2, 2, spatial=1), "NHWC"),
    "3D": ([1, 2, 3, 4, 4], [3, 2, 2, 3, 3], around(1, spatial=3), "NHWC"),
}  # fmt: skip


@pytest.mark.rotating
@pytest.mark.parametrize("name", CASES)
def test_shapes(name):
    x, w, parameters, layout = CASES[name]
    g = new_graph()
    convolved(g, x, w, layout, **parameters)
    check(g, engine="fallback")


@pytest.mark.rotating
@pytest.mark.parametrize("io", ["bf16", "f32", "f64"])
def test_types(io):
    io = dtypes.of(io)
    compute = dtypes.f64 if io.bits == 64 else dtypes.f32
    g = new_graph(io, intermediate_data_type=compute, compute_data_type=compute)
    convolved(g, [1, 4, 4, 4], [3, 4, 3, 3], **around(1))
    check(g, engine="fallback", slack=8.0)


@pytest.mark.in_turn
def test_integers_are_exact():
    g = new_graph(dtypes.i8, compute_data_type=dtypes.i32)
    convolved(g, [1, 4, 4, 4], [3, 4, 3, 3], **around(1)).set_data_type(dtypes.i32)
    check(g, engine="fallback")


def test_what_comes_before_and_after_and_a_batch_that_is_an_argument():
    """Scale, bias and ReLU before, whose padding is of zeros; bias and ReLU after."""
    g = new_graph()
    x = g.tensor([N, 8, 4, 4], channels_last([N, 8, 4, 4]))
    scale, bias = (g.tensor([1, 8, 1, 1]) for _ in range(2))
    before = g.relu(g.add(g.mul(x, scale), bias))
    y = g.conv_fprop(before, g.tensor([6, 8, 3, 3]), **around(1))
    g.relu(g.add(y, g.tensor([1, 6, 1, 1]))).set_output()
    plan = check(g, {"N": 1}, engine="fallback")
    check(g, {"N": 2}, plan=plan)


H, W = (dnnc.Dim(name, min=4, max=64) for name in "HW")


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("taps", "parameters"),
    [(2, around(0, 2)), (3, around(0)), (4, around(0, 4)), (3, around(2, 3, dilation=2))],
    ids=["halved", "without padding", "patches", "dilated"],
)
def test_images_whose_sizes_are_symbols(taps, parameters):
    """Sizes as (H - 2) // 2 + 1 and strides as those of (H - 2) * (W - 2) pixels."""
    g = new_graph()
    x = g.tensor([N, 2, H, W], channels_last([N, 2, H, W]))
    y = g.conv_fprop(x, g.tensor([3, 2, taps, taps]), **parameters)
    g.conv_fprop(g.relu(y), g.tensor([2, 3, 1, 1]), **around(0, 2)).set_output()
    check(g, {"N": 2, "H": 9, "W": 6})


def test_padding_is_zeros_that_are_multiplied():
    """An infinite tap gives NaN where it lies on padding, and an infinity elsewhere."""
    g = new_graph(dtypes.f32)
    y = convolved(g, [1, 1, 3, 3], [1, 1, 3, 3], **around(1))
    graph = g.graph.finalize()
    inputs = random_inputs(graph, {}, low=1.0, high=2.0)
    _, weight = graph.inputs
    inputs[weight.uid][0, 0, 0, 0] = np.inf
    expected = reference(graph, inputs)[y.get_uid()]
    assert np.isnan(expected[0, 0, 0]).all()
    assert np.isinf(expected[0, 0, 1:, 1:]).all()
    check(g, inputs=inputs, engine="fallback")


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(("io", "engine"), [("f16", "conv_sm80"), ("f64", "fallback")])
def test_a_convolution_always_has_an_engine(io, engine):
    io = dtypes.of(io)
    g = new_graph(io, compute_data_type=dtypes.f64 if io.bits == 64 else dtypes.f32)
    convolved(g, [1, 9, 5, 5], [4, 9, 3, 3], "NCHW", **around(1))
    plan = compile_graph(g.graph.finalize(), machine.current().target)
    assert [fusion.engine for fusion in plan.programs[0].fusions] == [engine]


def test_the_symbols_of_too_many_pixels_are_named():
    """Each has a default that fits, all together have not."""
    g = new_graph()
    n, h = dnnc.Dim("N"), dnnc.Dim("H")
    x = g.tensor([n, 64, h, 64], channels_last([n, 64, h, 64]))
    g.conv_fprop(x, g.tensor([64, 64, 3, 3]), **around(1)).set_output()
    with pytest.raises(dnnc.DnncError) as raised:
        dnnc.compile(g, target="sm_90a", in_process=True)
    assert "a smaller max of H (now 65536), N (now 65536)" in str(raised.value.details)
