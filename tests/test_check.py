"""`make check`: which tests a change concerns, in which order, and what is left out."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import check
from tests.support import imports
from tests.support.imports import ImportGraph

ROOT = Path(__file__).parent.parent

PACKAGE = """\
if TYPE_CHECKING:
    from .alone import x
_LAZY = {'Dim': 'dnnc.sizes', 'run': 'dnnc.part'}
"""
FILES = {
    "dnnc/__init__.py": PACKAGE,
    "dnnc/sizes.py": "",
    "dnnc/part/__init__.py": "_LAZY = {'run': 'runs'}\n",
    "dnnc/part/runs.py": "from ..sizes import Dim\n",
    "dnnc/part/other.py": "def f():\n    from . import runs\n",
    "dnnc/alone.py": "",
    "tests/part/test_other.py": "from dnnc.part import other\n",
    "tests/part/test_beside.py": "",
    "tests/gpu/test_device.py": "import dnnc.sizes\n",
    "tests/conftest.py": "",
    "tests/test_dim.py": "import dnnc\nm = dnnc.Dim('M')\n",
    "tests/test_run.py": "import dnnc\ndnnc.run()\n",
    "tests/test_sizes.py": "from dnnc.sizes import (\n    Dim,\n)\n",
    "tests/test_pages.py": "PAGES = 'docs'.rglob('*.md')\n",
    "tests/test_make.py": "open('Makefile')\n",
}


def repository(root):
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def concerned(root, *changed):
    return check.concerned(ImportGraph(repository(root)), list(changed))


def test_imports_are_followed_back(tmp_path):
    found = concerned(tmp_path, "dnnc/sizes.py")
    assert found == {
        "tests/test_sizes.py": 1,
        "tests/test_dim.py": 1,  # by a name that the package loads when it is used
        "tests/part/test_other.py": 3,  # other, runs, sizes
    }


def test_tests_beside_a_change_are_near(tmp_path):
    found = concerned(tmp_path, "dnnc/part/runs.py")
    assert found == {"tests/part/test_other.py": 1}  # another test there imports nothing


def test_a_changed_test_comes_first(tmp_path):
    found = concerned(tmp_path, "tests/test_sizes.py", "dnnc/sizes.py")
    assert found["tests/test_sizes.py"] == 0


def test_a_conftest_concerns_what_is_below_it(tmp_path):
    assert set(concerned(tmp_path, "tests/conftest.py")) == {
        path for path in FILES if "/test_" in path and "gpu" not in path
    }


def test_what_was_read_of_files_is_kept(tmp_path, monkeypatch):
    kept = tmp_path / "cache" / "imports"
    first = ImportGraph(repository(tmp_path), kept)
    (tmp_path / "dnnc/alone.py").write_text("import dnnc.sizes\n")
    read = []
    monkeypatch.setattr(
        imports, "uses_of", lambda path, text: read.append(path) or imports.Uses(["dnnc"], [], [])
    )
    second = ImportGraph(tmp_path, kept)
    assert read == ["dnnc/alone.py"]
    assert "dnnc/alone.py" in second.steps_to(["dnnc/__init__.py"])
    assert second.steps_to(["dnnc/sizes.py"]) == first.steps_to(["dnnc/sizes.py"])


def test_other_files_concern_the_tests_that_name_them(tmp_path):
    assert concerned(tmp_path, "Makefile") == {"tests/test_make.py": 1}
    assert concerned(tmp_path, "docs/engines.md") == {"tests/test_pages.py": 1}
    assert concerned(tmp_path, "dnnc/alone.py", "dnnc/gone.py", "LICENSE") == {}


def test_every_layer_reaches_its_tests():
    graph = ImportGraph(ROOT)
    for path, test in (
        ("dnnc/engines/rows/grid.py", "tests/engines/rows/test_grid.py"),
        ("dnnc/interpreter/floats.py", "tests/engines/product/test_matmul_sm80.py"),
        ("dnnc/tuning/race.py", "tests/cli/test_tune.py"),
        ("dnnc/emit/source.py", "tests/emit/test_calls.py"),
        ("tests/random_graphs.py", "tests/test_random_graphs.py"),
    ):
        assert test in check.concerned(graph, [path]), (path, test)


def test_changes_since_a_branch(tmp_path):
    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", tmp_path, *who, *words], check=True, capture_output=True)

    repository(tmp_path)
    git("init", "-b", "main")
    git("add", "-A")
    git("commit", "-m", "begin")
    assert check.changed_files(tmp_path) == []
    git("checkout", "-b", "work")
    (tmp_path / "dnnc/sizes.py").write_text("Dim = 1\n")
    git("commit", "-am", "change")
    (tmp_path / "dnnc/alone.py").write_text("x = 1\n")
    (tmp_path / "new.py").write_text("")
    assert check.changed_files(tmp_path) == ["dnnc/alone.py", "dnnc/sizes.py", "new.py"]
    assert check.changed_files(tmp_path, "HEAD") == ["dnnc/alone.py", "new.py"]
    git("clone", tmp_path, tmp_path / "clone")  # which has a branch work, and no branch main
    assert check.changed_files(tmp_path / "clone") == ["dnnc/sizes.py"]


def test_the_nearest_come_first_and_then_the_cheapest():
    known = {"far.py::a": 0.01, "dear.py::a": 3.0, "dear.py::b": 1.0, "cheap.py::a": 0.5}
    paths, totals = check.in_order({"far.py": 4, "dear.py": 1, "cheap.py": 1, "new.py": 1}, known)
    assert paths == ["new.py", "cheap.py", "dear.py", "far.py"]
    assert totals["dear.py"] == 4.0
    assert totals["new.py"] == check.UNKNOWN_FILE
    assert check.fitting(paths, totals, 5.0) == (paths[:3], ["far.py"])
    assert check.fitting(paths, totals, 100.0) == (paths, [])


def test_a_busy_machine_is_noticed():
    """A process that waits gets as little done as one that others keep from its core."""
    assert check.timed(time.sleep, 0.02)[1] > 5
    found, slowness = check.timed(sum, range(100_000))
    assert found == sum(range(100_000))
    assert slowness >= 1


def test_tests_that_do_not_fit_are_left_out_and_named(tmp_path):
    text = "def test_first():\n    pass\n\n\ndef test_long():\n    raise AssertionError\n"
    (tmp_path / "test_b.py").write_text(text)
    (tmp_path / "test_a.py").write_text("def test_last():\n    pass\n")
    plan = {
        "paths": ["test_b.py", "test_a.py"],
        "near": [],
        "remaining": ["tests/test_c.py"],
        "end": time.time() + 100,
        "known": {"test_b.py::test_long": 120.0},
        "slowness": 2.0,
    }
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "tests.check", "-n", "1", *plan["paths"]],
        cwd=tmp_path,
        env=dict(os.environ, PYTHONPATH=str(ROOT), DNNC_CHECK=str(tmp_path / "plan.json")),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    passed = re.findall(r"PASSED (\S+)", done.stdout)
    assert passed == ["test_b.py::test_first", "test_a.py::test_last"]
    line = "check: left out 1 tests of test_b.py and all of test_c.py; `make test` runs them"
    assert line in done.stdout


def test_a_test_that_is_not_done_in_time_is_ended_and_named(tmp_path):
    lane = check.Lane(["test_a.py"], [], [], time.time() + 0.05, {}, 1.0)
    item = SimpleNamespace(nodeid="test_a.py::test_endless")
    began = time.time()
    with pytest.raises(pytest.skip.Exception), lane.until_the_end(item):
        time.sleep(100)
    assert time.time() - began < 50
    assert lane.left == [item.nodeid]
    with lane.until_the_end(SimpleNamespace(nodeid="")):  # nothing rings later
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
