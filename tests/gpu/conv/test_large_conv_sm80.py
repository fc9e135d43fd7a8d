"""Convolutions by engine conv_sm80, of sizes that the interpreter is too slow for, against torch in
float64."""

import pytest

from dnnc.dialect.fusion import partition
from dnnc.engines.conv.sm80 import CONV_SM80
from dnnc.target import of
from tests.engines.conv.convs import around

torch = pytest.importorskip("torch")

from . import large_convs  # noqa: E402
from .large_convs import fused  # noqa: E402
from .test_large_conv import LAYERS  # noqa: E402

MORE = {
    **LAYERS,
    "224x224x3 7x7 s2": ([3, 224, 224], [64, 3, 7, 7], around(3, 2)),
    "28x28 of 66 channels": ([66, 28, 28], [72, 66, 3, 3], around(1)),
    "28x28 of 20 channels": ([20, 28, 28], [72, 20, 3, 3], around(1)),
    "groups of 3 channels": ([48, 28, 28], [64, 3, 3, 3], around(1)),
    "3D with wide padding": ([16, 5, 9, 11], [24, 16, 9, 9, 9], around(17, dilation=4, spatial=3)),
}


def run(layer, dtype, batches, target="", knobs=()):
    options = {"target": target, "allowance": 2.0**-18}
    large_convs.run("conv_sm80", layer, dtype, batches, knobs, **options)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", MORE)
def test_layers_with_the_knobs_that_are_chosen(name, dtype):
    run(MORE[name], dtype, (1, 5, 32))


@pytest.mark.sm90
@pytest.mark.parametrize("name", ["28x28x128 3x3", "224x224x3 7x7 s2"])
def test_code_for_hopper_alone(name):
    run(MORE[name], torch.float16, (3,), "sm_90a")


def _candidates(name):
    graph = fused(MORE[name], torch.float16)
    (fusion,) = partition(graph, [graph.live_ops])
    return [(name, dict(knobs)) for knobs in CONV_SM80.candidates(fusion, of("sm_90"))]


@pytest.mark.parametrize(
    ("name", "knobs"),
    [*_candidates("28x28x128 3x3"), *_candidates("224x224x3 7x7 s2")],
    ids=lambda value: value if isinstance(value, str) else "_".join(map(str, value.values())),
)
def test_every_candidate(name, knobs):
    run(MORE[name], torch.float16, (3,), knobs=knobs.items())
