"""Many processes on one cache, of which one is killed at a random moment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import rotation

ROOT = Path(__file__).parent.parent.parent

# Ends itself where an entry is being written: before or after it has its name.
KILLED = """
import os, signal, sys
from pathlib import Path
from dnnc.cache import write
from dnnc.cache.disk import DiskStore
moment, link = sys.argv[2], write.os.link
def linked(*arguments, **named):
    if moment == "after":
        link(*arguments, **named)
    os.kill(os.getpid(), signal.SIGKILL)
write.os.link = linked
DiskStore(Path(sys.argv[1]), 1 << 20).put("cubin-1", bytes(100_000))
"""


def python(*arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def crowd(folder, first, rounds, seed):
    done = python("-m", "tests.cache.crowd", folder, first, rounds, seed)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_a_process_that_is_killed_harms_no_other(tmp_path):
    """Where all is kept, or at the next commit where entries are dropped."""
    rounds = range(2) if rotation.NUMBER is None else [rotation.NUMBER % 2]
    crowd(tmp_path, rounds[0], len(rounds), f"commit {rotation.NUMBER}")


@pytest.mark.slow
def test_a_process_that_is_killed_harms_no_other_fifty_times(tmp_path):
    assert crowd(tmp_path, 0, 50, "fifty") >= 10  # the others had ended


@pytest.mark.parametrize(("moment", "files"), [("before", 0), ("after", 1)])
def test_a_writer_that_is_killed_leaves_nothing_or_all(tmp_path, moment, files):
    assert python("-c", KILLED, tmp_path, moment).returncode == -9
    there = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(there) == files
