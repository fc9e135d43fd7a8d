"""The demo as a whole: on the command line, on a device that is interpreted, and from files."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from demo import __main__ as demo
from demo import carried, device, graphs, run_plans
from demo.model import Encoder
from demo.numerics import UNIT
from demo.run_plans import BUNDLE
from dnnc import load_bundle
from dnnc.runtime import driver

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
    assert {BUNDLE, carried.FILE} <= names
    assert {"1-graph.mlir", "2-fused.mlir", "3-linalg.mlir", "6-ptx.ptx"} <= names
    assert "gelu_fwd" in (folder / "stages" / "1-graph.mlir").read_text()
    assert "wgmma.mma_async" in (folder / "stages" / "6-ptx.ptx").read_text()
    assert "All are within what is allowed." in done.stdout
    table = [line for line in done.stdout.splitlines() if " fusion0_" in line]
    assert max(map(len, table)) < 120


# Kernels of a plan for sm_80.
LAUNCHES = {"attention_out": 2, "ffn_out": 2, "pool": 2}


@pytest.mark.parametrize("graph", graphs.BUILDERS)
def test_every_plan_is_in_each_table(quick, graph):
    """A row a kernel, and the row of what was run."""
    _, done = quick
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(f"  {graph}_f16 ")]
    kernels, ran = rows[:-1], rows[-1]
    assert {row[1] for row in kernels} == {"sm_80", "sm_90a"}
    assert all(any("fusion" in word for word in row) for row in kernels)
    assert float(ran[1]) < 2 * UNIT["f16"]


@pytest.mark.parametrize("graph", graphs.BUILDERS)
def test_launches_of_every_plan(quick, graph):
    """One on Hopper; attention has its own engines, there with a look at the sentences' numbers."""
    folder, _ = quick
    plan = load_bundle(folder / BUNDLE)[f"{graph}_f16"].plan
    launches = {program.target: {len(variant.steps) for variant in program.variants}
                for program in plan.programs}  # fmt: skip
    hopper = 2 if graph == "attention" else 1
    assert launches == {"sm_80": {LAUNCHES.get(graph, 1)}, "sm_90a": {hopper}}
    engines = [{fusion.engine for fusion in program.fusions} for program in plan.programs]
    if graph == "attention":
        assert engines == [{"sdpa_sm80"}, {"sdpa_fwd_sm90"}]


@needs_no_device
def test_quick_says_that_there_is_no_device(quick):
    _, done = quick
    assert "no CUDA device: NOT_" in done.stdout
    assert "tokens of the first pair" in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if "f16: vectors of 2 sent" in line]
    found, wanted = (float(word.rstrip(",.")) for word in line.split() if word.startswith("0."))
    assert abs(found - wanted) < 1e-3


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
    assert carried.FILE in done.stdout
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


@pytest.mark.in_turn
def test_run_plans_on_an_interpreted_device(quick):
    """The whole way of carried plans, with nothing loaded but the runtime."""
    folder, _ = quick
    done = python("-c", RUN_WITHOUT_A_COMPILER, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.split() == []
    assert "7 plans of" in done.stdout
    assert done.stdout.count(" ok") == 8
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
    assert capsys.readouterr().out.count("WRONG") == 8


ONE_LAYER = sum(LAUNCHES.get(graph, 1) for graph in graphs.BUILDERS)


@pytest.mark.in_turn
def test_the_demo_with_a_device(quick, interpreted, capsys):
    folder, _ = quick
    chosen = demo.Settings("sm_80", folder, dtypes=("f16",), layers=1, pairs=1)
    ran = demo.show_runs(chosen, Encoder(), load_bundle(folder / BUNDLE))
    assert ran.is_good
    assert ran.vectors["f16"].shape == ran.exact.shape == (2, 384)
    said = capsys.readouterr().out
    assert f"On {NAME}" in said
    assert "1.0 us" in said
    assert "launched one by one: f16 1 us" in said
    assert "no CUDA device" not in said
    assert interpreted.launches == 2 * ONE_LAYER


def test_cosines(quick, interpreted, capsys):
    vectors = np.eye(4)
    vectors[1, :2] = 0.6, 0.8
    chosen = demo.Settings("sm_80", quick[0], dtypes=("f16",), pairs=2)
    demo.show_sentences(chosen, demo.Ran(True, vectors, {"f16": np.eye(4)}))
    first = capsys.readouterr().out.splitlines()[6]
    assert first.endswith("0.6000  0.0000       0.0000")


def test_timing_is_bounded(monkeypatch):
    """A slow launch is timed twice and not more; a fast one in several rounds."""
    calls = []
    monkeypatch.setattr(driver, "synchronize", lambda stream=0: None)
    device.seconds_a_launch(lambda: (calls.append(0), time.sleep(0.3)))
    assert len(calls) == 2
    assert 1e-3 < device.seconds_a_launch(lambda: time.sleep(1e-3)) < 1e-2
