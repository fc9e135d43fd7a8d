"""The demo as a whole: on the command line, on a device that is interpreted, and from files."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from demo import __main__ as demo
from demo import device, graphs, run_plans, runs
from demo.model import Encoder, exact_feed_forward
from demo.numerics import UNIT
from dnnc.runtime import driver, load

from .interpreted_driver import NAME, InterpretedDriver

ROOT = Path(__file__).parents[2]

needs_no_device = pytest.mark.skipif(driver.is_available(), reason="there is a CUDA device")


def python(*arguments):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """(folder, finished process) of the quick demo."""
    folder = tmp_path_factory.mktemp("demo")
    return folder, python("-m", "demo", "--quick", "--out", folder)


def test_quick(quick):
    folder, done = quick
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""  # no progress bar where nobody looks
    names = {path.name for path in folder.rglob("*") if path.is_file()}
    assert {"ffn_in_f16.dnnplan", "ffn_out_f16.dnnplan", "cases.npz"} <= names
    assert {"1-graph.mlir", "2-fused.mlir", "3-linalg.mlir", "6-ptx.ptx"} <= names
    assert "gelu_fwd" in (folder / "stages" / "1-graph.mlir").read_text()
    assert "mma.sync" in (folder / "stages" / "6-ptx.ptx").read_text()
    assert "All are within what is allowed." in done.stdout


@needs_no_device
def test_quick_says_that_there_is_no_device(quick):
    _, done = quick
    assert "no CUDA device: NOT_" in done.stdout
    assert "the first 8 of" in done.stdout


@needs_no_device
def test_run_plans_refuses_without_a_device(quick):
    folder, _ = quick
    done = python("-m", "demo.run_plans", folder)
    assert done.returncode == 1
    assert "NOT_INITIALIZED" in done.stdout or "PREREQUISITE_MISSING" in done.stdout
    assert done.stderr == ""


def test_run_plans_needs_its_files(tmp_path):
    done = python("-m", "demo.run_plans", tmp_path)
    assert done.returncode == 1
    assert "cases.npz" in done.stdout
    assert done.stderr == ""


RUN_WITHOUT_A_COMPILER = """
import sys, pytest
from demo import device, run_plans
from tests.demo.interpreted_driver import InterpretedDriver
with pytest.MonkeyPatch.context() as patch:
    InterpretedDriver().install(patch)
    patch.setattr(device, "seconds_a_launch", lambda launch: 1e-6)
    status = run_plans.main([sys.argv[1]])
strange = ("numba_cuda_mlir", "dnnc.mlir", "dnnc.compiler", "dnnc.dialect", "rich")
print(*[name for name in sys.modules if name.startswith(strange)], file=sys.stderr)
sys.exit(status)
"""


def test_run_plans_on_an_interpreted_device(quick):
    """The whole way of carried plans, with nothing loaded but the runtime."""
    folder, _ = quick
    done = python("-c", RUN_WITHOUT_A_COMPILER, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.split() == []
    assert "2 plans of" in done.stdout
    assert done.stdout.count(" ok") == 2
    assert "all match float64" in done.stdout


@pytest.fixture
def interpreted(monkeypatch):
    """A device that is there, and not timed: launches take a second."""
    fake = InterpretedDriver()
    fake.install(monkeypatch)
    monkeypatch.setattr(device, "seconds_a_launch", lambda launch: 1e-6)
    return fake


def test_run_plans_notices_what_no_kernel_wrote(quick, interpreted, monkeypatch, capsys):
    folder, _ = quick
    monkeypatch.setattr(driver, "launcher", lambda: (lambda *_: (0,), None, 0))
    # Other tests may have loaded the compiler into this process.
    monkeypatch.setattr(run_plans, "loaded_compiler", lambda: [])
    assert run_plans.main([str(folder)]) == 1
    assert capsys.readouterr().out.count("WRONG") == 2


def test_the_demo_with_a_device(quick, interpreted, capsys):
    folder, _ = quick
    chosen = demo.Settings("sm_80", folder, dtypes=("f16",), layers=1, pairs=1)
    executables = {name: load(folder / f"{name}.dnnplan") for name in chosen.names}
    blocks = Encoder().feed_forwards(chosen.sentences)
    assert demo.show_runs(chosen, blocks, executables)
    said = capsys.readouterr().out
    assert f"On {NAME}" in said
    assert "1.0 us" in said
    assert "no CUDA device" not in said
    assert interpreted.launches == 2


def test_a_layer_on_a_device(quick, interpreted):
    """Both plans in turn, on all tokens, as the sentences take them."""
    folder, _ = quick
    names = ("ffn_in_f16", "ffn_out_f16")
    run = runs.runner_of({name: load(folder / f"{name}.dnnplan") for name in names})
    block = Encoder().feed_forwards(["One sentence."])[3]
    exact = exact_feed_forward(block)
    y = graphs.feed_forward(run, "f16")(block)
    assert np.linalg.norm(y - exact) / np.linalg.norm(exact) < 2 * UNIT["f16"]


def test_timing_is_bounded(monkeypatch):
    """A slow launch is timed twice and not more; a fast one in several rounds."""
    calls = []
    monkeypatch.setattr(driver, "synchronize", lambda stream=0: None)
    device.seconds_a_launch(lambda: (calls.append(0), time.sleep(0.3)))
    assert len(calls) == 2
    assert 1e-3 < device.seconds_a_launch(lambda: time.sleep(1e-3)) < 1e-2
