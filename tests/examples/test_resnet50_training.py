"""A training step of the example: its gradients, its update, its schedule, its memory; the plans
interpreted, step by step and on a device that interprets."""

import contextlib
import io
from types import SimpleNamespace

import numpy as np
import pytest

from dnnc import load_bundle
from dnnc.runtime import driver
from examples.resnet50 import __main__ as command
from examples.resnet50 import training_checks, training_device
from examples.resnet50 import training_parameters as data
from examples.resnet50.network import NETWORKS
from examples.resnet50.training_calls import Places, TrainingCalls, plans_of
from examples.resnet50.training_device import TrainingDevice
from examples.resnet50.training_graphs import GROWTH_INTERVAL, MOMENTUM, WEIGHT_DECAY, graph_of
from examples.resnet50.training_host import HostTraining, by_interpreter, by_reference
from examples.resnet50.training_steps import Training
from tests.examples.fake_devices import InOrder, Interpreted

TINY = Training(NETWORKS["tiny"])
RESNET50 = Training(NETWORKS["resnet50"])
N = 2

needs_no_device = pytest.mark.skipif(driver.is_available(), reason="there is a CUDA device")


def in_float64():
    return HostTraining(TINY, N, 0, by_reference(N, is_exact=True), is_exact=True)


def test_gradients_are_those_of_the_loss():
    """Each parameter's gradient, in a direction, is the difference of losses, without rounding."""
    work = in_float64()
    start = {name: buffer.copy() for name, buffer in work.buffers.items()}
    work.run()
    gradients, random = work.gradients(), np.random.default_rng(1)

    def loss_at(part, direction):
        work.buffers = {name: buffer.copy() for name, buffer in start.items()}
        for name in ("master", "half"):
            work.buffers[name][part.slice] += direction
        return work.run(TINY.forward)

    for name, part in TINY.layout.parts.items():
        direction = random.standard_normal(gradients[name].size)
        direction *= 1e-5 / np.linalg.norm(direction)
        found = (loss_at(part, direction) - loss_at(part, -direction)) / 2
        norm = float(np.linalg.norm(gradients[name]))
        assert norm > 1e-3, name
        wanted = float(gradients[name].ravel() @ direction)
        assert abs(found - wanted) < 1e-6 * 1e-5 * norm, name


def test_two_steps_of_sgd():
    """Momentum, weight decay, running statistics; the next step reads what the first wrote."""
    work = in_float64()
    master, velocity = work.buffers["master"].copy(), np.zeros(TINY.layout.parameters)
    for _ in range(2):
        work.run()
        gradient = work.buffers["gradient"] / training_device.LOSS_SCALE
        velocity = MOMENTUM * velocity + gradient + WEIGHT_DECAY * master
        master = master - training_device.RATE * velocity
        # The graph's numbers, as 0.9, are f32.
        np.testing.assert_allclose(work.buffers["master"], master, rtol=0, atol=1e-9)
        np.testing.assert_array_equal(work.buffers["half"], work.buffers["master"])
    part = TINY.layout.running["stem.mean"]
    mean = work.values["stem.y"].reshape(-1, 8).mean(axis=0)  # of the second step
    first = in_float64()
    first.run()
    before = first.buffers["running"][part.slice]
    np.testing.assert_allclose(work.buffers["running"][part.slice], 0.9 * before + 0.1 * mean)


def test_a_step_with_gradients_that_are_not_finite_is_left_out():
    """The loss scale halves; it doubles behind GROWTH_INTERVAL good steps in a row."""
    work = in_float64()
    scaler, steps = TINY.layout.scaler, work.training.steps[-2:]

    def run(gradient):
        work.buffers["gradient"][:] = gradient
        work.buffers["scaler"] = work.buffers["scaler"].copy()
        work.run(steps)
        return [float(work.buffers["scaler"][part.slice][0]) for part in scaler.values()]

    work.given["losses"] = np.zeros(1)
    start = {name: work.buffers[name].copy() for name in ("master", "velocity", "half")}
    for flaw in (np.inf, np.nan):
        gradient = np.ones(TINY.layout.parameters)
        gradient[5] = flaw
        work.buffers["scaler"][scaler["good_steps"].slice] = 7
        scale = work.buffers["scaler"][scaler["loss_scale"].slice][0]
        assert run(gradient) == [scale / 2, 0]
        for name, buffer in start.items():
            np.testing.assert_array_equal(work.buffers[name], buffer)
    assert run(512.0) == [256, 1]
    np.testing.assert_allclose(work.buffers["velocity"], 2 + WEIGHT_DECAY * start["master"])
    work.buffers["scaler"][scaler["good_steps"].slice] = GROWTH_INTERVAL - 1
    assert run(1.0) == [512, 0]


def test_each_value_is_written_once_before_it_is_read():
    """Values and gradients are written once, ahead of their readers; each has a reader."""
    written, read = [], set()
    for step in RESNET50.steps:
        graph = graph_of(step.op, N).graph
        for tensor in graph.inputs:
            value = step.values[tensor.name]
            if value.place == "arena":
                assert value in written, (step.name, value)
            read.add(value)
        written += [step.values[tensor.name] for tensor in graph.outputs]
        assert len(step.values) == len(graph.inputs) + len(graph.outputs)
    assert len(written) == len(set(written))
    unread = [v for v in written if v.place == "arena" and v not in read]
    assert unread == []
    for place in ("gradient", "next_running"):
        names = [value.name for value in written if value.place == place]
        parts = RESNET50.layout.parts if place == "gradient" else RESNET50.layout.running
        assert sorted(names) == sorted(parts)


def planned(n):
    """A step of ResNet-50 whose plans have tensors and workspaces of 1 KB, and nothing else."""
    plans = {}
    for op in RESNET50.operations:
        graph = graph_of(op, n).graph
        tensors = [
            SimpleNamespace(name=t.name, dims=[str(e.constant) for e in t.shape], dtype=t.type.name)
            for t in (*graph.inputs, *graph.outputs)
        ]
        plans[op] = SimpleNamespace(
            plan=SimpleNamespace(tensors=tensors), workspace_size=lambda sizes: 1024
        )
    return TrainingCalls(RESNET50, n, plans)


def test_the_arena_needs_no_more_than_is_there_at_once():
    work = planned(64)
    spans = [(work.arena.offsets[t.name], work.arena.offsets[t.name] + t.bytes, t)
             for t in work.tenants]  # fmt: skip
    for place, (start, end, tenant) in enumerate(spans):
        for first, last, other in spans[:place]:
            assert not (tenant.meets(other) and start < last and first < end), (tenant, other)
    assert work.arena.bytes == max(end for _, end, _ in spans)
    assert work.most_alive <= work.arena.bytes < 1.01 * work.most_alive
    assert work.arena.bytes < 0.5 * sum(tenant.bytes for tenant in work.tenants)


def test_copies_of_the_state_take_turns():
    work = planned(N)
    numbers = {"master": (1, 2), "velocity": (3, 4), "running": (5, 6), "half": (7,),
               "gradient": (8,), "scaler": (9, 10)}  # fmt: skip
    buffers = {name: [i << 40 for i in mine] for name, mine in numbers.items()}
    places = Places(0, dict.fromkeys(("image", "rate"), 1), buffers)
    update, stem = RESNET50.steps[-1].values, RESNET50.steps[0].values

    def at(values, turn):
        names = set(values) - {"x", "rate", "is_good"}
        return {name: work.address(values[name], places, turn) >> 40 for name in names}

    assert at(update, 0) == {"master": 1, "next_master": 2, "velocity": 3, "next_velocity": 4,
                             "half": 7, "gradient": 8, "loss_scale": 9}  # fmt: skip
    assert at(update, 1) == {"master": 2, "next_master": 1, "velocity": 4, "next_velocity": 3,
                             "half": 7, "gradient": 8, "loss_scale": 10}  # fmt: skip
    assert [at(stem, turn)["running_mean"] for turn in (0, 1)] == [5, 6]
    assert [at(stem, turn)["next_mean"] for turn in (0, 1)] == [6, 5]
    assert [at(stem, turn)["scale"] for turn in (0, 1)] == [1, 2]
    offset = RESNET50.layout.parts["stem.scale"].offset
    assert work.address(stem["scale"], places, 0) == (1 << 40) + 4 * offset


def test_comparisons():
    exact = {"a.w": np.ones(4), "b.w": np.ones(4)}
    theirs = {"a.w": np.ones(4) * 1.001, "b.w": np.ones(4)}
    good = {"a.w": np.ones(4) * 1.0014, "b.w": np.ones(4) * 1.0001}
    assert all(c.is_good for c in training_checks.compare_gradients(good, theirs, exact))
    for name, factor in (("a.w", 1.0016), ("b.w", 1.0003), ("a.w", np.nan)):
        found = training_checks.compare_gradients(good | {name: np.ones(4) * factor}, theirs, exact)
        assert [c.name for c in found if not c.is_good] == [name]


def run(*arguments):
    """(status, what was printed) of a command."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = command.main([*map(str, arguments)])
    return status, said.getvalue()


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["build", "--training", "--batch", "any"], "--training --batch any; accepted: numbers"),
        (["train", "--bundle", "nowhere.dnnplan"], "nowhere.dnnplan: no such file; accepted: a "
         "bundle that `build --training --network resnet50 --bundle nowhere.dnnplan` has made"),
    ],
)  # fmt: skip
def test_what_can_not_be_trained(arguments, wanted):
    status, said = run(*arguments)
    assert status == 1
    assert wanted in said


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    path = tmp_path_factory.mktemp("training") / "tiny.dnnplan"
    status, said = run(
        "build", "--training", "--network", "tiny", "--batch", N, "--target", "sm_90a,sm_80",
        "--bundle", path, "--jobs", 2,
    )  # fmt: skip
    assert status == 0, said
    return path, said


@pytest.mark.slow
@needs_no_device
def test_a_step_interpreted(built):
    """The kernels' own PTX, forward and backward, beside the step in float64."""
    path, said = built
    assert f"{len(TINY.steps)} steps" in said
    status, said = run("train", "--network", "tiny", "--bundle", path)
    assert status == 0, said
    assert "All are within." in said
    assert all(f" {name} " in said for name in TINY.layout.parts)
    status, said = run("train", "--network", "tiny", "--bundle", path, "--batch", 3)
    assert "no plan of conv-16x16x3-8x7x7-s2 for 3 images, nor of 50 other operations" in said


@pytest.mark.slow
@needs_no_device
def test_two_steps_on_a_device_that_is_interpreted(built, monkeypatch):
    """In the arena, by turns: the bits of the same plans on memory of their own."""
    Interpreted().install(monkeypatch)
    monkeypatch.setattr(training_device, "Replay", InOrder)
    plans = plans_of(load_bundle(built[0]), TINY, N)
    work = TrainingCalls(TINY, N, plans)
    plain = {op: plan.plan for op, plan in plans.items()}
    alone = HostTraining(TINY, N, 0, by_interpreter(plain, "sm_80"))
    with TrainingDevice(work, 0) as device:
        for _ in range(2):
            device.step()
            loss = alone.run()
            assert device.loss() == pytest.approx(loss, rel=1e-6)
            for name in ("gradient", "master", "velocity", "running", "half"):
                assert device.buffer(name).tobytes() == alone.buffers[name].tobytes(), name
    start = data.parameters(TINY.network, 0)["linear.w"]
    master = data.split(TINY.layout.parts, alone.buffers["master"])
    assert np.abs(master["linear.w"] - start).max() > 1e-4
