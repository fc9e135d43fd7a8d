"""docs/c.md: its example is compiled as the page says and run, its commands and names are true."""

import re
import shlex
import subprocess

from dnnc.emit import c_text
from tests.cli.commands import dnnc
from tests.plan.plans import WHOLE

from . import c_compiler
from .example import PAGE, blocks, write_files


def commands():
    return [shlex.split(line) for line in blocks("sh")[0].splitlines()]


def test_the_example_runs(tmp_path, fake_object, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    _, build = commands()
    assert build[0] == "cc"
    sources = [word for word in build if word.endswith(".c")]
    assert {*build} >= {"-std=c99", "-isystem", "-lcuda"}
    c_compiler.c(*sources, fake_object, "-o", "main")
    done = subprocess.run(["./main"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    launched, _, printed = done.stdout.strip().rpartition("\n")
    assert launched.startswith("launch fusion0_")
    assert printed == "y[0] = 0x0000"  # nothing computes here


def test_the_command_of_the_example(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = write_files(tmp_path)
    wanted = [(tmp_path / name).read_text() for name in ("ffn.h", "ffn.c")]
    assert list(c_text(plan, "ffn")) == wanted
    _, *arguments = commands()[0]
    result = dnnc(*arguments)
    assert result.exit_code == 0, result.output
    assert [(tmp_path / name).read_text() for name in ("ffn.h", "ffn.c")] == wanted


def test_errors_and_functions_of_the_page():
    """Names that the page gives, of a file called ffn and of arguments x, y, tokens, alpha."""
    page = PAGE.read_text()
    header, _ = c_text(WHOLE, "ffn")
    named = set(re.findall(r"`(FFN_[A-Z_]+)`", page)) - {"FFN_SIZE_TOKENS", "FFN_DEFAULT_ALPHA"}
    assert len(named) > 10
    for name in named:
        assert re.search(rf"\b{name} = \d", header), name
    for name in re.findall(r"^\| `(ffn_\w+)\(", page, re.MULTILINE):
        assert f"{name}(" in header
    for row in re.findall(r"^\| `(FFN_\w+)` \| (\d+) \|", page, re.MULTILINE):
        name, status = row
        found = re.search(rf"\b{name} = (\d+)", header)
        assert found is None or int(found[1]) % 10000 == int(status), name
