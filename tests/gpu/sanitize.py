"""Tests marked `feature` under compute-sanitizer, a process for those of a file, many side by side.

    python -m tests.gpu.sanitize --tool racecheck --processes 15 --within 110

Of each test function one parametrization runs: that of `--turn`, counted from the first and again
from there.  `--all` runs all.  `--match` keeps those whose names a regular expression finds,
`--apart` gives each test a process.  racecheck leaves those out that are marked `exchange`,
memcheck those marked `overlaps`; tests see the tool's name as `DNNC_TEST_TOOL`.  Tests
that fail, take longer than `--seconds` each, or of which the tool reports an error are said, with
what the tool says first; the exit status is 1 then, and 2 where some were not run in the time of
`--within`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
_REPORTED = 86  # the tool's exit status where it found an error
_NOT_RUN = "not run"


def collected(tool: str) -> list[str]:
    """Names of the tests that a tool runs, as pytest takes them."""
    left_out = {"racecheck": " and not exchange", "memcheck": " and not overlaps"}
    marks = "gpu and feature" + left_out.get(tool, "")
    said = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--collect-only", "-m", marks, "tests/gpu"],
        capture_output=True, text=True,
    )  # fmt: skip
    found = [line for line in said.stdout.splitlines() if "::" in line]
    if not found:
        raise SystemExit(f"no tests were collected:\n{said.stdout[-2000:]}{said.stderr[-2000:]}")
    if said.returncode:
        failed = [line for line in said.stdout.splitlines() if line.startswith("ERROR ")]
        print("files that were not collected:", *failed, sep="\n  ")
    return found


def one_of_each(names: Iterable[str], turn: int) -> list[str]:
    """One parametrization of each test function."""
    functions: dict[str, list[str]] = {}
    for name in names:
        functions.setdefault(name.partition("[")[0], []).append(name)
    return [parametrized[turn % len(parametrized)] for parametrized in functions.values()]


def by_file(names: Iterable[str]) -> list[list[str]]:
    """The tests of each file."""
    files: dict[str, list[str]] = {}
    for name in names:
        files.setdefault(name.partition("::")[0], []).append(name)
    return list(files.values())


def verdict(status: int, said: str, count: int = 1) -> str:
    """The fault of so many tests that ended; "" where they passed and the tool found nothing."""
    if status == _REPORTED:
        lines = [line for line in said.splitlines() if line.startswith("========= ")]
        return "reported: " + " | ".join(line.strip("= ") for line in lines[1:5])
    passed = re.search(r"\b(\d+) passed", said)
    if status or passed is None or int(passed[1]) < count:
        return f"no pass (status {status}): " + " | ".join(said.splitlines()[-6:])
    return ""


def run(names: Sequence[str], options: argparse.Namespace, end: float) -> str:
    """The fault of tests under the tool; "" where there is none."""
    most = options.seconds * len(names)
    seconds = min(most, end - time.monotonic())
    if seconds < 1:
        return _NOT_RUN
    environment = os.environ | {
        "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "DNNC_TEST_TOOL": options.tool
    }  # fmt: skip
    # What the driver refuses, such as a question that it does not know, is no error of a kernel.
    api = ["--report-api-errors", "no"] if options.tool == "memcheck" else []
    command = [
        options.program, "--tool", options.tool, "--error-exitcode", str(_REPORTED),
        "--print-limit", "4", *api, sys.executable, "-m", "pytest", "-q", "-x",
        "-p", "no:cacheprovider", "-m", "gpu", *names,
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
        start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the tool, and what runs under it
        said, _ = process.communicate()
        return _NOT_RUN if seconds < most else f"no answer after {seconds:.0f} s"
    if options.logs:
        options.logs.mkdir(parents=True, exist_ok=True)
        file = re.sub(r"\W+", "-", names[0])[-120:] + f".{options.tool}.log"
        (options.logs / file).write_text(said)
    return verdict(process.returncode, said, len(names))


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    begun = time.monotonic()
    names = [name for name in collected(options.tool) if re.search(options.match, name)]
    if not options.all:
        names = one_of_each(names, options.turn)
    parts = [[name] for name in names] if options.apart else by_file(names)
    counts = {"right and without an error": 0, "in processes that failed": 0, _NOT_RUN: 0}

    def told(part: Sequence[str]) -> None:
        wrong = run(part, options, begun + options.within)
        kind = _NOT_RUN if wrong == _NOT_RUN else list(counts)[bool(wrong)]
        counts[kind] += len(part)
        if wrong:
            print(
                f"{'not run' if kind == _NOT_RUN else 'FAILED'} {' '.join(part)}: {wrong}",
                flush=True,
            )

    with ThreadPoolExecutor(options.processes) as hands:
        list(hands.map(told, parts))
    said = ", ".join(f"{count} {what}" for what, count in counts.items())
    print(
        f"{options.tool}: of {len(names)} tests {said}, {time.monotonic() - begun:.0f} s",
        flush=True,
    )
    return 1 if counts["in processes that failed"] else 2 if counts[_NOT_RUN] else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.sanitize")
    parser.add_argument("--tool", choices=TOOLS, default="memcheck")
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--turn", type=int, default=0, help="which parametrization of each test")
    parser.add_argument("--all", action="store_true", help="all of them")
    parser.add_argument("--apart", action="store_true", help="a process for each test")
    parser.add_argument("--match", default="", help="regular expression of names")
    parser.add_argument("--seconds", type=float, default=60.0, help="a test may take")
    parser.add_argument("--within", type=float, default=1e9, help="seconds that all may take")
    parser.add_argument("--logs", type=Path, help="folder of what each test's process said")
    found = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    parser.add_argument("--program", default=found, help="where the tool lies")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
