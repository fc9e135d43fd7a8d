"""Random cases by many processes, each watched: what the commands `tests.gpu.random_*` share.

Each process draws, compiles, runs and compares seeds that it is given; one that dies, or takes
longer than the watchdog allows, is a failure of its seed, and another takes its place.  SIGTERM,
SIGINT and `--within` end a run early: what was not done is said.  With `--log FILE` each answer is
a line of that file, and seeds that stand there are not run again.  The exit status is 1 where a
seed failed, 2 where some were not run.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

_EVERY = 20.0  # seconds between two lines of progress


class Command(NamedTuple):
    """A command that runs seeds.

    name: of its module in `tests.gpu`.  kinds: what `--only` takes.  kind_of: (seed, what `--only`
    says) -> kind.  check: (seed, kind, options); raises where the seed fails.  options: adds
    options of its own to a parser.  finish: completes what was parsed.
    """

    name: str
    kinds: Sequence[str]
    kind_of: Callable[[int, str], str]
    check: Callable[[int, str, argparse.Namespace], None]
    options: Callable[[argparse.ArgumentParser], None] = lambda parser: None
    finish: Callable[[argparse.Namespace], None] = lambda options: None

    @property
    def title(self) -> str:
        return self.name.replace("_", " ")


def main(command: Command, arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _options(command, given)
    if options.worker:
        _work(command, options)
        return 0
    return _hand_out(command, options, given)


# ---- a process that runs seeds


def _work(command: Command, options: argparse.Namespace) -> None:
    """Runs the seeds that stdin names, a line each, and answers each with a line."""
    from tests.support import machine

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    if not options.interpreted:
        machine.use(machine.cuda())
    for line in sys.stdin:
        seed = int(line)
        error, is_lost = None, False
        try:
            command.check(seed, command.kind_of(seed, options.only), options)
        except AssertionError as wrong:
            error = f"{' '.join(str(wrong).split()) or 'an assertion'}"[:600]
        except Exception as wrong:  # the context may be lost with it
            error, is_lost = f"{type(wrong).__name__}: {' '.join(str(wrong).split())}"[:600], True
        told = {"seed": seed, "error": error, "is_lost": is_lost}
        print(json.dumps(told), file=answers, flush=True)
        if is_lost:
            return


# ---- who hands them out


@dataclass
class _Tally:
    """Counts of seeds that are done and that failed.  failures: seed -> why.  log: a file that
    answers are added to."""

    seeds: list[int]
    kind_of: Callable[[int], str]
    log: Path | None = None
    done: set[int] = field(default_factory=set)
    failures: dict[int, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if self.log is None or not self.log.exists():
            return
        wanted = set(self.seeds)
        for line in self.log.read_text().splitlines():
            told = json.loads(line)
            if told["seed"] in wanted:
                self._note(told["seed"], told["error"])

    def add(self, seed: int, error: str | None) -> None:
        with self.lock:
            self._note(seed, error)
            kind = self.kind_of(seed)
            if self.log is not None:
                told = {"seed": seed, "kind": kind, "error": error}
                with self.log.open("a") as log:
                    log.write(json.dumps(told) + "\n")
            if error is not None:
                print(f"FAILED seed {seed} ({kind}): {error}", flush=True)

    def _note(self, seed: int, error: str | None) -> None:
        self.done.add(seed)
        if error is not None:
            self.failures[seed] = error

    @property
    def left(self) -> list[int]:
        return [seed for seed in self.seeds if seed not in self.done]


class _Hand:
    """A thread with a process of its own, which it starts anew when that is lost."""

    def __init__(
        self,
        started: list[str],
        options: argparse.Namespace,
        waiting: queue.SimpleQueue[int],
        tally: _Tally,
        is_stopped: threading.Event,
    ):
        self.started, self.options, self.waiting, self.tally = started, options, waiting, tally
        self.is_stopped = is_stopped
        self.process: subprocess.Popen[str] | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.is_stopped.is_set():
            try:
                seed = self.waiting.get_nowait()
            except queue.Empty:
                break
            error = self._answer(seed)
            if error and self.is_stopped.is_set():
                break  # its process was ended
            self.tally.add(seed, error or None)
        self.end()

    def _answer(self, seed: int) -> str:
        """Why a seed failed, "" if it did not."""
        if self.process is None or self.process.poll() is not None:
            self._start()
        process: Any = self.process
        watchdog = threading.Timer(self.options.seconds, process.kill)
        begun = time.monotonic()
        watchdog.start()
        try:
            process.stdin.write(f"{seed}\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except (BrokenPipeError, OSError):
            line = ""
        finally:
            watchdog.cancel()
        if line:
            told = json.loads(line)
            if told["is_lost"]:  # it ends, and takes no other seed
                self.process = None
            return told["error"] or ""
        status = process.wait()
        took = time.monotonic() - begun
        self.process = None
        if took >= self.options.seconds:
            return f"no answer after {took:.0f} s"
        return f"its process ended with status {status}"

    def _start(self) -> None:
        # LLVM in one thread each; all processes draw the same inputs for a seed.
        environment = os.environ | {"DNNC_TEST_SEED": str(self.options.inputs), "DNNC_CACHE": "0"}
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # as many processes
        self.process = subprocess.Popen(
            self.started, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=environment, start_new_session=True,
        )  # fmt: skip

    def end(self) -> None:
        process = self.process
        if process is not None and process.poll() is None:
            process.kill()


def _hand_out(command: Command, options: argparse.Namespace, given: list[str]) -> int:
    seeds = options.seeds or list(range(options.first, options.first + options.count))
    tally = _Tally(seeds, lambda seed: command.kind_of(seed, options.only), options.log)
    waiting = queue.SimpleQueue[int]()
    for seed in tally.left:
        waiting.put(seed)
    is_stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        if threading.current_thread() is threading.main_thread():
            signal.signal(number, lambda *_: is_stopped.set())
    before = len(tally.done)
    begun = told = time.monotonic()
    started = [sys.executable, "-m", f"tests.gpu.{command.name}", *given, "--worker"]
    count = min(options.processes, len(tally.left))
    hands = [_Hand(started, options, waiting, tally, is_stopped) for _ in range(count)]
    while any(hand.thread.is_alive() for hand in hands) and not is_stopped.is_set():
        time.sleep(0.05)
        now = time.monotonic()
        if now - told >= _EVERY:
            told = now
            _tell(tally, now - begun, before)
        if now - begun >= options.within:
            break
    is_stopped.set()
    for hand in hands:
        hand.end()
        hand.thread.join(5)
    _tell(tally, time.monotonic() - begun, before)
    return _summary(command, options, tally)


def _tell(tally: _Tally, seconds: float, before: int) -> None:
    count = len(tally.done)
    print(
        f"{count} of {len(tally.seeds)} after {seconds:.0f} s, "
        f"{(count - before) / seconds:.2f} a second, {len(tally.failures)} failed",
        flush=True,
    )


def _summary(command: Command, options: argparse.Namespace, tally: _Tally) -> int:
    if tally.failures:
        print(f"failed: {' '.join(map(str, sorted(tally.failures)))}")
    left = tally.left
    if left:
        print(
            f"not run: {len(left)}; go on with --first {left[0]} --count {left[-1] - left[0] + 1}"
        )
    count = len(tally.done)
    verdict = "FAILED" if tally.failures else "NOT ALL RUN" if left else "PASSED"
    print(
        f"{command.title}: {verdict}, {count - len(tally.failures)} of {count} right, "
        f"inputs of DNNC_TEST_SEED={options.inputs}",
        flush=True,
    )
    return 1 if tally.failures else 2 if left else 0


def _options(command: Command, given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m tests.gpu.{command.name}")
    parser.add_argument("--first", type=int, default=0, help="seed")
    parser.add_argument("--count", type=int, default=300, help="seeds from there on")
    parser.add_argument("--seeds", type=int, nargs="+", help="these, in place of a range")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", choices=command.kinds, default="", help="one kind for all seeds")
    parser.add_argument("--seconds", type=float, default=120.0, help="a seed may take")
    parser.add_argument("--within", type=float, default=1e9, help="seconds that all may take")
    parser.add_argument("--log", type=Path, help="file of answers, whose seeds are left out")
    parser.add_argument("--inputs", type=int, default=1, help="seed of all inputs")
    parser.add_argument("--interpreted", action="store_true", help="without a device")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    command.options(parser)
    options = parser.parse_args(given)
    command.finish(options)
    return options
