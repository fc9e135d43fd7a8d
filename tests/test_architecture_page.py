"""The page on architecture: the files and functions that it names exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()
STEPS = re.findall(r"^\| \d+\. .*\| `([\w/]+\.py)` \| `(\w+)` \|$", PAGE, re.MULTILINE)


def test_both_ways_have_steps():
    assert len(STEPS) == 18


@pytest.mark.parametrize(("path", "name"), STEPS)
def test_a_step_is_a_function_that_exists(path, name):
    kinds = (ast.FunctionDef, ast.ClassDef)
    found = {n.name for n in ast.walk(ast.parse((ROOT / path).read_text())) if isinstance(n, kinds)}
    assert name in found


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
