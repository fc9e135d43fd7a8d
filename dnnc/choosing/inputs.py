"""The explicit inputs of a ranking beside graph and target: errata and a tuning record."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

from ..engines import all_engines
from ..engines.engine import Engine
from ..errata import Errata, Rule, errata_of, text_of
from ..errors import DnncError, Status
from ..options import DEFAULTS, Options
from ..record import Record, of_text, read


@dataclass(frozen=True)
class Inputs:
    """errata: rules that bar configs (default: the package's).  record: configs that were timed.
    device: the only one whose times count ("": any of the target).  spilling: texts of choices
    that were compiled for the graph and spill registers.
    """

    errata: Errata = field(default_factory=errata_of)
    record: Record = field(default_factory=Record)
    device: str = ""
    spilling: tuple[str, ...] = ()


@functools.lru_cache(16)
def _read(errata: str, driver: str, tuning: str, device: str) -> Inputs:
    return Inputs(_verified(errata_of(errata, driver)), of_text(tuning), device)


def _verified(errata: Errata) -> Errata:
    """The rules, unless one for this version names what there is not: it would bar nothing."""
    by_name = {engine.name: engine for engine in all_engines()}
    for rule in errata.rules:
        if not rule.is_of_this_version:
            continue
        if rule.engine not in by_name:
            raise _misspelt(rule, f"is on engine {rule.engine!r}", ", ".join(by_name))
        _verify_knobs(rule, by_name[rule.engine])
    return errata


def _verify_knobs(rule: Rule, engine: Engine) -> None:
    known = {knob.name: knob.values for knob in engine.all_knobs}
    for name, values in rule.knobs:
        if name not in known:
            accepted = ", ".join(known) or "none: it has no knobs"
            raise _misspelt(rule, f"is on knob {name!r} of engine {engine.name}", accepted)
        if strange := [value for value in values if value not in known[name]]:
            what = f"is on {name} = {', '.join(map(str, strange))} of engine {engine.name}"
            raise _misspelt(rule, what, ", ".join(map(str, sorted(known[name]))))


def _misspelt(rule: Rule, what: str, supported: str) -> DnncError:
    return DnncError(Status.BAD_PARAM, f"rule '{rule.id}' {what}", supported, "errata")


def inputs_of(options: Options = DEFAULTS) -> Inputs:
    """The inputs of a compilation's options."""
    return _read(options.errata, options.driver, options.tuning, options.device)


def inputs_of_files(tuning: str = "", errata: str = "") -> Inputs:
    """The inputs of files by path; "": none, whatever the environment says."""
    rules = text_of(errata) if errata else ""
    return Inputs(_verified(errata_of(rules)), read(tuning or None))
