"""Records of a tiling as the plain data of `dnn.tile`, and back; a record's fields are the schema.

A field is an integer, a boolean, a text, a data type, which its name stands for, a record, a tuple,
or a record that may be absent, None, which is an empty mapping.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from .. import dtypes
from ..dtypes import DType
from ..errors import DnncError, Status

T = TypeVar("T")

_DTYPES = [dtype.name for dtype in dtypes.COMPUTE]
_WORDS = {
    int: "an integer",
    bool: "a boolean",
    str: "a text",
    DType: f"one of {', '.join(_DTYPES)}",
}


def plain(record: Any) -> dict[str, Any]:
    """The fields of a record by their names."""
    return {name: _plain(getattr(record, name)) for name in _hints(type(record))}


def _plain(value: Any) -> Any:
    if isinstance(value, DType):
        return value.name
    if is_dataclass(value):
        return plain(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return {} if value is None else value


def record_of(kind: type[T], data: Mapping[str, Any]) -> T:
    """The record of what `plain` gives."""
    hints = _hints(kind)
    return kind(**{name: _read(hints[name], value) for name, value in data.items()})


def _read(hint: Any, value: Any) -> Any:
    if hint is DType:
        return dtypes.of_mlir(value)
    if is_dataclass(hint):
        return record_of(hint, value)  # pyright: ignore[reportArgumentType]
    if get_origin(hint) is tuple:
        return tuple(map(_read, _items(hint, len(value)), value))
    if part := _optional(hint):
        return _read(part, value) if value else None
    return value


def verify(kind: type[Any], data: Any, name: str) -> None:
    """BAD_PARAM where data is not what `plain` gives of a record, with the name of what differs."""
    hints = _hints(kind)
    if not isinstance(data, Mapping):
        raise _error(Status.BAD_PARAM_ATTRIBUTE_TYPE, f"{name} = {data}", _said(kind))
    for key in data:
        if key not in hints:
            raise _error(Status.BAD_PARAM, f"{name}.{key}", ", ".join(hints) or "no keys")
    for key, hint in hints.items():
        if key not in data:
            raise _error(Status.BAD_PARAM, f"{name} without {key}", f"{key}, {_said(hint)}")
        _verify(hint, data[key], f"{name}.{key}")


def _verify(hint: Any, value: Any, name: str) -> None:
    if hint is DType and value in _DTYPES:
        return
    if hint not in _WORDS and is_dataclass(hint):
        verify(hint, value, name)  # pyright: ignore[reportArgumentType]
    elif part := _optional(hint):
        if value != {}:
            _verify(part, value, name)
    elif get_origin(hint) is tuple and isinstance(value, list):
        items = _items(hint, len(value))
        if len(items) != len(value):
            raise _error(Status.BAD_PARAM, f"{name} = {value}", _said(hint))
        for place, item in enumerate(items):
            _verify(item, value[place], f"{name}[{place}]")
    elif type(value) is not hint:
        raise _error(Status.BAD_PARAM_ATTRIBUTE_TYPE, f"{name} = {value}", _said(hint))


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    """The types of a record's fields."""
    found = get_type_hints(kind)
    return {field.name: found[field.name] for field in fields(kind)}


def _items(hint: Any, count: int) -> tuple[Any, ...]:
    """The types of a tuple's items; count: of them, of a tuple of any length."""
    first, *others = get_args(hint)
    return (first,) * count if others == [Ellipsis] else (first, *others)


def _optional(hint: Any) -> Any:
    """The type of what may be None; None: no such type."""
    if get_origin(hint) not in (Union, UnionType):
        return None
    (part,) = (each for each in get_args(hint) if each is not NoneType)
    return part


def _said(hint: Any) -> str:
    """A type in words."""
    if hint in _WORDS:
        return _WORDS[hint]
    if is_dataclass(hint):
        return f"a dictionary of {', '.join(_hints(hint))}"  # pyright: ignore[reportArgumentType]
    if get_origin(hint) is tuple:
        items = get_args(hint)
        if items[-1] is Ellipsis:
            return f"a list, each item {_said(items[0])}"
        return f"a list of {len(items)}: {'; '.join(map(_said, items))}"
    return f"{_said(_optional(hint))}, or an empty one"


def _error(status: Status, what: str, supported: str) -> DnncError:
    return DnncError(status, f"{what:.200}", supported)
