"""Columns of libraries that the benchmarks do not know, by files of Python."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from benchmarks.peers import contestants

pytestmark = pytest.mark.torch

FILE = """
def made(case, sets, bench):
    return {"theirs": (lambda i: None, {"library": "their own"})}

CONTESTANTS = {NAME: made}
"""


def written(folder, name):
    path = folder / f"{name}.py"
    path.write_text(FILE.replace("NAME", repr(name)))
    return path


def test_files_add_columns(tmp_path):
    found = contestants.adapted([written(tmp_path, name) for name in ("theirs", "others")])
    assert list(found) == ["theirs", "others"]
    column, (_, information) = next(iter(found["theirs"](None, [], None).items()))
    assert (column, information) == ("theirs", {"library": "their own"})
    assert not contestants.adapted([])


def test_columns_that_are_there_stay(tmp_path):
    with pytest.raises(ValueError, match=r"columns \['torch'\] are there already"):
        contestants.adapted([written(tmp_path, "torch")])
    path = written(tmp_path, "theirs")
    with pytest.raises(ValueError, match="theirs"):
        contestants.adapted([path, path])


def test_what_is_no_python_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="no Python file"):
        contestants.adapted([tmp_path / "columns.txt"])
