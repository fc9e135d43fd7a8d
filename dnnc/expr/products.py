"""Bounds of products of sizes: what users say of them, and what sizes have to be."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import DnncError, Status
from .size import Atom, Bound, Dim, Expr, bad, fold, product, total

_MOST_BOUNDS = 32


def bound_of(factors: Any, maximum: Any) -> tuple[Bound, dict[str, Dim]]:
    """(the bound of a product of sizes, these sizes by name); another expression is BAD_PARAM."""
    if not isinstance(factors, int | Dim | Expr):
        raise bad(f"a bound of {factors!a:.80}", "a product of dnnc.Dims")
    expr = Expr.of(factors)
    ((atoms, coefficient),) = expr.terms if len(expr.terms) == 1 else (((), 0),)
    dims = [atom for atom in atoms if isinstance(atom, Dim)]
    if len(dims) < 2 or len(dims) < len(atoms) or coefficient < 1:
        raise bad(
            f"a bound of {expr!s:.80}", 'a product of sizes; of one size: dnnc.Dim("n", max=...)'
        )
    if type(maximum) is not int or not 1 <= maximum < 1 << 63:
        raise bad(f"max={maximum!r:.40} of {expr!s:.80}", "an integer from 1 to 2**63 - 1")
    bound = Bound(tuple(sorted(dim.name for dim in dims)), maximum // coefficient)
    least = math.prod(dim.least for dim in dims)
    if least > bound.max:
        raise bad(f"max={maximum} of {expr!s:.80}", f"at least {least * coefficient}, its least")
    return bound, {dim.name: dim for dim in dims}


def bounded(dims: Mapping[str, Dim], bounds: Iterable[Bound]) -> dict[str, Dim]:
    """The sizes, by name, each with the bounds of products that it is a factor of."""
    listed = sorted(set(bounds))
    if len(listed) > _MOST_BOUNDS:
        raise bad(f"{len(listed)} bounds of products", f"at most {_MOST_BOUNDS}")
    return {
        name: dataclasses.replace(
            dim, within=tuple(bound for bound in listed if name in bound.factors)
        )
        for name, dim in dims.items()
    }


def bounds_of(dims: Iterable[Dim]) -> tuple[Bound, ...]:
    """The bounds of products of some sizes; none of one that has another factor."""
    listed = list(dims)
    names = {dim.name for dim in listed}
    found = {bound for dim in listed for bound in dim.within}
    return tuple(sorted(bound for bound in found if names >= {*bound.factors}))


def with_dims(expr: Expr, dims: Mapping[str, Dim]) -> Expr:
    """The expression with other sizes of the same names."""

    def other(atom: Atom) -> Atom:
        if isinstance(atom, Dim):
            return dims.get(atom.name, atom)
        return dataclasses.replace(atom, args=tuple(with_dims(arg, dims) for arg in atom.args))

    terms = [(tuple(map(other, monomial)), c) for monomial, c in expr.terms]
    return Expr(tuple(terms))


def verify_products(bounds: Iterable[Bound], sizes: Mapping[str, int], where: str) -> None:
    """BAD_PARAM_OUT_OF_BOUND where sizes give a product more than it may be; of products all of
    whose sizes are given."""
    for bound in bounds:
        if not sizes.keys() >= {*bound.factors}:
            continue
        value = math.prod(sizes[name] for name in bound.factors)
        if value > bound.max:
            said = ", ".join(f"{name} = {sizes[name]}" for name in dict.fromkeys(bound.factors))
            raise DnncError(
                Status.BAD_PARAM_OUT_OF_BOUND,
                f"{bound} = {value} ({said})",
                f"{bound} <= {bound.max}",
                where,
            )


def with_values(expr: Expr, sizes: Mapping[str, int]) -> Expr:
    """The expression where some sizes are known."""

    def other(atom: Atom) -> Expr:
        if isinstance(atom, Dim):
            return Expr.of(sizes.get(atom.name, atom))
        return fold(atom.function, *(with_values(arg, sizes) for arg in atom.args))

    return total(product(map(other, monomial)) * c for monomial, c in expr.terms)


def most_of(expr: Expr, dims: Mapping[str, Dim], sizes: Mapping[str, int]) -> int:
    """The largest value of an expression that grows with its sizes; sizes: those that are known."""
    most = expr.evaluate({name: dim.max for name, dim in dims.items()} | dict(sizes))
    return min(most, with_values(expr, sizes).bounds()[1]) if expr.is_bounded else most
