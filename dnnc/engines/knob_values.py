"""KnobValues: one value of each knob of an engine, as named and typed fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields
from functools import cache
from types import NoneType
from typing import Any, Self, get_args, get_type_hints

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
        for name, (_, knob) in _knobs_of_fields(type(self)).items():
            value = getattr(self, name)
            if isinstance(value, KnobValues):
                found |= value.knobs
            elif value is not None:
                label, bit = (*knob, 1)[:2]
                found[label] = found.get(label, 0) | int(value) * bit
        return found

    def unlike(self, others: Knobs) -> Iterator[tuple[str, int]]:
        """Each knob of `others` that has another value here, and that value."""
        own = self.knobs
        return ((name, own[name]) for name, value in others.items() if own[name] != value)


@cache
def _knobs_of_fields(cls: type[KnobValues]) -> dict[str, tuple[type, tuple[Any, ...]]]:
    """Each field's type, and its knob with the bit where it is one; without either: several."""
    found: dict[str, tuple[type, tuple[Any, ...]]] = {}
    for name, hint in get_type_hints(cls, include_extras=True).items():
        given, knob = (hint.__origin__, hint.__metadata__) if get_args(hint) else (hint, ())
        types = [kind for kind in (get_args(given) or (given,)) if kind is not NoneType]
        found[name] = (types[0], knob)
    return found


@cache
def _readers(cls: type[Any]) -> tuple[Callable[[Knobs], Any], ...]:
    """A function for each field, which reads it from a choice."""
    found = _knobs_of_fields(cls)
    return tuple(_reader(field, *found[field.name]) for field in fields(cls))


def _reader(field: Field[Any], kind: type, knob: tuple[Any, ...]) -> Callable[[Knobs], Any]:
    if not knob:
        return kind.of
    name, bits = (*knob, -1)[:2]
    if field.default is MISSING:
        return lambda knobs: kind(knobs[name] & bits)
    return lambda knobs: kind(knobs[name] & bits) if name in knobs else field.default
