"""Checks that what a caller gives has a type by which it can be used."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping
from typing import Any, cast

from .errors import DnncError, Status


def error(value: Any, wanted: str, where: str) -> DnncError:
    """The error of a value of another type than is wanted."""
    said = f" {value!a:.40}" if isinstance(value, int | float | str | bytes) else ""
    return DnncError(Status.BAD_PARAM, f"a {type(value).__name__}{said}", wanted, where)


def is_integer(value: Any) -> bool:
    """Whether a value is an integer, of Python or NumPy, and no boolean."""
    try:
        return operator.index(value) == value and not isinstance(value, bool)
    except (TypeError, ValueError):
        return False


def verify_integer(value: Any, where: str) -> None:
    """An integer, of Python or NumPy."""
    if not is_integer(value):
        raise error(value, "an integer", where)


def verify_text(value: Any, where: str) -> None:
    """Text."""
    if not isinstance(value, str):
        raise error(value, "text", where)


def verify_path(value: Any, where: str) -> None:
    """A path that a file may have, as text or an object that gives it as text."""
    if not is_path(value):
        raise error(value, "a path", where)


def is_path(value: object) -> bool:
    """Whether a value is a path that a file may have; numbers of descriptors are none."""
    if not isinstance(value, str | os.PathLike):
        return False
    try:
        return b"\0" not in os.fsencode(cast("str | os.PathLike[str]", value))
    except (UnicodeEncodeError, TypeError):
        return False


def verify_mapping(value: Any, wanted: str, where: str) -> None:
    """A mapping; wanted: from what to what."""
    if not isinstance(value, Mapping):
        raise error(value, f"a mapping: {wanted}", where)


def verify_sizes(sizes: Any) -> None:
    """Integers by the names of symbols."""
    verify_mapping(sizes, "symbol -> integer", "sizes")
    for name, value in sizes.items():
        verify_text(name, "the name of a size")
        verify_integer(value, f"size {name!a:.40}")
