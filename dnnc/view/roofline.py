"""A roofline: operations a second over operations a byte, both logarithmic, as coordinates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..target import Target
from .numbers import si
from .parts import Part
from .work import Roof, bandwidth

WIDTH, HEIGHT = 400.0, 320.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 8.0, 12.0, 44.0
_CHARACTER = 6.6  # of 12 px, on average
# Dots that would cover each other are moved apart by so much, for as many tries.
_APART, _TRIES = 17.0, 40

_Point = tuple[float, float]


@dataclass(frozen=True)
class Tick:
    """at: its coordinate."""

    at: float
    text: str


@dataclass(frozen=True)
class Line:
    """A roof.  points: of a polyline.  x, y, anchor: where its text is, and which end of it."""

    points: str
    text: str
    x: float
    y: float
    anchor: str


@dataclass(frozen=True)
class Dot:
    """A part.  x, y: its place.  label: where its number stands.  is_moving: it has no arithmetic,
    and stands at the left edge, at its share of the bandwidth."""

    x: float
    y: float
    label: _Point
    number: int
    whole: str
    is_moving: bool


@dataclass(frozen=True)
class Roofline:
    """Coordinates in a box of WIDTH by HEIGHT; left to bottom: the axes."""

    left: float
    right: float
    top: float
    bottom: float
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    lines: tuple[Line, ...]
    dots: tuple[Dot, ...]
    width: float = WIDTH
    height: float = HEIGHT


@dataclass(frozen=True)
class _Axes:
    """x_low to x_high: operations a byte.  y_low to y_high: operations a second."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def at(self, x: float, y: float) -> _Point:
        across = _share(x, self.x_low, self.x_high) * (WIDTH - _LEFT - _RIGHT)
        up = _share(y, self.y_low, self.y_high) * (HEIGHT - _TOP - _BOTTOM)
        return round(_LEFT + across, 1), round(HEIGHT - _BOTTOM - up, 1)


def roofline_of(parts: Iterable[Part], target: Target) -> Roofline | None:
    """The roofline of all parts that have a prediction; None without any."""
    known = [
        (part, part.estimate.work, part.estimate.prediction.seconds)
        for part in parts
        if part.estimate.work is not None and part.estimate.prediction is not None
    ]
    if not known:
        return None
    slope = bandwidth(target)
    roofs = list(dict.fromkeys(work.roof for _, work, _ in known))
    places = [work.intensity for _, work, _ in known if work.operations]
    ridges = [roof.rate / slope for roof in roofs]
    x_low, x_high = _range([*places, *ridges, min(ridges) / 10])
    # What moves bytes alone stands at the left edge, as if each had that many operations.
    points = [
        (work.intensity or x_low, (work.operations or x_low * work.bytes) / seconds)
        for _, work, seconds in known
    ]
    y_low, y_high = _range([*(y for _, y in points), *(roof.rate for roof in roofs)])
    axes = _Axes(x_low, x_high, y_low, y_high)
    dots: list[Dot] = []
    for (part, work, _), (x, y) in zip(known, points, strict=True):
        at = axes.at(x, y)
        whole = f"{part.number}: {si(y)}OP/s at {x:.3g} operations a byte"
        if not work.operations:
            whole = f"{part.number}: moves bytes, at {y / x_low / slope:.0%} of the bandwidth"
        label = _free(at, [dot.label for dot in dots])
        dots.append(Dot(*at, label, part.number, whole, not work.operations))
    return Roofline(
        left=_LEFT,
        right=WIDTH - _RIGHT,
        top=_TOP,
        bottom=HEIGHT - _BOTTOM,
        across=tuple(Tick(axes.at(x, y_low)[0], f"{x:g}") for x in _powers(x_low, x_high)),
        up=tuple(Tick(axes.at(x_low, y)[1], si(y)) for y in _powers(y_low, y_high)),
        lines=tuple(_lines(roofs, slope, axes)),
        dots=tuple(dots),
    )


def _lines(roofs: Sequence[Roof], slope: float, axes: _Axes) -> Iterable[Line]:
    """Memory's slope up to the highest roof, then each roof from the slope on."""
    most = max(roof.rate for roof in roofs)
    start = max(axes.x_low, axes.y_low / slope)
    text = f"memory, {si(slope)}B/s"
    # Nothing is above the slope, which rises: it is highest where its text ends.
    left = axes.at(start, start * slope)[0] + 8
    share = (left + len(text) * _CHARACTER - _LEFT) / (WIDTH - _LEFT - _RIGHT)
    x = axes.x_low * (axes.x_high / axes.x_low) ** share
    y = axes.at(x, min(x * slope, most))[1] - 8
    yield Line(
        _points(axes, [(start, start * slope), (most / slope, most)]), text, left, y, "start"
    )
    for roof in roofs:
        ends = [(roof.rate / slope, roof.rate), (axes.x_high, roof.rate)]
        x, y = axes.at(*ends[1])
        yield Line(_points(axes, ends), f"{roof.name}, {si(roof.rate)}OP/s", x, y - 6, "end")


def _points(axes: _Axes, ends: Sequence[_Point]) -> str:
    return " ".join(f"{x},{y}" for x, y in (axes.at(*end) for end in ends))


def _free(at: _Point, taken: Sequence[_Point]) -> _Point:
    """A place for a dot's number: the dot's, or the nearest one below that no other has."""
    x, y = at
    for _ in range(_TRIES):
        if all(math.hypot(x - a, y - b) >= _APART for a, b in taken):
            break
        y = round(y + _APART / 2, 1)
    return x, min(y, HEIGHT - _BOTTOM)


def _share(value: float, low: float, high: float) -> float:
    """Where a value is between two, by logarithms."""
    value = min(max(value, low), high)
    return math.log(value / low) / math.log(high / low)


def _range(values: Sequence[float]) -> tuple[float, float]:
    """An axis around values: three decades at least, with some room."""
    low, high = min(values) / 2.5, max(values) * 2.5
    return min(low, high / 1e3), high


def _powers(low: float, high: float) -> list[float]:
    """Powers of ten between two values."""
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    return [10.0**power for power in range(first, last + 1)]
