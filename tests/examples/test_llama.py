"""The Llama layer: built by its commands, interpreted, on a device that is interpreted, judged."""

import contextlib
import io
import itertools
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from demo.device import Buffers
from dnnc import load_bundle
from dnnc.errors import DnncError
from dnnc.runtime import driver
from examples import cuda_graph
from examples.cuda_graph import Replay
from examples.llama import __main__ as command
from examples.llama import (
    device,
    device_checks,
    interpreted,
    reference,
    run_command,
    tensors,
    walk,
)
from examples.llama.device import Device
from examples.llama.interpreted import Interpreted
from examples.llama.phases import MODELS, Append, Phase, Step, phases_of
from examples.llama.reference import Exact, judged
from tests.demo.interpreted_driver import NAME
from tests.examples import fake_devices

ROOT = Path(__file__).parents[2]
SMALL = MODELS["small"]
PREFILL = Phase(SMALL, 2, 16, 16, is_decode=False)
DECODE = Phase(SMALL, 3, 48, 16, is_decode=True)

needs_no_device = pytest.mark.skipif(driver.is_available(), reason="there is a CUDA device")


def run(*arguments):
    """(status, what was printed) of a command."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = command.main([*map(str, arguments)])
    return status, said.getvalue()


def build(folder, *phases):
    """(the bundle's file, what `build` said)."""
    path = folder / "made" / "small.dnnplan"
    status, said = run(
        "build", "--model", "small", "--block", 16, "--bundle", path, "--jobs", 1, *phases
    )
    assert status == 0, said
    return path, said


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build(tmp_path_factory.mktemp("llama"), "--prefill", "2x16", "--decode", "3x48")


@pytest.fixture(scope="module")
def portable(tmp_path_factory):
    """Decode's bundle, for the interpreted device, which needs code for any architecture."""
    folder = tmp_path_factory.mktemp("portable")
    return build(folder, "--decode", "3x48", "--target", "sm_80")[0]


# ---- build


def test_the_tables_have_every_step(built):
    path, said = built
    lines = [line.split() for line in said.splitlines() if "@" in line]
    rows = {line[1]: line for line in lines}
    assert set(rows) == set(load_bundle(path)) == {*PREFILL.graphs, *DECODE.graphs}
    assert rows["attention@small-prefill-2x16-p16"][2] == "sdpa_fwd_sm90"
    assert len(lines) == sum(isinstance(step, Step) for p in (PREFILL, DECODE) for step in p.steps)
    assert sum("append_" in line for line in said.splitlines()) == 2


def test_one_kernel_a_step(built):
    """On Hopper: products with their gate or residual, both kinds of attention."""
    for name, plan in _plans(built):
        for variant in plan.programs[0].variants:
            assert sum(step.launch is not None for step in variant.steps) == 1, name
    engines = {n: p.programs[0].fusions[0].engine for n, p in _plans(built)}
    assert engines["gate_up@small-3"] == engines["gate_up@small-32"] == "matmul_sm90"


def _plans(built):
    bundle = load_bundle(built[0])
    return [(name, bundle[name].plan) for name in bundle]


def test_phases_are_found_in_names(built):
    assert phases_of(load_bundle(built[0])) == [PREFILL, DECODE]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ([], ["llama3-8b-prefill-1x2048-p64", "llama3-8b-decode-16x4096-p64"]),
        (["--decode", "1x64"], ["llama3-8b-decode-1x64-p64"]),
        (["--model", "small", "--prefill", "1x64", "--prefill", "2x64"],
         ["small-prefill-1x64-p64", "small-prefill-2x64-p64"]),
        (["--model", "small", "--prefill", "1x64", "--decode", "2x32", "--block", "16"],
         ["small-prefill-1x64-p16", "small-decode-2x32-p16"]),
    ],
)  # fmt: skip
def test_what_is_asked_for(given, wanted):
    arguments = command.parser().parse_args(["build", *given])
    assert [phase.name for phase in command.phases(arguments)] == wanted


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["build", "--prefill", "1x100"], "100 tokens in blocks of 64; accepted: a multiple"),
        (["build", "--decode", "1x96", "--block", "48"], "blocks of 48; accepted: a power of two"),
        (["run", "--bundle", "nowhere.dnnplan"], "nowhere.dnnplan: can't be read"),
    ],
)
def test_what_can_not_be_done(arguments, said):
    status, found = run(*arguments)
    assert status == 1
    assert said in found


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["conv@2"], "no plan of a phase"),
        (["norm@small-3", "attention@small-decode-3x48-p16"], "no plan angles@small-3"),
        (["attention@large-decode-3x48-p16"], "model 'large'; accepted: llama3-8b, small"),
    ],
)
def test_bundles_that_are_others(monkeypatch, names, said):
    monkeypatch.setattr(run_command.dnnc, "load_bundle", lambda path: names)
    status, found = run("run")
    assert status == 1
    assert said in found


@needs_no_device
def test_a_device_is_needed_unless_interpreted(built, monkeypatch):
    arguments = ["run", "--bundle", built[0]]
    status, said = run(*arguments)
    assert status == 1
    assert "accepted: a GPU, or --interpreted" in said
    monkeypatch.setattr(interpreted, "MOST_PRODUCTS", 1e3)
    status, said = run(*arguments, "--interpreted")
    assert status == 1
    assert "multiplications are too many for the interpreter" in said


# ---- what is given


def test_numbers():
    array = np.array([1.0, -2.0, 3.14159, 1e-3, 1.00390625, 1.01171875], np.float32)
    bits = tensors.bits_of(array)
    # The last two are half-way: to even.
    assert tensors.numbers_of(bits).tolist() == [1, -2, 3.140625, 0.00099945068359375, 1, 1.015625]
    assert np.isnan(tensors.numbers_of(np.array([tensors.NOTHING], np.uint16))).all()


def test_the_cache_has_all_but_the_new_token():
    given = tensors.given(DECODE, 0)
    lengths, table = given["lengths"], given["table"].reshape(3, -1)
    assert lengths[0] == 48
    assert (lengths >= 24).all()
    np.testing.assert_array_equal(given["positions"], lengths - 1)
    used = table[table >= 0]
    assert len(set(used)) == len(used) == sum(-(-lengths // 16))
    cache = tensors.numbers_of(given["cache_k"]).reshape(9, 2, 16, 32)
    for sequence, length in enumerate(lengths):
        keys = cache[table[sequence, : -(-length // 16)]].swapaxes(0, 1).reshape(2, -1, 32)
        assert np.isfinite(keys[:, : length - 1]).all()
        assert np.isnan(keys[:, length - 1 :]).all()


def test_appending():
    """Each sequence's new keys get their place, and nothing else changes."""
    given = tensors.given(DECODE, 0)
    (step,) = (s for s in DECODE.steps if isinstance(s, Append) and s.cache == "cache_k")
    qk = np.arange(3 * 6 * 32, dtype=np.uint16)
    before = given["cache_k"].reshape(9, 2, 16, 32).copy()
    walk.append(DECODE, step, {**given, "qk": qk})
    after = given["cache_k"].reshape(9, 2, 16, 32)
    for sequence, length in enumerate(given["lengths"]):
        page, slot = divmod(int(length) - 1, 16)
        block = given["table"].reshape(3, 3)[sequence, page]
        np.testing.assert_array_equal(after[block, :, slot], qk.reshape(3, 6, 32)[sequence, 4:])
        before[block, :, slot] = after[block, :, slot]
    np.testing.assert_array_equal(after, before)


# ---- run


@pytest.mark.in_turn
@needs_no_device
def test_both_phases_interpreted(built):
    status, said = run("run", "--bundle", built[0], "--interpreted")
    assert status == 0, said
    assert said.count("All are within what is allowed.") == 2
    for phase in (PREFILL, DECODE):
        assert all(f" {step.name} " in said for step in phase.steps if isinstance(step, Step))


@pytest.mark.in_turn
def test_decode_goes_on_where_prefill_ended(built):
    """The blocks that prefill writes are what decode reads: its row is the longer prompt's last."""
    plans = load_bundle(built[0])
    whole = Interpreted(PREFILL, plans, 5)
    assert all(verdict.is_good for _, verdict in whole.verdicts())
    cache = whole.values["cache_k"].reshape(2, 2, 16, 32)
    rows = whole.values["qk"].reshape(2, 16, 6, 32)[:, :, 4:]
    np.testing.assert_array_equal(cache, rows.swapaxes(1, 2))
    values = whole.values["qkv"].reshape(2, 16, 8, 32)[:, :, 6:].swapaxes(1, 2)
    np.testing.assert_array_equal(whole.values["cache_v"].reshape(2, 2, 16, 32), values)
    # The last token alone, with the others' keys and values in the cache.
    q = whole.values["qk"].reshape(2, 16, 6, 32)[:, -1:, :4].swapaxes(1, 2)
    one = Phase(SMALL, 2, 16, 16, is_decode=True)
    given = {"q": q, "k": cache, "v": values, "table": np.array([0, 1]).reshape(2, 1, 1, 1),
             "lengths": np.full((2, 1, 1, 1), 16)}  # fmt: skip
    wide = {n: tensors.numbers_of(array) for n, array in given.items()}
    y = Exact(one, np).outputs("attention", wide)["y"]
    mixed = tensors.numbers_of(whole.values["mixed"]).reshape(2, 16, 4, 32)
    assert judged(mixed[:, -1], y[:, :, 0], 2 * reference.UNIT, np).is_good


@pytest.fixture
def fake(monkeypatch):
    """A device that runs the code for sm_80, and copies."""
    made = fake_devices.Interpreted()
    made.install(monkeypatch)

    def copy(given, stream):
        for row in range(given.Height):
            source = int(given.srcDevice) + row * given.srcPitch
            data = made.memory.download(source, given.WidthInBytes)
            made.memory.upload(int(given.dstDevice) + row * given.dstPitch, data)
        return (0,)

    monkeypatch.setattr(cuda_graph, "api", lambda: SimpleNamespace(cuMemcpy3DAsync=copy))
    monkeypatch.setattr(device, "Replay", fake_devices.InOrder)
    monkeypatch.setattr(device, "seconds_a_launch", lambda launch: 1e-3)
    monkeypatch.setattr(device_checks, "memory", device_checks.Copied)
    return made


@pytest.mark.in_turn
def test_a_device_that_is_interpreted(portable, fake, monkeypatch):
    times = {step.name: 1e-6 for step in DECODE.steps}
    monkeypatch.setattr(Device, "times", lambda self: device.Times(2e-3, 1e-3, times))
    status, said = run("run", "--bundle", portable)
    assert status == 0, said
    assert f"small-decode-3x48-p16 on {NAME}" in said
    assert "All are within what is allowed." in said
    assert "WRONG" not in said
    assert "As one CUDA graph: 1000.0 us, 3000 tokens a second and layer." in said


RUN_WITHOUT_A_COMPILER = """
import sys, pytest
from types import SimpleNamespace
from examples import cuda_graph
from examples.llama import __main__ as command, device
from tests.examples.fake_devices import InOrder, Interpreted
with pytest.MonkeyPatch.context() as patch:
    Interpreted().install(patch)
    patch.setattr(device, "Replay", InOrder)
    patch.setattr(device, "seconds_a_launch", lambda launch: 1e-3)
    patch.setattr(device, "_TIMED_ROUNDS", 1)
    patch.setattr(device.Replay, "__call__", lambda self: None)
    arguments = ["run", "--bundle", sys.argv[1], "--no-check"]
    status = command.main(arguments)
strange = ("numba_cuda_mlir", "dnnc.mlir", "dnnc.compiler", "dnnc.passes", "rich", "torch")
print(*[name for name in sys.modules if name.startswith(strange)], file=sys.stderr)
sys.exit(status)
"""


@pytest.mark.in_turn
def test_the_bundle_runs_where_no_compiler_is(portable):
    arguments = [sys.executable, "-c", RUN_WITHOUT_A_COMPILER, str(portable)]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.split() == []
    assert "tokens a second and layer" in done.stdout


@pytest.mark.in_turn
@pytest.mark.parametrize("name", ["append_v", "gate_up"])
def test_a_step_that_does_nothing_is_seen(portable, fake, name):
    with Device(DECODE, load_bundle(portable), 0) as work:
        place = [step.name for step in DECODE.steps].index(name)
        work.bound[place] = lambda: None
        found = list(device_checks.verdicts(work, device_checks.Copied()))
        y = work.output(work.launch)
        assert not device_checks.layer_verdict(work, device_checks.Copied(), y).is_good
    reader = "attention" if name == "append_v" else name
    assert next(step.name for step, verdict in found if not verdict.is_good) == reader


@pytest.mark.parametrize("is_timed", [False, True])
def test_one_graph_of_all_steps(portable, monkeypatch, is_timed):
    """Copies of a step side by side, after all that came before; what follows waits for them."""
    recorded = fake_devices.WithEvents()
    recorded.install(monkeypatch)
    monkeypatch.setattr(cuda_graph, "api", lambda: recorded)
    addresses = itertools.count(1 << 32, 1 << 24)
    monkeypatch.setattr(driver, "allocate", lambda bytes_: next(addresses))
    monkeypatch.setattr(driver, "upload", lambda address, array: None)
    monkeypatch.setattr(driver, "free", lambda address: None)
    with Device(DECODE, load_bundle(portable), 0) as work:
        Replay(work.calls, is_timed=is_timed)()
    (nodes,) = recorded.graphs.values()
    nodes = [node for node in nodes if node.kind != "EVENT"]
    copies = [i for i, node in enumerate(nodes) if node.kind == "MEMCPY"]
    assert copies == [*range(5, 11)]
    if not is_timed:
        keys, values = (nodes[i : i + 3] for i in (5, 8))
        assert all(node.after == [nodes[4].handle] for node in keys)
        assert all(node.after == [n.handle for n in keys] for node in values)
        assert nodes[11].after == [n.handle for n in values]


def test_memory_is_freed(portable, fake, monkeypatch):
    freed = []
    monkeypatch.setattr(Buffers, "__exit__", lambda self, *_: freed.append(self))
    with Device(DECODE, load_bundle(portable), 0):
        assert not freed
    assert len(freed) == 1


# ---- judging


def test_exact_knows_every_graph():
    with pytest.raises(AssertionError, match="unknown"):
        Exact(DECODE, np).outputs("unknown", {})


def test_rotation_keeps_products_of_equal_distances():
    """Scores of queries and keys depend on how far they are apart."""
    halves = np.random.default_rng(0).normal(size=(2, 2, 1, 4))  # low and high of a query, a key
    exact = Exact(DECODE, np)

    def rotated(which, position):
        low, high = halves[which]
        given = {"positions": position, "frequencies": np.array([[1, 0.3, 0.1, 0]])}
        made = exact.outputs("angles", given)
        cos, sin, minus = (made[name] for name in ("cos", "sin", "minus_sin"))
        lower = {"x": low, "other": high, "cos": cos, "sin": minus}
        upper = {"x": high, "other": low, "cos": cos, "sin": sin}
        parts = [exact.outputs("rotary", given)["y"] for given in (lower, upper)]
        return np.concatenate(parts, axis=-1)[0]

    near, far = rotated(0, 3) @ rotated(1, 1), rotated(0, 45) @ rotated(1, 43)
    assert near == pytest.approx(far)
    assert near != pytest.approx(rotated(0, 3) @ rotated(1, 2))
    np.testing.assert_allclose(rotated(0, 0), halves[0].ravel())


def test_verdicts():
    exact = np.random.default_rng(0).normal(size=(4, 32))
    rounded = tensors.numbers_of(tensors.bits_of(exact))
    assert judged(rounded, exact, reference.UNIT, np).is_good
    assert not judged(rounded * 1.01, exact, reference.UNIT, np).is_good
    for wrong in (0.2, np.nan):
        y = rounded.copy()
        y[2, 7] += wrong
        assert not judged(y, exact, reference.UNIT, np).is_good
    with pytest.raises(DnncError, match="model 'large'"):
        command.model_of("large")


def test_torch_says_the_same(built):
    torch = pytest.importorskip("torch")
    plans = load_bundle(built[0])
    for phase in (PREFILL, DECODE):
        given = {n: tensors.numbers_of(array) for n, array in tensors.given(phase, 0).items()}
        by_numpy = walk.exact_values(phase, plans, given, np)
        placed = {n: torch.as_tensor(array) for n, array in given.items()}
        placed = {n: t.long() if t.dtype == torch.int32 else t for n, t in placed.items()}
        by_torch = walk.exact_values(phase, plans, placed, torch)
        np.testing.assert_allclose(by_torch["y"].numpy(), by_numpy["y"], rtol=1e-9, atol=1e-9)
        off = placed["x"].reshape(-1, SMALL.hidden) * 1.001
        verdict = judged(off, placed["x"].reshape(off.shape), reference.UNIT, torch)
        assert verdict.error == pytest.approx(1e-3)
        assert verdict.is_good
