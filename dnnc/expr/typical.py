"""Sizes as predictions take them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Generator, Mapping
from contextvars import ContextVar
from types import MappingProxyType

from .products import bounds_of
from .size import Dim, Expr

_assumed: ContextVar[Mapping[str, int]] = ContextVar("assumed", default=MappingProxyType({}))


@contextlib.contextmanager
def assuming(sizes: Mapping[str, int]) -> Generator[None]:
    """Inside, predictions are for these sizes of symbols, as near as their ranges allow."""
    token = _assumed.set({**_assumed.get(), **sizes})
    try:
        yield
    finally:
        _assumed.reset(token)


def assumed() -> tuple[tuple[str, int], ...]:
    """The sizes that are assumed now, as (name, size) pairs in the order of the names."""
    sizes = _assumed.get()
    return tuple(sorted(sizes.items())) if sizes else ()


def typical(size: Expr) -> int:
    """A size for predictions: each symbol at what is assumed, or at 1024, within its range."""
    if size.constant is not None:
        return size.constant
    value = size.evaluate({dim.name: typical_dim(dim) for dim in size.dims()})
    return min(value, size.bounds()[1]) if size.is_bounded else value


def typical_dim(dim: Dim) -> int:
    value = min(max(_assumed.get().get(dim.name, 1024), dim.least), dim.greatest)
    return max(dim.multiple_of, value // dim.multiple_of * dim.multiple_of)


def typical_sizes(dims: Mapping[str, Dim], given: Mapping[str, int]) -> dict[str, int]:
    """Values of sizes that can be run with: those given, and typical ones, less where a product
    would be more than it may be."""
    found = {name: typical_dim(dim) for name, dim in dims.items()} | dict(given)
    for bound in bounds_of(dims.values()):
        free = [name for name in bound.factors if name not in given]
        while math.prod(found[name] for name in bound.factors) > bound.max:
            name = max(free, key=found.__getitem__, default="")
            if not name or found[name] <= dims[name].least:
                break  # what is given leaves no room, which is an error elsewhere
            dim = dims[name]
            less = found[name] // 2 // dim.multiple_of * dim.multiple_of
            found[name] = max(less, dim.least)
    return found
