"""Engines of other packages that take part in this process's compilations.

`dnnc.engines.register` keeps them here, below the compiler, so that keys and caches know of them
without loading it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_engines: tuple[Any, ...] = ()


def engines() -> tuple[Any, ...]:
    """The engines that are registered, each a `dnnc.engines.Engine`, in the order of that."""
    return _engines


def set_engines(engines: Sequence[Any]) -> None:
    """Makes these the engines that are registered."""
    global _engines
    _engines = tuple(engines)
