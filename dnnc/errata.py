"""Errata: rules that bar engine configs which are known to be wrong, slow or unwanted.

    {"dnnc_errata": 1, "rules": [
      {"id": "gelu-2-stages", "why": "wrong sums at K = 96",
       "engine": "matmul_sm90", "knobs": {"STAGES": [2, 3], "TILE_M": 64},
       "ops": ["matmul", "pointwise:gelu_fwd"], "dtypes": ["f16"],
       "targets": ["sm_90a"], "dnnc": ">=0.1,<0.3", "driver": "<580"}]}

A rule bars an engine for a fusion where everything that it names holds; what it leaves out always
holds.  The package's own rules (errata.json) come first, then the user's: a file named in
DNNC_ERRATA_FILE, or given to a compilation.
"""

from __future__ import annotations

import functools
import json
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from . import __version__, dtypes, given
from . import target as targets
from .dialect.fusion import Fusion
from .errors import DnncError, Status
from .target import Target

VERSION = 1
VARIABLE = "DNNC_ERRATA_FILE"
PACKAGED = Path(__file__).with_name("errata.json")

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_LISTS = ("ops", "dtypes", "targets")
_TEXTS = ("id", "why", "engine", "dnnc", "driver")


@dataclass(frozen=True)
class Rule:
    """A rule, and what it bars.

    id, why: how messages name it.  engine: its name.  knobs: (name, values): each has to have
    one of them.  ops: kinds of operations that the fusion has, as "pointwise" or
    "pointwise:gelu_fwd" (composite ones are their steps).  dtypes: of its tensors.
    targets: any of them.  dnnc, driver: ranges of versions, as ">=12.4,<13".
    """

    id: str
    why: str
    engine: str
    knobs: tuple[tuple[str, tuple[int, ...]], ...]
    ops: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    dnnc: str = ""
    driver: str = ""

    def bars(
        self,
        engine: str,
        fusion: Fusion,
        knobs: Mapping[str, int],
        target: Target,
        driver: str = "",
    ) -> bool:
        """Whether it bars an engine with these knobs.

        driver: the version that will run it, "" if that is not known: it may be any then.
        """
        if engine != self.engine or (self.targets and target.name not in self.targets):
            return False
        if any(knobs.get(name) not in values for name, values in self.knobs):
            return False
        if not self.is_of_this_version or (driver and not _is_in(driver, self.driver)):
            return False
        kinds = {kind for op in fusion.in_graph.ops for kind in (op.op_name, op.title)}
        return kinds.issuperset(self.ops) and {t.type.name for t in fusion.tensors}.issuperset(
            self.dtypes
        )

    @property
    def is_of_this_version(self) -> bool:
        """Whether the version of dnnc is one that it is about."""
        return _is_in(__version__, self.dnnc)

    def __str__(self) -> str:
        return f"errata rule '{self.id}': {self.why}"


@dataclass(frozen=True)
class Errata:
    """Rules, and the driver version that plans will run with ("": not known)."""

    rules: tuple[Rule, ...]
    driver: str = ""

    def rule_for(
        self, engine: str, fusion: Fusion, knobs: Mapping[str, int], target: Target
    ) -> Rule | None:
        """The first rule that bars an engine with these knobs."""
        found = (r for r in self.rules if r.bars(engine, fusion, knobs, target, self.driver))
        return next(found, None)


def errata_of(text: str = "", driver: str = "") -> Errata:
    """The package's rules, then those of a text (see `text_of`)."""
    return Errata(packaged() + (parsed(text, "errata") if text else ()), driver)


@functools.cache
def packaged() -> tuple[Rule, ...]:
    """The package's own rules."""
    return parsed(PACKAGED.read_text(), PACKAGED.name)


def text_of(source: str | os.PathLike[str] | None = None) -> str:
    """The rules of a file as one line, checked: an explicit input of a compilation.

    source: a path; None: the file that DNNC_ERRATA_FILE names, if it does.  "" without rules.
    """
    path = os.environ.get(VARIABLE) if source is None else source
    if path is None or path == "":
        return ""
    given.verify_path(path, "errata")
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise _bad(f"can't be read: {said}", "a file of rules", str(path)) from error
    if not parsed(text, str(path)):
        return ""
    return json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))


# ---- reading


def parsed(text: str, where: str) -> tuple[Rule, ...]:
    """The rules of a JSON text; a malformed one is BAD_PARAM with the place."""
    try:
        data: Any = json.loads(text)
    except ValueError as error:
        raise _bad(f"not JSON: {error}", "a JSON object", where) from error
    if not isinstance(data, dict) or cast(Any, data).get("dnnc_errata") != VERSION:
        raise _bad(f"{data!r:.60}", f'{{"dnnc_errata": {VERSION}, "rules": [...]}}', where)
    rules = cast(Any, data).get("rules")
    if not isinstance(rules, list):
        raise _bad(f"rules = {rules!r:.40}", "a list", where)
    made = [_rule(entry, f"{where}: rule {i}") for i, entry in enumerate(cast(Any, rules))]
    return tuple(made)


def _rule(data: Any, where: str) -> Rule:
    if not isinstance(data, dict):
        raise _bad(f"{data!r:.60}", "an object", where)
    entry = cast("dict[str, Any]", data)
    unknown = entry.keys() - {*_TEXTS, *_LISTS, "knobs"}
    if unknown:
        # A condition that is not understood would bar more than was meant.
        raise _bad(", ".join(sorted(unknown)), ", ".join([*_TEXTS, *_LISTS, "knobs"]), where)
    for name in _TEXTS:
        value = entry.get(name, "")
        if not isinstance(value, str) or (not value and name in ("id", "why", "engine")):
            raise _bad(f"{name} = {value!r:.40}", "a text", where)
    values: dict[str, Any] = {name: _texts(entry, name, where) for name in _LISTS}
    for name in values["targets"]:
        targets.of(name)
    for name in ("dnnc", "driver"):
        _conditions(entry.get(name, ""), where)
    values |= {name: entry[name] for name in _TEXTS if name in entry}
    rule = Rule(**values, knobs=_knobs(entry.get("knobs", {}), where))
    if rule.is_of_this_version:
        for text in rule.ops:
            _verify_kind(text, where)
        _require_known(rule.dtypes, [dtype.name for dtype in dtypes.ALL], where)
    return rule


def _require_known(texts: Sequence[str], known: Iterable[str], where: str) -> None:
    """A misspelt condition would never hold, and the rule bar nothing."""
    names = list(known)
    if unknown := [text for text in texts if text not in names]:
        raise _bad(", ".join(map(repr, unknown)), ", ".join(names), where)


def _verify_kind(text: str, where: str) -> None:
    """A kind is that of some operation, alone or with a mode of it."""
    from .dialect.ops import BY_NAME

    name, separator, mode = text.partition(":")
    fused = [op.op_name for op in BY_NAME.values() if not op.is_composite]
    _require_known([name], fused, f"{where}: ops {text!r}")
    if separator:
        kind = BY_NAME[name]
        field = next((f for f in kind.fields if f.name == kind.kind_field), None)
        if field is None:
            raise _bad(repr(mode), f"{name}, which has no modes", f"{where}: ops {text!r}")
        _require_known([mode], field.choices, f"{where}: ops {text!r}")


def _texts(entry: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
    value = entry.get(name, [])
    if not isinstance(value, list) or not all(isinstance(v, str) for v in cast(Any, value)):
        raise _bad(f"{name} = {value!r:.40}", "a list of texts", where)
    return tuple(cast("list[str]", value))


def _knobs(value: Any, where: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    if not isinstance(value, dict):
        raise _bad(f"knobs = {value!r:.40}", "an object", where)
    found: list[tuple[str, tuple[int, ...]]] = []
    for name, values in cast("dict[str, Any]", value).items():
        listed = cast("list[Any]", values) if isinstance(values, list) else [values]
        if not listed or not all(isinstance(v, int) and not isinstance(v, bool) for v in listed):
            raise _bad(f"knob {name} = {values!r:.40}", "an integer or a list of them", where)
        found.append((name, tuple(listed)))
    return tuple(found)


def _bad(what: str, supported: str, where: str) -> DnncError:
    return DnncError(Status.BAD_PARAM, what, supported, where)


# ---- versions


def _conditions(text: str, where: str) -> list[tuple[str, tuple[int, ...]]]:
    """>=12.4,<13 as comparisons."""
    found: list[tuple[str, tuple[int, ...]]] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"(<=|>=|==|!=|<|>)\s*(\d+(?:\.\d+)*)", part)
        if match is None:
            raise _bad(f"versions {text!r}", "comparisons as >=12.4,<13", where)
        found.append((match[1], _numbers(match[2])))
    return found


def _is_in(version: str, text: str) -> bool:
    found = _conditions(text, "errata")
    return all(_COMPARISONS[sign](*_alike(_numbers(version), wanted)) for sign, wanted in found)


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of 0.1.0 or 580.65.06."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def _alike(a: Sequence[int], b: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Both with as many numbers: 13 is 13.0."""
    count = max(len(a), len(b))
    return (*a, *[0] * (count - len(a))), (*b, *[0] * (count - len(b)))
