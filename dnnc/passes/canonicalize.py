# pyright: basic
"""canonicalize-graph: drops operations of the graph whose results nothing uses.

Precondition: a verified graph.  Postcondition: every operation reaches an output.

    %0 = "dnn.pointwise"(%x) ...      (not used)
->  (nothing)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..dialect import dnn
from .pass_base import Pass


@dataclass(frozen=True)
class Canonicalize(Pass):
    """The pass; see the file's docstring."""

    name: ClassVar[str] = "canonicalize-graph"
    takes: ClassVar[str] = "graph"
    makes: ClassVar[str] = "graph"

    def run(self, module: Any) -> None:
        function = dnn.graph_function(module)
        for view in reversed(list(function.entry_block.operations)):
            operation = view.operation
            is_ours = operation.name.startswith("dnn.")
            if is_ours and not any(list(result.uses) for result in operation.results):
                operation.erase()
