"""Gradients by the image by engine conv_sm80, in the interpreter."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from tests.dialect.conv_gradient_examples import response_dims
from tests.support.checked import check, random_inputs

from .convs import H, N, W, around, image, packed, ptx_of
from .test_dgrad_sm90 import CASES, STRIDED, dgrad, of_norm
from .test_pattern import new_graph

SMALL = {"TILE_M": 32, "TILE_N": 64}


def run(g, sizes=None, *, knobs=SMALL, **options):
    return check(g, sizes, engine="conv_sm80", knobs=knobs, **options)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", CASES)
def test_a_filter_that_is_transposed_by_ldmatrix(name):
    g = new_graph()
    dgrad(g, *CASES[name]).set_output()
    plan = run(g)
    assert "ldmatrix.sync.aligned.m8n8.x4.trans" in ptx_of(plan)
    assert ptx_of(plan).count("cp.async.cg.shared.global") > 2


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("io", "compute", "made"), [("f32", "f32", "f32"), ("i8", "i32", "i32"), ("bf16", "f32", "f16")]
)
def test_types(io, compute, made):
    g = new_graph(dtypes.of(io), compute_data_type=compute)
    dx = dgrad(g, [2, 20, 5, 4], [36, 20, 3, 2], around(1))
    dx.set_output().set_data_type(made)
    knobs = {**SMALL, "TF32": 3} if io == "f32" else SMALL
    run(g, slack=4.0, knobs=knobs)


# X, W, parameters.
BYTES = {
    "3x3": ([2, 64, 5, 6], [64, 64, 3, 3], around(1)),
    "groups, strided": ([2, 48, 7, 6], [64, 24, 3, 2], around(1, 2)),
    "one tap, strided": ([1, 80, 6, 6], [32, 80, 1, 1], around(0, 2)),
    "3D, flipped": (
        [1, 16, 4, 5, 6], [16, 16, 2, 2, 2],
        around(1, spatial=3, convolution_mode="CONVOLUTION"),
    ),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", BYTES)
def test_a_filter_of_bytes_is_transposed_by_ldmatrix(name):
    """Copied as it lies, beside pixels whose words have four neighbours of k."""
    g = new_graph(dtypes.i8, compute_data_type="i32")
    dgrad(g, *BYTES[name]).set_output().set_data_type("i32")
    inputs = {
        t.uid: np.random.default_rng(t.uid).integers(-128, 128, [n.constant for n in t.shape])
        for t in g.graph.finalize().inputs
    }
    ptx = ptx_of(run(g, inputs=inputs, knobs={**SMALL, "TILEK": 64}))
    assert "ldmatrix.sync.aligned.m8n8.x4.trans" in ptx
    assert "st.shared.b8" not in ptx


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("x", [[2, 3, 6, 7], [2, 14, 3, 3]], ids=str)
def test_channels_of_any_number(x):
    g = new_graph()
    dgrad(g, x, [9, x[1], 3, 3], around(1)).set_output()
    run(g)


# X, W, parameters, depth of a stage.
TOGETHER = {
    "several tiles of an output": ([2, 8, 12, 10], [64, 8, 3, 3], around(1, 2), 32),
    "more phases than taps": ([2, 8, 8, 8], [64, 8, 1, 1], around(0, 2), 64),
    "flipped, padded beyond it": (
        [1, 8, 12, 14], [96, 8, 4, 5], {**around(2, 2), "convolution_mode": "CONVOLUTION"}, 32),
    "two phases, dilated": ([3, 16, 9, 14], [64, 16, 3, 4], {
        "padding": [1, 1], "stride": [1, 2], "dilation": [1, 3]}, 64),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", TOGETHER)
def test_all_phases_in_one_tile(name):
    """A phase multiplies what it meets alone: infinities fall where the reference has them."""
    x, w, parameters, depth = TOGETHER[name]
    g = new_graph()
    g.relu(dgrad(g, x, w, parameters)).set_output()
    inputs = random_inputs(g.graph.finalize(), {}, low=1.0, high=2.0)
    inputs[g.graph.inputs[0].uid].reshape(-1)[5::97] = np.inf
    knobs = {"TILE_M": 128, "TILE_N": 32, "TILEK": depth, "STAGES": 3}
    plan = run(g, knobs=knobs, inputs=inputs, slack=3.0)
    assert "cp.async.ca.shared.global" in ptx_of(plan)


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("x", "w", "stride", "depth", "what"),
    [
        ([1, 8, 8, 8], [64, 8, 3, 3], 1, 64, "no gradient with a stride"),
        ([1, 8, 9, 8], [64, 8, 3, 3], 2, 64, "fewer pixels"),
        ([1, 24, 8, 8], [64, 24, 3, 3], 2, 64, "4 phases of 24 channels"),
        ([1, 8, 8, 8], [96, 8, 3, 3], 2, 64, "96 channels of dY and TILEK=64"),
    ],
)
def test_what_has_no_such_tile(x, w, stride, depth, what):
    g = new_graph()
    dgrad(g, x, w, around(1, stride)).set_output()
    with pytest.raises(dnnc.DnncError, match=what):
        run(g, knobs={"TILE_M": 128, "TILE_N": 32, "TILEK": depth, "STAGES": 3})


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("what", ["first", "filter first", "filter computed"])
def test_layouts_and_work_on_the_filter(what):
    g = new_graph()
    x, w = [2, 16, 5, 4], [24, 16, 3, 2]
    y = response_dims(x, w, around(1))
    filter_ = g.tensor(w, packed(w)) if what != "filter computed" else image(g, w)
    if what == "filter computed":
        filter_ = g.relu(filter_).set_data_type(dtypes.f16)
    dy = g.tensor(y, packed(y)) if what == "first" else image(g, y)
    g.conv_dgrad(dy, filter_, **around(1)).set_dim(x).set_output()
    run(g)


@pytest.mark.in_turn
def test_one_plan_serves_every_size():
    g = new_graph()
    dgrad(g, [N, 16, H, W], [24, 16, 3, 3], around(1)).set_output()
    run(g, {"N": 2, "H": 6, "W": 5})


# ---- strides: phases of the pixels, in one launch


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", STRIDED)
def test_strides_in_one_launch(name):
    g = new_graph()
    dgrad(g, *STRIDED[name]).set_output()
    plan = run(g)
    assert len(plan.programs[0].kernels) == 1


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("what", ["three channels", "first", "i8"])
def test_strides_of_operands_that_come_one_by_one(what):
    x, w = [2, 3 if what == "three channels" else 24, 5, 6], [36, 24, 3, 3]
    w[1], is_integer = x[1], what == "i8"
    g = new_graph(dtypes.i8 if is_integer else dtypes.f16, compute_data_type="f32")
    y = response_dims(x, w, around(1, 2))
    dy = g.tensor(y, packed(y)) if what == "first" else image(g, y)
    compute = {"compute_data_type": "i32"} if is_integer else {}
    dx = g.conv_dgrad(dy, image(g, w), **around(1, 2), **compute).set_dim(x).set_output()
    if what == "first":
        dx.set_stride(packed(x))
    if is_integer:
        dx.set_data_type("i32")
    run(g)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("name", ["one tap: most pixels are zeros", "groups", "uneven, flipped"])
def test_a_mask_and_sums_of_a_batch_norm_join_all_phases(name):
    g, (x, w, parameters) = new_graph(), STRIDED[name]
    of_norm(g, dgrad(g, x, w, parameters))
    plan = run(g, slack=4.0, allowance=1e-4)
    assert len(plan.programs[0].kernels) == 2


@pytest.mark.in_turn
def test_a_tile_of_all_phases_has_no_sums():
    """A maximum of pixels that the image has; those past its end would be zeros."""
    g = new_graph()
    dx = g.sub(dgrad(g, [1, 8, 5, 4], [24, 8, 3, 3], around(1, 2)), g.tensor_scalar(8.0))
    g.reduction(dx, "max").set_dim([1, 1, 1, 1]).set_output().set_data_type("f32")
    plan = check(g, slack=4.0)
    (fusion,) = plan.programs[0].fusions
    assert (fusion.engine, fusion.knobs["TILE_N"] > 32) == ("conv_sm80", True)
