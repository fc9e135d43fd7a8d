# pyright: basic
"""select-engine: gives each fusion an engine and its knobs.

Precondition: fusions, none of them prepared.  Postcondition: each fusion's function has
`dnn.engine` and `dnn.knobs`.  A fusion that no engine takes is an error with the nearest engine's
reason.

    func.func private @g_fusion0(...) attributes {dnn.fusion = 0}
->  ... attributes {dnn.engine = "pointwise", dnn.fusion = 0, dnn.knobs = {LOAD_SIZE = 16}}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from .. import target as targets
from ..choosing import heuristics
from ..choosing.choice import refusals
from ..choosing.inputs import Inputs, inputs_of_files
from ..choosing.nearest import declined_text, every_reason
from ..dialect import dnn, structure
from ..dialect.fusion import Fusion
from ..errors import DnncError, Status
from ..mlir import located
from ..target import Target
from .fuse import target_of
from .pass_base import Pass


@dataclass(frozen=True)
class SelectEngine(Pass):
    """choices: an engine with knobs for each fusion, as in "matmul_sm80:TILE_M=64|pointwise"
    (default: the engine and knobs with the fastest prediction).
    tuning: a file, whose config for the graph is taken where it has the same fusions.
    errata: a file, whose rules bar configs.
    sm_count: SMs that configs are ranked for (default: of the target's usual part).
    """

    name: ClassVar[str] = "select-engine"
    takes: ClassVar[str] = "fused"
    makes: ClassVar[str] = "fused"

    choices: str = ""
    tuning: str = ""
    errata: str = ""
    sm_count: int = 0

    def run(self, module: Any) -> None:
        target = targets.with_sm_count(target_of(module), self.sm_count)
        functions = list(structure.fusion_functions(module))
        for function in functions:
            structure.verify_not_prepared(function, "select-engine")
        inputs = inputs_of_files(self.tuning, self.errata)
        chosen = self.choices or _tuned(module, [_ops(f) for f in functions], target, inputs)
        texts = chosen.split("|") if chosen else [""] * len(functions)
        if len(texts) != len(functions):
            raise DnncError(
                Status.BAD_PARAM, f"choices for {len(texts)} fusions", f"for {len(functions)}"
            )
        for function, text in zip(functions, texts, strict=True):
            with located(function.operation):
                fusion = structure.read_fusion(function)
                if text:
                    choice = heuristics.parsed_choice(text, fusion, target, inputs)
                else:
                    choice = _best(fusion, target, inputs)
            structure.set_engine(function, choice.engine.name, choice.knobs, choice.notes)


def _tuned(module: Any, groups: list[list[str]], target: Target, inputs: Inputs) -> str:
    """The choices of the tuning record, if they are for the same fusions; else ""."""
    if not inputs.record.entries:
        return ""
    config = heuristics.tuned_config(dnn.from_mlir(module), target, inputs)
    if config is None or groups != [
        [op.label for op in c.fusion.in_graph.ops] for c in config.choices
    ]:
        return ""
    return config.choice_text


def _ops(function: Any) -> list[str]:
    return [op.label for op in structure.read_fusion(function).in_graph.ops]


def _best(fusion: Fusion, target: Target, inputs: Inputs) -> heuristics.Choice:
    found = heuristics.choices(fusion, target, inputs=inputs)
    if not found:
        refused = refusals(fusion, target)
        said, reason = declined_text(refused)
        raise DnncError(
            reason.status,
            f"no engine for {target} takes it: {said}",
            reason.supported,
            repr(fusion),
            details="\n".join(every_reason(refused)),
        )
    return found[0]
