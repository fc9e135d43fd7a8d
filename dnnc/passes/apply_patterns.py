# pyright: basic
"""apply-patterns: applies rewrite patterns by their names, and no others.

Precondition: a graph, or fusions that are not prepared.  Postcondition: each pattern was
applied, in order.  Those of operations rewrite the graph, and beside fusions these alone: the
graph's function stays then.  Those of fusions need fusions.

    apply-patterns{patterns=finer-axes}

    %y = "dnn.reshape"(%x) : (tensor<8x32x4x...>) -> tensor<8x128x...>
->  %y = "dnn.reshape"(%x) : (tensor<8x32x4x...>) -> tensor<8x32x4x...>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..dialect import dnn, structure
from ..dialect.rewriting import rewrite
from ..errors import DnncError, Status
from ..mlir import located
from . import stages
from .named_patterns import pattern_named
from .pass_base import Pass


@dataclass(frozen=True)
class ApplyPatterns(Pass):
    """patterns: their names, separated by spaces, in the order in which they are applied."""

    name: ClassVar[str] = "apply-patterns"

    patterns: str = ""

    def run(self, module: Any) -> None:
        patterns = [pattern_named(name) for name in self.patterns.split()]
        if not patterns:
            what = "pass apply-patterns without a pattern"
            raise DnncError(Status.BAD_PARAM, what, "apply-patterns{patterns=NAME}")
        stage = stages.stage_of(module)
        if stage not in ("graph", "fused"):
            what = f"pass apply-patterns: a module at stage {stage}"
            raise DnncError(Status.BAD_PARAM, what, "one at stage graph or fused")
        functions = list(structure.fusion_functions(module)) or [dnn.graph_function(module)]
        for function in functions:
            structure.verify_not_prepared(function, "apply-patterns")
            with located(function.operation):
                rewrite(function, patterns)
