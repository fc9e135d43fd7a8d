"""How views of a product's result lie in memory where no one stride an axis says so.

    product [1, B*S, 3*H*D] --slice, reshape, transpose--> k [B, H, S, D] in memory
->  product [1, B*S, 3*H*D] --slice [1, B*S, H*D]--> --reshape--> k [1, B, S, H, D]
                                                   of strides [B*H*S*D, H*S*D, D, S*D, 1]

Each axis of the product becomes a slice, and axes that count through it: its *digits*.  So a
store of the product knows from a row and a column where its element lies (`codegen.memory.parted`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..expr import Expr, product
from .ops.views import Reshape, Slice, Transpose, View

_ONE = Expr.of(1)
_Dims = tuple[Expr, ...]

# Where slices of a product may begin, in elements: what kernels store together lies in one part.
PART_ELEMENTS = 8


@dataclass(eq=False)
class _Digit:
    """An axis that counts through an axis of the product, with others.

    first: the element of it that comes first in memory; whole: how many it has with those that
    are left out.
    """

    extent: Expr
    whole: Expr
    first: int = 0
    stride: Expr = _ONE


@dataclass(frozen=True)
class StoredPart:
    """start, end, columns: of the part along the product's last axis; an end of -1 is that of the
    axis.  digits: of each axis of the product, the extents and strides of the axes that count
    through it, outermost first."""

    start: int
    end: int
    columns: Expr
    digits: tuple[tuple[tuple[Expr, Expr], ...], ...]


def stored_part(dims: _Dims, views: Sequence[View], strides: _Dims) -> StoredPart | None:
    """How what some views give of a product of these dims lies in memory.

    strides: of the result.  None: it is no part of the columns, or no digits say where it lies.
    """
    counted = [[] if n.constant == 1 else [_Digit(n, n)] for n in dims]  # of each axis of `dims`
    axes = [list(digits) for digits in counted]  # of each axis of the view
    for view in views:
        found = _behind(view, axes, counted)
        if found is None:
            return None
        axes = found
    for digits, stride in zip(axes, strides, strict=True):
        for digit in reversed(digits):
            digit.stride = stride
            stride = stride * digit.extent
    merged = [_merged(digits) for digits in counted]
    *others, columns = merged
    if any(_is_cut(digit) for digits in (*others, columns[1:]) for digit in digits):
        return None
    inner = product(digit.extent for digit in columns[1:])
    start = Expr.of(columns[0].first if columns else 0) * inner
    if start.constant is None or start.constant % PART_ELEMENTS:
        return None
    extent = product(digit.extent for digit in columns)
    end = -1 if start + extent == dims[-1] else (start + extent).constant
    if end is None or (end > 0 and end % PART_ELEMENTS):
        return None
    return StoredPart(start.constant, end, extent, _with_ones(merged))


def _behind(
    view: View, axes: list[list[_Digit]], counted: list[list[_Digit]]
) -> list[list[_Digit]] | None:
    """The digits of each axis behind a view; None: none are so."""
    if isinstance(view, Transpose):
        return [axes[axis] for axis in view.permutation]
    if isinstance(view, Slice):
        is_cut = all(_cut(digits, view, axis) for axis, digits in enumerate(axes))
        return axes if is_cut else None
    assert isinstance(view, Reshape), view.label
    found: list[list[_Digit]] = [[] for _ in view.y.shape]
    for own, other in view.runs():
        digits = [digit for axis in own for digit in axes[axis]]
        for place, axis in reversed(list(enumerate(other))):
            outer = [view.y.shape[a] for a in other[:place]]
            taken = _taken(digits, view.y.shape[axis], product(outer), counted)
            if taken is None:
                return None
            found[axis] = taken
        if digits:
            return None
    return found


def _cut(digits: list[_Digit], view: Slice, axis: int) -> bool:
    """Cuts the digits of an axis as a slice does; gives whether it can."""
    start, count = view.starts[axis], view.y.shape[axis].constant
    if view.y.shape[axis] == view.x.shape[axis] and view.steps[axis] == 1:
        return True
    if view.steps[axis] != 1 or count is None or not digits:
        return False
    outer, *inner = digits
    each = product(digit.extent for digit in inner).constant
    if not each or start % each or count % each:
        return False
    outer.first, outer.extent = outer.first + start // each, Expr.of(count // each)
    return True


def _taken(
    digits: list[_Digit], extent: Expr, outer: Expr, counted: list[list[_Digit]]
) -> list[_Digit] | None:
    """The innermost digits that count to `extent`, which are taken off; a digit that counts
    further becomes two.  outer: what all others count to."""
    found: list[_Digit] = []
    left = extent
    while left.constant != 1 and digits:
        last = digits.pop()
        found.insert(0, last)
        if last.extent == left:
            return found
        if _is_multiple(left, last.extent):
            left = Expr.of((left.constant or 0) // (last.extent.constant or 1))
            continue
        more = _others(last.extent, left, outer)
        if more is None or last.first % (left.constant or 1) or _has_rest(last, left):
            return None
        digits.append(_split(last, more, left, counted))
        return found
    return found if left.constant == 1 else None


def _is_multiple(whole: Expr, part: Expr) -> bool:
    return bool(whole.constant and part.constant and whole.constant % part.constant == 0)


def _others(whole: Expr, part: Expr, outer: Expr) -> Expr | None:
    """How many times a digit counts to a part of what it counts to."""
    if _is_multiple(whole, part):
        return Expr.of((whole.constant or 0) // (part.constant or 1))
    return outer if outer * part == whole else None


def _has_rest(digit: _Digit, part: Expr) -> bool:
    """Whether what a digit has with those that are left out is no whole number of parts."""
    return digit.whole != digit.extent and not _is_multiple(digit.whole, part)


def _split(digit: _Digit, more: Expr, part: Expr, counted: list[list[_Digit]]) -> _Digit:
    """Makes two of a digit, which counts to `part` then; gives the outer one."""
    size = part.constant or 1
    whole = more
    if digit.whole != digit.extent:
        whole = Expr.of((digit.whole.constant or 0) // size)
    outer = _Digit(more, whole, digit.first // size)
    digit.extent = digit.whole = part
    digit.first = 0
    own = next(digits for digits in counted if digit in digits)
    own.insert(own.index(digit), outer)
    return outer


def _is_cut(digit: _Digit) -> bool:
    return digit.whole != digit.extent


def _merged(digits: Sequence[_Digit]) -> list[_Digit]:
    """The digits of an axis, with one in the place of neighbours that one stride goes through."""
    found: list[_Digit] = []
    for digit in reversed(digits):
        inner = found[0] if found else None
        if inner and not _is_cut(inner) and digit.stride == inner.stride * inner.extent:
            whole, inside = digit.whole * inner.extent, inner.extent
            first = digit.first * (inside.constant or 0)
            found[0] = _Digit(digit.extent * inside, whole, first, inner.stride)
        else:
            found.insert(0, digit)
    return found


def _with_ones(merged: Sequence[Sequence[_Digit]]) -> tuple[tuple[tuple[Expr, Expr], ...], ...]:
    """Extents and strides of all digits of several elements; an axis without one has one of one
    element, whose stride packs what lies inside it."""
    found: list[tuple[tuple[Expr, Expr], ...]] = []
    inside = _ONE
    for digits in reversed(merged):
        several = [digit for digit in digits if digit.extent.constant != 1]
        own = tuple((digit.extent, digit.stride) for digit in several) or ((_ONE, inside),)
        inside = own[0][0] * own[0][1]
        found.append(own)
    return tuple(found[::-1])
