# pyright: basic
"""Bounds of products of symbols as MLIR attributes: `[#dnn.bound<["B", "M"], 4096 : i64>]`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import DnncError, Status
from ..expr import Bound, Dim, bound_of, bounded, bounds_of, product
from ..mlir import ir
from .attributes import attribute_of, attribute_value, list_of, text_of, typed

BOUNDS = "dnn.bounds"  # of a function, beside its symbols


def write_bounds(function: Any, symbols: Iterable[Dim], kind: Any) -> None:
    """Puts the bounds of symbols on their function, if there are any.  kind: `#dnn.bound`."""
    if bounds := bounds_of(symbols):
        function.attributes[BOUNDS] = ir.ArrayAttr.get([_attribute(b, kind) for b in bounds])


def _attribute(bound: Bound, kind: Any) -> Any:
    factors = ir.ArrayAttr.get([ir.StringAttr.get(name) for name in bound.factors])
    return kind.get(factors, attribute_of(bound.max, int))


def with_bounds(symbols: Sequence[Dim], function: Any, kind: Any) -> list[Dim]:
    """The symbols of a function with the bounds that it has of their products."""
    if BOUNDS not in function.operation.attributes:
        return list(symbols)
    dims = {dim.name: dim for dim in symbols}
    bounds: list[Bound] = []
    for entry in list_of(function.operation.attributes[BOUNDS], BOUNDS):
        given = typed(entry, kind, f"an entry of {BOUNDS}")
        names = [text_of(n, "a factor") for n in list_of(given.params[0], "factors of a bound")]
        if unknown := [name for name in names if name not in dims]:
            raise DnncError(Status.BAD_PARAM, f"{BOUNDS} of {unknown}", ", ".join(dims) or "none")
        most = attribute_value(given.max, int)
        bounds.append(bound_of(product(dims[name] for name in names), most)[0])
    return list(bounded(dims, bounds).values())
