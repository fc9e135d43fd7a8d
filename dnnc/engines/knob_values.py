"""KnobValues: one value of each knob of an engine, as named and typed fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields
from functools import cache
from operator import itemgetter
from typing import Annotated, Any, NamedTuple, Self, get_args, get_origin, get_type_hints

from .engine import Knobs


class KnobValues:
    """Base of frozen dataclasses whose fields are the knobs of a choice.

    The annotation of a field names its knob, and a bool may be one bit of its value:

        keys: Annotated[int, "TILE_N"]
        rescales: Annotated[bool, "KERNEL_CFG", 1]

    A field that is a KnobValues itself has several knobs.  A knob that a choice lacks takes the
    field's default; a field that is None gives no knob.
    """

    @classmethod
    def of(cls, knobs: Knobs) -> Self:
        """The values of a choice; knobs without a field are passed over."""
        return cls(*[read(knobs) for read in _readers(cls)])

    @property
    def knobs(self) -> dict[str, int]:
        """The choice that `of` takes."""
        found: dict[str, int] = {}
        for field, (_, knob, bit) in _knobs_of(type(self)).items():
            value = getattr(self, field)
            if not knob:
                found |= value.knobs
            elif value is not None:
                found[knob] = found.get(knob, 0) | value * bit
        return found

    def different_from(self, others: Knobs) -> Iterator[tuple[str, int]]:
        """Each knob of `others` that has another value here, and that value."""
        own = self.knobs
        return ((name, own[name]) for name, value in others.items() if own[name] != value)


class _Knob(NamedTuple):
    """The knob of a field.

    kind: the field's type.  name: "" of a field that has several knobs.  bit: of the knob's value;
    of numbers 1.
    """

    kind: type
    name: str
    bit: int


@cache
def _knobs_of(cls: type[KnobValues]) -> dict[str, _Knob]:
    """The knob of each field."""
    found: dict[str, _Knob] = {}
    for field, hint in get_type_hints(cls, include_extras=True).items():
        if get_origin(hint) is not Annotated:
            found[field] = _Knob(hint, "", 1)
            continue
        given, name, *bit = get_args(hint)
        kind = next(iter(get_args(given)), given)  # that of `kind | None`
        found[field] = _Knob(kind, name, *(bit or [1]))
    return found


@cache
def _readers(cls: type[Any]) -> tuple[Callable[[Knobs], Any], ...]:
    """A function for each field, which reads it from a choice."""
    found = _knobs_of(cls)
    return tuple(_reader(field, found[field.name]) for field in fields(cls))


def _reader(field: Field[Any], knob: _Knob) -> Callable[[Knobs], Any]:
    kind, name, bit = knob
    default = field.default
    if issubclass(kind, KnobValues):
        return kind.of
    if kind is bool:
        if default is MISSING:
            return lambda knobs: knobs[name] & bit != 0
        return lambda knobs: knobs[name] & bit != 0 if name in knobs else default
    return itemgetter(name) if default is MISSING else lambda knobs: knobs.get(name, default)
