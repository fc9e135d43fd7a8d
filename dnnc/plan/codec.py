"""Frozen records to JSON and back, checked against the records' own types.

A field at its default is left out.  A reader ignores fields that it does not know, except those
that the record lists under "required": a writer lists there what a reader may not skip.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, cast

from ..errors import DnncError, Status

Record = TypeVar("Record")


def encode(value: Any) -> Any:
    """The JSON of a record, or of a value that stands in one."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: encode(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.metadata.get("json", True) and not _is_default(value, field)
        }
    if isinstance(value, tuple | list):
        return [encode(item) for item in cast(Any, value)]
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in sorted(cast(Any, value).items())}
    return value


def _is_default(record: Any, field: Any) -> bool:
    if field.default is not dataclasses.MISSING:
        return getattr(record, field.name) == field.default
    if field.default_factory is not dataclasses.MISSING:
        return getattr(record, field.name) == field.default_factory()
    return False


def decode(kind: type[Record], data: Any, where: str = "plan") -> Record:
    """The record of JSON data; what does not fit the types is BAD_PARAM with the place."""
    if not isinstance(data, dict):
        raise _bad(where, f"{data!r:.40}", "an object")
    given = cast("dict[str, Any]", data)
    hints = _hints(kind)
    required = _decode(tuple[str, ...], given.get("required", []), f"{where}.required")
    unknown = [name for name in required if name not in hints]
    if unknown:
        raise DnncError(
            Status.SERIALIZATION_VERSION_MISMATCH,
            f"needs {', '.join(map(str, unknown))}, which this version does not know",
            "a newer dnnc",
            where,
        )
    values: dict[str, Any] = {}
    for field in dataclasses.fields(cast(Any, kind)):
        if not field.metadata.get("json", True):
            continue
        if field.name in given:
            values[field.name] = _decode(
                hints[field.name], given[field.name], f"{where}.{field.name}"
            )
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise _bad(where, f"no {field.name}", f"a field {field.name}")
    return kind(**values)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _decode(hint: Any, data: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return decode(cast(Any, hint), data, where)
    if origin is types.UnionType:
        if data is None:
            return None
        return _decode(next(a for a in arguments if a is not type(None)), data, where)
    if origin is tuple:
        return _decode_tuple(arguments, data, where)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(data, dict):
            raise _bad(where, f"{data!r:.40}", "an object")
        entries = cast("dict[str, Any]", data)
        return {key: _decode(arguments[1], item, f"{where}.{key}") for key, item in entries.items()}
    if hint is Any:
        return data
    if hint is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if not isinstance(data, hint) or (hint is int and isinstance(data, bool)):
        raise _bad(where, f"{data!r:.40}", f"a value of type {hint.__name__}")
    return data


def _decode_tuple(arguments: tuple[Any, ...], data: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise _bad(where, f"{data!r:.40}", "a list")
    items = cast("list[Any]", data)
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(_decode(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(items))
    if len(items) != len(arguments):
        raise _bad(where, f"{len(items)} values", f"{len(arguments)}")
    pairs = zip(arguments, items, strict=True)
    return tuple(_decode(hint, item, f"{where}[{i}]") for i, (hint, item) in enumerate(pairs))


def _bad(where: str, what: str, supported: str) -> DnncError:
    return DnncError(Status.BAD_PARAM, what, supported, where)
