"""The small network from the command line to its logits: interpreted, and by the runtime on a
driver that interprets; the bundle alone, where no compiler is."""

import contextlib
import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cuda.bindings import driver as cuda

from dnnc import load, load_bundle
from dnnc.runtime import driver
from examples import cuda_graph
from examples.cuda_graph import Replay
from examples.resnet50 import __main__ as command
from examples.resnet50 import checks, device, device_checks, run_command, tensors
from examples.resnet50.device import Device
from examples.resnet50.forward import Forward, Places, plans_of
from examples.resnet50.network import NETWORKS
from tests.demo.interpreted_driver import NAME
from tests.examples.fake_devices import InOrder, Interpreted, WithEvents

ROOT = Path(__file__).parents[2]
SMALL = NETWORKS["small"]
N = 2

needs_no_device = pytest.mark.skipif(driver.is_available(), reason="there is a CUDA device")


def run(*arguments):
    """(status, what was printed) of a command."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = command.main([*map(str, arguments)])
    return status, said.getvalue()


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """(the bundle's file, what `build` said)."""
    path = tmp_path_factory.mktemp("resnet50") / "made" / "small.dnnplan"
    status, said = run(
        "build", "--network", "small", "--batch", N, "--target", "sm_90a,sm_80",
        "--bundle", path, "--jobs", 2,
    )  # fmt: skip
    assert status == 0, said
    return path, said


# ---- build


def test_the_table_has_every_plan(built):
    _, said = built
    rows = {line.split()[0]: line.split() for line in said.splitlines() if "@2 " in line}
    assert list(rows) == [f"{op.id}@2" for op in SMALL.operations]
    spatial = rows["conv-10x10x8-8x3x3-s1-relu@2"]
    # Two images of 100 pixels are a launch, whichever engine has them.
    assert spatial[1] == "2"
    assert spatial[2] in ("conv_sm90", "conv_stem_sm90", "fallback")
    assert 1 < float(spatial[3]) < 20
    assert rows["maxpool3x3-20x20x8@2"][2] == "resample"
    whole = next(line.split() for line in said.splitlines() if "all layers" in line)
    assert int(whole[2]) == len(SMALL.layers)
    parts = sum(int(row[1]) * float(row[3]) for row in rows.values())
    assert float(whole[3]) == pytest.approx(parts, rel=0.03)


def test_equal_layers_share_a_plan(built):
    path, _ = built
    bundle = load_bundle(path)
    assert set(bundle) == {f"{op.id}@{N}" for op in SMALL.operations}
    forward = Forward(SMALL, N, plans_of(bundle, SMALL, N))
    calls = forward.calls(places(forward))
    assert len(calls) == len(SMALL.layers) > len(set(map(id, forward.plans.values())))
    assert len({id(call.plan) for call in calls}) == len(SMALL.operations)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--batch", "3"], "for 3 images, nor of 20 other operations; accepted: the network that "
         "it was built for, and 2 images"),
        (["--network", "resnet50"], "no plan of conv-224x224x3-64x7x7-s2-relu for 2 images"),
        (["--bundle", "nowhere.dnnplan"], "nowhere.dnnplan: no such file; accepted: a bundle that "
         "`build --network small --bundle nowhere.dnnplan` has made"),
    ],
)  # fmt: skip
def test_what_can_not_be_run(built, arguments, said):
    status, found = run("run", "--network", "small", "--bundle", built[0], *arguments)
    assert status == 1
    assert said in found


@needs_no_device
def test_the_real_network_is_not_interpreted(tmp_path, monkeypatch):
    monkeypatch.setattr(run_command, "plans_of", lambda *_: {})
    monkeypatch.setattr(run_command.dnnc, "load_bundle", lambda path: ["a@1"])
    status, said = run("run", "--batch", "1")
    assert status == 1
    assert "multiplications are too many for the interpreter; accepted: a GPU" in said


# ---- run


@pytest.mark.in_turn
@needs_no_device
def test_every_layer_interpreted(built):
    """The tensor-core kernels' own PTX, layer after layer, to the logits."""
    status, said = run("run", "--network", "small", "--bundle", built[0])
    assert status == 0, said
    assert "no CUDA device" in said
    assert "All are within what is allowed." in said
    assert all(f" {op.id} " in said for op in SMALL.operations)


@pytest.fixture
def interpreted(monkeypatch):
    made = Interpreted()
    made.install(monkeypatch)
    monkeypatch.setattr(device, "Replay", InOrder)
    monkeypatch.setattr(device, "seconds_a_launch", lambda launch: 1e-3)
    monkeypatch.setattr(device_checks, "memory", device_checks.Copied)
    return made


@pytest.mark.in_turn
def test_a_device_that_is_interpreted(built, interpreted, monkeypatch):
    """All of `run`, on a device that runs the code for sm_80, in the arena."""
    monkeypatch.setattr(Device, "times", lambda self: device.Times(2e-3, 1e-3, {
        layer.name: 1e-6 for layer in SMALL.layers}))  # fmt: skip
    status, said = run("run", "--network", "small", "--bundle", built[0])
    assert status == 0, said
    assert f"2 images on {NAME}" in said
    assert "WRONG" not in said
    assert "1 of 2 images" in said
    assert "As one CUDA graph: 1000.0 us, 2000 images a second." in said
    assert interpreted.launches == 3 * len(SMALL.layers)


@pytest.mark.in_turn
def test_a_layer_that_writes_nothing_is_seen(built, interpreted, monkeypatch):
    path, _ = built
    forward = Forward(SMALL, N, plans_of(load_bundle(path), SMALL, N))
    with Device(forward, 0) as work:
        place = [call.layer.name for call in work.calls].index("stage1.block2.reduce")
        work.bound[place] = lambda: None
        found = device_checks.layer_verdicts(work, device_checks.Copied())
        wrong = []
        for layer, verdict in found:
            if not verdict.is_good:
                wrong.append(layer.name)
                break
    assert wrong == ["stage1.block2.reduce"]


@pytest.mark.in_turn
def test_plans_for_any_batch(interpreted):
    """Predictions are of the config that serves so many images; addresses show no sizes."""
    from examples.resnet50 import building  # loads the compiler
    from examples.resnet50.graphs import ANY_BATCH

    no_blocks = replace(SMALL, blocks=(), width=64)
    made = building.compile_all(no_blocks, [ANY_BATCH], "sm_80", 1, lambda name: None)
    assert all(compiled.plan.name.endswith("@N") for compiled in made)
    assert any(len(compiled.plan.programs[0].variants) > 1 for compiled in made)
    assert all(0 < compiled.predicted < 1e-3 for compiled in made)
    forward = Forward(no_blocks, 1, {compiled.op: load(compiled.plan) for compiled in made})
    with Device(forward, 0) as work:
        found = list(device_checks.layer_verdicts(work, device_checks.Copied()))
    assert len(found) == len(no_blocks.layers)
    assert all(verdict.is_good for _, verdict in found)


RUN_WITHOUT_A_COMPILER = """
import sys, pytest
from examples.resnet50 import __main__ as command, device
from tests.examples.fake_devices import InOrder, Interpreted
with pytest.MonkeyPatch.context() as patch:
    Interpreted().install(patch)
    patch.setattr(device, "Replay", InOrder)
    patch.setattr(device, "seconds_a_launch", lambda launch: 1e-3)
    patch.setattr(device, "_TIMED_ROUNDS", 1)
    patch.setattr(device.Replay, "__call__", lambda self: None)
    arguments = ["run", "--network", "small", "--bundle", sys.argv[1], "--no-check"]
    status = command.main(arguments)
strange = ("numba_cuda_mlir", "dnnc.mlir", "dnnc.compiler", "dnnc.passes", "rich", "torch")
print(*[name for name in sys.modules if name.startswith(strange)], file=sys.stderr)
sys.exit(status)
"""


@pytest.mark.in_turn
def test_the_bundle_runs_where_no_compiler_is(built):
    arguments = [sys.executable, "-c", RUN_WITHOUT_A_COMPILER, str(built[0])]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.split() == []
    assert "images a second" in done.stdout


# ---- as one CUDA graph


def places(forward):
    """Addresses far apart."""
    names = [layer.name for layer in SMALL.layers if layer.op.w_shape]
    parameters = {name: (i << 24, (i << 24) + (1 << 23)) for i, name in enumerate(names, 8)}
    return Places(image=1 << 32, logits=1 << 33, arena=1 << 34, parameters=parameters)


@pytest.mark.parametrize("is_timed", [False, True])
def test_one_graph_of_all_layers(built, monkeypatch, is_timed):
    fake = WithEvents()
    fake.install(monkeypatch)
    monkeypatch.setattr(cuda_graph, "api", lambda: fake)
    forward = Forward(SMALL, N, plans_of(load_bundle(built[0]), SMALL, N))
    calls = forward.calls(places(forward))
    replay = Replay(calls, is_timed=is_timed)
    replay()
    (nodes,) = fake.graphs.values()
    kinds = [node.kind for node in nodes]
    if is_timed:
        assert kinds == ["EVENT", *["KERNEL", "EVENT"] * len(SMALL.layers)]
        assert replay.seconds() == [1e-3] * len(SMALL.layers)
    else:
        assert kinds == ["KERNEL"] * len(SMALL.layers)
        assert replay.seconds() == []
    # One chain: each waits for the one before, as the arena needs it.
    assert [node.after for node in nodes] == [[], *([node.handle] for node in nodes[:-1])]
    replay.close()
    assert len(fake.destroyed) == 1 + is_timed * (1 + len(SMALL.layers))


def test_a_call_of_the_driver_that_fails(monkeypatch):
    failed = cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    fake = SimpleNamespace(cuGraphCreate=lambda flags: (failed, None))
    monkeypatch.setattr(cuda_graph, "api", lambda: fake)
    with pytest.raises(RuntimeError, match="EXECUTION_FAILED_CUDA_DRIVER: cuGraphCreate failed"):
        Replay([])


# ---- checks


def test_verdicts():
    """Off by one rounding is good; a channel, an element or a NaN that is wrong is not."""
    op = SMALL.layers[2].op
    random = np.random.default_rng(0)
    x = random.standard_normal((1, *op.x_shape))
    w, bias = tensors.parameters(SMALL, 0)["stage1.block1.project"]
    inputs = {"x": x.astype(np.float16).astype(float), "w": w.astype(float),
              "bias": bias.astype(float)}  # fmt: skip
    reference = checks.Reference()
    exact = reference.layer(op, inputs["x"], inputs["w"], inputs["bias"], None)

    def verdict(y):
        return checks.layer_verdict(reference, op, y, inputs)

    assert verdict(exact.astype(np.float16).astype(float)).is_good
    assert not verdict(exact * 1.001).is_good
    for wrong in (0.0, np.nan):
        y = exact.copy()
        y[0, 3, 4, 5] = wrong
        assert not verdict(y).is_good
    swapped = exact.copy()
    swapped[..., [0, 1]] = exact[..., [1, 0]]
    assert not verdict(swapped).is_good


def test_torch_has_the_same_network():
    torch = pytest.importorskip("torch")
    from examples.resnet50 import torch_model

    parameters, image = tensors.parameters(SMALL, 3), tensors.images(SMALL, 2, 3)
    exact = checks.exact_logits(checks.Reference(), SMALL, image, parameters)
    model = torch_model.Model(SMALL, parameters, "cpu", torch.float64)
    given = torch_model.as_images(torch.as_tensor(image).double())
    logits = model(given).numpy().reshape(exact.shape)
    assert checks.network_verdict(SMALL, logits, exact).is_good
    in_float32 = torch_model.InFloat32()
    placed = {name: tuple(map(torch.as_tensor, pair)) for name, pair in parameters.items()}
    found = checks.exact_logits(in_float32, SMALL, torch.as_tensor(image), placed).numpy()
    assert np.abs(found - logits.reshape(found.shape)).max() < 1e-4 * np.abs(logits).max()
    op, name = SMALL.layers[5].op, SMALL.layers[5].name
    inputs = {"x": torch.randn(2, *op.x_shape), "w": placed[name][0], "bias": placed[name][1]}
    y = in_float32.layer(op, inputs["x"], *placed[name], None)
    assert checks.layer_verdict(in_float32, op, y.half().float(), inputs).is_good
    assert not checks.layer_verdict(in_float32, op, y * 1.01, inputs).is_good
