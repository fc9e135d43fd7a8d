"""Reductions in two steps, the first over axes that are reduced anyway.

The amax of what a norm gives is over rows and columns; the norm itself reduces rows:

    y = norm(x), statistics over axis 1      amax = max |y| over axes 0 and 1
->  of each row max |y| over axis 1          amax = max of those over axis 0

so that a kernel which has the rows takes the first step too, and the second reads a number a row
instead of all that was normalised.  Of an amax, max or min such a kernel may take both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from ..expr import Expr
from .expansion import Steps
from .op import Op
from .ops.reduction import Reduction
from .tensor import Tensor

# Mode -> that of the second step.
_SECOND = {
    "add": "add", "mul": "mul", "min": "min", "max": "max", "amax": "amax", "norm1": "add",
    "mul_no_zeros": "mul",
}  # fmt: skip


def in_steps(ops: Sequence[Op]) -> list[Op]:
    """The operations, in order, with such reductions in the place of those that they stand for."""
    producers = {tensor: op for op in ops for tensor in op.results}
    reductions = [op for op in ops if isinstance(op, Reduction) and op.axes]
    axes: dict[tuple[Expr, ...], set[tuple[int, ...]]] = {}  # dims -> those they are reduced over
    for op in reductions:
        axes.setdefault(op.x.shape, set()).add(op.axes)
    found: list[Op] = []
    for op in ops:
        first: tuple[int, ...] = ()
        if isinstance(op, Reduction):
            narrower = {a for a in axes.get(op.x.shape, ()) if {*a} < {*op.axes}}
            first = _inner_axes(op, narrower, reductions, producers)
        found += _two_steps(op, first) if isinstance(op, Reduction) and first else [op]
    return found


def _inner_axes(
    op: Reduction,
    narrower: AbstractSet[tuple[int, ...]],
    reductions: Sequence[Reduction],
    producers: Mapping[Tensor, Op],
) -> tuple[int, ...]:
    """The axes of a reduction, not all, over which what it reduces was reduced before.

    narrower: parts of its axes over which tensors of the same dims are reduced.
    """
    if op.mode not in _SECOND or op.index is not None or not narrower:
        return ()
    above = _upstream(op.x, producers)
    if any(other.role not in ("pointwise", "reduction", "view") for other in above):
        return ()  # engines take what follows a product as it is
    before = [
        other.axes
        for other in reductions
        if other in above and other.x.shape == op.x.shape and other.axes in narrower
    ]
    return max(before, key=len, default=())


def _upstream(tensor: Tensor, producers: Mapping[Tensor, Op]) -> set[Op]:
    found: set[Op] = set()
    pending = [tensor]
    while pending:
        op = producers.get(pending.pop())
        if op is not None and op not in found:
            found.add(op)
            pending += op.operands
    return found


def _two_steps(op: Reduction, first: Sequence[int]) -> Sequence[Op]:
    steps = Steps(op.name, op.compute_type, op.x.rank)
    part = steps.reduction(op.mode, op.x, first)
    rest = [axis for axis in op.axes if axis not in first]
    steps.reduction(_SECOND[op.mode], part, rest, to=op.y)
    return steps.ops
