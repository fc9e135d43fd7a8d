"""`dnnc run` and `dnnc bench` on a device."""

import re

import pytest

from .commands import SCALED, SPLIT, dnnc

pytestmark = pytest.mark.gpu


def test_a_graph_runs_and_is_right(ffn, here):
    result = dnnc("run", ffn, "--random", "--size", "M=37", "--check", "-o", "y.npy")
    assert result.exit_code == 0, result.output
    assert re.match(r"device +cuda \(.+, compute capability \d+\.\d\)\n", result.stdout)
    assert "good" in result.stdout


@pytest.mark.parametrize("text", [SPLIT, SCALED], ids=["workspace", "strides"])
def test_workspace_and_strides(text, here):
    (here / "g.py").write_text(text)
    sizes = ["--size", "M=5"] if "M" in text else []
    result = dnnc("run", "g.py", "--random", "--device", "cuda", "--check", *sizes)
    assert result.exit_code == 0, result.output


def test_bench(ffn):
    result = dnnc("bench", ffn, "--size", "M=4096", "--rounds", 3)
    assert result.exit_code == 0, result.output
    assert re.search(r"bandwidth +[\d.e+]+ GB/s", result.stdout)
