# pyright: basic
"""select-engine: gives each fusion an engine and its knobs.

Precondition: fusions.  Postcondition: each fusion's function has `dnn.engine` and `dnn.knobs`.
A fusion that no engine takes is an error with the reason of each.

    func.func private @g_fusion0(...) attributes {dnn.fusion = 0}
->  ... attributes {dnn.engine = "pointwise", dnn.fusion = 0, dnn.knobs = {LOAD_SIZE = 16}}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..dialect import structure
from ..dialect.fusion import Fusion
from ..engines import engine_named, heuristics
from ..errors import DnncError, Status
from ..target import Target
from .fuse import target_of
from .pass_base import Pass


@dataclass(frozen=True)
class SelectEngine(Pass):
    """choices: an engine with knobs for each fusion, as in "matmul_sm80:TILE_M=64|pointwise"
    (default: the engine and knobs with the fastest prediction).
    """

    name: ClassVar[str] = "select-engine"

    choices: str = ""

    def run(self, module: Any) -> None:
        target = target_of(module)
        functions = list(structure.fusion_functions(module))
        texts = self.choices.split("|") if self.choices else [""] * len(functions)
        if len(texts) != len(functions):
            raise DnncError(
                Status.BAD_PARAM, f"choices for {len(texts)} fusions", f"for {len(functions)}"
            )
        for function, text in zip(functions, texts, strict=True):
            fusion = structure.read_fusion(function)
            choice = _parse_choice(text, fusion, target) if text else _best(fusion, target)
            structure.set_engine(function, choice.engine.name, choice.knobs)
            function.attributes["dnn.notes"] = structure.to_attribute(list(choice.notes))


def _best(fusion: Fusion, target: Target) -> heuristics.Choice:
    found = heuristics.choices(fusion, target)
    if not found:
        said = heuristics.refusals(fusion, target)
        raise DnncError(
            said[0].reasons[0].status,
            "; ".join(f"{r.engine.name}: {', '.join(map(str, r.reasons))}" for r in said),
            "a fusion that an engine takes",
            repr(fusion),
        )
    return found[0]


def _parse_choice(text: str, fusion: Fusion, target: Target) -> heuristics.Choice:
    name, *settings = text.split(":")
    engine = engine_named(name)
    reasons = engine.supports(fusion, target)
    if reasons:
        raise DnncError(
            reasons[0].status, f"engine {name}: {'; '.join(map(str, reasons))}", "", repr(fusion)
        )
    knobs = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        if not value.lstrip("-").isdigit():
            raise DnncError(Status.BAD_PARAM, f"knob {setting!r}", "NAME=integer")
        knobs[key] = int(value)
    return heuristics.with_knobs(engine, fusion, knobs, target)
