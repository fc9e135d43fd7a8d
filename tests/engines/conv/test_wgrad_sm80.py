"""Engine conv_wgrad_sm80 in the interpreter: shapes, groups, parts, epilogues, refusals."""

import pytest

import dnnc
from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.dialect.fusion import partition
from dnnc.engines.conv.wgrad_sm80 import CONV_WGRAD_SM80
from dnnc.options import Options
from dnnc.target import of
from tests.support.checked import check, random_inputs

from . import test_pattern as test_conv
from .convs import around, image, ptx_of
from .test_wgrad_sm90 import gradient

SMALL = {"TILE_M": 32, "TILE_N": 64, "TILEK": 32, "STAGES": 2, "SPLIT_K_BUF": 1}

# X, W, parameters, knobs.
CASES = {
    "3x3": ([2, 64, 5, 6], [40, 64, 3, 3], around(1), {}),
    "flipped, parts": (
        [2, 16, 7, 6], [40, 16, 3, 2],
        {"padding": [1, 1], "stride": [2, 1], "convolution_mode": "CONVOLUTION"},
        {"SPLIT_K_BUF": 3},
    ),
    "odd channels, dilated": ([2, 5, 7, 6], [7, 5, 3, 2], {"padding": [1, 1], "dilation": [2, 1]},
        {}),
    "groups of 6 and 4": ([2, 12, 7, 6], [8, 6, 3, 2], around(1), {}),
    "3D": ([1, 8, 3, 4, 5], [8, 8, 2, 2, 2], around(1, spatial=3), {}),
}  # fmt: skip


def new_graph(io=dtypes.f16):
    return test_conv.new_graph(io)


def run(g, sizes=None, knobs=None):
    knobs = {**SMALL, **(knobs or {})}
    return check(g, sizes, engine="conv_wgrad_sm80", knobs=knobs, slack=4.0)


@pytest.mark.in_turn
@pytest.mark.feature
@pytest.mark.rotating
@pytest.mark.parametrize("name", CASES)
def test_shapes(name):
    x, w, parameters, knobs = CASES[name]
    g = new_graph(dtypes.bf16 if "parts" in name else dtypes.f16)
    gradient(g, x, w, **parameters).set_output()
    ptx = ptx_of(run(g, knobs=knobs))
    assert "ldmatrix.sync.aligned.m8n8.x4.trans" in ptx


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("name", "products"), [("flipped, parts", 3), ("odd channels, dilated", 1)]
)
def test_f32_in_products_of_tf32(name, products):
    """Elements of 32 bits lie transposed in shared memory; a lane loads each alone.

    All are positive: of a sum that nearly cancels, what tf32 rounds is any share.
    """
    x, w, parameters, knobs = CASES[name]
    g = new_graph(dtypes.f32)
    gradient(g, x, w, **parameters).set_output()
    knobs = {**SMALL, **knobs, "TILEK": 16, "TF32": products}
    allowance = 2.0**-10 if products == 1 else 1e-5
    inputs = random_inputs(g.graph.finalize(), {}, low=0.5)
    plan = check(
        g, engine="conv_wgrad_sm80", knobs=knobs, slack=4.0, allowance=allowance, inputs=inputs
    )
    (fusion,) = plan.programs[0].fusions
    assert ("DOWN_CONVERT_INPUTS" in fusion.notes) == (products == 1)


@pytest.mark.in_turn
@pytest.mark.feature
def test_parts_that_are_added_to_one_place():
    g = new_graph()
    x, w, parameters, knobs = CASES["flipped, parts"]
    gradient(g, x, w, **parameters).set_output()
    plan = run(g, knobs={**knobs, "REDUCTION_MODE": 1})
    assert "red.relaxed.gpu.global.add." in ptx_of(plan)
    assert "NONDETERMINISTIC" in plan.programs[0].fusions[0].notes


def test_results_that_repeat_are_not_added():
    g = new_graph()
    x, w, parameters, knobs = CASES["flipped, parts"]
    gradient(g, x, w, **parameters).set_output()
    g.graph.repeats = True
    with pytest.raises(dnnc.DnncError, match="REDUCTION_MODE=1 of results that repeat"):
        run(g, knobs={**knobs, "REDUCTION_MODE": 1})


@pytest.mark.in_turn
def test_launches_overlap_where_devices_can():
    for target, overlaps in (("sm_80", False), ("sm_90", True)):
        g = new_graph()
        gradient(g, [1, 8, 4, 4], [8, 8, 1, 1]).set_output()
        knobs = tuple({**SMALL, "SPLIT_K_BUF": 2}.items())
        options = Options(engine="conv_wgrad_sm80", knobs=knobs)
        plan = compile_graph(g.graph.finalize(), target, options)
        assert ("griddepcontrol" in ptx_of(plan)) == overlaps


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("parts", [1, 2])
def test_a_gradient_is_added_to_one_of_any_size(parts):
    g, w = new_graph(), [64, 16, 3, 2]
    x = [dnnc.Dim("N", min=1, max=16), 16, 9, 9]
    dw = g.mul(gradient(g, x, w), g.tensor([1, 1, 1, 1]))
    g.add(dw, image(g, w)).set_output()
    plan = run(g, {"N": 1}, {"SPLIT_K_BUF": parts})
    check(g, {"N": 3}, plan=plan, slack=4.0)


@pytest.mark.parametrize(
    ("io", "channels", "clause"), [("f64", 16, "operand types"), ("f16", 1, "groups")]
)
def test_refusals(io, channels, clause):
    g = new_graph(dtypes.of(io))
    gradient(g, [1, 16, 5, 5], [16, channels, 3, 3]).set_output()
    graph = g.graph.finalize()
    (whole,) = partition(graph, [graph.live_ops])
    (reason,) = CONV_WGRAD_SM80.supports(whole, of("sm_80"))
    assert (reason.clause, bool(reason.supported)) == (clause, True)
