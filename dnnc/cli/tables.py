"""Tables as lines of a given width, in which every value is whole and shows control characters.

Columns that hold sentences and lists wrap between words.  Where that is not enough, each row
becomes a record, a column a line.  A word wider than the terminal is printed wide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len

from ..visible import visible

_GAP = "   "

# A sentence in a narrower column is harder to read than a record.
_LEAST_WRAPPED = 24


@dataclass(frozen=True)
class Column:
    """A column's title, whether it is right-aligned, and whether its cells may wrap."""

    title: str
    is_right: bool = False
    wraps: bool = False


@dataclass
class Table:
    """Rows of cells; a row whose first cell is empty continues the row above."""

    columns: Sequence[Column]
    rows: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])

    def add_row(self, *cells: str) -> None:
        assert len(cells) == len(self.columns), cells
        self.rows.append(tuple(map(visible, cells)))

    def lines(self, width: int | None) -> tuple[list[str], list[str]]:
        """(header, body), in at most `width` columns unless a word is wider; None: no limit."""
        widths = self._widths(width)
        if width is None or widths is not None:
            used = widths or self._natural()
            header = list(self._row([column.title for column in self.columns], used))
            return header, [line for row in self.rows for line in self._row(row, used)]
        return [], list(self._records(width))

    def _natural(self) -> list[int]:
        """The width of each column's widest cell."""
        return [
            max(_width(text) for text in (column.title, *cells))
            for column, cells in self._by_column()
        ]

    def _by_column(self) -> Iterator[tuple[Column, list[str]]]:
        for place, column in enumerate(self.columns):
            yield column, [row[place] for row in self.rows]

    def _widths(self, width: int | None) -> list[int] | None:
        """Each column's width so that all fit; None where they can't."""
        natural = self._natural()
        if width is None:
            return natural
        least = [
            _least(column, cells, most)
            for (column, cells), most in zip(self._by_column(), natural, strict=True)
        ]
        room = width - len(_GAP) * (len(least) - 1) - sum(least)
        if room < 0:
            return None
        # Those that lack little are served first, and leave the others what they don't need.
        order = sorted(range(len(least)), key=lambda place: natural[place] - least[place])
        for done, place in enumerate(order):
            more = min(natural[place] - least[place], room // (len(order) - done))
            least[place] += more
            room -= more
        return least

    def _row(self, cells: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
        wrapped = [_wrapped(cell, width) for cell, width in zip(cells, widths, strict=True)]
        for place in range(max(map(len, wrapped))):
            parts = [
                _padded(lines[place] if place < len(lines) else "", width, column.is_right)
                for lines, width, column in zip(wrapped, widths, self.columns, strict=True)
            ]
            yield _GAP.join(parts).rstrip()

    def _records(self, width: int) -> Iterator[str]:
        labels = [column.title or "#" for column in self.columns]
        indent = max(map(cell_len, labels)) + len(_GAP)
        for number, row in enumerate(self.rows):
            if number and row[0]:
                yield ""
            for label, cell in zip(labels, row, strict=True):
                lines = _wrapped(cell, width - indent) if cell else []
                for place, line in enumerate(lines):
                    yield _padded("" if place else label, indent, is_right=False) + line


def _least(column: Column, cells: Sequence[str], natural: int) -> int:
    """The least width of a column: titles always wrap, cells where the column says so."""
    words = [word for text in (column.title, *cells) for word in text.split()]
    longest = max(map(cell_len, words), default=0)
    if column.wraps:
        return min(natural, max(longest, _LEAST_WRAPPED))
    return max(longest, *map(_width, cells), 0)


def _width(text: str) -> int:
    return max(map(cell_len, text.splitlines()), default=0)


def _wrapped(text: str, width: int) -> list[str]:
    """The lines of a text, broken between words only."""
    lines: list[str] = []
    for line in text.splitlines() or [""]:
        if cell_len(line) <= width:
            lines.append(line)
            continue
        first, *words = line.split() or [""]
        lines.append(first)
        for word in words:
            if cell_len(lines[-1]) + 1 + cell_len(word) <= width:
                lines[-1] += f" {word}"
            else:
                lines.append(word)
    return lines


def _padded(text: str, width: int, is_right: bool) -> str:
    space = " " * (width - cell_len(text))
    return space + text if is_right else text + space
