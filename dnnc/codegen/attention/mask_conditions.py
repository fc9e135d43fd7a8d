# pyright: basic
"""Conditions on the row and the column of a score, as far as they are known.

They are comparisons of linear forms,

    r * row + c * column + terms  <  0,        terms: loaded, the same for all scores

or comparisons with numbers in memory of each row or column, joined by and, or, not; what is none
may hold anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..region import Access

# Of a generic that is a mask of blocks: their rows and columns.
BLOCKS = "dnn.blocks"

# Past every column, and far from what overflows.
FAR = 1 << 30
WRAPS = 1 << 31  # integers below it are those of the graph, whose sums wrap around


@dataclass(frozen=True)
class Linear:
    """row * r + column * c + number + the sum of terms.

    terms: (factor, leaf, how it is addressed).
    """

    row: int = 0
    column: int = 0
    number: int = 0
    terms: tuple[tuple[int, Any, Access], ...] = ()

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        more = tuple((factor * f, leaf, access) for f, leaf, access in other.terms)
        return Linear(
            self.row + factor * other.row,
            self.column + factor * other.column,
            self.number + factor * other.number,
            self.terms + more,
        )

    def times(self, factor: int) -> Linear:
        return Linear().plus(self, factor)

    @property
    def is_number(self) -> bool:
        return self == Linear(number=self.number)

    @property
    def is_term(self) -> bool:
        """Whether it is one of the terms, and nothing else."""
        return len(self.terms) == 1 and self == Linear(terms=((1, *self.terms[0][1:]),))


@dataclass(frozen=True)
class Numbers:
    """A tensor in memory that has a number for each row or for each column.

    access: how it is addressed.  axis: of the scores, along which it has one each: -2 or -1.
    """

    leaf: Any
    access: Access
    axis: int


@dataclass(frozen=True)
class Varying:
    """A linear form, and numbers of rows and columns: (factor, numbers)."""

    form: Linear
    numbers: tuple[tuple[int, Numbers], ...] = ()

    @staticmethod
    def of(form: Linear | Varying) -> Varying:
        return form if isinstance(form, Varying) else Varying(form)

    def plus(self, other: Linear | Varying, factor: int = 1) -> Varying:
        other = Varying.of(other)
        more = tuple((factor * f, numbers) for f, numbers in other.numbers)
        return Varying(self.form.plus(other.form, factor), self.numbers + more)

    def times(self, factor: int) -> Varying:
        return Varying(Linear()).plus(self, factor)

    @property
    def loaded(self) -> tuple[tuple[Any, ...], ...]:
        """(factor, ...) of all that is in memory."""
        return (*self.form.terms, *self.numbers)

    @property
    def is_number(self) -> bool:
        return not self.numbers and self.form.is_number

    @property
    def is_term(self) -> bool:
        """Whether it is one of the numbers, and nothing else."""
        return self.form == Linear() and [factor for factor, _ in self.numbers] == [1]


@dataclass(frozen=True)
class Compare:
    """form <predicate> 0, predicate of eq, ne, slt, sle, sgt, sge.

    places: where sums of terms may wrap around, the largest that all else of a side may be; None:
    nothing wraps.
    """

    predicate: str
    form: Linear
    places: int | None = None


@dataclass(frozen=True)
class CompareNumbers:
    """left <predicate> right.  is_float: of f32, in which a side is exact or one rounded number."""

    predicate: str
    left: Varying
    right: Varying
    is_float: bool = False


@dataclass(frozen=True)
class Both:
    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Either:
    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Anything:
    """A condition that nothing is known of."""


@dataclass(frozen=True)
class Blocks:
    """A bit for each block of scores, eight to a byte.

    mask: bytes [.., blocks of rows, bytes of blocks of columns].  shared: whether all entries of
    each other axis share one.  rows, columns: of a block.
    """

    mask: Any
    shared: tuple[bool, ...]
    rows: int
    columns: int


Condition = Compare | CompareNumbers | Both | Either | Anything | Blocks


_OPPOSITE = {"eq": "ne", "ne": "eq", "slt": "sge", "sge": "slt", "sle": "sgt", "sgt": "sle"}
MIRRORED = {"eq": "eq", "ne": "ne", "slt": "sgt", "sgt": "slt", "sle": "sge", "sge": "sle"}


def negated(condition: Condition) -> Condition:
    if isinstance(condition, Compare | CompareNumbers):
        return replace(condition, predicate=_OPPOSITE[condition.predicate])
    if isinstance(condition, Both):
        return Either(tuple(map(negated, condition.parts)))
    if isinstance(condition, Either):
        return Both(tuple(map(negated, condition.parts)))
    return Anything()


# Comparisons of a condition that is followed: calls that follow it go no deeper.
MOST_PARTS = 64


def is_followed(condition: Condition) -> bool:
    """Whether it has few enough comparisons: what is joined of what is joined grows fast."""
    pending, count = [condition], 0
    while pending and count <= MOST_PARTS:
        part = pending.pop()
        if isinstance(part, Both | Either):
            pending += part.parts
        else:
            count += 1
    return count <= MOST_PARTS


def conjuncts(condition: Condition) -> list[Condition]:
    """Conditions that all have to hold."""
    if isinstance(condition, Both):
        return [found for part in condition.parts for found in conjuncts(part)]
    return [condition]


def terms(condition: Condition) -> list[tuple[Any, Access]]:
    """(leaf, how it is addressed) of what a condition compares rows and columns with."""
    if isinstance(condition, Compare):
        return [(leaf, access) for _, leaf, access in condition.form.terms]
    if isinstance(condition, Both | Either):
        return [term for part in condition.parts for term in terms(part)]
    return []
