"""Runs the lit files of test/lit, each as a test; and looks that none is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dnnc.dialect.ops import OPS

ROOT = Path(__file__).parent.parent
LIT = ROOT / "test" / "lit"
FILES = sorted(str(path.relative_to(LIT)) for path in LIT.rglob("*.mlir"))


@pytest.mark.parametrize("name", FILES)
def test_lit(name, tmp_path):
    lit = [sys.executable, "-c", "import lit.main; lit.main.main()", "-v", "--no-progress-bar"]
    done = subprocess.run(
        [*lit, "--param", f"exec_root={tmp_path}", str(LIT / name)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "Passed: 1" in done.stdout


def test_every_pass_has_a_file():
    from dnnc.passes import BY_NAME

    assert {f"passes/{name}.mlir" for name in BY_NAME} <= set(FILES)


@pytest.mark.parametrize("kind", OPS, ids=lambda kind: kind.op_name)
def test_every_operation_round_trips(kind):
    assert f'"dnn.{kind.op_name}"' in (LIT / "dialect" / "roundtrip.mlir").read_text()


@pytest.mark.parametrize("kind", OPS, ids=lambda kind: kind.op_name)
def test_every_constraint_is_broken_once(kind):
    text = (LIT / "dialect" / "invalid.mlir").read_text()
    constraints = [line.split(")")[0].strip() for line in (kind.__doc__ or "").splitlines()]
    numbers = [c.removeprefix("(C") for c in constraints if c.startswith("(C")]
    assert numbers
    for number in numbers:
        assert f"@{kind.op_name}_c{number}(" in text
