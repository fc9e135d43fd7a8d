"""Runs the lit files of test/lit, each as a test; and looks that none is missing.

Their RUN lines run in this process, which has loaded MLIR; lit itself starts three or more.
"""

import os
import re
import shlex
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest
from filecheck.matcher import Matcher
from filecheck.options import parse_argv_options

from dnnc.dialect.ops import OPS

from .cli.commands import dnnc

ROOT = Path(__file__).parent.parent
LIT = ROOT / "test" / "lit"
FILES = sorted(str(path.relative_to(LIT)) for path in LIT.rglob("*.mlir"))
BY_LIT = "cli/opt.mlir"  # in CI, too


def runs(name):
    """The commands of each of a file's RUN lines, as words."""
    lines = re.findall(r"^// RUN: (.*)$", (LIT / name).read_text(), re.MULTILINE)
    assert lines
    for line in lines:
        words = shlex.split(line.replace("%s", str(LIT / name)))
        yield [list(part) for is_pipe, part in groupby(words, "|".__eq__) if not is_pipe]


def is_matched(arguments, text, folder):
    (folder / "input").write_text(text)
    options = parse_argv_options(["filecheck", *arguments, f"--input-file={folder / 'input'}"])
    return Matcher.from_opts(options).run() == 0


@pytest.mark.parametrize("name", FILES)
def test_file(name, tmp_path):
    for commands in runs(name):
        text = ""
        for words in commands:
            if words[0] == "filecheck":
                assert is_matched(words[1:], text, tmp_path), text
                continue
            fails, takes_errors = words[0] == "not", words[-1] == "2>&1"
            command, *arguments = words[fails : len(words) - takes_errors]
            assert command == "dnnc"
            done = dnnc(*arguments, stdin=text)
            assert (done.exit_code != 0) is fails, done.output
            text = done.output if takes_errors else done.stdout


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == BY_LIT else pytest.mark.slow) for n in FILES]
)
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
