"""Frozen records to JSON and back, checked against the records' own types.

A field at its default is left out.  A reader ignores fields that it does not know, except those
that the record lists under "required": a writer lists there what a reader may not skip, which is
what the metadata of a field say ("required").
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, cast

from ..errors import DnncError, Status

# Items of a list.  A reader works on each of them, so that a small file must not have millions.
MAX_ITEMS = 1 << 14
# Integers of records are those of 64 bits.
_INTEGERS = -(1 << 63), (1 << 63) - 1

Record = TypeVar("Record")


def encode(value: Any) -> Any:
    """The JSON of a record, or of a value that stands in one."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        written = [
            field
            for field in dataclasses.fields(value)
            if field.metadata.get("json", True) and not _is_default(value, field)
        ]
        required = [field.name for field in written if field.metadata.get("required", False)]
        fields = {field.name: encode(getattr(value, field.name)) for field in written}
        return {**fields, "required": required} if required else fields
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
    try:
        return _decoder(kind)(data)
    except _Misfit as misfit:
        place = where + "".join(reversed(misfit.path))
        raise DnncError(misfit.status, misfit.what, misfit.supported, place) from None


class _Misfit(Exception):
    """A value that does not fit, on its way out: each level adds its name to the path, innermost
    first.

    So places cost nothing where everything fits, which is what the time of reading a plan is.
    """

    def __init__(self, what: str, supported: str, status: Status = Status.BAD_PARAM):
        super().__init__(what)
        self.what = what
        self.supported = supported
        self.status = status
        self.path: list[str] = []


_Decoder = Callable[[Any], Any]


@cache
def _decoder(hint: Any) -> _Decoder:
    """The function that makes a value of a type from JSON data."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return _record_decoder(hint)
    if origin is types.UnionType:
        return _optional_decoder(_decoder(next(a for a in arguments if a is not type(None))))
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _list_decoder(_decoder(arguments[0]))
    if origin is tuple:
        return _fixed_list_decoder([_decoder(argument) for argument in arguments])
    if origin is not None and issubclass(origin, Mapping):
        return _mapping_decoder(_decoder(arguments[1]))
    if hint is Any:
        return lambda data: data
    own = {int: _decode_int, float: _decode_float, str: _decode_str}.get(hint)
    return own or _plain_decoder(hint)


def _record_decoder(kind: Any) -> _Decoder:
    hints = typing.get_type_hints(kind)
    fields = [
        (field.name, _decoder(hints[field.name]), _has_default(field))
        for field in dataclasses.fields(kind)
        if field.metadata.get("json", True)
    ]

    def decode_record(data: Any) -> Any:
        if not isinstance(data, dict):
            raise _Misfit(_shown(data), "an object")
        given = cast("dict[str, Any]", data)
        if "required" in given:
            _verify_required(given["required"], hints)
        values: dict[str, Any] = {}
        for name, decode_field, has_default in fields:
            if name in given:
                try:
                    values[name] = decode_field(given[name])
                except _Misfit as misfit:
                    misfit.path.append(f".{name}")
                    raise
            elif not has_default:
                raise _Misfit(f"no {name}", f"a field {name}")
        return kind(**values)

    return decode_record


def _has_default(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is not missing or field.default_factory is not missing


def _verify_required(required: Any, known: Mapping[str, Any]) -> None:
    """Names of fields that a reader may not skip."""
    try:
        names = _decoder(tuple[str, ...])(required)
    except _Misfit as misfit:
        misfit.path.append(".required")
        raise
    unknown = [name for name in names if name not in known]
    if unknown:
        raise _Misfit(
            f"needs {', '.join(unknown)}, which this version does not know",
            "a newer dnnc",
            Status.SERIALIZATION_VERSION_MISMATCH,
        )


def _optional_decoder(decode_value: _Decoder) -> _Decoder:
    return lambda data: None if data is None else decode_value(data)


def _list_decoder(decode_item: _Decoder) -> _Decoder:
    def decode_list(data: Any) -> Any:
        return _decoded_items([decode_item] * len(_list(data)), data)

    return decode_list


def _fixed_list_decoder(decoders: Sequence[_Decoder]) -> _Decoder:
    def decode_list(data: Any) -> Any:
        if len(_list(data)) != len(decoders):
            raise _Misfit(f"{len(data)} values", f"{len(decoders)}")
        return _decoded_items(decoders, data)

    return decode_list


def _list(data: Any) -> list[Any]:
    if not isinstance(data, list):
        raise _Misfit(_shown(data), "a list")
    items = cast("list[Any]", data)
    if len(items) > MAX_ITEMS:
        raise _Misfit(f"{len(items)} items", f"at most {MAX_ITEMS}")
    return items


def _shown(data: Any) -> str:
    """A value as messages show it; what lists and objects hold may be long and deep."""
    kinds = {list: "a list", dict: "an object"}
    return kinds.get(type(data)) or f"{data!r:.40}"


def _decoded_items(decoders: Sequence[_Decoder], data: list[Any]) -> tuple[Any, ...]:
    made: list[Any] = []
    try:
        for decode_item, item in zip(decoders, data, strict=True):
            made.append(decode_item(item))
    except _Misfit as misfit:
        misfit.path.append(f"[{len(made)}]")
        raise
    return tuple(made)


def _mapping_decoder(decode_value: _Decoder) -> _Decoder:
    def decode_mapping(data: Any) -> Any:
        if not isinstance(data, dict):
            raise _Misfit(_shown(data), "an object")
        made: dict[str, Any] = {}
        for key, item in cast("dict[str, Any]", data).items():
            try:
                made[_decode_str(key)] = decode_value(item)
            except _Misfit as misfit:
                misfit.path.append(f".{key:.40}")
                raise
        return made

    return decode_mapping


def _decode_int(data: Any) -> int:
    # `type` and not isinstance: true is no integer.
    if type(data) is not int:
        raise _Misfit(_shown(data), "a value of type int")
    if not _INTEGERS[0] <= data <= _INTEGERS[1]:
        raise _Misfit(f"an integer of {data.bit_length()} bits", "one of 64 bits")
    return data


def _decode_float(data: Any) -> float:
    return data if type(data) is float else float(_decode_number(data))


def _decode_number(data: Any) -> int:
    if type(data) is not int:
        raise _Misfit(_shown(data), "a value of type float")
    return _decode_int(data)


def _decode_str(data: Any) -> str:
    if type(data) is not str:
        raise _Misfit(_shown(data), "a value of type str")
    if not data.isascii() and not _is_text(data):
        raise _Misfit(f"{data!a:.40}", "characters, not halves of them")
    return data


def _is_text(data: str) -> bool:
    """Whether it has no lone surrogates, which nothing can write."""
    try:
        data.encode()
    except UnicodeEncodeError:
        return False
    return True


def _plain_decoder(kind: type) -> _Decoder:
    def decode_plain(data: Any) -> Any:
        if type(data) is not kind:
            raise _Misfit(_shown(data), f"a value of type {kind.__name__}")
        return data

    return decode_plain
