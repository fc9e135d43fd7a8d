"""cuDNN's fastest plan of each case, of all that modes A and FALLBACK list.

Building a plan takes up to a second of a core, and there are dozens of each case: several
processes build, and one at a time has the device to itself to time what it built.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import multiprocessing
import re
import statistics
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path
from typing import Any

from .. import timing
from ..results import Results

# Without a word of any process: building may take seconds, the first word needs torch.
SILENT_SECONDS = 120.0
# A plan is timed again among the best where it is within this factor of the fastest so far.
_CLOSE = 1.12
_FINALISTS = 4
_FINAL_ROUNDS = 5

# (the pipe that cases come by and rows go by, the lock's path) of a process.  It is the process's
# own: of a queue that all share, one that dies as it writes may keep the lock.
Work = Callable[[Any, str], None]
# (The pipe's other end, the process).
Start = Callable[[], tuple[Any, Any]]


def run_search(
    given: Namespace, ids: Sequence[str], results: Results, work: Work | None = None
) -> None:
    """Fills `results` with {"first", "best", "tried", "failed", "seconds", "first_seconds"} of
    each case, or with its "error".

    work: what a process does, a function of a module; the search by default.
    """
    waiting = [id_ for id_ in ids if id_ not in results.rows]
    context = multiprocessing.get_context("spawn")
    with tempfile.NamedTemporaryFile() as lock:
        start = functools.partial(_process, context, work or _work, lock.name)
        workers = _Workers(start, waiting, given.jobs)
        try:
            for id_, row in workers.rows():
                results.rows[id_] = row
                results.save()
                print(_line(id_, row), flush=True)
        finally:
            workers.close()


def _process(context: Any, work: Work, lock: str) -> tuple[Any, Any]:
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, lock), daemon=True)
    process.start()
    theirs.close()
    return ours, process


def _line(id_: str, row: dict[str, Any]) -> str:
    if "error" in row:
        return f"{id_:60s} {row['error'][:80]}"
    gain = row["first_seconds"] / row["seconds"]
    return (
        f"{id_:60s} {1e6 * row['seconds']:8.1f} us, {gain:.2f} of the first; "
        f"{row['tried']} tried, {row['failed']} failed"
    )


class _Workers:
    """Processes that take cases one by one; one that dies or hangs is replaced, its case lost."""

    def __init__(self, start: Start, ids: Sequence[str], count: int):
        self._start_process = start
        self._left = list(ids)
        # Pipe -> its process, and the case that is searched.
        self._processes: dict[Any, Any] = {}
        self._at: dict[Any, str] = {}
        for _ in range(min(count, len(ids))):
            self._start()

    def rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        while self._at:
            ready = connection.wait(list(self._at), SILENT_SECONDS)
            for pipe in ready or list(self._at):
                yield self._at[pipe], self._row(pipe, "" if ready else "hung")

    def _row(self, pipe: Any, why: str) -> dict[str, Any]:
        """The row that a process found, or the reason why it has none; gives work to the next."""
        del self._at[pipe]
        try:
            row = {"error": why} if why else pipe.recv()
        except (EOFError, OSError):  # as it wrote
            self._processes[pipe].join()
            why = f"the process ended with status {self._processes[pipe].exitcode}"
            row = {"error": why}
        if not why:
            self._give(pipe)
            return row
        process = self._processes.pop(pipe)
        process.kill()
        process.join()
        if self._left:
            self._start()
        return row

    def _start(self) -> None:
        pipe, process = self._start_process()
        self._processes[pipe] = process
        self._give(pipe)

    def _give(self, pipe: Any) -> None:
        if self._left:
            self._at[pipe] = self._left.pop(0)
            with contextlib.suppress(OSError):  # it is gone already, which `rows` comes to see
                pipe.send(self._at[pipe])

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()


# ---- in a worker


def _work(pipe: Any, lock: str) -> None:
    import torch

    torch.manual_seed(0)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        while True:
            pipe.send(_row_of(pipe.recv(), stream, Path(lock)))
            torch.cuda.empty_cache()


def _row_of(id_: str, stream: Any, lock: Path) -> dict[str, Any]:
    from ..cases.lists import case_of

    try:
        return search(case_of(id_), stream, lock)
    except Exception as error:  # cuDNN's exceptions have no base of their own
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]}


@contextlib.contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Nobody else times anything; the kernel takes the lock back from a process that dies."""
    with open(lock) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@dataclass
class _Found:
    """Plans that run; those far from the fastest give their memory back."""

    seconds: dict[str, float] = field(default_factory=dict)
    close: dict[str, timing.Captured] = field(default_factory=dict)

    def add(self, name: str, captured: timing.Captured) -> None:
        self.seconds[name] = captured.seconds_a_call("once")
        self.close[name] = captured
        best = min(self.seconds.values())
        ranked = sorted(self.close, key=self.seconds.__getitem__)[:_FINALISTS]
        self.close = {n: self.close[n] for n in ranked if self.seconds[n] < _CLOSE * best}

    def settle(self) -> None:
        """Times the close ones again, by turns."""
        taken = timing.interleaved(self.close, _FINAL_ROUNDS, lambda name: None)
        self.seconds |= {name: statistics.median(seconds) for name, seconds in taken.items()}

    def best(self) -> str:
        return min(self.close, key=self.seconds.__getitem__)


def search(case: Any, stream: Any, lock: Path) -> dict[str, Any]:
    """Builds and times all plans of a case."""
    import torch

    from .cudnn import CudnnGraph

    with alone(lock):
        count = timing.sets_needed(case.bytes, case.unit == "GB/s")
        sets = [case.make() for _ in range(count)]
        torch.cuda.synchronize()
    made = CudnnGraph(case, sets, stream)
    found, failed = _Found(), []
    for index, name in enumerate(made.names()):
        if name in found.seconds:
            continue
        try:
            launch = made.launch(index)
            with alone(lock):
                found.add(name, timing.capture(launch, count, stream))
        except Exception as error:  # cuDNN's exceptions have no base of their own
            failed.append(str(error)[:100])
    if not found.seconds:
        raise RuntimeError(failed[0] if failed else "no plan")
    with alone(lock):
        found.settle()
    first = next(iter(found.seconds))
    best = found.best()
    return {
        "first": first,
        "best": best,
        "tried": len(found.seconds),
        "failed": len(failed),
        "seconds": found.seconds[best],
        "first_seconds": found.seconds[first],
    }


def matching(cases: Sequence[Any], pattern: str, *, by_f16: bool = False) -> list[str]:
    """Ids of the cases; those of one graph in different runs are one.

    by_f16: bf16 cases stand for their twins in f16, whose plans `kernels` replays for them.
    """
    from .cudnn import in_f16

    ids = (case.id for case in cases if re.search(pattern, case.id))
    return list(dict.fromkeys(in_f16(id_) if by_f16 else id_ for id_ in ids))
