"""Graphs that add to what an output held, on the command line: its array goes by its name."""

import json

import numpy as np
import pytest

from tests.demo.interpreted_driver import InterpretedDriver

from .commands import dnnc, error_of

ADDED = """
import dnnc


def build():
    g = dnnc.pygraph("added", io_data_type="f16", compute_data_type="f32")
    x, y = g.tensor([6, 40], name="x"), g.tensor([6, 40])
    y.prior_of = 9
    g.add(x, g.mul(y, 0.5)).set_output().set_uid(9).set_name("y")
    return g
"""


@pytest.fixture
def arrays(here):
    rng = np.random.default_rng(0)
    (here / "added.py").write_text(ADDED)
    x, held = (rng.uniform(-1, 1, (6, 40)).astype(np.float16) for _ in range(2))
    np.savez("inputs.npz", x=x, y=held)
    return x, held


@pytest.mark.parametrize("device", ["cpu", "interpreter", "cuda"])
def test_what_is_held_is_given_and_read(device, arrays, monkeypatch):
    if device == "cuda":
        InterpretedDriver().install(monkeypatch)
    x, held = arrays
    given = ("inputs.npz", "-o", "y.npy", "-d", device, "--check")
    target = () if device == "cpu" else ("--target", "sm_80")
    result = dnnc("run", "added.py", *given, *target)
    assert result.exit_code == 0, result.output
    wanted = (x + np.float32(0.5) * held).astype(np.float16)
    np.testing.assert_array_equal(np.load("y.npy"), wanted)


def test_it_is_made_up_or_asked_for(arrays):
    assert dnnc("run", "added.py", "--random", "-d", "cpu", "--check").exit_code == 0
    x, _ = arrays
    np.save("x.npy", x)
    said = error_of(dnnc("run", "added.py", "x=x.npy", "-d", "cpu"))
    assert "no array is given for it; accepted: y=FILE.npy" in said


def test_plans_and_graphs_show_it(arrays):
    assert dnnc("compile", "added.py", "--target", "sm_80", "-o", "p.dnnplan").exit_code == 0
    lines = [" ".join(line.split()) for line in dnnc("inspect", "p.dnnplan").stdout.splitlines()]
    assert "9 y output, read f16 [6, 40] [40, 1] 16 B" in lines
    (step,) = (line for line in lines if line.startswith("step 0"))
    assert step.count("&") == 2
    assert "&y" in step
    graph = json.loads(dnnc("inspect", "p.dnnplan", "--graph").stdout)
    (prior,) = (t for t in graph["tensors"] if "prior_of" in t)
    assert prior["prior_of"] == 9
    lines = [" ".join(line.split()) for line in dnnc("inspect", "added.py").stdout.splitlines()]
    assert f"{prior['uid']} uid 9 before f16 [6, 40] [40, 1] 16 B" in lines
