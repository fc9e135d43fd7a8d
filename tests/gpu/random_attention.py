"""Random attention on the device against float64, by many processes: thousands in minutes.

    python -m tests.gpu.random_attention --first 0 --count 3000 --processes 14

A seed is a graph, an engine, knobs and inputs.  Of eight seeds three are of 16 bits through
`sdpa_fwd_sm90`, two of 16 bits through `sdpa_sm80`, two of fp8 through the one and one of fp8
through the other: "hopper", "any", "fp8" and "any-fp8".  Of those of 16 bits one in four has large
scores and many keys in place of a little of everything (`tests/random_large_attention.py`):
"hopper-large" and "any-large".  With `--only` all seeds are of one kind; `--only gradient` is of
gradients, through `sdpa_bwd_sm90`, and `--only any-gradient` through `sdpa_bwd_sm80`.

Each process draws, compiles, runs twice and compares; one that dies, or takes longer than the
watchdog allows, is a failure of its seed, and another takes its place.  SIGTERM and SIGINT end the
run early: what was not done is said.  The exit status is 1 where a seed failed, 2 where some were
not run.
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
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple


class Kind(NamedTuple):
    """engine, target: None for the device's own.  is_fp8: whether operands are.  is_large: whether
    scores are large, and keys many."""

    engine: str
    target: str | None = None
    is_fp8: bool = False
    is_large: bool = False


KINDS = {
    "hopper": Kind("sdpa_fwd_sm90", "sm_90a"),
    "fp8": Kind("sdpa_fwd_sm90", "sm_90a", is_fp8=True),
    "any": Kind("sdpa_sm80"),
    "any-fp8": Kind("sdpa_sm80", "sm_90a", is_fp8=True),
    "hopper-large": Kind("sdpa_fwd_sm90", "sm_90a", is_large=True),
    "any-large": Kind("sdpa_sm80", is_large=True),
    "gradient": Kind("sdpa_bwd_sm90", "sm_90a"),
    "any-gradient": Kind("sdpa_bwd_sm80", "sm_80"),
}
# Of a seed's remainder.  Of those of 16 bits one in four is of large scores, which is one in six.
TURNS = ("hopper", "any", "hopper", "fp8", "hopper", "any", "any-fp8", "fp8")
_LARGE = 0.25
_EVERY = 20.0  # seconds between two lines of progress


def kind_of(seed, only=""):
    if only:
        return only
    found = TURNS[seed % len(TURNS)]
    # A generator of its own: what others draw does not depend on it.
    is_large = Random(f"large {seed}").random() < _LARGE and f"{found}-large" in KINDS
    return f"{found}-large" if is_large else found


# ---- a process that runs seeds


def work(options):
    """Runs the seeds that stdin names, a line each, and answers each with a line."""
    from tests import checked_gradient
    from tests.checked_attention import run
    from tests.support import machine

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    if not options.interpreted:
        machine.use(machine.cuda())
    for line in sys.stdin:
        seed = int(line)
        kind = KINDS[kind_of(seed, options.only)]
        most = options.keys if kind.is_large else options.most
        drawn = {"is_fp8": kind.is_fp8, "is_large": kind.is_large}
        error, is_lost = None, False
        try:
            engine = kind.engine, kind.target
            if engine in (checked_gradient.SM90, checked_gradient.SM80):
                depths = checked_gradient.EVERY_DEPTH
                checked_gradient.run_seed(seed, most, options.heads, engine, depths)
            else:
                run(kind.engine, seed, most, options.heads, kind.target, **drawn)
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
class Tally:
    """Counts of seeds that are done and that failed.  failures: seed -> why."""

    seeds: list[int]
    done: set[int] = field(default_factory=set)
    failures: dict[int, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, seed, error, only):
        with self.lock:
            self.done.add(seed)
            if error is None:
                return
            self.failures[seed] = error
            print(f"FAILED seed {seed} ({kind_of(seed, only)}): {error}", flush=True)

    @property
    def left(self):
        return [seed for seed in self.seeds if seed not in self.done]


class Hand:
    """A thread with a process of its own, which it starts anew when that is lost."""

    def __init__(self, options, waiting, tally, is_stopped):
        self.options, self.waiting, self.tally = options, waiting, tally
        self.is_stopped = is_stopped
        self.process = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while not self.is_stopped.is_set():
            try:
                seed = self.waiting.get_nowait()
            except queue.Empty:
                break
            error = self._answer(seed)
            if error and self.is_stopped.is_set():
                break  # its process was ended
            self.tally.add(seed, error or None, self.options.only)
        self.end()

    def _answer(self, seed):
        """Why a seed failed, "" if it did not."""
        if self.process is None or self.process.poll() is not None:
            self._start()
        process = self.process
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

    def _start(self):
        own = ["--worker"]
        for name in ("most", "keys", "heads"):
            own += [f"--{name}", str(getattr(self.options, name))]
        own += ["--only", self.options.only] if self.options.only else []
        own += ["--interpreted"] if self.options.interpreted else []
        # LLVM in one thread each; all processes draw the same inputs for a seed.
        environment = os.environ | {"DNNC_TEST_SEED": str(self.options.inputs), "DNNC_CACHE": "0"}
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # as many processes
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.random_attention", *own],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
            start_new_session=True,
        )  # fmt: skip

    def end(self):
        process = self.process
        if process is not None and process.poll() is None:
            process.kill()


def main(arguments=None):
    options = _options(arguments)
    if options.worker:
        work(options)
        return 0
    tally = Tally(options.seeds or list(range(options.first, options.first + options.count)))
    waiting = queue.SimpleQueue()
    for seed in tally.seeds:
        waiting.put(seed)
    is_stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        if threading.current_thread() is threading.main_thread():
            signal.signal(number, lambda *_: is_stopped.set())
    begun = told = time.monotonic()
    hands = [Hand(options, waiting, tally, is_stopped) for _ in range(options.processes)]
    while any(hand.thread.is_alive() for hand in hands) and not is_stopped.is_set():
        time.sleep(0.05)
        if time.monotonic() - told >= _EVERY:
            told = time.monotonic()
            _tell(tally, told - begun)
    is_stopped.set()
    for hand in hands:
        hand.end()
        hand.thread.join(5)
    return _summary(options, tally, time.monotonic() - begun)


def _tell(tally, seconds):
    count = len(tally.done)
    rate = count / seconds
    print(
        f"{count} of {len(tally.seeds)} after {seconds:.0f} s, {rate:.2f} a second, "
        f"{len(tally.failures)} failed",
        flush=True,
    )


def _summary(options, tally, seconds):
    _tell(tally, seconds)
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
        f"random attention: {verdict}, {count - len(tally.failures)} of {count} right, "
        f"inputs of DNNC_TEST_SEED={options.inputs}",
        flush=True,
    )
    return 1 if tally.failures else 2 if left else 0


def _options(arguments):
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.random_attention")
    parser.add_argument("--first", type=int, default=0, help="seed")
    parser.add_argument("--count", type=int, default=300, help="seeds from there on")
    parser.add_argument("--seeds", type=int, nargs="+", help="these, in place of a range")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--most", type=int, default=260, help="queries, or keys, of a head")
    parser.add_argument("--keys", type=int, help="of a head where scores are large; 2048 or 600")
    parser.add_argument("--heads", type=int, default=4, help="of all entries of the batch")
    parser.add_argument("--only", choices=KINDS, default="", help="one kind for all seeds")
    parser.add_argument("--seconds", type=float, default=120.0, help="a seed may take")
    parser.add_argument("--inputs", type=int, default=1, help="seed of all inputs")
    parser.add_argument("--interpreted", action="store_true", help="without a device")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.keys is None:  # interpreted, 2048 would take too long
        options.keys = 600 if options.interpreted else 2048
    return options


if __name__ == "__main__":
    sys.exit(main())
