"""Options: all that a compilation depends on beside graph and target."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_MODES = ("A", "FALLBACK")


@dataclass(frozen=True)
class Options:
    """Options of a compilation.

    modes: heuristic modes in order.  engine, knobs: an explicit choice for the whole graph.
    partition, choices: an explicit config, as the passes `fuse` and `select-engine` take it.
    guards: (guard, choices) of a plan that holds several, in place of `choices`; the last guard
    is "1".
    most_variants: configs for different sizes that a plan of symbols may hold, where nothing
    explicit is asked for.
    errata: rules that bar configs, beside the package's, as `engines.errata.text_of` gives them.
    driver: the version of the driver that will run the plan, for rules on it ("": any).
    tuning: a tuning record, as `engines.record.Record.text` gives it; its config for the graph
    comes first.  device: the name of the one whose times count ("": any of the target).
    sm_count: SMs that configs are ranked for (0: those of the target's usual part).
    """

    modes: tuple[str, ...] = DEFAULT_MODES
    engine: str | None = None
    knobs: tuple[tuple[str, int], ...] = ()
    partition: str = ""
    choices: str = ""
    guards: tuple[tuple[str, str], ...] = ()
    most_variants: int = 3
    errata: str = ""
    driver: str = ""
    tuning: str = ""
    device: str = ""
    sm_count: int = 0


DEFAULTS = Options()
