"""Errors that a file says it expects, as mlir-opt's --verify-diagnostics reads them.

    // expected-error@+1 {{K of A is 3}}
    %0 = "dnn.matmul"(%a, %b) ...

The place is +N or -N lines from the comment's line, which it is when there is no @; the text is
part of the error's.  Each expected error must occur, and no other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..places import Place

_EXPECTED = re.compile(r"//\s*expected-error(?:@([+-]\d+))?\s*\{\{(.*?)\}\}")


@dataclass(frozen=True)
class Diagnostic:
    """An error at a line of a file, from 1.

    column: 0 where it is not known.  file: "" of the one that is read; another where a location
    in it says so.
    """

    line: int
    text: str
    column: int = 0
    file: str = ""

    def shown(self, file: str) -> str:
        """The text behind its place.  file: the one that is read."""
        return f"{Place(self.file or file, self.line, self.column).path}: {self.text}"


def expected_in(text: str) -> list[Diagnostic]:
    """The errors that a text's comments expect."""
    found: list[Diagnostic] = []
    for number, line in enumerate(text.splitlines(), 1):
        for offset, said in _EXPECTED.findall(line):
            found.append(Diagnostic(number + int(offset or 0), said))
    return found


def differences(expected: Sequence[Diagnostic], actual: Sequence[Diagnostic]) -> list[Diagnostic]:
    """The mistakes: errors that did not occur, and those that nothing expects, by line."""
    left = list(actual)
    wrong: list[Diagnostic] = []
    for wanted in expected:
        fitting = [
            a for a in left if (a.file, a.line) == ("", wanted.line) and wanted.text in a.text
        ]
        if fitting:
            left.remove(fitting[0])
        else:
            wrong.append(Diagnostic(wanted.line, f'expected error "{wanted.text}" did not occur'))
    wrong += [replace(a, text=f"unexpected error: {a.text}") for a in left]
    return sorted(wrong, key=lambda found: found.line)
