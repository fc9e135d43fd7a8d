"""Runs what may hang, or may lose its device, in a child process that is watched.

The child says what it is about to do and how long that may take.  One that is silent for longer
is killed; one that dies or gives up is replaced.  The next child is told what failed, and
leaves it out.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NoReturn

# Case and column, the column "" where it is the case as a whole; without a case, any text.
Place = tuple[str, str]

# Until the first word of a child: it imports torch and starts compilers.
START_SECONDS = 180.0


class Watch:
    """The child's side.  failures: what to leave out, and why."""

    def __init__(self, pipe: Connection | None = None, failures: dict[Place, str] | None = None):
        self._pipe = pipe
        self.failures = failures or {}
        self._place: Place = ("", "")

    def at(self, case: str, column: str = "", seconds: float = 60.0) -> None:
        """Says what begins now, and after how many seconds without a word it has hung."""
        self._place = (case, column)
        if self._pipe is not None:
            self._pipe.send((self._place, seconds, ""))

    def give_up(self, why: str) -> NoReturn:
        """Ends the child: nothing more can be done in it."""
        if self._pipe is None:
            raise RuntimeError(why)
        self._pipe.send((self._place, 0.0, why))
        time.sleep(1.0)  # the parent reads it and kills
        os._exit(1)


Work = Callable[[Any, Watch], None]


def watched(work: Work, given: Any) -> None:
    """work(given, watch) in a child, again after each failure until it comes to its end.

    work: a function of a module.  A failure that belongs to no case, or comes again, is raised.
    """
    context = multiprocessing.get_context("spawn")
    failures: dict[Place, str] = {}
    while True:
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_child, args=(work, given, theirs, failures))
        child.start()
        theirs.close()
        try:
            place, why = _follow(ours, child)
        finally:
            child.kill()
            child.join(60.0)
        if not why:
            return
        said = f"{' '.join(place)}: {why}"
        if not place[0] or place in failures:
            raise RuntimeError(said)
        print(said, flush=True)
        failures[place] = why


def _follow(pipe: Connection, child: Any) -> tuple[Place, str]:
    """(Where the child was, why it failed); no reason where it came to its end."""
    place, seconds = ("", ""), START_SECONDS
    while True:
        if not pipe.poll(seconds):
            return place, f"no sign of life for {seconds:g} s"
        try:
            place, seconds, why = pipe.recv()
        except EOFError:
            child.join()
            ended = f"the process ended with status {child.exitcode}"
            return place, "" if child.exitcode == 0 else ended
        if why:
            return place, why


def _child(work: Work, given: Any, pipe: Connection, failures: dict[Place, str]) -> None:
    work(given, Watch(pipe, failures))
