"""What a compilation depends on beside graph and target."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_MODES = ("A", "FALLBACK")


@dataclass(frozen=True)
class Options:
    """Options of a compilation.

    modes: heuristic modes in order.  engine, knobs: an explicit choice for the whole graph.
    partition, choices: an explicit config, as the passes `fuse` and `select-engine` take it.
    """

    modes: tuple[str, ...] = DEFAULT_MODES
    engine: str | None = None
    knobs: tuple[tuple[str, int], ...] = ()
    partition: str = ""
    choices: str = ""


DEFAULTS = Options()
