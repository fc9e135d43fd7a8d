"""The table of breakages, and the parts of graphs that they work on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dnnc.dialect.tensor import packed_strides, sizes

from .random_builder import Builder
from .random_nodes import Untenable, pick

Breakage = Callable[[Builder], Callable[[], None]]
BREAKAGES: dict[str, Breakage] = {}


def breakage(make: Breakage) -> Breakage:
    BREAKAGES[make.__name__.strip("_").replace("_", " ")] = make
    return make


def an_op(builder: Builder, *kinds: type, accept: Callable[[Any], bool] = lambda op: True) -> Any:
    """An operation of one of these classes."""
    fitting = [op for op in builder.g.graph.ops if isinstance(op, kinds) and accept(op)]
    if not fitting:
        raise Untenable("no such operation")
    return pick(builder.rng, fitting)


def an_input(builder: Builder, accept: Callable[[Any], bool] = lambda tensor: True) -> Any:
    """A graph input that is not a scalar."""
    fitting = [t for t in builder.g.graph.inputs if not t.is_by_value and accept(t)]
    if not fitting:
        raise Untenable("no such input")
    return pick(builder.rng, fitting)


def an_output(builder: Builder, accept: Callable[[Any], bool]) -> Any:
    fitting = [t for t in builder.g.graph.outputs if accept(t)]
    if not fitting:
        raise Untenable("no such output")
    return pick(builder.rng, fitting)


def setting(target: Any, **values: Any) -> Callable[[], None]:
    """Changes fields behind the methods' backs."""

    def spoil() -> None:
        for name, value in values.items():
            setattr(target, name, value)

    return spoil


def adding(builder: Builder, make: Callable[[Any], Any]) -> Callable[[], None]:
    """Adds operations, whose last result becomes an output."""

    def spoil() -> None:
        make(builder.g).set_output(True)

    return spoil


def with_dims(tensor: Any, dims: Any) -> Callable[[], None]:
    dims = sizes(dims)
    return setting(tensor, dims=dims, strides=packed_strides(dims))
