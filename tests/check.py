"""Runs the tests that a change concerns, for a minute: `make check`.

    python -m tests.check [--since REVISION] [--seconds N] [--began SECONDS] [--list]

What changed is the difference of the working tree to where it left the branch `main`, untracked
files too.  A test file is concerned if it imports a changed file, directly or through others, or if
it names a changed file that is no Python.  The nearest come first: changed tests, then those that
import a changed file themselves or stand in the folder that mirrors its folder, then others by the
number of imports between.  Among equals the cheapest come first, by the seconds of their last run.
All cases of the near tests run; what rotates runs its part in those farther away.  Tests that do
not fit are left out, one that is not done in time is ended, and the last line names their files; on
a machine that is busy with other work that is most of them.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support import seconds as last
from tests.support.imports import ImportGraph, is_mirror

ROOT = Path(__file__).parent.parent
UNKNOWN = 0.1  # seconds of a test that was never run here
UNKNOWN_LAST = 1.0  # before the end none begins: one that is late is ended, at a cost
UNKNOWN_FILE = 4.0
FINISHING = 7.0  # seconds from the last test to the end of the processes
NEAR = 1  # how far a test file is from a change whose tests do not rotate


def changed_files(root, since=None):
    """Files that differ from a revision: by default from where this branch left `main`, its own or
    that of the repository that it was cloned from."""
    if since is None:
        left = (_git(root, "merge-base", "HEAD", main) for main in ("main", "origin/main"))
        (since,) = next(filter(None, left), ["HEAD"])
    changed = _git(root, "diff", "--name-only", since)
    if changed is None:
        raise SystemExit(f"check: git knows no revision {since!r}")
    return sorted({*changed, *_git(root, "ls-files", "--others", "--exclude-standard")})


def _git(root, *arguments):
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else None


def concerned(graph, changed):
    """Test file -> how far it is from a change, for all that a change concerns."""
    sources = [path for path in changed if path.endswith(".py")]
    steps = graph.steps_to([path for path in sources if path in graph.paths])
    others = [Path(path) for path in changed if path not in sources]
    found = {}
    for test in filter(_is_test, graph.paths):
        distance = steps.get(test)
        if distance and any(is_mirror(test, path) for path in sources):
            distance = 1
        if distance is None and others:
            text = (graph.root / test).read_text()
            if any(_is_named(path, text) for path in others):
                distance = 1
        if distance is not None:
            found[test] = distance
    return found


def _is_named(path, text):
    return path.name in text or bool(path.suffix and f"*{path.suffix}" in text)


def _is_test(path):
    is_device = path.startswith("tests/gpu/")
    return path.startswith("tests/") and Path(path).name.startswith("test_") and not is_device


def in_order(distances, known):
    """The concerned files, the nearest first and among equals those with the cheapest tests."""
    times = defaultdict(list)
    for test, seconds in known.items():
        times[test.split("::")[0]].append(seconds)

    def mean(path):
        return sum(times[path]) / len(times[path]) if times[path] else UNKNOWN

    totals = {path: sum(times[path]) or UNKNOWN_FILE for path in distances}
    return sorted(distances, key=lambda path: (distances[path], mean(path), path)), totals


def timed(function, *arguments):
    """A function's result, and how much slower than alone this process is on its machine."""
    begin, used = time.perf_counter(), time.process_time()
    given = function(*arguments)
    passed, used = time.perf_counter() - begin, time.process_time() - used
    return given, max(1.0, passed / max(used, 1e-6))


def fitting(paths, totals, budget):
    """The first files, until their tests take that many seconds; and the files that remain."""
    used = 0.0
    for count, path in enumerate(paths):
        if used >= budget:
            return paths[:count], paths[count:]
        used += totals[path]
    return paths, []


class OutOfTime(BaseException):
    """Ends a test; none catches it."""


class Lane:
    """The plugin of the processes that run tests, and of the one that leads them.

    It puts tests into the order of their files, the cheapest of a file first, leaves out those that
    would end too late, and ends one that does.  near: files of which all cases are run.  slowness:
    of this machine, beside what `known` was measured on.
    """

    def __init__(self, paths, near, remaining, end, known, slowness):
        self.place = {path: at for at, path in enumerate(paths)}
        self.near = frozenset(near)
        self.remaining, self.end, self.known, self.slowness = remaining, end, known, slowness
        self.left = []
        self.taken, self.expected = 0.0, 1.0  # seconds of the tests that began

    def seconds(self, item):
        return self.known.get(item.nodeid, UNKNOWN)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        items.sort(key=lambda item: (self.place[item.nodeid.split("::")[0]], self.seconds(item)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item, nextitem):
        known = self.known.get(item.nodeid)
        slowness = max(self.slowness, self.taken / self.expected)
        if time.time() + (slowness * known if known else UNKNOWN_LAST) < self.end:
            self.expected += self.seconds(item)
            return None
        self.left.append(item.nodeid)
        item.session._setupstate.teardown_exact(nextitem)
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item):
        with self.until_the_end(item):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        with self.until_the_end(item):
            return (yield)

    @contextlib.contextmanager
    def until_the_end(self, item):
        """Skips the test, as one that was left out, if it is not done at the end."""

        def ring(number, frame):
            raise OutOfTime

        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, max(self.end - time.time(), 0.01))
        try:
            yield
        except OutOfTime:
            self.left.append(item.nodeid)
            pytest.skip("the time of make check is over")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def pytest_runtest_logreport(self, report):
        self.taken += report.duration

    def pytest_sessionfinish(self, session):
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["left"] = self.left

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        self.left += getattr(node, "workeroutput", {}).get("left", [])

    def pytest_terminal_summary(self, terminalreporter):
        files = sorted({test.split("::")[0] for test in self.left}, key=self.place.get)
        terminalreporter.write_line(left_out(len(self.left), files, self.remaining))


def left_out(tests, files, remaining):
    """The line that says which tests of a change were not run."""
    if not tests and not remaining:
        return "check: every test that the change concerns was run"
    parts = [f"{tests} tests of {_some(files)}"] if tests else []
    parts += [f"all of {_some(remaining)}"] if remaining else []
    return f"check: left out {' and '.join(parts)}; `make test` runs them"


def _some(files):
    more = f" and {len(files) - 8} files more" if len(files) > 8 else ""
    return ", ".join(path.removeprefix("tests/") for path in files[:8]) + more


def pytest_configure(config):
    """Registers the plugin in each process: `-p tests.check`, with a file of what to run."""
    with open(os.environ["DNNC_CHECK"]) as file:
        config.pluginmanager.register(Lane(**json.load(file)), "lane")


def main(arguments=None, root=ROOT):
    about = __doc__.splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m tests.check", description=about)
    parser.add_argument("--since", metavar="REVISION", help="default: where HEAD left main")
    parser.add_argument("--seconds", type=float, default=60.0, help="default: 60")
    parser.add_argument(
        "--began", type=float, default=time.time(), help="from which on they count (date +%%s)"
    )
    parser.add_argument("--list", action="store_true", help="only print the files, nearest first")
    options = parser.parse_args(arguments)
    changed = changed_files(root, options.since)
    graph, slowness = timed(ImportGraph, root, root / ".pytest_cache" / "v" / "dnnc" / "imports")
    distances = concerned(graph, changed)
    known = last.read(root)
    paths, totals = in_order(distances, known)
    if options.list:
        for path in paths:
            print(f"{distances[path]:3} {totals[path]:7.1f} s  {path}")
        return 0
    print(f"check: {len(changed)} changed files concern {len(paths)} test files", flush=True)
    if not paths:
        return 0
    cores = os.cpu_count() or 1
    paths, remaining = fitting(paths, totals, cores * options.seconds / slowness)
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.json"
        end = options.began + options.seconds - FINISHING * min(max(slowness / 2, 1), 2)
        near = [path for path in paths if distances[path] <= NEAR]
        lane = {"paths": paths, "near": near, "remaining": remaining, "end": end, "known": known}
        plan.write_text(json.dumps({**lane, "slowness": slowness}))
        os.environ["DNNC_CHECK"] = str(plan)
        # One test at a time to whoever is free, so that the order holds.
        spread = ["-n", str(cores), "--dist", "load", "--maxschedchunk", "1"]
        code = pytest.main(["-q", "-p", "tests.check", *spread, *paths])
    return 0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else int(code)


if __name__ == "__main__":
    sys.exit(main())
