"""How commands end: full and closed outputs, ^C, names that would drive a terminal."""

import dataclasses
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from dnnc.errors import DnncError, Status
from dnnc.plan import format
from tests.plan.plans import WHOLE

from .commands import ROOT, dnnc

EVIL = "\x1b[31mred\x07\r\x9b1m\u202ename\x7f\x00"
SHOWN = r"\x1b[31mred\x07\r\x9b1m\u202ename\x7f\x00"


def command(*arguments):
    return [sys.executable, "-m", "dnnc", *map(str, arguments)]


def ended(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE):
    """A command that has ended."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command(*arguments), stdout=stdout, stderr=stderr, env=environment, text=True
    )


@pytest.fixture(scope="module")
def evil(tmp_path_factory):
    """A plan whose every text holds control characters."""
    x, y, s = WHOLE.tensors
    first, second = WHOLE.programs
    plan = dataclasses.replace(
        WHOLE,
        name=EVIL,
        key=EVIL,
        tools={EVIL: EVIL},
        graph={"name": EVIL},
        tensors=(
            dataclasses.replace(x, name=EVIL),
            dataclasses.replace(y, name=EVIL + "2"),
            dataclasses.replace(s, name=EVIL),
        ),
        programs=(
            dataclasses.replace(
                first,
                target=EVIL,
                fusions=(
                    dataclasses.replace(
                        first.fusions[0], ops=(EVIL,), engine=EVIL, notes=(EVIL,), knobs={EVIL: 1}
                    ),
                ),
            ),
            dataclasses.replace(second, split_reason=EVIL, warnings=(EVIL,)),
        ),
        blobs=(EVIL.encode(), f"// {EVIL}\n".encode(), *WHOLE.blobs[2:]),
    )
    folder = tmp_path_factory.mktemp("evil")
    path, bundle = folder / "evil.dnnplan", folder / "bundle.dnnplan"
    format.write(path, plan)
    format.write(bundle, [plan, WHOLE])
    return path, bundle


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "PLAN"],
        ["inspect", "BUNDLE"],
        ["inspect", "PLAN", "--ptx"],
        ["inspect", "PLAN", "--json"],
        ["inspect", "PLAN", "--graph"],
        ["inspect", "PLAN", "--target", "none"],
        ["inspect", "BUNDLE", "--plan", "none"],
        ["compile", "PLAN", "--emit", "c", "-o", "OUT"],
        ["bundle", "OUT.dnnplan", "PLAN"],
    ],
    ids=" ".join,
)
def test_names_do_not_drive_the_terminal(evil, tmp_path, arguments):
    places = {"PLAN": evil[0], "BUNDLE": evil[1], "OUT": tmp_path / "out"}
    places["OUT.dnnplan"] = tmp_path / "out.dnnplan"
    result = dnnc(*[places.get(argument, argument) for argument in arguments])
    said = result.stdout + result.stderr
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert not [c for c in said if c not in "\n\t" and not c.isprintable()]
    assert r"\x1b[31mred" in said or r"\u001b[31mred" in said


def test_a_table_shows_what_rich_would_drop(evil):
    assert SHOWN in dnnc("inspect", evil[0]).stdout


def test_errors_and_logs_are_visible(caplog):
    assert str(DnncError(Status.BAD_PARAM, EVIL)) == f"BAD_PARAM: {SHOWN}"
    from dnnc import log

    with caplog.at_level("INFO", logger="dnnc"):
        log.logger("dnnc.tests").info("plan '%s'", EVIL)
    assert caplog.records[-1].getMessage() == f"plan '{SHOWN}'"


# ---- outputs


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_a_full_device(evil, option):
    with open("/dev/full", "w") as full:
        done = ended("inspect", evil[0], *option, stdout=full)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert "No space left on device" in done.stderr


def test_a_full_device_for_errors():
    with open("/dev/full", "w") as full:
        assert ended("inspect", "missing.dnnplan", stderr=full).returncode == 1


def test_a_full_output_file(plan):
    done = ended("compile", plan, "--emit", "c", "-o", "/dev/full/x")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


@pytest.mark.parametrize("option", [[], ["--json"], ["--ptx"]])
def test_a_closed_pipe(plan, option):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as closed:
        done = ended("inspect", plan, *option, stdout=closed)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_closed_stdout(plan):
    text = " ".join(command("inspect", plan)) + " >&-"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(text, shell=True, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_terminal_without_unicode(evil):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        command("inspect", "größe.dnnplan"), capture_output=True, text=True, env=environment
    )
    assert done.returncode == 1
    assert r"gr\xf6\xdfe.dnnplan" in done.stderr


# ---- ^C


# Seconds after the start: while modules are loaded, while the worker starts, while it compiles.
# A terminal's ^C reaches the whole group, `kill -INT` the process that was started alone.
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("after", "send"), [(0.4, os.killpg), (0.9, os.kill), (2.0, os.killpg), (2.0, os.kill)]
)
def test_an_interrupt(ffn, tmp_path, after, send):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    arguments = ("compile", ffn, "--no-cache", "-t", "sm_80,sm_90a", "-o", tmp_path / "p.dnnplan")
    process = subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
        text=True, start_new_session=True,
    )  # fmt: skip
    time.sleep(after)
    send(process.pid, signal.SIGINT)
    began = time.monotonic()
    _, said = process.communicate(timeout=60)
    assert time.monotonic() - began < 15
    if process.returncode == -signal.SIGINT and after < 1:
        pytest.skip("Python itself was starting")
    assert process.returncode in (130, 0)
    assert said == ("interrupted\n" if process.returncode else "")
    left = [path.name for path in tmp_path.iterdir()]
    assert left == (["p.dnnplan"] if process.returncode == 0 else [])


def test_on_a_terminal_nothing_but_its_own_escapes(evil):
    """With colours: what a name holds is not among what is printed raw."""
    master, slave = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "300"}
    process = subprocess.Popen(command("inspect", evil[0]), stdout=slave, env=environment)
    os.close(slave)
    said = b""
    try:
        while part := os.read(master, 1 << 16):
            said += part
    except OSError:  # the other end is closed
        pass
    process.wait()
    os.close(master)
    assert b"\\x1b[31mred" in said
    assert b"\x1b[31m" not in said
    assert b"\x07" not in said
