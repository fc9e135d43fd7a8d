"""The examples below each command's help: they parse, and those that need no GPU run."""

import shlex
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
import typer

from dnnc.cli.app import app
from tests.emit import c_compiler

from .commands import ROOT, dnnc

# Parsed only: what other tests run, or needs a GPU, or files that need one.
PARSED = (
    *(f"dnnc {name} " for name in ("run", "bench", "tune", "view")),
    "dnnc compile ffn.py --target sm_90a --tuning ",
    "dnnc bundle model.dnnplan ffn_in.dnnplan ",
)
# What a module that says its errors looks like.
INVALID = (ROOT / "test" / "lit" / "dialect" / "invalid.mlir").read_text().split("// -----")[0]


def commands(command, path=("dnnc",)):
    """(words of a command, its examples), of all of them."""
    lines = [line.strip() for line in (command.epilog or "").splitlines() if line[:2] == "  "]
    yield path, lines
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


COMMAND = typer.main.get_command(app)
EXAMPLES = [line for _, lines in commands(COMMAND) for line in lines]


def parts(line):
    """(what comes before, words) of the commands of a line; before: "", ";" or "|"."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|;>")
    lexer.whitespace_split = True
    found = [("", [])]
    for word in lexer:
        if word in (";", "|"):
            found.append((word, []))
        else:
            found[-1][1].append(word)
    return found


def parse(words):
    """Reads a command as the command line does; what it can't read is an error of click's."""
    assert words[0] == "dnnc"
    command, rest = COMMAND, list(words[1:])
    while hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    with suppress(typer.Exit):  # an option that is all that is asked for
        command.make_context(words[1], rest)


def test_every_command_shows_examples_and_they_parse():
    for path, lines in commands(COMMAND):
        assert lines or path[1:] in (("cache",),), path
    for line in EXAMPLES:
        for _, words in parts(line):
            if words[0] != "cc":
                parse(words[: words.index(">")] if ">" in words else words)


def test_an_option_that_is_not_there_does_not_parse():
    for words in ("compile ffn.py --architecture sm_80", "compile", "inspect a b", "cache info a"):
        with pytest.raises(Exception, match=r"No such option|Missing param|unexpected extra"):
            parse(["dnnc", *words.split()])


def run(line):
    """A line of commands, in this process, but for a C compiler."""
    output = None
    for before, words in parts(line):
        if words[0] == "cc":
            c_compiler.c(*words[1:])
            continue
        if words[1] == "run":
            return
        words, to = (words[:-2], words[-1]) if ">" in words else (words, None)
        result = dnnc(*words[1:], stdin=output if before == "|" else None)
        assert result.exit_code == 0, f"{line}\n{result.output}"
        output = result.stdout
        if to is not None:
            Path(to).write_text(output)


@pytest.mark.rotating
def test_those_that_need_no_gpu_run(here, monkeypatch):
    """In the order of the help, in one folder."""
    monkeypatch.setenv("DNNC_CACHE_DIR", str(here / "cache"))
    shutil.copy(ROOT / "examples" / "ffn.py", here)
    run("dnnc compile ffn.py")
    run("dnnc inspect ffn.dnnplan --graph > ffn.json")
    for name in ("a", "b"):
        shutil.copy("ffn.dnnplan", f"{name}.dnnplan")
    for line in EXAMPLES:
        if "invalid.mlir" in line:
            Path("invalid.mlir").write_text(INVALID)
        elif "opt ffn.mlir" in line:
            run("dnnc compile ffn.py --emit graph -o ffn.mlir")
        if not line.startswith(PARSED):
            run(line)
