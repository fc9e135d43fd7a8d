# pyright: basic
"""`dnnc opt --list-passes`: the passes and the rewrite patterns, by name."""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

_SENTENCE_END = re.compile(r"\. (?=[A-Z`])")


def listing() -> str:
    """A line each: a pass with the stages before and after it, a pattern with the operation that
    it rewrites and with who applies it."""
    from .. import passes
    from ..passes.named_patterns import users_of

    users = users_of()
    rows = [(kind.name, _stages_of(kind), _of_pass(kind)) for kind in passes.all_passes().values()]
    found = [
        (name, pattern.root, _of_pattern(pattern, users[name]))
        for name, pattern in passes.all_patterns().items()
    ]
    return "\n".join([
        "Passes, as -p takes them:", "", *_aligned(rows), "",
        "dnnc compile runs, with the options that it was given:", "", f"  {_of_compile()}", "",
        "Rewrite patterns, as -p 'apply-patterns{patterns=NAME}' takes them:", "", *_aligned(found),
        "",
    ])  # fmt: skip


def _of_compile() -> str:
    from ..passes import PASSES_TO

    return ",".join(kind.name for kinds in PASSES_TO.values() for kind in kinds)


def _stages_of(kind: Any) -> str:
    return f"{kind.takes} -> {kind.makes}" if kind.takes or kind.makes else "any"


def _of_pass(kind: Any) -> str:
    """The first sentence of the docstring of the file, or of the class, that begins with the
    pass's name."""
    start = f"{kind.name}:"
    for text in (kind.__doc__, sys.modules[kind.__module__].__doc__):
        said = inspect.cleandoc(text or "")
        if said.startswith(start):
            return _first_sentence(said.removeprefix(start))
    return ""


def _of_pattern(pattern: Any, users: list[str]) -> str:
    return f"{_first_sentence(pattern.rewrite.__doc__)} ({', '.join(users)})"


def _first_sentence(text: str | None) -> str:
    paragraph = inspect.cleandoc(text or "").partition("\n\n")[0]
    return _SENTENCE_END.split(" ".join(paragraph.split()))[0].rstrip(".")


def _aligned(rows: list[tuple[str, str, str]]) -> list[str]:
    widths = [max(len(row[place]) for row in rows) for place in (0, 1)]
    return [f"  {a:{widths[0]}}  {b:{widths[1]}}  {c}".rstrip() for a, b, c in rows]
