"""The page on architecture: its two ways are gone, and the files that it names exist."""

import re
import shlex
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.commands import dnnc as command

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()
WAYS = [
    re.findall(r"^\| \d+\. .*\| `([\w/]+\.py)` \| `(\w+)` \|$", part, re.MULTILINE)
    for part in PAGE.split("\n## ")
]


@contextmanager
def called():
    """The (file, name) of functions, and of methods' classes, that are called."""
    found = set()

    def see(frame, event, argument):
        code = frame.f_code
        if event == "call" and "/dnnc/" in code.co_filename:
            found.update((code.co_filename, part) for part in code.co_qualname.split("."))

    sys.setprofile(see)
    try:
        yield found
    finally:
        sys.setprofile(None)


def test_every_step_is_called_on_the_way_of_the_command(monkeypatch):
    assert [len(way) for way in WAYS if way] == [10, 8]  # at most ten
    (line,) = re.findall(r"^`(dnnc compile .*)`:$", PAGE, re.MULTILINE)
    monkeypatch.chdir(ROOT)
    with called() as found:
        result = command(*shlex.split(line)[1:], "--emit", "ptx")
    assert result.exit_code == 0, result.output
    steps = {(str(ROOT / path), name) for way in WAYS for path, name in way}
    assert not steps - found
    assert "wgmma.mma_async.sync.aligned.m64n128k16" in result.stdout


@pytest.mark.parametrize("path", re.findall(r"`(dnnc/[\w/]+)`", PAGE))
def test_a_folder_exists(path):
    assert (ROOT / path).is_dir()


@pytest.mark.parametrize("package", ["engines", "codegen"])
def test_every_room_is_named(package):
    rooms = {p.parent.name for p in (ROOT / "dnnc" / package).glob("*/__init__.py")}
    assert all(f"`{room}`" in PAGE for room in rooms)


def _files():
    for folder in ("dnnc", "docs", "tests", "benchmarks", "examples"):
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT).parts
            yield from ("/".join(parts[-count:]) for count in range(1, len(parts) + 1))


FILES = set(_files())


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs" / "architecture").glob("*.md")), ids=lambda p: p.stem
)
def test_files_that_pages_name_exist(page):
    named = set(re.findall(r"`([\w/]+\.py)`", page.read_text()))
    assert not named - FILES
