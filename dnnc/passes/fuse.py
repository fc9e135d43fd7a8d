# pyright: basic
"""fuse: partitions the graph into fusions.

Precondition: a verified graph.  Postcondition: beside the graph's function, which stays as it
is, a private function with `dnn.fusion` for each fusion, holding its operations with their roles.
`dnn.split_reason` says why there is more than one.

    func.func @g(...) attributes {dnn.graph} { %0 = "dnn.matmul"(...) %1 = "dnn.pointwise"(...) }
->  func.func private @g_fusion0(...) attributes {dnn.fusion = 0} {
      %0 = "dnn.matmul"(...) {role = "anchor"}  %1 = "dnn.pointwise"(...) {role = "g2"} }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from .. import target as targets
from ..dialect import dnn, structure
from ..dialect.fusion import partition
from ..dialect.graph import OperationGraph
from ..dialect.op import Op
from ..engines import heuristics
from ..errors import DnncError, Status
from ..mlir import ir
from ..options import DEFAULT_MODES
from .pass_base import Pass

DEFAULT_TARGET = "sm_90"


@dataclass(frozen=True)
class Fuse(Pass):
    """modes: heuristic modes, separated by spaces (default "A FALLBACK").

    partition: the partition itself, operations by place and fusions by "|", as in "0 1|2";
    operations that no output depends on have no place and no fusion.  A pointwise or view
    operation may be in several, which all compute it.
    """

    name: ClassVar[str] = "fuse"

    modes: str = " ".join(DEFAULT_MODES)
    partition: str = ""

    def run(self, module: Any) -> None:
        graph = dnn.from_mlir(module)
        target = target_of(module)
        for function in list(structure.fusion_functions(module)):
            function.operation.erase()
        if self.partition:
            groups = _parse_partition(self.partition, graph)
        else:
            config = heuristics.best_config(graph, target, self.modes.split())
            groups = [list(choice.fusion.ops) for choice in config.choices]
        for fusion in partition(graph, groups):
            made = structure.write_fusion(
                module, dnn.symbol_name(graph.name), fusion, graph.symbols
            )
            made.attributes["dnn.ops"] = structure.to_attribute([op.label for op in fusion.ops])
        reason = heuristics.split_reason(graph, target) if len(groups) > 1 else ""
        module.operation.attributes["dnn.split_reason"] = ir.StringAttr.get(reason)


def target_of(module: Any) -> targets.Target:
    """The target that a module is compiled for (attribute `dnn.target`, default sm_90)."""
    attributes = module.operation.attributes
    if "dnn.target" not in attributes:
        return targets.of(DEFAULT_TARGET)
    return targets.of(ir.StringAttr(attributes["dnn.target"]).value)


def _parse_partition(text: str, graph: OperationGraph) -> list[list[Op]]:
    ops = graph.live_ops
    try:
        groups = [[ops[int(place)] for place in group.split()] for group in text.split("|")]
    except (ValueError, IndexError) as error:
        raise DnncError(
            Status.BAD_PARAM, f"partition {text!r}", f"places 0 to {len(ops) - 1}, as 0 1|2"
        ) from error
    flat = [op for group in groups for op in group]
    twice = {op for op in flat if flat.count(op) > 1}
    if set(flat) != set(ops) or not all(len(set(group)) == len(group) > 0 for group in groups):
        raise DnncError(Status.BAD_PARAM, f"partition {text!r}", "every operation in a fusion")
    if any(op.role not in ("pointwise", "view") for op in twice):
        supported = "operations other than pointwise and view ones in one fusion only"
        raise DnncError(Status.BAD_PARAM, f"partition {text!r}", supported)
    made: set[Any] = set()
    produced = {tensor for op in ops for tensor in op.results}
    for group in groups:
        inside = {t for op in group for t in op.results}
        for op in group:
            if any(t in produced and t not in made and t not in inside for t in op.operands):
                raise DnncError(
                    Status.BAD_PARAM, f"partition {text!r}", "fusions after those they need"
                )
        made |= inside
    return groups
