"""Links of the README and of all pages under docs: the files are there, and the headings named."""

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


def anchor(heading):
    """GitHub's anchor of a heading: its letters, digits, hyphens and spaces."""
    shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")


def anchors(text):
    """Anchors of a page's headings; the second of two that are alike ends in -1."""
    names, seen = set(), Counter()
    for name in map(anchor, HEADING.findall(FENCED.sub("", text))):
        names.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return names


@cache
def anchors_of(page):
    return anchors(page.read_text())


def broken_links(text, page):
    """The links of a page's text whose file is not there, or has no such heading."""
    broken = []
    for link in LINK.findall(FENCED.sub("", text)):
        if re.match(r"\w+:", link):
            continue
        name, _, heading = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (heading and heading not in anchors_of(target)):
            broken.append(link)
    return broken


def test_pages_of_folders_are_among_them():
    assert ROOT / "docs" / "performance" / "matmul.md" in PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links(page):
    assert not broken_links(page.read_text(), page)


@pytest.mark.parametrize(
    "link",
    ["none.md", "../none.json", "#none", "performance.md#none", "performance/matmul.md#none"],
)
def test_a_broken_link_is_noticed(link):
    assert broken_links(f"[a]({link})", ROOT / "docs" / "numerics.md") == [link]


def test_anchors_are_those_of_github():
    text = "# A `b_c`, d-e (F/s)\n\n```sh\n# no heading\n```\n\n## [Same](x.md#y)\n\n### Same\n"
    assert anchors(text) == {"a-b_c-d-e-fs", "same", "same-1"}
