"""Text for people: counts of things, and what a terminal may show of names in files."""

from __future__ import annotations

import re

_SUSPECT = re.compile(r"[^\n\t\x20-\x7e]")


def visible(text: str) -> str:
    """The text with what can't be printed as escapes (\\x1b); line ends and tabs stay."""
    return _SUSPECT.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    character = match.group()
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()


def counted(count: int, noun: str, nouns: str = "") -> str:
    """1 plan, 2 plans, 1,000 entries"""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"
