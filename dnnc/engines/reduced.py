# pyright: basic
"""What the engines of reductions share: which axes are reduced, and how memory runs along them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

from ..codegen.region import Access, Region, identity_access
from ..codegen.walk import inputs_of
from ..dialect.fusion import Fusion
from ..dialect.op import Op
from ..dialect.ops import Reduction
from ..dialect.tensor import Tensor, stride_order, text
from ..errors import Status
from ..expr import Expr
from .engine import Reason


def is_reduction_op(op: Op) -> TypeGuard[Reduction]:
    """A reduction over some axis; one over none is pointwise work."""
    return op.role == "reduction"


def reductions_of(fusion: Fusion) -> list[Reduction]:
    return [op for op in fusion.ops if is_reduction_op(op)]


def agreement_reasons(reductions: Sequence[Reduction]) -> list[Reason]:
    """Why reductions are not of the same dims over the same axes."""
    first = reductions[0]
    for op in reductions[1:]:
        if (op.x.shape, op.y.shape) != (first.x.shape, first.y.shape):
            what, other = (
                f"{r.label} of {text(r.x.shape)} to {text(r.y.shape)}" for r in (op, first)
            )
            what = f"{what}, {other}"
            return [Reason(Status.NOT_SUPPORTED_SHAPE, "reductions", what, "equal dims, axes")]
    return []


def sizes_along(op: Reduction) -> tuple[list[Expr], list[Expr]]:
    """(reduced sizes, kept sizes)."""
    reduced = [op.x.shape[axis] for axis in op.axes]
    return reduced, [n for axis, n in enumerate(op.x.shape) if axis not in op.axes]


def runs_along_row(fusion: Fusion, op: Reduction) -> bool:
    """Whether a reduction is over the fastest axis of its widest whole input."""
    leaves = [t for t in fusion.inputs if t.shape == op.x.shape] or [op.x]
    leaf = max(leaves, key=lambda t: t.type.bits)
    order = [a for a in stride_order(leaf.shape, leaf.layout) if op.x.shape[a].constant != 1]
    return not order or order[-1] in op.axes


def accesses_of(region: Region, reductions: Sequence[Any]) -> list[tuple[Tensor, Access]]:
    """How memory is addressed: leaves before the reductions over all axes, outputs and leaves
    after them over the kept ones."""
    found: list[tuple[Tensor, Access]] = []
    totals = {op.results[0] for op in reductions}

    def add(value: Any, access: Access) -> None:
        for leaf, path in region.accesses(value, access, stop=lambda v: v in totals):
            if leaf in region.arguments:
                found.append((region.arguments[leaf], path))

    rank = len(region.dims_of(inputs_of(reductions[0])[0]))
    for op in reductions:
        add(inputs_of(op)[0], identity_access(rank))
    for value, tensor in region.outputs:
        found.append((tensor, identity_access(rank)))
        add(value, identity_access(rank))
    return [(t, a) for t, a in found if not t.is_by_value]


def axis_order(dims: Sequence[Expr], accesses: Sequence[tuple[Tensor, Access]]) -> list[int]:
    """Axes from slowest to fastest in the largest tensor that is addressed along all of them."""
    whole = [
        t for t, access in accesses
        if t.shape == tuple(dims) and access == identity_access(len(dims))
    ]  # fmt: skip
    if not whole:
        return list(range(len(dims)))
    largest = max(whole, key=lambda t: t.type.bits)
    return list(stride_order(largest.shape, largest.layout))
