"""Where a user's program made a tensor or an operation, which errors about it say.

A place is no part of what it belongs to: neither equality, hashes, JSON and keys nor plans have it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType, TracebackType
from typing import Any, NamedTuple

_PACKAGE = __name__.partition(".")[0]
# By the path that its code objects have, be it relative: a module that is run is called __main__.
_FOLDER = os.path.dirname((lambda: None).__code__.co_filename) + os.sep


class Place(NamedTuple):
    """A line, from 1, of a file, by the path that Python has for it."""

    file: str
    line: int

    def __str__(self) -> str:
        """model.py:12"""
        return f"{os.path.basename(self.file)}:{self.line}"


# What stands for the line that is being run.
_noted: ContextVar[Place | None] = ContextVar("noted", default=None)


@contextmanager
def noted(place: Place | None) -> Generator[None]:
    """Inside, `current_place` gives a place that was taken down before; None: the running line."""
    token = _noted.set(place)
    try:
        yield
    finally:
        _noted.reset(token)


def current_place() -> Place | None:
    """The line that is being run of the innermost function outside the package."""
    if (place := _noted.get()) is not None:
        return place
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and is_own(frame):
        frame = frame.f_back
    return None if frame is None else Place(frame.f_code.co_filename, frame.f_lineno)


def place_of_raise(trace: TracebackType | None) -> Place | None:
    """The line of the innermost function outside the package that an exception went through."""
    found = None
    while trace is not None:
        if not is_own(trace.tb_frame):
            found = Place(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        trace = trace.tb_next
    return found


def is_own(frame: FrameType) -> bool:
    """Whether a function is of the package, one that `dataclass` made for a class too."""
    if frame.f_code.co_filename.startswith(_FOLDER):
        return True
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == _PACKAGE


def place_of_data(data: Any) -> Place | None:
    """The place that `[file, line]` stands for; None where it is something else."""
    if not isinstance(data, list | tuple) or len(data) != 2:
        return None
    file, line = data
    return Place(file, line) if isinstance(file, str) and type(line) is int else None
