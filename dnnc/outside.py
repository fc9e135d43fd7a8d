"""Engines and operations of other packages that take part in this process's compilations.

`dnnc.engines.register` and `dnnc.operations.register` keep them here, below the compiler, so that
keys and caches know of them without loading it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_engines: tuple[Any, ...] = ()
_operations: tuple[str, ...] = ()


def engines() -> tuple[Any, ...]:
    """The engines that are registered, each a `dnnc.engines.Engine`, in the order of that."""
    return _engines


def set_engines(engines: Sequence[Any]) -> None:
    """Makes these the engines that are registered."""
    global _engines
    _engines = tuple(engines)


def operations() -> tuple[str, ...]:
    """The names of the operations that are registered, in the order of that."""
    return _operations


def set_operations(names: Sequence[str]) -> None:
    """Makes these the operations that are registered."""
    global _operations
    _operations = tuple(names)


def is_used() -> bool:
    """Whether there are any: other processes don't know them, and no key names their code."""
    return bool(_engines or _operations)
