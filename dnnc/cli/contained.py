"""Runs a command in a process that may die without taking its message with it.

MLIR's parser and LLVM end the process on some texts.  A command therefore runs in a child, which
is forked before anything is loaded; its parent waits, and says what happened if a signal ended it.

Signals that ask the parent to end are passed on, since they may be sent to it alone.  ^C on a
terminal reaches both: the child takes the first of the two it gets.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

# What a user's or a system's signal ends is no fault of the compiler.
_ASKED_FOR = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)
_PR_SET_PDEATHSIG = 1


def run(command: Callable[[], Any]) -> None:
    """Runs a command in a child, and gives its exit status on where it fails.

    Returns in the child alone, or where the command succeeded; what ends this process otherwise
    is SystemExit.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(signal.SIGINT, _interrupted_once)  # before the child can get one
    child = os.fork()
    if child == 0:
        _end_with_parent()
        command()
        return
    status = _waited(child)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number not in _ASKED_FOR:
            print(f"error: {_said(number)}", file=sys.stderr)
            raise SystemExit(1)
        raise SystemExit(128 + number)
    raise SystemExit(os.waitstatus_to_exitcode(status))


def _waited(child: int) -> int:
    """The status of the child, to which this process's signals are passed on."""

    def pass_on(number: int, frame: Any) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(child, number)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, pass_on)
    return os.waitpid(child, 0)[1]


def _interrupted_once(number: int, frame: Any) -> None:
    """Begins to end the process; a second signal must not stop what it cleans up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _end_with_parent() -> None:
    """Ends this process with its parent, even where that is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _said(number: int) -> str:
    if number == signal.SIGKILL:
        return "INTERNAL_ERROR: the command was killed, as where memory runs out"
    return (
        f"INTERNAL_ERROR: MLIR or LLVM ended the command by {signal.Signals(number).name}, on what "
        "it can't read or compile; accepted: a text as dnnc prints it"
    )
