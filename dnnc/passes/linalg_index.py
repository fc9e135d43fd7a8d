# pyright: basic
"""Index arithmetic in bodies of linalg operations: coordinates of views and of windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..dialect import structure
from ..dialect.tensor import Tensor
from ..expr import Dim, Expr
from ..mlir import arith, ir, linalg
from .linalg_lowering import Lowering


def index_of(value: int) -> Any:
    """A constant of type index."""
    type_ = ir.IndexType.get()
    return arith.ConstantOp(type_, ir.IntegerAttr.get(type_, value)).result


def scaled(index: Any, factor: int, shift: int = 0) -> Any:
    """index * factor + shift."""
    value = arith.MulIOp(index, index_of(factor)).result if factor != 1 else index
    if shift > 0:
        return arith.AddIOp(value, index_of(shift)).result
    return arith.SubIOp(value, index_of(-shift)).result if shift else value


def divided(index: Any, divisor: int) -> Any:
    """The floor; index is not negative."""
    return arith.DivUIOp(index, index_of(divisor)).result if divisor != 1 else index


def clamped(index: Any, last: Any) -> Any:
    """The nearest number from 0 to last."""
    return arith.MaxSIOp(index_of(0), arith.MinSIOp(index, last).result).result


def within(index: Any, size: Any) -> Any:
    """0 <= index < size."""
    return arith.CmpIOp(arith.CmpIPredicate.ult, index, size).result


def all_of(conditions: Sequence[Any]) -> Any:
    """The conjunction; None of nothing."""
    total = None
    for condition in conditions:
        total = condition if total is None else arith.AndIOp(total, condition).result
    return total


class SpatialSizes:
    """Sizes of the spatial dims of a tensor, as index values made outside of bodies."""

    def __init__(self, low: Any, like: Tensor):
        spatial = like.shape[2:]
        self.extents = [structure.emit_size(n, low.symbols) for n in spatial]
        self.lasts = [structure.emit_size(n - 1, low.symbols) for n in spatial]


class SizeValues:
    """Index values of the symbols that coordinates name, made outside the body that uses them."""

    def __init__(self, low: Lowering, coordinates: Sequence[Sequence[Expr]]):
        dims = {d for source in coordinates for expr in source for d in expr.dims()}
        self.values = {
            dim: structure.emit_size(Expr.of(dim), low.symbols)
            for dim in sorted(dims, key=str)
            if not dim.name.startswith("_d")
        }

    def index(self, expr: Expr) -> Any:
        """An expression over coordinates and sizes as an index value, inside the body."""
        total = None
        for monomial, coefficient in expr.terms:
            factors = [self._atom(atom) for atom in monomial]
            if coefficient != 1 or not factors:
                factors.append(index_of(coefficient))
            value = factors[0]
            for factor in factors[1:]:
                value = arith.MulIOp(value, factor).result
            total = value if total is None else arith.AddIOp(total, value).result
        return index_of(0) if total is None else total

    def _atom(self, atom: Any) -> Any:
        if isinstance(atom, Dim):
            if atom.name.startswith("_d"):
                return linalg.IndexOp(int(atom.name[2:])).result
            return self.values[atom]
        # Coordinates and sizes are not negative, so that unsigned division is the floor.
        make = {"//": arith.DivUIOp, "%": arith.RemUIOp}[atom.function]
        return make(*(self.index(arg) for arg in atom.args)).result
