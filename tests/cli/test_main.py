"""The command line as a whole: start, help, what it loads, exit statuses."""

import importlib.util
import signal
import subprocess
import sys

import pytest

import dnnc as package
from dnnc import cli, compiler
from dnnc.choosing import heuristics
from dnnc.cli import arguments, run

from .commands import ROOT, dnnc, dnnc_process

COMMANDS = ("compile", "opt", "inspect", "view", "engines", "run", "bench")


def test_without_arguments_it_shows_the_commands():
    result = dnnc()
    assert all(f" {name} " in result.output for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help_with_examples(name):
    result = dnnc(name, "--help")
    assert result.exit_code == 0
    assert f"dnnc {name} " in result.stdout.partition("Examples")[2]
    assert "\\[" not in result.stdout


def test_as_a_module():
    done = dnnc_process("--version")
    assert (done.returncode, done.stdout.strip()) == (0, f"dnnc {package.__version__}")


@pytest.mark.parametrize("arguments", [["compile"], ["compil", "x"], ["run", "x", "--devise"]])
def test_wrong_use_exits_with_2(arguments):
    result = dnnc(*arguments)
    assert result.exit_code == 2
    assert "Usage: " in result.stderr


def test_importing_it_loads_no_mlir():
    code = "import sys, dnnc.cli, dnnc.cli.app\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = done.stdout.split()
    assert "dnnc.cli.opt" in loaded
    strange = ("numba_cuda_mlir", "dnnc.mlir", "dnnc.compiler", "dnnc.engines", "cuda.bindings")
    assert not [name for name in loaded if name.startswith(strange)]


@pytest.mark.parametrize("absent", ["typer", "rich"])
def test_without_its_packages_it_says_how_to_install_them(monkeypatch, capsys, absent):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == absent else found(name)
    )
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    signal.signal(signal.SIGINT, handler)
    assert ended.value.code == 1
    assert 'pip install "dnnc[compiler]"' in capsys.readouterr().err


def test_a_package_that_is_absent_is_named(monkeypatch):
    """It is no internal error: the runtime alone does not need the package."""

    def absent(*given):
        raise ModuleNotFoundError("No module named 'ml_dtypes'", name="ml_dtypes")

    monkeypatch.setitem(run._RUNNERS, run.Device.cpu, absent)
    graph = str(ROOT / "examples" / "ffn.py")
    result = dnnc("run", graph, "--device", "cpu", "--random", "--size", "tokens=1")
    assert result.exit_code == 1
    assert "RUNTIME_PREREQUISITE_MISSING: the package ml_dtypes is not" in result.stderr


def test_its_stages_and_modes_are_the_compilers():
    assert tuple(arguments.Stage) == (*compiler.STAGES, "c")
    assert tuple(arguments.Mode) == heuristics.MODES
    assert tuple(arguments.DEFAULT_MODES.split(",")) == heuristics.DEFAULT_MODES
