"""Checks that what a caller gives has a type by which it can be used.

`checked` reads a function's annotations and refuses by name what is of another type:

    dnnc.compile(graph, cache=5)
    BAD_PARAM: cache: a int 5; accepted: True or False

The other functions check what annotations can't say.
"""

from __future__ import annotations

import functools
import inspect
import numbers
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeVar, cast

from .errors import DnncError, Status

_Function = TypeVar("_Function", bound=Callable[..., Any])


def error(value: Any, wanted: str, where: str) -> DnncError:
    """The error of a value of another type than is wanted."""
    said = f" {value!a:.40}" if isinstance(value, int | float | str | bytes) else ""
    text = value.value if isinstance(value, Enum) else value
    if isinstance(text, str) and wanted.partition(" or ")[0] in ("a list", "a list of texts"):
        wanted += f": [{text!a:.40}]"
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


def is_flag(value: Any) -> bool:
    """Whether a value is True or False, of Python or NumPy."""
    return type(value) is bool or (type(value).__module__, type(value).__name__) in _NUMPY_FLAGS


_NUMPY_FLAGS = (("numpy", "bool"), ("numpy", "bool_"))


def is_number(value: Any) -> bool:
    """Whether a value is a real number, of Python or NumPy, and no boolean."""
    return isinstance(value, numbers.Real) and not is_flag(value)


def is_list(value: Any) -> bool:
    """Whether a value is iterable, and neither text nor a mapping."""
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)


def verify_list(value: Any, where: str) -> None:
    """A list; text alone would be taken for its characters."""
    if not is_list(value):
        raise error(value, "a list", where)


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


def verify_knobs(knobs: Any) -> None:
    """Integers by the names of knobs."""
    verify_mapping(knobs, "knob -> integer", "knobs")
    for name, value in knobs.items():
        verify_integer(value, f"knob {getattr(name, 'value', name)!s:.40}")


# ---- by annotations


class _Kind(NamedTuple):
    """The kind of value that an annotation accepts; wanted says it to a person."""

    wanted: str
    fits: Callable[[Any], bool]


_KINDS = {
    "None": _Kind("None", lambda value: value is None),
    "bool": _Kind("True or False", is_flag),
    "int": _Kind("an integer", is_integer),
    "float": _Kind("a number", is_number),
    "Report": _Kind("a function of (what is done, how much, of how much)", callable),
    "str": _Kind("text", lambda value: isinstance(value, str)),
    "bytes": _Kind("bytes", lambda value: isinstance(value, bytes)),
    "Sequence": _Kind("a list", is_list),
}


def checked(function: _Function) -> _Function:
    """The function; an argument that its parameter's annotation excludes is BAD_PARAM by name.

    Annotations are texts (`from __future__ import annotations`).  Parameters of a type that is
    neither of `_KINDS` nor a class of this package are the function's own to check.
    """
    parameters = inspect.signature(function).parameters.values()
    positional = [
        p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]

    @functools.cache
    def kinds() -> dict[str, _Kind]:
        found = {p.name: _kind_of(p.annotation, function.__globals__) for p in parameters}
        return {name: kind for name, kind in found.items() if kind}

    @functools.wraps(function)
    def checking(*args: Any, **named: Any) -> Any:
        for name, value in (*zip(positional, args, strict=False), *named.items()):
            kind = kinds().get(name)
            if kind is not None and not kind.fits(value):
                raise error(value, kind.wanted, name)
        return function(*args, **named)

    return cast("_Function", checking)


def _kind_of(annotation: Any, names: Mapping[str, Any]) -> _Kind | None:
    """The kind of an annotation, "int | None"; None where a part of it is not known."""
    if not isinstance(annotation, str):
        return None
    members = [_kind_of_member(text, names) for text in _members(annotation)]
    known = [member for member in members if member is not None]
    if len(known) < len(members):
        return None
    return _Kind(
        " or ".join(member.wanted for member in known),
        lambda value: any(member.fits(value) for member in known),
    )


def _members(annotation: str) -> list[str]:
    """The members of a union: "Sequence[int | str] | None" has two."""
    found, depth = [""], 0
    for character in annotation:
        depth += (character == "[") - (character == "]")
        if character == "|" and not depth:
            found.append("")
        else:
            found[-1] += character
    return [text.strip() for text in found]


def _kind_of_member(text: str, names: Mapping[str, Any]) -> _Kind | None:
    head, _, inside = text.partition("[")
    kind = _KINDS.get(head)
    if kind is None:
        return _kind_of_class(text, names.get(text))
    element = _kind_of(inside.removesuffix("]"), names) if head == "Sequence" else None
    if element is None:
        return kind

    def fits(value: Any) -> bool:
        return is_list(value) and (
            not isinstance(value, Sequence) or all(element.fits(item) for item in value)
        )

    return _Kind(f"a list of {_PLURALS.get(element.wanted, element.wanted)}", fits)


def _kind_of_class(text: str, named: Any) -> _Kind | None:
    """The kind of a class of this package."""
    if not isinstance(named, type) or named.__module__.partition(".")[0] != __package__:
        return None
    if getattr(named, "_is_protocol", False):
        return None
    return _Kind(f"a {text}", lambda value: isinstance(value, named))


_PLURALS = {
    "an integer": "integers", "text": "texts", "a list of integers": "lists of integers",
}  # fmt: skip
