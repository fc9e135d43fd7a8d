"""The tests of engine conv_sm90, on the device; they name sm_90a.  Layers of networks, too."""

import pytest

from dnnc import dtypes
from tests.engines.test_conv_sm90 import *  # noqa: F403
from tests.engines.test_conv_sm90 import around, image, new_graph, run

pytestmark = pytest.mark.sm90

# X, W, parameters: odd sizes, and layers of ResNet-50 with few images.
LAYERS = {
    "odd": ([3, 72, 29, 23], [104, 72, 3, 3], around(1)),
    "odd stride": ([3, 136, 31, 27], [72, 136, 5, 3], {
        "pre_padding": [2, 0], "post_padding": [1, 3], "stride": [2, 3], "dilation": [1, 2]}),
    "56x56x64 3x3": ([2, 64, 56, 56], [64, 64, 3, 3], around(1)),
    "56x56x64->256 1x1": ([2, 64, 56, 56], [256, 64, 1, 1], around(0)),
    "28x28x128 3x3": ([3, 128, 28, 28], [128, 128, 3, 3], around(1)),
    "14x14x256 3x3": ([5, 256, 14, 14], [256, 256, 3, 3], around(1)),
    "7x7x512 3x3": ([7, 512, 7, 7], [512, 512, 3, 3], around(1)),
    "56x56x256->512 1x1 s2": ([2, 256, 56, 56], [512, 256, 1, 1], around(0, 2)),
    "groups of 4": ([2, 128, 28, 28], [128, 4 * 8, 3, 3], around(1)),
    "3D": ([2, 64, 9, 13, 11], [64, 64, 3, 3, 3], around(1, spatial=3)),
}  # fmt: skip


@pytest.mark.parametrize("io", ["f16", "bf16"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_with_the_knobs_that_are_chosen(name, io):
    """Scale, bias, residual and ReLU; against float64."""
    x, w, parameters = LAYERS[name]
    g = new_graph(dtypes.of(io))
    y = g.conv_fprop(image(g, x), image(g, w), **parameters)
    scale, bias = (g.tensor([1, w[0], *[1] * (len(w) - 2)]) for _ in range(2))
    dims = y.get_dim()
    residual = image(g, dims)
    g.relu(g.add(g.add(g.mul(y, scale), bias), residual)).set_output()
    run(g, slack=3.0, knobs={})
