"""An engine with knobs as a text: matmul_sm80:STAGES=3:TILE_M=64."""

from __future__ import annotations

from collections.abc import Mapping

from ..engines import engine_named
from ..engines.engine import Engine
from ..errors import DnncError, Status


def choice_text(engine: str, knobs: Mapping[str, int]) -> str:
    """An engine with knobs, as a text."""
    return ":".join([engine, *(f"{name}={value}" for name, value in sorted(knobs.items()))])


def choice_of_text(text: str) -> tuple[Engine, dict[str, int]]:
    """The engine and the knobs of such a text."""
    name, *settings = text.split(":")
    knobs: dict[str, int] = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        if not value.removeprefix("-").isdecimal():
            raise DnncError(Status.BAD_PARAM, f"knob {setting!r}", "NAME=integer")
        knobs[key] = int(value)
    return engine_named(name), knobs
