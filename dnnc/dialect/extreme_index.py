"""Expands a reduction with an index: the extreme, then the least place where it is.

    extreme = max(x)
    place   = gen_index(x, axis 1) * size of axis 2 + gen_index(x, axis 2)
    is_here = x == extreme or x != x
    index   = min(is_here ? place : past the last)

If an element is NaN, so is the extreme: nothing is equal to it, and the NaNs alone are places.  The
second reduction has the dims and axes of the first, so that what runs a softmax's chain runs this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .. import dtypes
from .expansion import Steps
from .op import Op
from .ops.reduction import Reduction
from .tensor import Tensor

_LAST_I32 = dtypes.i32.integer_range[1]


def steps_of(op: Reduction) -> Sequence[Op]:
    """The operations of a reduction that has an index."""
    assert op.index is not None
    steps = Steps(op.name, op.compute_type, op.x.rank)
    if not op.axes:
        steps.reduction(op.mode, op.x, (), to=op.y)
        places = steps.computing_in(dtypes.i32)
        places.pointwise("mul", places.pointwise("gen_index", op.x, axis=0), 0, to=op.index)
        return steps.ops
    x, mode = op.x, op.mode
    if mode == "amax":
        x, mode = steps.pointwise("abs", x), "max"
    extreme = steps.reduction(mode, x, op.axes)
    steps.output(extreme, op.y)
    is_here = _is_here(steps, x, extreme)
    # INT32 where it holds every place, else DOUBLE, which does up to 2^53.
    fits = dtypes.i32 in op.index_types()
    places = steps.computing_in(dtypes.i32 if fits else dtypes.f64)
    past = _LAST_I32 if fits else math.inf
    chosen = places.pointwise("binary_select", _place(places, x, op.axes), past, is_here)
    places.reduction("min", chosen, op.axes, to=op.index)
    return steps.ops


def _is_here(steps: Steps, x: Tensor, extreme: Tensor) -> Tensor:
    """Whether an element is the extreme, or NaN."""
    is_equal = steps.pointwise("cmp_eq", x, extreme, to=_flag())
    if not (steps.compute_type.is_float and x.type.is_float):
        return is_equal
    is_nan = steps.pointwise("cmp_neq", x, x, to=_flag())
    return steps.computing_in(dtypes.i32).pointwise("logical_or", is_equal, is_nan)


def _flag() -> Tensor:
    """0 or 1, not a boolean: those that engines store between kernels are packed."""
    return Tensor(is_virtual=True, dtype=dtypes.i32)


def _place(places: Steps, x: Tensor, axes: Sequence[int]) -> Tensor:
    """The number of an element among those that are reduced with it."""
    first, *others = axes
    place = places.pointwise("gen_index", x, axis=first)
    for axis in others:
        size = places.count(x, [axis], over=axes)
        along = places.pointwise("gen_index", x, axis=axis)
        place = places.pointwise("add", places.pointwise("mul", place, size), along)
    return place
