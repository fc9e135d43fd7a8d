"""`dnnc bench`: on a stand-in for a GPU, whose times mean nothing."""

import importlib.util
import re

import pytest

from dnnc.cli import bench
from tests.demo.interpreted_driver import InterpretedDriver

from .commands import dnnc, error_of


@pytest.fixture
def gpu(monkeypatch):
    made = InterpretedDriver()
    made.install(monkeypatch)
    monkeypatch.setattr(bench, "_WARM_CALLS", 1)
    monkeypatch.setattr(bench, "_ROUND_SECONDS", 0.0)
    return made


def test_what_it_says(plan, gpu):
    result = dnnc("bench", plan, "--size", "M=3", "--rounds", 2)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "device     cuda (an interpreted device)"
    assert re.fullmatch(r"time +[\d.]+ m?s a call \(median of 2 rounds", lines[1])
    elements = 3 * 64 + 64 * 128 + 128 + 3 * 128
    assert re.fullmatch(rf"bandwidth +\S+ GB/s for {elements * 2:,} bytes", lines[3])
    assert gpu.launches == 2 + 2


def test_without_a_gpu(plan, monkeypatch):
    from dnnc.errors import DnncError, Status
    from dnnc.runtime import driver

    def absent():
        raise DnncError(Status.NOT_INITIALIZED, "no CUDA driver", "a machine with one", "cuInit")

    monkeypatch.setattr(driver, "_api", absent)
    said = error_of(dnnc("bench", plan, "--size", "M=3"))
    assert said == "NOT_INITIALIZED: cuInit: no CUDA driver; accepted: a machine with one"


def test_a_size_that_is_not_given(plan, gpu):
    assert "the size M is not given" in error_of(dnnc("bench", plan))


def test_rounds_are_at_least_one(plan, gpu):
    assert dnnc("bench", plan, "--size", "M=3", "--rounds", 0).exit_code == 2


def test_a_plot_of_the_rounds(plan, gpu, here, monkeypatch):
    result = dnnc("bench", plan, "--size", "M=3", "--rounds", 2, "--plot", "ffn.svg")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[-1] == "plot       ffn.svg"
    svg = (here / "ffn.svg").read_text()
    assert "ffn, M = 3 on an interpreted device" in svg
    (median,) = re.findall(r"median ([\d.]+ \w+), [\d.]+", svg)
    assert lines[1].split(maxsplit=1)[1].startswith(f"{median} a call")


def test_names_in_a_plot_are_text(here):
    """A name may look like mathematics, which matplotlib would refuse to parse, or like markup."""
    from dnnc.cli.plot import plot

    name = "$\\frac{<script>$ \x1b[31m"
    plot(here / "a.svg", name, [1e-5, 3e-5, 2e-5], 10, 1000)
    svg = (here / "a.svg").read_text()
    assert "$\\frac{&lt;script&gt;$ \\x1b[31m" in svg
    assert "median 20 us, 0.05 GB/s" in svg
    assert "<script" not in svg
    first = svg
    plot(here / "a.svg", name, [1e-5, 3e-5, 2e-5], 10, 1000)
    assert (here / "a.svg").read_text() == first


@pytest.mark.parametrize("path", ["a.txt", "a"])
def test_a_plot_of_another_format(path, plan, gpu, here):
    said = error_of(dnnc("bench", plan, "--size", "M=3", "--plot", path))
    assert said.endswith("accepted: .svg, .png, .pdf")
    assert not gpu.launches
    assert not list(here.iterdir())


def test_a_plot_without_matplotlib(plan, gpu, here, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "matplotlib" else found(name)
    )
    said = error_of(dnnc("bench", plan, "--size", "M=3", "--plot", "a.svg"))
    assert said.endswith('matplotlib not installed; accepted: pip install "dnnc[bench]"')
    assert not gpu.launches
