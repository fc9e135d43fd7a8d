"""Products of images of sizes that the interpreter is too slow for, against torch in float64."""

import pytest

from dnnc.dialect.fusion import partition
from dnnc.engines.conv.product_sm90 import CONV_PRODUCT_SM90
from dnnc.target import of
from tests.engines.conv.convs import around

torch = pytest.importorskip("torch")

from . import large_convs  # noqa: E402
from .large_convs import fused  # noqa: E402

pytestmark = pytest.mark.sm90

TARGET = "sm_90a"

# X without N, W, parameters.
LAYERS = {
    "56x56x64->256": ([64, 56, 56], [256, 64, 1, 1], around(0)),
    "56x56x256->64": ([256, 56, 56], [64, 256, 1, 1], around(0)),
    "28x28x512->128": ([512, 28, 28], [128, 512, 1, 1], around(0)),
    "odd": ([72, 29, 23], [104, 72, 1, 1], around(0)),
    "1D": ([96, 1000], [200, 96, 1], around(0, spatial=1)),
    "3D": ([40, 9, 12, 10], [72, 40, 1, 1, 1], around(0, spatial=3)),
}


def run(layer, dtype, batches, knobs=()):
    options = {"target": TARGET, "allowance": 2.0**-18, "layout": "first"}
    large_convs.run("conv_product_sm90", layer, dtype, batches, knobs, **options)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_layers_with_the_knobs_that_are_chosen(name, dtype):
    run(LAYERS[name], dtype, (1, 5, 32))


def _candidates():
    graph = fused(LAYERS["56x56x64->256"], torch.float16, "first")
    (fusion,) = partition(graph, [graph.live_ops])
    return [dict(knobs) for knobs in CONV_PRODUCT_SM90.candidates(fusion, of(TARGET))]


@pytest.mark.parametrize(
    "knobs", _candidates(), ids=lambda knobs: "_".join(map(str, knobs.values()))
)
def test_every_candidate(knobs):
    run(LAYERS["56x56x64->256"], torch.float16, (3,), knobs.items())
