# pyright: basic
"""expand-composites: replaces operations by the simpler ones that they stand for.

Precondition: a verified graph.  Postcondition: operations that engines know.  There is one pattern
for each operation with `Op.expand`; what it gives may expand in its turn.

    %y = "dnn.softmax"(%x) {axis = array<i64: 1>}
->  %0 = "dnn.reduction"(%x) {mode = "max"}     %1 = "dnn.pointwise"(%x, %0) {mode = "sub"}
    %2 = "dnn.pointwise"(%1) {mode = "exp"}     %3 = "dnn.reduction"(%2) {mode = "add"}
    %4 = "dnn.pointwise"(%3) {mode = "reciprocal"}
    %y = "dnn.pointwise"(%2, %4) {mode = "mul"}

Where an operation wants the same bits each time, the graph gets `dnn.repeats`.  Operands of fewer
dims and reductions of reduced tensors stay as they are: `fuse` rewrites those, in any graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..dialect import dnn
from ..dialect.patterns import expansions
from ..dialect.rewriting import rewrite
from ..mlir import ir
from .pass_base import Pass


@dataclass(frozen=True)
class ExpandComposites(Pass):
    """The pass; see the file's docstring."""

    name: ClassVar[str] = "expand-composites"
    takes: ClassVar[str] = "graph"
    makes: ClassVar[str] = "graph"

    def run(self, module: Any) -> None:
        function = dnn.graph_function(module)
        if dnn.from_mlir(module).must_repeat:
            function.attributes[dnn.REPEATS] = ir.UnitAttr.get()
        rewrite(function, expansions())
