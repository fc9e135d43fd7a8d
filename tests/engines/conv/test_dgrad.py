"""Gradients by the image by the engines of few channels, of groups, and of one tap."""

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from tests.dialect.conv_gradient_examples import response_dims
from tests.support.checked import check, random_inputs

from .convs import around, image, packed
from .test_pattern import new_graph

FLIPPED = {"convolution_mode": "CONVOLUTION"}
# Engine, X, W, parameters of the forward convolution.
CASES = {
    "depthwise": ("conv_depthwise", [2, 24, 6, 7], [24, 1, 3, 3], around(1)),
    "several filters a channel": ("conv_depthwise", [2, 8, 6, 7], [24, 1, 3, 3], around(1)),
    "small groups, flipped": (
        "conv_depthwise", [2, 8, 6, 7], [12, 2, 3, 2], {**around(1), **FLIPPED}),
    "volumes": ("conv_depthwise", [1, 8, 4, 3, 5], [8, 1, 2, 3, 3], around(1, spatial=3)),
    "depthwise, strides": ("conv_depthwise", [2, 24, 9, 7], [24, 1, 3, 3], around(1, 2)),
    "small groups, strides, flipped": (
        "conv_depthwise", [2, 8, 8, 7], [12, 2, 5, 2], {**around(1, 2), **FLIPPED}),
    "groups of 8": ("conv_grouped_sm80", [2, 32, 6, 7], [32, 8, 3, 3], around(1)),
    "groups of 16, flipped": (
        "conv_grouped_sm80", [2, 16, 6, 7], [32, 8, 3, 2], {**around(1), **FLIPPED}),
    "groups of 8, strides": ("conv_grouped_sm80", [2, 32, 9, 7], [32, 8, 3, 3], around(1, 2)),
    "groups of 16, strides, flipped": (
        "conv_grouped_sm80", [3, 16, 7, 10], [32, 8, 5, 6], {**around(2, 2), **FLIPPED}),
    "groups of 8, a stride that leaves pixels out": (
        "conv_grouped_sm80", [2, 16, 8, 9], [16, 8, 1, 1], around(0, 2)),
    "few filters": ("conv_stem_sm90", [2, 64, 9, 16], [3, 64, 3, 3], around(1)),
    "few filters, flipped": (
        "conv_stem_sm90", [2, 40, 9, 16], [8, 40, 5, 3], {**around(1), **FLIPPED}),
    "one tap": ("conv_product_sm90", [2, 24, 6, 8], [40, 24, 1, 1], around(0)),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("name", CASES)
def test_every_engine_reads_the_filter_transposed(name):
    engine, x, w, parameters = CASES[name]
    target = {"target": "sm_90a"} if engine.endswith("sm90") else {}
    g = new_graph(dtypes.f16, **target)
    y = response_dims(x, w, parameters)
    is_first = engine == "conv_product_sm90"
    dy = g.tensor(y, packed(y)) if is_first else image(g, y)
    dx = g.conv_dgrad(dy, image(g, w), **parameters).set_dim(x).set_output()
    if is_first:
        dx.set_stride(packed(x))
    check(g, engine=engine, **target)


@pytest.mark.in_turn
def test_phases_of_groups_meet_their_own_pixels_alone():
    """A lane's pixel that another phase meets is a zero: zeros of the filter would not undo an
    infinity.  The sizes are those of a run."""
    n, p, q = (dnnc.Dim(name, min=1, max=64) for name in "npq")
    g = new_graph(dtypes.f16)
    dy = g.tensor([n, 16, p, q], [p * q * 16, 1, q * 16, 16])
    dx = g.conv_dgrad(dy, image(g, [16, 8, 3, 3]), **around(1, 2))
    g.relu(dx.set_dim([n, 16, 2 * p - 1, 2 * q])).set_output()
    sizes = {"n": 2, "p": 5, "q": 11}
    inputs = random_inputs(g.graph.finalize(), sizes, low=1.0, high=2.0)
    inputs[dy.get_uid()][1, 9, 2, ::4] = np.inf
    check(g, sizes, inputs=inputs, engine="conv_grouped_sm80")


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_a_mask_and_sums_of_a_batch_norm_join_the_gradient(target):
    """DgradDreluBNBwdWeight of cuDNN's guide."""
    g = new_graph(dtypes.f16, target=target)
    x, one = [2, 16, 5, 4], [1, 16, 1, 1]
    dx = g.conv_dgrad(image(g, [2, 24, 5, 4]), image(g, [24, 16, 3, 3]), padding=[1, 1])
    dy = g.relu_backward(dx.set_dim(x), image(g, x)).set_output()
    small = [g.tensor(one, data_type="f32") for _ in range(3)]
    for made in g.dbn_weight(dy, image(g, x), *small):
        made.set_output().set_data_type("f32")
    plan = check(g, target=target, slack=8.0, allowance=1e-4)
    (fused,) = (f for f in plan.programs[0].fusions if f.engine.startswith("conv"))
    assert {"pointwise:relu_bwd", "reduction:add"} <= set(fused.ops)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("engine", ["conv_sm90", "conv_sm80"])
def test_work_on_dy_comes_before_it(engine):
    """That of dBNApply, whose padding is of zeros."""
    target = "sm_90a" if engine == "conv_sm90" else "sm_80"
    g = new_graph(dtypes.f16, target=target)
    dims, one = [2, 24, 5, 4], [1, 24, 1, 1]
    dy, x = image(g, dims), image(g, dims)
    scaled = g.add(g.mul(dy, g.tensor(one)), g.mul(x, g.tensor(one)))
    before = g.add(scaled, g.tensor(one)).set_data_type(dtypes.f16)
    dx = g.conv_dgrad(before, image(g, [24, 16, 3, 3]), padding=[1, 1]).set_dim([2, 16, 5, 4])
    g.add(dx, image(g, [2, 16, 5, 4])).set_output()
    check(g, engine=engine, target=target, slack=4.0)
