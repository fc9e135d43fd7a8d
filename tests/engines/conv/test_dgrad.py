"""Gradients by the image by the engines of few channels, of groups, and of one tap."""

import pytest

from dnnc import dtypes
from tests.dialect.conv_gradient_examples import response_dims
from tests.support.checked import check

from .convs import around, image, packed
from .test_pattern import new_graph

TURNED = {"convolution_mode": "CONVOLUTION"}
# Engine, X, W, parameters of the forward convolution.
CASES = {
    "depthwise": ("conv_depthwise", [2, 24, 6, 7], [24, 1, 3, 3], around(1)),
    "several filters a channel": ("conv_depthwise", [2, 8, 6, 7], [24, 1, 3, 3], around(1)),
    "small groups, turned": (
        "conv_depthwise", [2, 8, 6, 7], [12, 2, 3, 2], {**around(1), **TURNED}),
    "volumes": ("conv_depthwise", [1, 8, 4, 3, 5], [8, 1, 2, 3, 3], around(1, spatial=3)),
    "groups of 8": ("conv_grouped_sm80", [2, 32, 6, 7], [32, 8, 3, 3], around(1)),
    "groups of 16, turned": (
        "conv_grouped_sm80", [2, 16, 6, 7], [32, 8, 3, 2], {**around(1), **TURNED}),
    "few filters": ("conv_stem_sm90", [2, 64, 9, 16], [3, 64, 3, 3], around(1)),
    "few filters, turned": (
        "conv_stem_sm90", [2, 40, 9, 16], [8, 40, 5, 3], {**around(1), **TURNED}),
    "one tap": ("conv_product_sm90", [2, 24, 6, 8], [40, 24, 1, 1], around(0)),
}  # fmt: skip


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
