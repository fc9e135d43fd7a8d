"""Depthwise convolutions that are too large for the interpreter, against torch in float64."""

import pytest

from dnnc.dialect.fusion import partition
from dnnc.engines.conv.depthwise import CONV_DEPTHWISE
from dnnc.target import of
from tests.engines.conv.convs import around

torch = pytest.importorskip("torch")

from . import large_convs  # noqa: E402
from .large_convs import fused  # noqa: E402

# (X without N, W, parameters): layers of MobileNetV2 and EfficientNet, and what they lack.
LAYERS = {
    "112x112x32 3x3": ([32, 112, 112], [32, 1, 3, 3], around(1)),
    "112x112x96 3x3 s2": ([96, 112, 112], [96, 1, 3, 3], around(1, 2)),
    "56x56x144 3x3": ([144, 56, 56], [144, 1, 3, 3], around(1)),
    "28x28x192 5x5": ([192, 28, 28], [192, 1, 5, 5], around(2)),
    "14x14x576 5x5 s2": ([576, 14, 14], [576, 1, 5, 5], around(2, 2)),
    "7x7x960 3x3": ([960, 7, 7], [960, 1, 3, 3], around(1)),
    "56x56x96 7x7": ([96, 56, 56], [96, 1, 7, 7], around(3)),
    "31x29x40 31x31": ([40, 31, 29], [40, 1, 31, 31], around(15)),
    "odd": ([37, 29, 23], [37, 1, 3, 3], around(1)),
    "odd, dilated": ([72, 31, 27], [72, 1, 5, 3], {
        "padding": [2, 1], "stride": [2, 3], "dilation": [1, 2]}),
    "two outputs a channel": ([64, 28, 28], [128, 1, 3, 3], around(1)),
    "four channels a group": ([64, 28, 28], [64, 4, 3, 3], around(1)),
    "three channels": ([3, 112, 112], [32, 3, 3, 3], around(1, 2)),
    "3D": ([48, 9, 13, 11], [48, 1, 3, 3, 3], around(1, spatial=3)),
    "1D": ([96, 1001], [96, 1, 7], around(3, 2, spatial=1)),
}  # fmt: skip


def run(layer, dtype, batches, knobs=()):
    large_convs.run("conv_depthwise", layer, dtype, batches, knobs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_layers_with_the_knobs_that_are_chosen(name, dtype):
    run(LAYERS[name], dtype, (1, 5, 32))


def _candidates():
    """A layer whose rows and columns most tiles do not divide."""
    graph = fused(LAYERS["28x28x192 5x5"], torch.float16)
    (fusion,) = partition(graph, [graph.live_ops])
    return [dict(knobs) for knobs in CONV_DEPTHWISE.candidates(fusion, of("sm_90"))]


@pytest.mark.parametrize(
    "knobs", _candidates(), ids=lambda knobs: "_".join(map(str, knobs.values()))
)
def test_every_candidate(knobs):
    run(LAYERS["28x28x192 5x5"], torch.float16, (3,), knobs.items())
