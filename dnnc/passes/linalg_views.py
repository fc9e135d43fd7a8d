# pyright: basic
"""Views as linalg: each element of Y is one of X, or of one of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..dialect.ops import Concatenate
from ..dialect.ops.views import View, coordinates, steps_along
from ..dialect.tensor import Tensor
from ..expr import Expr
from ..mlir import arith, ir, tensor
from .linalg_index import SizeValues, index_of
from .linalg_lowering import Lowering


def view(low: Lowering, op: View) -> None:
    """Puts the value of Y in `low`."""
    at = coordinates(op.y.shape)
    source = op.source(at)
    value = low.value(op.x)
    maps = [_single_dim(expr, at) for expr in source]
    if all(found is not None for found in maps) and not _cuts(op, maps):
        map_ = ir.AffineMap.get(op.y.rank, 0, maps)
        low.values[op.y] = low.generic(op.y, op.y.type, [(value, map_)], lambda element: element)
        return
    sizes = SizeValues(low, (source,))
    low.values[op.y] = low.generic(op.y, op.y.type, [], lambda: _extract(value, source, sizes))


def _cuts(op: View, maps: Sequence[Any]) -> bool:
    """Whether a loop over a part of X indexes X directly: linalg takes such loops for all of X."""
    return any(
        isinstance(found.maybe_downcast(), ir.AffineDimExpr)
        and op.y.shape[ir.AffineDimExpr(found).position] != op.x.shape[axis]
        for axis, found in enumerate(maps)
    )


def _single_dim(expr: Expr, at: Sequence[Expr]) -> Any:
    """expr as an affine map's result, if it is a constant or one coordinate scaled and shifted."""
    found = steps_along(expr, at)
    if found is None or isinstance(found, int):
        return None if found is None else ir.AffineExpr.get_constant(found)
    axis, step, offset = found
    return ir.AffineExpr.get_dim(axis) * step + offset


def _extract(value: Any, at: Sequence[Expr], sizes: SizeValues) -> Any:
    return tensor.ExtractOp(value, [sizes.index(expr) for expr in at]).result


# What parts of a concatenation have to be multiples of, for fragments that lie in one of them.
_FRAGMENT = 8


def concatenate(low: Lowering, op: Concatenate) -> None:
    """Selects by the coordinate; the extractions not taken are kept inside their tensors.

    Coordinates wrap around where parts are whole fragments, so that a fragment stays consecutive;
    else they stop at the end.
    """
    at = coordinates(op.y.shape)
    starts = [Expr.of(0)]
    for source in op.inputs:
        starts.append(starts[-1] + source.shape[op.axis])
    sizes = SizeValues(low, [[*starts], *(source.shape for source in op.inputs)])
    values = [low.value(source) for source in op.inputs]
    wraps = all(n.constant and n.constant % _FRAGMENT == 0 for n in starts[1:])

    def within(along: Any, source: Tensor, start: Expr) -> Any:
        """A coordinate along the axis, of an input."""
        size, first = source.shape[op.axis].constant, start.constant
        if wraps and size and first is not None:
            moved = arith.AddIOp(along, index_of(-first % size)).result
            return arith.RemUIOp(moved, index_of(size)).result
        offset = arith.SubIOp(along, sizes.index(start)).result
        last = sizes.index(source.shape[op.axis] - 1)
        return arith.MaxSIOp(index_of(0), arith.MinSIOp(offset, last).result).result

    def body() -> Any:
        along = sizes.index(at[op.axis])
        chosen = None
        parts = zip(op.inputs, starts[:-1], values, strict=True)
        for source, start, whole in reversed(list(parts)):
            inside = within(along, source, start)
            where = [
                inside if axis == op.axis else sizes.index(coordinate)
                for axis, coordinate in enumerate(at)
            ]
            value = tensor.ExtractOp(whole, where).result
            if chosen is None:
                chosen = value
            else:
                end = sizes.index(start + source.shape[op.axis])
                is_here = arith.CmpIOp(arith.CmpIPredicate.ult, along, end).result
                chosen = arith.SelectOp(is_here, value, chosen).result
        return chosen

    low.values[op.y] = low.generic(op.y, op.y.type, [], body)
