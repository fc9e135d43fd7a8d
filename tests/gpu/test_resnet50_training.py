"""The example's training step on the device, beside torch in float32 and in f16 autocast."""

import numpy as np
import pytest

import dnnc
from dnnc.runtime import driver
from dnnc.target import of_capability
from examples.resnet50 import training_checks as checks
from examples.resnet50.network import NETWORKS
from examples.resnet50.train_command import losses_and_gradients
from examples.resnet50.training_building import compile_all
from examples.resnet50.training_calls import TrainingCalls
from examples.resnet50.training_device import LOSS_SCALE, RATE, TrainingDevice
from examples.resnet50.training_steps import Training

SEED = 3


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "n", "seeds"),
    [pytest.param("small", 32, 8, marks=pytest.mark.feature), ("resnet50", 32, 4)],
    ids=str,
)
def test_gradients_and_losses(name, n, seeds):
    pytest.importorskip("torch")
    training = Training(NETWORKS[name])
    target = of_capability(*driver.device().capability).name
    made = compile_all(training, [n], target, 8, lambda name: None)
    work = TrainingCalls(training, n, {op: dnnc.load(plan) for op, _, plan in made})
    with TrainingDevice(work, SEED) as device:
        losses, gradients = losses_and_gradients(device)
        after = device.buffer("master")
        again, _ = losses_and_gradients(device)
        assert losses == again
        device.reset()
        for _ in range(checks.STEPS):
            device.launch()  # one by one, not as a CUDA graph
        assert device.buffer("master").tobytes() == after.tobytes()
    of_seeds = [_compared(training, n, SEED, losses, gradients)]
    for seed in range(SEED + 1, SEED + seeds):
        with TrainingDevice(work, seed) as device:
            of_seeds.append(_compared(training, n, seed, *losses_and_gradients(device)))
    found = checks.together(of_seeds)
    assert [comparison for comparison in found if not comparison.is_good] == []
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]


def _compared(training, n, seed, losses, gradients):
    """Each gradient of the first step, and the losses of all steps, beside torch's."""
    from examples.resnet50.torch_training import reference

    given = training.network, n, seed, RATE, LOSS_SCALE, checks.STEPS
    exact, exact_losses = reference(*given, is_half=False)
    half, half_losses = reference(*given, is_half=True)
    found = checks.compare_gradients(gradients, half, exact)
    found.append(checks.compare_losses(losses, half_losses, exact_losses))
    print(seed, found[-1], flush=True)
    return found
