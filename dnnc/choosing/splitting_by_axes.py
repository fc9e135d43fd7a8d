"""Splits a graph into a fusion for the reductions over the same axes.

Gradients of a norm reduce dy, x and their products along rows, and down columns.  Where no kernel
does both, one has all sums of rows with what is made of them, and another all sums of columns:

    sums of columns: dy, x -> dscale, dbias      sums of rows: dy, x -> dx

so that each goes through the tensors once and stores nothing of their size but outputs.  Pointwise
work that both need both do.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..dialect.graph import OperationGraph
from ..dialect.op import Op
from ..dialect.prior import priors_of
from ..dialect.tensor import Tensor
from ..engines.views.reduced import is_reduction_op
from ..expr import Expr

_Axes = tuple[tuple[Expr, ...], tuple[int, ...]]  # dims, and those axes that are reduced


def groups_by_axes(graph: OperationGraph) -> list[list[Op]] | None:
    """The groups, each after those that it needs.

    None: operations other than reductions, pointwise and view ones, reductions over the same axes
    alone, those that need each other in turn, outputs that no reduction leads to, or one that is
    added to what it held, which is there once.
    """
    if any(op.role not in ("reduction", "pointwise", "view") for op in graph.live_ops):
        return None
    if priors_of(graph.inputs):
        return None
    parts = _Parts(graph)
    order = parts.in_order()
    if order is None or len(order) < 2:
        return None
    wanted = {axes: [op.operands[0] for op in parts.reductions[axes]] for axes in order}
    for output in map(graph.form_of, graph.outputs):
        if output in parts.axes_of:
            continue
        needed = parts.needed([output])
        if not needed:
            return None
        wanted[max(needed, key=order.index)].append(output)
    groups: list[list[Op]] = []
    for axes in order:
        own = {*parts.reductions[axes], *parts.chain(wanted[axes])}
        groups.append([op for op in graph.live_ops if op in own])
    return groups


class _Parts:
    """reductions: by their axes.  axes_of: of what each of them gives."""

    def __init__(self, graph: OperationGraph):
        found = [op for op in graph.live_ops if is_reduction_op(op)]
        self.producers = {t: op for op in graph.live_ops for t in op.results}
        self.reductions: dict[_Axes, list[Op]] = {}
        self.axes_of: dict[Tensor, _Axes] = {}
        for op in found:
            axes = (op.x.shape, op.axes)
            self.reductions.setdefault(axes, []).append(op)
            self.axes_of[op.y] = axes

    def chain(self, tensors: Sequence[Tensor]) -> list[Op]:
        """The operations from what is in memory, or is reduced, to some tensors."""
        found: list[Op] = []
        pending = [t for t in tensors if t not in self.axes_of]
        while pending:
            op = self.producers.get(pending.pop())
            if op is not None and op not in found:
                found.append(op)
                pending += [t for t in op.operands if t not in self.axes_of]
        return found

    def needed(self, tensors: Sequence[Tensor]) -> set[_Axes]:
        """The axes of the reductions that some tensors are made of."""
        read = {t for op in self.chain(tensors) for t in op.operands}
        return {self.axes_of[t] for t in {*read, *tensors} if t in self.axes_of}

    def in_order(self) -> list[_Axes] | None:
        """The axes, each after those that its reductions need; None: there is no such order."""
        needed = {
            axes: self.needed([op.operands[0] for op in ops]) - {axes}
            for axes, ops in self.reductions.items()
        }
        order: list[_Axes] = []
        while len(order) < len(needed):
            ready = [a for a in needed if a not in order and needed[a] <= {*order}]
            if not ready:
                return None
            order += ready
        return order
