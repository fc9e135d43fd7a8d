"""Which part of the rotating tests a commit runs.

Tests marked `rotating` (random seeds, sweeps) run in parts: an eighth of each at a commit, and
at least one case.  Of a file's tests marked `in_turn` (one engine's results with one option each) a
fifth runs, and at least one; a test with both marks runs a part of its cases when it is in turn.
A test that patches names of the package is never out of turn: a name that has gone is seen at once.
The commit's hash says which, so that one commit always runs the same.  The number is shown at the
start of a run; DNNC_TEST_ROTATION=NUMBER runs that part again and DNNC_TEST_ROTATION=all runs all,
as naming a test (FILE::TEST) does.
"""

import hashlib
import inspect
import os
import subprocess
from collections import defaultdict
from pathlib import Path

PARTS, TURNS = 8, 5
_CYCLE = 840  # commits after which parts of any number come again: a test may rotate and be in turn
VARIABLE = "DNNC_TEST_ROTATION"


def _number_of_the_commit():
    command = ["git", "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    except OSError:
        return 0
    return int(done.stdout[:8], 16) if done.returncode == 0 else 0


# For processes that are started from here too, so that what is printed is what they use.
os.environ[VARIABLE] = os.environ.get(VARIABLE) or str(_number_of_the_commit())
NUMBER = None if os.environ[VARIABLE] == "all" else int(os.environ[VARIABLE])


def chosen(cases, number=NUMBER, most=PARTS):
    """The cases of a rotating test that are run, in their order; of one or more at least one."""
    parts = min(most, len(cases))
    return [c for at, c in enumerate(cases) if number is None or (at + number) % parts == 0]


def is_drawn(text, parts, number=NUMBER):
    """Whether a text is one of those, about one in `parts`, that are looked at this time."""
    digest = hashlib.sha256(f"{number} {text}".encode()).digest()
    return number is None or int.from_bytes(digest[:4], "little") % parts == 0


def mixed(names):
    """Cases of one test in an order that has nothing to do with how their parameters are nested,
    so that a part has values of each parameter."""
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())


def _patches(item):
    """Whether a test replaces names of the package, which may go."""
    return "monkeypatch" in inspect.signature(item.function).parameters


def kept_and_left(items, number=NUMBER, near=frozenset()):
    """The tests to run, and those of other parts; items: pytest's, in their order.

    near: files whose tests all run.
    """
    sweeps, files = defaultdict(list), defaultdict(dict)
    for item in items:
        test = item.nodeid.split("[")[0]
        path = test.split("::")[0]
        if path in near or path.startswith("tests/gpu/"):  # where nothing rotates
            continue
        if item.get_closest_marker("rotating"):
            sweeps[test].append(item.nodeid)
        if item.get_closest_marker("in_turn") and not _patches(item):
            files[path].setdefault(test, []).append(item.nodeid)
    left = {
        case
        for cases in sweeps.values()
        for case in set(cases).difference(chosen(mixed(cases), number))
    }
    turn = None if number is None else number // _CYCLE
    for tests in files.values():
        waiting = set(tests).difference(chosen(mixed(tests), turn, TURNS))
        left.update(case for test in waiting for case in tests[test])
    kept = [item for item in items if item.nodeid not in left]
    return kept, [item for item in items if item.nodeid in left]
