"""Where a user's program or text made a tensor or an operation, which errors about it say.

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
    """A line of a file, from 1, and its column where that is known, from 1.

    file: its path, as Python or the command has it.
    """

    file: str
    line: int
    column: int = 0

    @property
    def path(self) -> str:
        """models/model.py:12 or models/model.mlir:12:5, from the working directory."""
        return self._behind(self.file.removeprefix(os.getcwd() + os.sep))

    def __str__(self) -> str:
        """model.py:12, model.mlir:12:5"""
        return self._behind(os.path.basename(self.file))

    def _behind(self, name: str) -> str:
        return ":".join([name, *(str(number) for number in (self.line, self.column) if number)])


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
    """The place that `[file, line, column]` stands for; None where it is something else."""
    if not isinstance(data, list | tuple) or len(data) != 3:
        return None
    file, *numbers = data
    is_place = isinstance(file, str) and all(type(number) is int for number in numbers)
    return Place(file, *numbers) if is_place else None
