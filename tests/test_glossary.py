"""docs/glossary.md: each word once, and names of code that exist."""

import re
from pathlib import Path

from dnnc.choosing.heuristics import MODES
from dnnc.knobs import KNOBS

TEXT = (Path(__file__).parent.parent / "docs" / "glossary.md").read_text()


def test_each_word_has_one_meaning():
    words = re.findall(r"^\| ([^|]+) \|", TEXT, re.MULTILINE)
    words = [word for row in words for word in row.split(", ") if row != "word"]
    assert len(words) > 60
    assert len(set(words)) == len(words)


def test_knobs_and_modes_exist():
    names = set(re.findall(r"`([A-Z][A-Z0-9_]+)(?:=\d+)?`", TEXT))
    assert names <= {*KNOBS, *MODES}
    assert {"TILE_M", "STAGES", "FALLBACK"} <= names
