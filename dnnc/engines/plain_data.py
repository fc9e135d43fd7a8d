"""Records of a tiling as the plain data of `dnn.tile`, and back.

A part of a record, which is a record itself, is a mapping; one that is absent, None, is an empty
mapping.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_hints = cache(get_type_hints)


def plain(record: Any, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fields of a record by their names, but for some."""
    names = (field.name for field in fields(record) if field.name not in without)
    return {name: _plain(getattr(record, name)) for name in names}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return plain(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return {} if value is None else value


def record_of(kind: type[T], data: Mapping[str, Any], **others: Any) -> T:
    """The record of what `plain` gives; others: the fields that this left out."""
    hints = _hints(kind)
    return kind(**{name: _read(hints[name], value) for name, value in data.items()}, **others)


def _read(hint: Any, value: Any) -> Any:
    if hint is bool:
        return bool(value)
    if is_dataclass(hint):
        return record_of(hint, value)  # pyright: ignore[reportArgumentType]
    if get_origin(hint) is tuple:
        return tuple(_read(get_args(hint)[0], item) for item in value)
    if get_origin(hint) in (Union, UnionType):
        (part,) = (each for each in get_args(hint) if each is not NoneType)
        return _read(part, value) if value else None
    return value
