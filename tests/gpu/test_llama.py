"""The Llama layer on the device: every step, the layer's output, one CUDA graph, all alike."""

import pytest

import dnnc
from dnnc.runtime import driver
from dnnc.target import of_capability
from examples.llama import building, device_checks
from examples.llama.device import Device
from examples.llama.phases import MODELS, Phase


@pytest.mark.parametrize(
    ("model", "batch", "keys", "block", "is_decode"),
    [
        pytest.param("small", 2, 32, 16, False, marks=pytest.mark.feature),
        pytest.param("small", 3, 48, 16, True, marks=pytest.mark.feature),
        ("llama3-8b", 1, 2048, 64, False),
        ("llama3-8b", 2, 192, 64, False),
        ("llama3-8b", 16, 4096, 64, True),
        ("llama3-8b", 1, 1024, 16, True),
        ("llama3-8b", 5, 512, 16, True),
    ],
    ids=str,
)
def test_steps_and_output(model, batch, keys, block, is_decode):
    phase = Phase(MODELS[model], batch, keys, block, is_decode)
    target = of_capability(*driver.device().capability).name
    built = building.compile_all([phase], target, 4, lambda name: None)
    plans = {name: dnnc.load(plan) for name, plan in built.plans.items()}
    seen = device_checks.memory()
    with Device(phase, plans, 7) as work:
        wrong = [(step.name, verdict)
                 for step, verdict in device_checks.verdicts(work, seen)
                 if not verdict.is_good]  # fmt: skip
        assert not wrong
        launched, replayed = work.output(work.launch), work.replayed_output()
        assert launched.tobytes() == replayed.tobytes()
        assert device_checks.layer_verdict(work, seen, launched).is_good
        times = work.times()
    assert 0 < times.replayed < 1
    assert set(times.steps) == {step.name for step in phase.steps}
    assert all(seconds > 0 for seconds in times.steps.values())
