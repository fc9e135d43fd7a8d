"""The passes by name, and how a textual pipeline is read.

A pipeline is names separated by commas, options in braces: `fuse,select-engine{choices=pointwise}`.
Names that are not ours go to MLIR, so that upstream passes can stand between them.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from .. import mlir
from ..dialect.fusion import Fusion as Fusion
from ..dialect.patterns import AnyPattern as AnyPattern
from ..dialect.patterns import FusionPattern as FusionPattern
from ..dialect.patterns import Pattern as Pattern
from ..dialect.patterns import in_place_of as in_place_of
from ..dialect.rewriting import rewrite as rewrite
from ..errors import DnncError, Status
from . import named_patterns, stages
from .apply_patterns import ApplyPatterns
from .assign_workspace import AssignWorkspace
from .canonicalize import Canonicalize
from .expand_composites import ExpandComposites
from .fuse import Fuse
from .lower_to_kernels import LowerToKernels
from .lower_to_linalg import LowerToLinalg
from .lower_to_nvvm import LowerToNvvm
from .named_patterns import all_patterns as all_patterns
from .pass_base import Pass
from .prepare_fusions import PrepareFusions
from .select_engine import SelectEngine
from .tile import Tile
from .verify import Verify

PASSES: tuple[type[Pass], ...] = (
    Verify,
    Canonicalize,
    ExpandComposites,
    ApplyPatterns,
    Fuse,
    SelectEngine,
    PrepareFusions,
    LowerToLinalg,
    Tile,
    LowerToKernels,
    AssignWorkspace,
    LowerToNvvm,
)

# The passes that a compilation runs from one stage to the next.
PASSES_TO: Mapping[str, tuple[type[Pass], ...]] = {
    "fused": (Fuse, SelectEngine),
    "linalg": (PrepareFusions, LowerToLinalg, Tile),
    "kernel": (LowerToKernels, AssignWorkspace),
    "nvvm": (LowerToNvvm,),
}

BY_NAME = {kind.name: kind for kind in PASSES}

_outside: tuple[type[Pass], ...] = ()  # of other packages, in the order in which they came
_NAME = re.compile(r"[a-z][a-z0-9-]*")
_REGISTER = "dnnc.passes.register"

Step = Pass | str  # ours, or the text of an upstream pass


def all_passes() -> dict[str, type[Pass]]:
    """Name -> pass: the package's own, then those that are registered."""
    return BY_NAME | {kind.name: kind for kind in _outside}


def register(kind: type[Pass] | AnyPattern) -> None:
    """Gives a pass or a rewrite pattern from outside the package its name in pipelines, for the
    rest of this process.

    The name, of lower-case letters, digits and `-`, is no other pass's, or no other pattern's.  A
    pass takes and makes a stage, or "" for any.  Pass apply-patterns applies a pattern.
    """
    global _outside
    if isinstance(kind, AnyPattern):
        _verify_name(kind.name, all_patterns(), "pattern")
        named_patterns.set_outside((*named_patterns.outside(), kind))
        return
    _verify_outside(kind)
    _outside = (*_outside, kind)


def _verify_outside(kind: Any) -> None:
    where = _REGISTER
    if not (isinstance(kind, type) and issubclass(kind, Pass) and dataclasses.is_dataclass(kind)):
        accepted = "a frozen dataclass that derives from dnnc.passes.Pass, or a rewrite pattern"
        raise DnncError(Status.BAD_PARAM, f"{kind!r:.80}", accepted, where)
    _verify_name(kind.name, all_passes(), "pass")
    if unknown := {kind.takes, kind.makes} - {"", *stages.SPECS}:
        what = f"stage {min(unknown)!r} of pass {kind.name}"
        raise DnncError(Status.BAD_PARAM, what, f"'', {', '.join(stages.SPECS)}", where)


def _verify_name(name: str, known: Collection[str], of: str) -> None:
    if _NAME.fullmatch(name) is None or name in known:
        accepted = f"lower-case letters, digits and -, no other {of}'s"
        raise DnncError(Status.BAD_PARAM, f"name {name!r}", accepted, _REGISTER)


@contextmanager
def registered(*kinds: type[Pass] | AnyPattern) -> Generator[None]:
    """Registers passes and rewrite patterns for the length of a `with` statement."""
    global _outside
    before, patterns = _outside, named_patterns.outside()
    try:
        for kind in kinds:
            register(kind)
        yield
    finally:
        _outside = before
        named_patterns.set_outside(patterns)


def parse_pipeline(text: str) -> list[Step]:
    """The passes of a textual pipeline, upstream ones as text."""
    return [_parse_pass(part) for part in _split(text)]


def run(
    module: Any,
    steps: Sequence[Step],
    after: Callable[[str, Any], None] = lambda name, module: None,
    *,
    verifies_each: bool = True,
) -> None:
    """Runs passes over a module that is verified before and after each; `after` sees it.

    Before and after one of ours, the module holds what the stage may hold that the pass takes, and
    makes.  verifies_each: False where the module comes as dnnc made it, at the stage that the first
    pass takes: then only what the last pass leaves is verified.
    """
    if verifies_each:
        _verified(module, "its input")
    first = steps[0] if steps else ""
    at = first.takes if isinstance(first, Pass) and not verifies_each else ""  # "": not known
    for step in steps:
        is_verified = verifies_each or step is steps[-1]
        if isinstance(step, Pass):
            if step.takes and step.takes != at:
                _verify_taken(module, step)
            _run_ours(module, step)
            name, at = step.name, step.makes or at
        else:
            _run_upstream(module, step)
            name, at = step, ""
        if is_verified:
            _verified(module, name)
            if isinstance(step, Pass) and step.makes:
                _verify_made(module, step)
        after(name, module)


def _verify_taken(module: Any, step: Pass) -> None:
    at = stages.stage_of(module)
    if at != step.takes:
        kinds = all_passes().values()
        makers = [kind.name for kind in kinds if kind.takes != kind.makes == step.takes]
        what = f"pass {step.name}: a module at stage {at}"
        supported = f"one at stage {step.takes}{''.join(f', as {m} makes it' for m in makers)}"
        raise DnncError(Status.BAD_PARAM, what, supported, "pass pipeline")
    stages.verify(module, at)


def _verify_made(module: Any, step: Pass) -> None:
    try:
        stages.verify(module, step.makes)
    except DnncError as error:
        what = f"pass {step.name} made what stage {step.makes} does not hold: {error.what}"
        status = Status.INTERNAL_ERROR_UNEXPECTED_VALUE
        raise DnncError(status, what, error.supported, error.where) from error


def _run_ours(module: Any, step: Pass) -> None:
    try:
        step.run(module)
    except KeyError as error:  # an attribute that the stage before writes
        raise DnncError(
            Status.BAD_PARAM,
            f"pass {step.name}: the module has no {error}",
            "the module as the stage before prints it",
        ) from error


def _verified(module: Any, after: str) -> None:
    try:
        mlir.verify(module)
    except mlir.ir.MLIRError as error:
        raise DnncError(
            Status.INTERNAL_ERROR_UNEXPECTED_VALUE,
            f"the module is not valid after {after}: {mlir.message(error)}",
            where="pass pipeline",
        ) from error


def _run_upstream(module: Any, text: str) -> None:
    try:
        manager = mlir.PassManager.parse(f"builtin.module({text})")
    except Exception as error:
        raise DnncError(
            Status.BAD_PARAM,
            f"pass {text!r}: {str(error).splitlines()[0]}",
            f"{', '.join(all_passes())}, or a pass of MLIR",
        ) from error
    try:
        manager.run(module.operation)
    except mlir.ir.MLIRError as error:
        raise DnncError(
            Status.INTERNAL_ERROR_COMPILATION_FAILED, f"{text}: {mlir.message(error)}"
        ) from error


def _split(text: str) -> list[str]:
    """Splits at commas outside brackets."""
    parts, depth, current = [], 0, ""
    for character in text:
        depth += (character in "({[<") - (character in ")}]>")
        if character == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    parts.append(current)
    return [part.strip() for part in parts if part.strip()]


def _parse_pass(text: str) -> Step:
    name, brace, rest = text.partition("{")
    kind = all_passes().get(name.strip())
    if kind is None:
        return text
    fields = {field.name: field for field in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    for setting in _settings(rest.rstrip("}")) if brace else []:
        key, equals, value = setting.partition("=")
        if key not in fields or not equals:
            raise DnncError(
                Status.BAD_PARAM,
                f"option {setting!r} of pass {kind.name}",
                ", ".join(f"{key}=..." for key in fields) or "no options",
            )
        values[key] = _number(setting, value) if fields[key].type == "int" else value
    return kind(**values)


def _number(setting: str, value: str) -> int:
    if not value.isdecimal():
        raise DnncError(Status.BAD_PARAM, f"option {setting!r}", "a number")
    return int(value)


def _settings(text: str) -> list[str]:
    """key=value key="value with spaces" """
    return shlex.split(text)
