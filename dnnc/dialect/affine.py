# pyright: basic
"""Size expressions as MLIR's affine ones, and back."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import DnncError, Status
from ..expr import Dim, Expr, ceildiv
from ..mlir import ir

MAX_OPERATIONS = 256  # above one another
MAX_DIVISIONS = 32  # of them


def to_affine(size: Expr, position: Mapping[str, int]) -> Any:
    """The affine expression of a size; position: of each symbol."""
    total = ir.AffineExpr.get_constant(0)
    for monomial, coefficient in size.terms:
        product = ir.AffineExpr.get_constant(coefficient)
        for atom in monomial:
            product = ir.AffineExpr.get_mul(_atom_to_affine(atom, position), product)
        total = ir.AffineExpr.get_add(total, product)
    return total


def _atom_to_affine(atom: Any, position: Mapping[str, int]) -> Any:
    if isinstance(atom, Dim):
        return ir.AffineExpr.get_symbol(position[atom.name])
    makers = {
        "//": ir.AffineExpr.get_floor_div,
        "%": ir.AffineExpr.get_mod,
        "ceildiv": ir.AffineExpr.get_ceil_div,
    }
    if atom.function not in makers:
        raise DnncError(
            Status.NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE,
            f"a tensor's size or stride {atom}",
            "+, -, *, //, %, ceildiv of symbols",
        )
    return makers[atom.function](*(to_affine(arg, position) for arg in atom.args))


def from_affine(affine: Any, symbols: Sequence[Dim]) -> Expr:
    """The size of an affine expression over symbols."""
    return _read(affine, symbols, MAX_OPERATIONS, MAX_DIVISIONS)


def _read(affine: Any, symbols: Sequence[Dim], operations: int, divisions: int) -> Expr:
    """operations, divisions: how many may still stand above one another."""
    affine = affine.maybe_downcast()
    if isinstance(affine, ir.AffineConstantExpr):
        return Expr.of(affine.value)
    if isinstance(affine, ir.AffineSymbolExpr):
        position = affine.position
        if position >= len(symbols):
            raise DnncError(Status.BAD_PARAM, f"layout symbol s{position}", "one of dnn.symbols")
        return Expr.of(symbols[position])
    if not operations or not divisions:
        accepted = f"{MAX_OPERATIONS} operations above one another, {MAX_DIVISIONS} divisions"
        raise DnncError(Status.BAD_PARAM, "a layout expression of more operations", accepted)
    for kind, cost, make in (
        (ir.AffineAddExpr, 0, operator.add),
        (ir.AffineMulExpr, 0, operator.mul),
        (ir.AffineFloorDivExpr, 1, operator.floordiv),
        (ir.AffineModExpr, 1, operator.mod),
        (ir.AffineCeilDivExpr, 1, ceildiv),
    ):
        if isinstance(affine, kind):
            left = operations - 1, divisions - cost
            return make(_read(affine.lhs, symbols, *left), _read(affine.rhs, symbols, *left))
    raise DnncError(Status.BAD_PARAM, f"layout expression {affine}", "an expression over symbols")
