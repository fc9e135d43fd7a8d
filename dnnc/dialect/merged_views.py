"""Views of views, as one view of what the first one views.

    transpose [2, 0, 1] of transpose [1, 0, 2]      ->  transpose [2, 1, 0]
    slice [2:, ::2] of slice [4:, 1:]               ->  slice [6:, 1::2]
    reshape of reshape, both LOGICAL                ->  the second one, of the first one's operand

Where one converts to another data type, both stay; a view that something else reads stays, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .op import Op
from .ops.views import Reshape, Slice, Transpose, View
from .patterns import Pattern, Producer

_Axis = tuple[int, int, int]  # start, stop, step
_WHOLE: _Axis = (0, -1, 1)


def _of_two(
    merged: Callable[[Any, Any], View | None],
) -> Callable[[View, Producer], list[Op] | None]:
    """A pattern's function, of one that merges a view with the view of its kind that it reads."""

    def rewrite(outer: View, producer: Producer) -> list[Op] | None:
        """A view of a view of its kind is one view."""
        inner = producer(outer.x)
        if type(inner) is not type(outer) or not isinstance(inner, View):
            return None
        if {inner.x.type, inner.y.type} != {outer.y.type}:
            return None
        made = merged(inner, outer)
        if made is None:
            return None
        made.name = outer.name
        return [made]

    return rewrite


def _transposed(inner: Transpose, outer: Transpose) -> Transpose:
    permutation = tuple(inner.permutation[axis] for axis in outer.permutation)
    return Transpose(x=inner.x, y=outer.y, permutation=permutation)


def _sliced(inner: Slice, outer: Slice) -> Slice:
    axes = [_merged_axis(_axis(inner, i), _axis(outer, i), n.constant or 0)
            for i, n in enumerate(outer.y.shape)]  # fmt: skip
    starts, stops, steps = (tuple(axis[place] for axis in axes) for place in range(3))
    return Slice(x=inner.x, y=outer.y, starts=starts, stops=stops, steps=steps)


def _axis(op: Slice, axis: int) -> _Axis:
    return op.starts[axis], op.stops[axis], op.steps[axis]


def _merged_axis(inner: _Axis, outer: _Axis, count: int) -> _Axis:
    """count: of the elements that are taken, where one of the two does not take the whole axis."""
    if inner == outer == _WHOLE:
        return _WHOLE
    start, step = inner[0] + inner[2] * outer[0], inner[2] * outer[2]
    return start, start + step * (count - 1) + 1, step


def _reshaped(inner: Reshape, outer: Reshape) -> Reshape | None:
    """Only of two that keep the order of elements, whatever lies in memory."""
    if {inner.reshape_mode, outer.reshape_mode} != {"LOGICAL"}:
        return None
    return Reshape(x=inner.x, y=outer.y, reshape_mode="LOGICAL")


MERGED_VIEWS: Sequence[Pattern] = (
    Pattern(Transpose, _of_two(_transposed), "merge-transposes"),
    Pattern(Slice, _of_two(_sliced), "merge-slices"),
    Pattern(Reshape, _of_two(_reshaped), "merge-reshapes"),
)
