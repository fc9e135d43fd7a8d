"""Engine conv_wgrad_depthwise in the interpreter: shapes, types, sizes, refusals."""

import re

import pytest

import dnnc
from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.dialect.fusion import partition
from dnnc.engines.conv.wgrad_depthwise import CONV_WGRAD_DEPTHWISE
from dnnc.options import Options
from dnnc.target import of
from tests.support.checked import check

from . import test_pattern as test_conv
from .convs import around, image, ptx_of
from .test_wgrad_sm90 import gradient

FEW = {"SPLIT_K_BUF": 4}

# X, W, parameters, type.
CASES = {
    "3x3": ([2, 16, 5, 8], [16, 1, 3, 3], around(1), "f16"),
    "flipped, strided, fragments past the last": (
        [1, 20, 5, 6], [20, 1, 3, 2],
        {"padding": [1, 1], "stride": [2, 1], "convolution_mode": "CONVOLUTION"}, "bf16",
    ),
    "1D, dilated": ([1, 7, 9], [7, 1, 3], {"dilation": [2]}, "f32"),
    "3D": ([1, 6, 3, 4, 5], [6, 1, 2, 2, 2], around(1, spatial=3), "f16"),
}  # fmt: skip


def run(g, sizes=None, **options):
    options = {"knobs": FEW, "engine": "conv_wgrad_depthwise", **options}
    return check(g, sizes, slack=4.0, **options)


@pytest.mark.in_turn
@pytest.mark.feature
@pytest.mark.rotating
@pytest.mark.parametrize("name", CASES)
def test_shapes(name):
    x, w, parameters, io = CASES[name]
    g = test_conv.new_graph(dtypes.of(io))
    gradient(g, x, w, **parameters).set_output()
    run(g)


def test_sums_of_parts_may_begin_past_2_to_the_31():
    """The last of 512 parts begins at element 511 * 9 * 2^19 of the workspace."""
    g, channels = test_conv.new_graph(), 1 << 19
    gradient(g, [1, channels, 3, 4], [channels, 1, 3, 3], **around(1)).set_output()
    knobs = (("LOAD_SIZE", 4), ("SPLIT_K_BUF", 512))
    options = Options(engine="conv_wgrad_depthwise", knobs=knobs)
    first, _ = ptx_of(compile_graph(g.graph.finalize(), "sm_80", options)).split("_sum(")
    assert re.search(rf"mul\.wide\.\w+\s[^;]*, {4 * 9 * channels};", first)


@pytest.mark.in_turn
def test_one_plan_serves_every_size():
    g, w = test_conv.new_graph(), [16, 1, 3, 3]
    x = [dnnc.Dim("N", min=1, max=16), 16, 6, dnnc.Dim("W", min=4, max=64)]
    dw = g.mul(gradient(g, x, w, **around(1)), g.tensor([1, 1, 1, 1]))
    g.add(dw, image(g, w)).set_output()
    plan = run(g, {"N": 1, "W": 4})
    check(g, {"N": 3, "W": 7}, plan=plan, slack=4.0)


@pytest.mark.parametrize(
    ("io", "w", "clause"),
    [
        ("i8", [16, 1, 3, 3], "operand types"),
        ("f16", [32, 1, 3, 3], "channels of a group"),
        ("f16", [16, 1, 8, 7], "filter"),
    ],
)
def test_refusals(io, w, clause):
    g = test_conv.new_graph(dtypes.of(io))
    gradient(g, [1, 16, 9, 9], w).set_output()
    graph = g.graph.finalize()
    (whole,) = partition(graph, [graph.live_ops])
    (reason,) = CONV_WGRAD_DEPTHWISE.supports(whole, of("sm_80"))
    assert (reason.clause, bool(reason.supported)) == (clause, True)
