"""Rewrite patterns by name: those of operations, of every fusion, of engines, and of others.

expand-softmax     `Op.expand`, as pass expand-composites applies it
merge-transposes   pass canonicalize-graph
border-views       every fusion
finer-axes         engines pointwise and transpose
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..dialect.fusion_borders import BORDER_VIEWS
from ..dialect.merged_views import MERGED_VIEWS
from ..dialect.patterns import AnyPattern, expansions
from ..engines import all_engines
from ..errors import DnncError, Status

_outside: tuple[AnyPattern, ...] = ()  # of other packages, in the order in which they came


def all_patterns() -> dict[str, AnyPattern]:
    """Name -> pattern; two patterns of one name are BAD_PARAM."""
    found: dict[str, AnyPattern] = {}
    for pattern, user in _used():
        if found.setdefault(pattern.name, pattern) != pattern:
            what = f"a second rewrite pattern {pattern.name}, of {user}"
            raise DnncError(Status.BAD_PARAM, what, "a name that no other pattern has")
    return found


def users_of() -> dict[str, list[str]]:
    """Name of a pattern -> the passes and engines that apply it."""
    found: dict[str, list[str]] = {}
    for pattern, user in _used():
        found.setdefault(pattern.name, []).append(user)
    return found


def pattern_named(name: str) -> AnyPattern:
    """The pattern of this name; another is BAD_PARAM."""
    known = all_patterns()
    if name not in known:
        raise DnncError(Status.BAD_PARAM, f"rewrite pattern {name!r}", ", ".join(known))
    return known[name]


def outside() -> tuple[AnyPattern, ...]:
    """The patterns that are registered."""
    return _outside


def set_outside(patterns: Sequence[AnyPattern]) -> None:
    """Makes these the patterns that are registered."""
    global _outside
    _outside = tuple(patterns)


def _used() -> Iterator[tuple[AnyPattern, str]]:
    """Patterns, and who applies each."""
    yield from ((pattern, "expand-composites") for pattern in expansions())
    yield from ((pattern, "canonicalize-graph") for pattern in MERGED_VIEWS)
    yield from ((pattern, "every fusion") for pattern in BORDER_VIEWS)
    for engine in all_engines():
        yield from ((pattern, engine.name) for pattern in engine.patterns)
    yield from ((pattern, "registered") for pattern in _outside)
