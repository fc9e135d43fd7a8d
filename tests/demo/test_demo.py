"""The demo as a whole: on the command line, on a device that is interpreted, and from files."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from demo import __main__ as demo
from demo import device, graphs, run_plans, runs
from demo.model import Encoder, exact
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
    assert {f"{graph}_f16.dnnplan" for graph in graphs.BUILDERS} | {"cases.npz"} <= names
    assert {"1-graph.mlir", "2-fused.mlir", "3-linalg.mlir", "6-ptx.ptx"} <= names
    assert "gelu_fwd" in (folder / "stages" / "1-graph.mlir").read_text()
    assert "mma.sync" in (folder / "stages" / "6-ptx.ptx").read_text()
    assert "All are within what is allowed." in done.stdout


@pytest.mark.parametrize("graph", graphs.BUILDERS)
def test_every_plan_is_in_each_table(quick, graph):
    """A row a kernel, the reference's row, and the row of what was run."""
    _, done = quick
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(f"  {graph}_f16 ")]
    kernels, others = rows[:-2], rows[-2:]
    engine = "matmul_sm80" if graph.startswith("ffn") else "rows"
    assert {row[1] for row in kernels} == {"sm_80", "sm_90"}
    assert all(engine in row and any("fusion0_" in word for word in row) for row in kernels)
    assert all(float(row[1]) < 2 * UNIT["f16"] for row in others)


@pytest.mark.parametrize("graph", graphs.BUILDERS)
def test_every_plan_launches_one_kernel(quick, graph):
    folder, _ = quick
    for program in load(folder / f"{graph}_f16.dnnplan").plan.programs:
        assert {len(variant.steps) for variant in program.variants} == {1}


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
    assert "5 plans of" in done.stdout
    assert done.stdout.count(" ok") == 5
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
    idle = driver.Calls(lambda *_: (0,), lambda *_: (0,), lambda: (0, 1))
    monkeypatch.setattr(driver, "calls", lambda: idle)
    # Other tests may have loaded the compiler into this process.
    monkeypatch.setattr(run_plans, "loaded_compiler", lambda: [])
    assert run_plans.main([str(folder)]) == 1
    assert capsys.readouterr().out.count("WRONG") == 5


def test_the_demo_with_a_device(quick, interpreted, capsys):
    folder, _ = quick
    chosen = demo.Settings("sm_80", folder, dtypes=("f16",), layers=1, pairs=1)
    executables = {name: load(folder / f"{name}.dnnplan") for name in chosen.names}
    parts = Encoder().parts(chosen.sentences)
    assert demo.show_runs(chosen, parts, executables)
    said = capsys.readouterr().out
    assert f"On {NAME}" in said
    assert "1.0 us" in said
    assert "no CUDA device" not in said
    assert interpreted.launches == 5


def test_a_layer_on_a_device(quick, interpreted):
    """Its plans in turn, on all tokens, as the sentences take them."""
    folder, _ = quick
    plans = {name: load(folder / f"{name}.dnnplan") for name in demo.Settings("", folder).names[:5]}
    compute = graphs.computed_by(runs.runner_of(plans), "f16")
    parts = [part for part in Encoder().parts(["One sentence."]) if part.layer == 3]
    assert len(parts) == 4
    for part in parts:
        y = exact(part)
        allowed = 2 * UNIT["f16"]
        assert np.linalg.norm(compute(part) - y) / np.linalg.norm(y) < allowed
    assert interpreted.launches == 5


def test_timing_is_bounded(monkeypatch):
    """A slow launch is timed twice and not more; a fast one in several rounds."""
    calls = []
    monkeypatch.setattr(driver, "synchronize", lambda stream=0: None)
    device.seconds_a_launch(lambda: (calls.append(0), time.sleep(0.3)))
    assert len(calls) == 2
    assert 1e-3 < device.seconds_a_launch(lambda: time.sleep(1e-3)) < 1e-2
