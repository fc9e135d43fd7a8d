"""The command line, `dnnc`: one file a command, arguments and printing only."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from typing import Any

# As in `console`, which loads what main() first looks for.
_INTERRUPTED, _BROKEN_PIPE = 130, 141


def main() -> None:
    """Runs the command line; without its packages, says how to install them.

    However it ends, it ends with a status and a line on stderr at most: ^C at any moment, an
    output that is full, or that nobody reads any more.
    """
    process = os.getpid()
    try:
        _prepare_streams()
        status = _status_of_app()
    except KeyboardInterrupt:
        status = _INTERRUPTED
    except BrokenPipeError:
        status = _BROKEN_PIPE
    except OSError as error:
        status = _said(f"error: {error.strerror or error}")
    # What is left has to be done once, whatever is pressed meanwhile.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    status = _flushed(status)
    if status == _INTERRUPTED:
        if os.getpid() == process:  # and not the child that ran the command
            _said("interrupted")
        # At once: threads may wait for what nobody wants any more.  Workers end by themselves.
        os._exit(status)
    sys.exit(status)


def _prepare_streams() -> None:
    """Makes streams take any character; one that is closed, nothing."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))
        getattr(sys, name).reconfigure(errors="backslashreplace")


def _status_of_app() -> Any:
    """The exit status of a command."""
    if importlib.util.find_spec("typer") is None or importlib.util.find_spec("rich") is None:
        return _said(
            "the commands need typer and rich: pip install typer rich; to compile, too: "
            'pip install "dnnc[compiler]"'
        )
    from . import contained

    try:
        contained.run(_run_app)
    except SystemExit as ended:
        return ended.code
    return 0


def _run_app() -> None:
    from .app import app

    app(prog_name="dnnc")


def _said(line: str) -> int:
    """Prints a line on stderr, if that can be; gives status 1."""
    try:
        print(line, file=sys.stderr)
    except OSError:
        pass
    return 1


def _flushed(status: Any) -> Any:
    """Writes what is still held; the exit status after it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            if stream is sys.stdout and not status:
                is_pipe = isinstance(error, BrokenPipeError)
                status = _BROKEN_PIPE if is_pipe else _said(f"error: stdout: {error.strerror}")
            # The interpreter would try again, and say so, as it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return status
