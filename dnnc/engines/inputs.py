"""What a ranking goes by beside graph and target: errata and a tuning record, both explicit."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

from ..errata import Errata, errata_of, text_of
from ..errors import DnncError, Status
from ..options import DEFAULTS, Options
from ..record import Record, of_text, read
from . import BY_NAME


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
    """The rules, unless one for this version names an engine that there is not."""
    for rule in errata.rules:
        if rule.is_of_this_version and rule.engine not in BY_NAME:
            what = f"rule '{rule.id}' is on engine {rule.engine!r}"
            raise DnncError(Status.BAD_PARAM, what, ", ".join(BY_NAME), "errata")
    return errata


def inputs_of(options: Options = DEFAULTS) -> Inputs:
    """Those of a compilation's options."""
    return _read(options.errata, options.driver, options.tuning, options.device)


def inputs_of_files(tuning: str = "", errata: str = "") -> Inputs:
    """Those of files by path; "": none, whatever the environment says."""
    rules = text_of(errata) if errata else ""
    return Inputs(_verified(errata_of(rules)), read(tuning or None))
