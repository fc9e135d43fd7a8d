"""Printed tables are whole, however narrow the terminal is."""

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections import Counter

import pytest

from dnnc.cli import bench, console
from dnnc.cli.console import value_text
from dnnc.cli.summary import print_times
from dnnc.cli.tables import Column, Table
from dnnc.plan import format
from tests.demo.interpreted_driver import InterpretedDriver
from tests.tuning.fakes import FakeTimer

from .commands import ROOT, SPLIT, dnnc

# ---- tables

WORDS = Column("what", wraps=True)
NAME, SIZE = Column("name"), Column("size", is_right=True)


def test_a_table_as_wide_as_it_is():
    table = Table([NAME, SIZE, WORDS], [("a", "1 B", "one two"), ("bcd", "12 B", "")])
    header = ["name   size   what"]
    rows = ["a       1 B   one two", "bcd    12 B"]
    assert table.lines(None) == table.lines(21) == (header, rows)


def test_sentences_wrap_between_words_and_titles_too():
    said = "a sentence of several words and of no great length"
    table = Table([Column("a long title"), WORDS], [("x", said)])
    header, rows = table.lines(34)
    assert header == ["a long   what", "title"]
    assert rows == [
        "x        a sentence of several",
        "         words and of no great",
        "         length",
    ]


def test_what_does_not_fit_becomes_records():
    table = Table(
        [NAME, Column(""), WORDS], [("of some length", "249 ms", "a b c " * 6), ("", "1", "d")]
    )
    table.add_row("second", "", "")
    assert table.lines(30) == (
        [],
        [
            "name   of some length",
            "#      249 ms",
            "what   a b c a b c a b c a b c",
            "       a b c a b c",
            "#      1",
            "what   d",
            "",
            "name   second",
        ],
    )


def test_a_word_wider_than_the_terminal_is_printed_wide():
    assert Table([NAME], [("x" * 50,)]).lines(20)[1] == [f"name   {'x' * 50}"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (1e-05, "1e-05"), (4194304.0, "4194304"), (0.08838834764831845,) * 2,
     (1234567, "1234567"), (float("-inf"), "-inf")],
)  # fmt: skip
def test_scalars_keep_their_digits(value, text):
    assert value_text(value) == str(text)


# ---- commands


def words(monkeypatch, width, say):
    """How often each word is in what say() prints on a terminal of a width."""
    monkeypatch.setattr(console, "columns", lambda: width)
    return Counter(say().replace("│", " ").split())


def assert_whole(monkeypatch, say, titles=""):
    """Every word that is printed on a wide terminal is on a narrow one, as often.

    titles: those of columns without a value, which records have no line for.
    """
    widest = words(monkeypatch, 400, say)
    assert sum(widest.values()) > 5
    for width in (60, 80, 120):
        lost = widest - words(monkeypatch, width, say)
        assert set(lost) <= set(titles.split()), (width, lost)


def command(*arguments):
    """Prints a command's output."""

    def say():
        result = dnnc(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    return say


@pytest.fixture
def gpu(monkeypatch):
    """A device whose kernels are interpreted, for bench and run, and a timer for tune."""
    InterpretedDriver().install(monkeypatch)
    monkeypatch.setattr(bench, "_timed", lambda work, rounds: ([1.2345e-5] * rounds, 100))
    timer = FakeTimer(lambda text, sizes: 1.2345e-5 + 1e-7 * len(text))
    monkeypatch.setattr("dnnc.tuning.search.DeviceTimer", lambda *args, **settings: timer)


@pytest.mark.parametrize("file", ["ffn.dnnplan", "ffn.py", "ffn.mlir", "all.dnnplan"])
def test_inspect_shows_all(folder, here, monkeypatch, file):
    if file == "ffn.mlir":
        made = dnnc("compile", folder / "ffn.py", "-t", "sm_80", "-e", "linalg", "-o", file)
        assert made.exit_code == 0
    elif file == "all.dnnplan":
        bundled = command("bundle", file, f"other={folder / 'ffn.dnnplan'}", folder / "ffn.dnnplan")
        assert_whole(monkeypatch, bundled)
    path = here / file if (here / file).exists() else folder / file
    assert_whole(monkeypatch, command("inspect", path), titles="value")


def test_engines_shows_all(here, monkeypatch):
    (here / "split.py").write_text(SPLIT)
    explained = command("engines", "split.py", "--explain", "-t", "sm_90a")
    assert_whole(monkeypatch, explained, titles="notes")


def test_compile_and_the_cache_show_all(folder, here, monkeypatch, cache):
    compiled = ["compile", folder / "ffn.py", "-t", "sm_80", "--variants", 1, "-o", "ffn.dnnplan"]
    assert dnnc(*compiled).exit_code == 0
    assert_whole(monkeypatch, command(*compiled))  # from the cache
    assert_whole(monkeypatch, command("cache", "info"))


def test_the_times_of_stages_are_whole(plan, monkeypatch, capsys):
    times = [{name: 0.2491 for name in ("choose", "fused", "linalg", "kernel", "nvvm", "ptx")}]

    def say():
        print_times(format.read(plan), times * 2)
        return capsys.readouterr().out

    assert words(monkeypatch, 60, say)["249"] == 12
    assert_whole(monkeypatch, say)


def test_run_bench_and_tune_show_all(plan, ffn, here, monkeypatch, gpu):
    run = ["run", plan, "--random", "--size", "M=3", "--check"]
    assert_whole(monkeypatch, command(*run))
    assert_whole(monkeypatch, command("bench", plan, "--size", "M=3", "--rounds", 2))
    tune = ["tune", ffn, "-s", "M=64", "--mode", "A", "--most", 2, "--rounds", 1, "-j", 1]
    assert_whole(monkeypatch, command(*tune), titles="remark")


COMMANDS = (
    "compile",
    "opt",
    "inspect",
    "view",
    "engines",
    "run",
    "bench",
    "tune",
    "bundle",
    "cache",
)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_whole(monkeypatch, name):
    """Options, their values, and the lists of passes and stages."""

    def shown(width):
        monkeypatch.setenv("COLUMNS", str(width))
        said = dnnc(name, "--help").stdout.replace("│", " ").split()
        return Counter(word for word in said if "──" not in word)

    widest = shown(400)
    assert not any(widest - shown(width) for width in (60, 80, 120))


def test_the_width_is_that_of_the_terminal(plan):
    """Nothing is cut by the console either, which measures the same terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    started = subprocess.Popen(
        [sys.executable, "-m", "dnnc", "inspect", str(plan), "-t", "sm_80"],
        stdout=theirs,
        env={**environment, "PYTHONPATH": str(ROOT), "TERM": "dumb"},
    )
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # the end, on Linux
        while part := os.read(ours, 1 << 16):
            said += part
    os.close(ours)
    assert started.wait(60) == 0
    lines = [line.rstrip() for line in said.decode().splitlines()]
    assert "block           [128, 1, 1]" in lines
    assert "what            fusion0_matmul_sm80" in lines
