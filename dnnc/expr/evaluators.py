"""Expressions and guards as functions, for those that are evaluated many times."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .size import DIVISIONS, FUNCTIONS, Atom, Dim, Expr, Monomial, atom_value

Evaluator = Callable[[Mapping[str, int]], int]

COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
}


def compiled(expr: Expr) -> Evaluator:
    """`expr.evaluate` as nested functions, for expressions that are evaluated many times.

    A name that the sizes lack is a KeyError; the caller gives every name.
    """
    if (constant := expr.constant) is not None:
        return lambda sizes: constant
    return _sum_of([_compiled_term(monomial, factor) for monomial, factor in expr.terms])


def _sum_of(terms: list[Evaluator]) -> Evaluator:
    if len(terms) == 1:
        return terms[0]
    if len(terms) == 2:
        a, b = terms
        return lambda sizes: a(sizes) + b(sizes)
    return lambda sizes: sum([term(sizes) for term in terms])


def _compiled_term(monomial: Monomial, factor: int) -> Evaluator:
    if not monomial:
        return lambda sizes: factor
    atoms = [_compiled_atom(atom) for atom in monomial]
    first, *others = atoms
    if others:
        return lambda sizes: factor * math.prod([atom(sizes) for atom in atoms])
    return first if factor == 1 else lambda sizes: factor * first(sizes)


def _compiled_atom(atom: Atom) -> Evaluator:
    if isinstance(atom, Dim):
        return operator.itemgetter(atom.name)
    function, args = FUNCTIONS[atom.function], [compiled(arg) for arg in atom.args]
    if atom.function in DIVISIONS and not (atom.args[-1].constant or 0) > 0:
        return lambda sizes: atom_value(atom, sizes)  # which refuses to divide by 0 or less
    if len(args) == 1:
        (only,) = args
        return lambda sizes: function(only(sizes))
    a, b = args
    return lambda sizes: function(a(sizes), b(sizes))


@dataclass(frozen=True)
class Guard:
    """A condition on sizes: every comparison holds.  The empty guard is always true."""

    comparisons: tuple[tuple[str, Expr, Expr], ...] = ()

    def holds(self, sizes: Mapping[str, int]) -> bool:
        return all(
            COMPARISONS[relation](left.evaluate(sizes), right.evaluate(sizes))
            for relation, left, right in self.comparisons
        )

    def compiled(self) -> Callable[[Mapping[str, int]], bool]:
        """`holds` as nested functions; see `compiled`."""
        tests = [(COMPARISONS[name], compiled(a), compiled(b)) for name, a, b in self.comparisons]
        return lambda sizes: all([test(a(sizes), b(sizes)) for test, a, b in tests])

    def __str__(self) -> str:
        return " and ".join(f"{a} {relation} {b}" for relation, a, b in self.comparisons) or "1"
