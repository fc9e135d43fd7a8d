"""dnnc's loggers, all below `logging.getLogger("dnnc")`, and DNNC_LOG, which turns them on.

    DNNC_LOG=info python compile.py             messages to stderr
    DNNC_LOG=debug:build/dnnc.log python ...    and to a file instead

info: what was compiled, with engines and times, and what was loaded; debug: each stage and each
new set of sizes.  A program that sets up `logging` itself needs no DNNC_LOG.
"""

from __future__ import annotations

import functools
import logging
import os

from .visible import visible

VARIABLE = "DNNC_LOG"
LEVELS = ("debug", "info", "warning", "error")


def logger(module: str) -> logging.Logger:
    """The logger of one of dnnc's modules (its `__name__`)."""
    _set_up()
    found = logging.getLogger(module)
    found.addFilter(_made_visible)
    return found


def _made_visible(record: logging.LogRecord) -> bool:
    """Messages hold names of files and graphs, which may be written to drive a terminal."""
    record.msg, record.args = visible(record.getMessage()), ()
    return True


def hint(text: str) -> None:
    """Logs, as a warning of `dnnc.hints`, what would make a graph faster."""
    logger("dnnc.hints").warning("%s", text)


@functools.cache
def _set_up() -> None:
    """Does what DNNC_LOG says, once in a process."""
    level, _, path = os.environ.get(VARIABLE, "").partition(":")
    if not level:
        return
    root = logging.getLogger("dnnc")
    handler = logging.FileHandler(path, delay=True) if path else logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root.addHandler(handler)
    if level.lower() in LEVELS:
        root.setLevel(level.upper())
    else:
        root.warning("%s=%s: the level is none of %s", VARIABLE, level, ", ".join(LEVELS))
