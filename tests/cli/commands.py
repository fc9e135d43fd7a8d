"""Runs the command line: here, or in a process of its own."""

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from unittest import mock

from typer.main import get_command
from typer.testing import CliRunner

from dnnc.cli.app import app

ROOT = Path(__file__).parent.parent.parent

FFN = """\
import dnnc


def build(hidden=64, inner=128):
    M = dnnc.Dim("M", max=4096)
    g = dnnc.pygraph(
        "ffn", io_data_type="HALF", compute_data_type="FLOAT", intermediate_data_type="FLOAT"
    )
    x, w = g.tensor([1, M, hidden], name="x"), g.tensor([1, hidden, inner], name="w")
    b = g.tensor([1, 1, inner], name="b")
    g.relu(g.add(g.matmul(x, w, name="mm"), b)).set_output(True).set_name("y")
    return g
"""

# Two products need two fusions.
SPLIT = """\
import dnnc


def build():
    g = dnnc.pygraph("twice", io_data_type="HALF", compute_data_type="FLOAT")
    x, w = g.tensor([8, 16], name="x"), g.tensor([16, 16], name="w")
    g.matmul(g.matmul(x, w, name="first"), w, name="second").set_output(True).set_name("y")
    return g
"""

# No engine writes bytes of booleans that two rows share.
REFUSED = """\
import dnnc


def build():
    g = dnnc.pygraph("refused", io_data_type="HALF", compute_data_type="FLOAT")
    y = g.cmp_gt(g.tensor([4, 6]), 0, name="sign")
    y.set_output(True).set_data_type("BOOLEAN").set_stride([7, 1])
    return g
"""

# A bf16 input with gaps between its rows, a by-value scalar, and an output in another order.
SCALED = """\
import dnnc


def build():
    M = dnnc.Dim("M", max=64)
    g = dnnc.pygraph("scaled", io_data_type="BFLOAT16", compute_data_type="FLOAT")
    x = g.tensor([M, 6], [8, 1], name="x")
    alpha = g.tensor([1, 1], data_type="FLOAT", is_pass_by_value=True, name="alpha")
    y = g.mul(x, alpha).set_output(True).set_name("y").set_stride([1, M * 2])
    return g
"""


# The runner would read the signatures of all commands at each call, for a tenth of a second.
_commands = cache(get_command)


def dnnc(*arguments, stdin=None):
    """The result of a command in this process: exit_code, stdout, stderr."""
    with mock.patch("typer.testing._get_command", _commands, create=True):
        return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def dnnc_process(*arguments, stdin=None, **environment):
    """Runs the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "dnnc", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


def error_of(result, status=1):
    """The error that a command ended with: its line on stderr, nothing on stdout.

    After it there may be the line of a graph file that it is about, and a hint.
    """
    assert result.exit_code == status, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    line, *others = result.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert all(re.match(r"  \S+:\d+: |hint: ", other) for other in others)
    return line.removeprefix("error: ")
