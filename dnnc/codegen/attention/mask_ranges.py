# pyright: basic
"""Where a mask is true: columns of a tile of rows that it may keep, and those that it all keeps.

Each comparison of a condition (`mask_conditions`) says, for rows `first` to `last`, from which
column to which it holds for some row, and for every row (`Ranges`).  What is not linear may hold
anywhere, and is never known to.  Products of work on columns outside the first range need not be
computed; in the second the condition need not be looked at.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...mlir import arith
from ...mlir import math as mlir_math
from .. import ops
from ..region import Access
from .mask_conditions import (
    FAR,
    MIRRORED,
    WRAPS,
    Blocks,
    Both,
    Compare,
    Condition,
    Either,
    Linear,
    conjuncts,
)

_ORDERS = {"slt": operator.lt, "sle": operator.le, "sgt": operator.gt, "sge": operator.ge}


# ---- ranges of columns


@dataclass(frozen=True)
class Ranges:
    """Columns [some, some_end) of which the condition may hold, [all, all_end) of which it does.

    Numbers, or i32 values; empty where the end is not above the start.
    """

    some: Any
    some_end: Any
    all: Any
    all_end: Any

    @staticmethod
    def everywhere() -> Ranges:
        return Ranges(0, FAR, 0, FAR)

    @staticmethod
    def unknown() -> Ranges:
        return Ranges(0, FAR, 0, 0)


def ranges(
    condition: Condition, first: Any, last: Any, load: Callable[[Any, Access], Any]
) -> Ranges:
    """Ranges of a condition, for rows `first` to `last`; load(leaf, access): a term's number."""
    if isinstance(condition, Both):
        parts = [ranges(part, first, last, load) for part in condition.parts]
        if not parts:
            return Ranges.everywhere()
        return Ranges(
            _most([p.some for p in parts]), _least([p.some_end for p in parts]),
            _most([p.all for p in parts]), _least([p.all_end for p in parts]),
        )  # fmt: skip
    if isinstance(condition, Either):
        parts = [ranges(part, first, last, load) for part in condition.parts]
        one = parts[0]
        for part in parts[1:]:
            lengths = part.all_end - part.all, one.all_end - one.all
            one = replace(
                one,
                all=_where("sgt", *lengths, part.all, one.all),
                all_end=_where("sgt", *lengths, part.all_end, one.all_end),
            )
        return replace(
            one, some=_least([p.some for p in parts]), some_end=_most([p.some_end for p in parts])
        )
    if isinstance(condition, Compare) and abs(condition.form.column) <= 1:
        found = _of_comparison(condition, first, last, load)
        return _unless(wraps(condition, load), found)
    return Ranges.unknown()  # of numbers of rows and columns, too: they have ranges by blocks


def wraps(condition: Compare, load: Callable[[Any, Access], Any]) -> Any:
    """Whether a sum of a comparison may wrap around, i1; None: it does not."""
    if condition.places is None:
        return None
    most = ops.const(condition.places, ops.i64_type())
    for factor, leaf, access in condition.form.terms:
        value = ops.to_i64(ops.value_of(load(leaf, access)))
        scaled = arith.MulIOp(value, ops.const(abs(factor), ops.i64_type())).result
        most = arith.AddIOp(most, mlir_math.AbsIOp(scaled).result).result
    return ops.compare("sge", most, ops.const(WRAPS, ops.i64_type()))


def _unless(is_unknown: Any, found: Ranges) -> Ranges:
    if is_unknown is None:
        return found
    other = Ranges.unknown()
    return Ranges(
        ops.select(is_unknown, other.some, found.some),
        ops.select(is_unknown, other.some_end, found.some_end),
        ops.select(is_unknown, other.all, found.all),
        ops.select(is_unknown, other.all_end, found.all_end),
    )


def _of_comparison(
    condition: Compare, first: Any, last: Any, load: Callable[[Any, Access], Any]
) -> Ranges:
    form, predicate = condition.form, condition.predicate
    if form.column == 0:
        return _of_rows(form, predicate, first, last, load)
    # column <predicate> bound
    bound = replace(form, column=0).times(-form.column)
    if form.column < 0:
        predicate = MIRRORED[predicate]
    low, high = _extremes(bound, first, last, load)
    if predicate in ("slt", "sle"):
        more = int(predicate == "sle")
        return Ranges(0, high + more, 0, low + more)
    if predicate in ("sgt", "sge"):
        more = int(predicate == "sgt")
        return Ranges(low + more, FAR, high + more, FAR)
    if predicate == "eq":
        return Ranges(low, high + 1, 0, 0)
    return Ranges.unknown()


def _of_rows(
    form: Linear, predicate: str, first: Any, last: Any, load: Callable[[Any, Access], Any]
) -> Ranges:
    """The range of a condition on rows alone: all columns, or none."""
    low, high = _extremes(form, first, last, load)
    if predicate in ("eq", "ne"):
        return Ranges.unknown()
    less = predicate in ("slt", "sle")
    some_end = _where(predicate, low if less else high, 0, FAR, 0)
    return Ranges(0, some_end, 0, _where(predicate, high if less else low, 0, FAR, 0))


def _extremes(
    form: Linear, first: Any, last: Any, load: Callable[[Any, Access], Any]
) -> tuple[Any, Any]:
    """(least, largest) of a form without columns, over the rows."""
    rest: Any = form.number
    for factor, leaf, access in form.terms:
        rest = _sum(rest, _scaled(load(leaf, access), factor))
    ends = [_sum(_scaled(row, form.row), rest) for row in (first, last)]
    return (ends[0], ends[1]) if form.row >= 0 else (ends[1], ends[0])


def _scaled(number: Any, factor: int) -> Any:
    return 0 - number if factor == -1 else number * factor


def _sum(a: Any, b: Any) -> Any:
    """Kept within +-FAR, in 64 bits on the way: what terms hold is not known."""
    if isinstance(a, int) and isinstance(b, int):
        return max(-FAR, min(FAR, a + b))
    wide = ops.to_i64(ops.value_of(a)) + ops.to_i64(ops.value_of(b))
    low, high = (ops.const(n, ops.i64_type()) for n in (-FAR, FAR))
    return ops.to_i32(arith.MaxSIOp(low, arith.MinSIOp(wide, high).result).result)


def _where(predicate: str, a: Any, b: Any, yes: Any, no: Any) -> Any:
    """yes where a <predicate> b, else no; predicate: slt, sle, sgt or sge."""
    if isinstance(a, int) and isinstance(b, int):
        return yes if _ORDERS[predicate](a, b) else no
    return ops.select(ops.compare(predicate, a, b), yes, no)


def _most(numbers: Sequence[Any]) -> Any:
    found = numbers[0]
    for number in numbers[1:]:
        found = ops.maximum(found, number)
    return found


def _least(numbers: Sequence[Any]) -> Any:
    found = numbers[0]
    for number in numbers[1:]:
        found = ops.minimum(found, number)
    return found


def ends_rows(condition: Condition) -> bool:
    """Whether each row keeps the columns before one of its own, and no others: `ranges` of a row
    say which."""
    return all(_is_end(part) for part in conjuncts(condition))


def _is_end(condition: Condition) -> bool:
    """Whether a comparison holds before a column, or is one on rows alone."""
    if not isinstance(condition, Compare) or condition.places is not None:
        return False
    form, predicate = condition.form, condition.predicate
    if form.column == 0:
        return predicate in _ORDERS
    if form.column < 0:
        predicate = MIRRORED[predicate]
    return abs(form.column) == 1 and predicate in ("slt", "sle")


def is_triangular(condition: Condition) -> bool:
    """Whether later rows keep more columns, and no row drops what one before it keeps."""
    if isinstance(condition, Both):
        moving = [
            part for part in condition.parts if not (_is_level(part) or isinstance(part, Blocks))
        ]
        return bool(moving) and all(map(is_triangular, moving))
    if not isinstance(condition, Compare) or abs(condition.form.column) != 1:
        return False
    form, predicate = condition.form, condition.predicate
    if form.column < 0:
        predicate = MIRRORED[predicate]
    return predicate in ("slt", "sle") and -form.row * form.column > 0


def _is_level(condition: Condition) -> bool:
    """Whether a condition is the same for every row, or on rows alone."""
    if isinstance(condition, Compare):
        return condition.form.row == 0 or condition.form.column == 0
    if isinstance(condition, Both | Either):
        return all(map(_is_level, condition.parts))
    return False
