"""The example network on the device: every layer, the logits, one CUDA graph, all alike."""

import pytest

import dnnc
from dnnc.runtime import driver
from dnnc.target import of_capability
from examples.resnet50 import building, checks, device_checks
from examples.resnet50.device import Device
from examples.resnet50.forward import Forward
from examples.resnet50.graphs import ANY_BATCH
from examples.resnet50.network import NETWORKS


@pytest.mark.parametrize(
    ("name", "batch", "n"),
    [
        pytest.param("small", 3, 3, marks=pytest.mark.feature),
        ("small", ANY_BATCH, 5),
        ("resnet50", 4, 4),
        ("resnet50", ANY_BATCH, 3),
    ],
    ids=str,
)
def test_layers_and_logits(name, batch, n):
    network, target = NETWORKS[name], of_capability(*driver.device().capability).name
    made = building.compile_all(network, [batch], target, 4, lambda name: None)
    forward = Forward(network, n, {compiled.op: dnnc.load(compiled.plan) for compiled in made})
    seen = device_checks.memory()
    with Device(forward, 7) as work:
        wrong = [(layer.name, verdict)
                 for layer, verdict in device_checks.layer_verdicts(work, seen)
                 if not verdict.is_good]  # fmt: skip
        assert not wrong
        exact = device_checks.exact_logits(work, seen)
        launched, replayed = work.logits(work.launch), work.replayed_logits()
        assert launched.tobytes() == replayed.tobytes()
        assert checks.network_verdict(network, launched[: len(exact)], exact).is_good
        times = work.times()
    assert 0 < times.replayed < 1
    assert set(times.layers) == {layer.name for layer in network.layers}
    assert all(seconds > 0 for seconds in times.layers.values())
