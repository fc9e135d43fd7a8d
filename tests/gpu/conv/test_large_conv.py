"""Convolutions of sizes that the interpreter is too slow for, against torch in float64."""

import pytest

from dnnc.dialect.fusion import partition
from dnnc.engines.conv.sm90 import CONV_SM90
from dnnc.target import of
from tests.engines.conv.convs import around

torch = pytest.importorskip("torch")

from . import large_convs  # noqa: E402
from .large_convs import fused  # noqa: E402

pytestmark = pytest.mark.sm90

TARGET = "sm_90a"

# (X without N, W, parameters): odd sizes, and layers of ResNet-50.
LAYERS = {
    "odd": ([72, 29, 23], [104, 72, 3, 3], around(1)),
    "odd, with stride": ([136, 31, 27], [72, 136, 5, 3], {
        "padding": [2, 1], "stride": [2, 3], "dilation": [1, 2]}),
    "56x56x64 3x3": ([64, 56, 56], [64, 64, 3, 3], around(1)),
    "56x56x32 3x3": ([32, 56, 56], [32, 32, 3, 3], around(1)),
    "56x56x64->256 1x1": ([64, 56, 56], [256, 64, 1, 1], around(0)),
    "28x28x128 3x3": ([128, 28, 28], [128, 128, 3, 3], around(1)),
    "14x14x256 3x3": ([256, 14, 14], [256, 256, 3, 3], around(1)),
    "7x7x512 3x3": ([512, 7, 7], [512, 512, 3, 3], around(1)),
    "56x56x256->512 1x1 s2": ([256, 56, 56], [512, 256, 1, 1], around(0, 2)),
    "28x28x128 5x5 of groups": ([128, 28, 28], [128, 16, 5, 5], around(2)),
    "dilation 2": ([64, 40, 41], [96, 64, 3, 3], around(2, dilation=2)),
    "3D": ([32, 9, 13, 11], [40, 32, 3, 3, 3], around(1, spatial=3)),
    "12x40x128x32 3x3x3": ([32, 12, 40, 128], [32, 32, 3, 3, 3], around(1, spatial=3)),
    "1D": ([96, 1001], [200, 96, 7], around(3, 2, spatial=1)),
}  # fmt: skip


def run(layer, dtype, batches, knobs=(), engine="conv_sm90"):
    options = {"target": TARGET, "allowance": 2.0**-18}
    large_convs.run(engine, layer, dtype, batches, knobs, **options)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_layers_with_the_knobs_that_are_chosen(name, dtype):
    run(LAYERS[name], dtype, (1, 5, 32))


STEMS = {
    "224x224x3 7x7 s2": ([3, 224, 224], [64, 3, 7, 7], around(3, 2)),
    "160x160x3 3x3 s2": ([3, 161, 160], [40, 3, 3, 3], around(1, 2)),
    "four channels": ([4, 37, 78], [104, 4, 5, 5], around(2)),
    "224x224x3 3x3": ([3, 224, 224], [64, 3, 3, 3], around(1)),
    "299x299x3 3x3 s2": ([3, 299, 299], [32, 3, 3, 3], around(0, 2)),
    "106x106x8 7x7 s2": ([8, 106, 106], [24, 8, 7, 7], around(3, 2)),
    "57x57x16 5x5": ([16, 57, 57], [40, 16, 5, 5], around(2)),
    "56x56x32 3x3 s2": ([32, 56, 56], [64, 32, 3, 3], around(1, 2)),
    "many outputs": ([8, 40, 44], [600, 8, 3, 3], around(1)),
    "few outputs": ([16, 64, 72], [3, 16, 5, 5], around(2)),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [128, 256])
@pytest.mark.parametrize("name", STEMS)
def test_layers_of_few_channels(name, rows, dtype):
    run(STEMS[name], dtype, (1, 33), {"TILE_M": rows}.items(), "conv_stem_sm90")


def _candidates():
    """Each tile and cluster once, of a layer; with a halo, of two more."""
    for name in ("28x28x128 3x3", "56x56x64 3x3", "56x56x32 3x3"):
        graph = fused(LAYERS[name], torch.float16)
        (fusion,) = partition(graph, [graph.live_ops])
        for knobs in CONV_SM90.candidates(fusion, of(TARGET)):
            if name == "28x28x128 3x3" or knobs["TILE_ROWS"]:
                yield name, dict(knobs)


def _name(part):
    return part if isinstance(part, str) else "_".join(map(str, part.values()))


@pytest.mark.parametrize(("name", "knobs"), list(_candidates()), ids=_name)
def test_every_candidate(name, knobs):
    run(LAYERS[name], torch.float16, (3,), knobs.items())
