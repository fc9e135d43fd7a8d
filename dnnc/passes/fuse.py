# pyright: basic
"""fuse: partitions the graph into fusions.

Precondition: a verified graph.  Postcondition: beside the graph's function, which stays as it
is, a private function with `dnn.fusion` for each fusion, holding its operations with their roles.
`dnn.split_reason` says why there is more than one, `dnn.graph_digest` which graph they are of.

    func.func @g(...) attributes {dnn.graph} { %0 = "dnn.matmul"(...) %1 = "dnn.pointwise"(...) }
->  func.func private @g_fusion0(...) attributes {dnn.fusion = 0} {
      %0 = "dnn.matmul"(...) {role = "anchor"}  %1 = "dnn.pointwise"(...) {role = "g2"} }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from .. import target as targets
from ..choosing import heuristics
from ..choosing.inputs import inputs_of_files
from ..dialect import dnn, structure
from ..dialect.fusion import Fusion, partition
from ..dialect.graph import OperationGraph
from ..mlir import ir
from ..options import DEFAULT_MODES
from .pass_base import Pass

DEFAULT_TARGET = targets.SINGLE


@dataclass(frozen=True)
class Fuse(Pass):
    """modes: heuristic modes, separated by spaces (default "A FALLBACK").

    partition: the partition itself, operations by place and fusions by "|", as in "0 1|2";
    operations that no output depends on have no place and no fusion.  A pointwise or view
    operation may be in several, which all compute it.
    tuning: a file, whose config for the graph comes first.  errata: a file of rules.
    sm_count: SMs that configs are ranked for (default: of the target's usual part).
    """

    name: ClassVar[str] = "fuse"
    takes: ClassVar[str] = "graph"
    makes: ClassVar[str] = "fused"

    modes: str = " ".join(DEFAULT_MODES)
    partition: str = ""
    tuning: str = ""
    errata: str = ""
    sm_count: int = 0

    def run(self, module: Any) -> None:
        graph = dnn.from_mlir(module)
        target = targets.with_sm_count(target_of(module), self.sm_count)
        for function in list(structure.fusion_functions(module)):
            function.operation.erase()
        if self.partition:
            groups = heuristics.parsed_partition(self.partition, graph)
        else:
            inputs = inputs_of_files(self.tuning, self.errata)
            config = heuristics.best_config(graph, target, self.modes.split(), inputs=inputs)
            groups = [list(choice.fusion.in_graph.ops) for choice in config.choices]
        write_fusions(module, graph, partition(graph, groups))
        reason = heuristics.split_reason(graph, target) if len(groups) > 1 else ""
        attributes = module.operation.attributes
        attributes[structure.SPLIT_REASON] = ir.StringAttr.get(reason)
        attributes[structure.DIGEST] = ir.StringAttr.get(structure.digest_of(graph, reason))


def write_fusions(module: Any, graph: OperationGraph, fusions: Sequence[Fusion]) -> list[Any]:
    """The functions of a graph's fusions, at the end of the module."""
    place_of = {op: place for place, op in enumerate(graph.live_ops)}
    symbols = graph.symbols
    made = []
    for fusion in (fusion.in_graph for fusion in fusions):
        name = dnn.symbol_name(graph.name)
        function = structure.write_fusion(module, name, fusion, symbols)
        function.attributes["dnn.ops"] = structure.to_attribute([op.label for op in fusion.ops])
        places = tuple(place_of[op] for op in fusion.ops)
        function.attributes[structure.PLACES] = dnn.attribute_of(places, tuple)
        made.append(function)
    return made


def target_of(module: Any) -> targets.Target:
    """The target that a module is compiled for (attribute `dnn.target`, default sm_90a)."""
    attributes = module.operation.attributes
    if "dnn.target" not in attributes:
        return targets.of(DEFAULT_TARGET)
    return targets.of(ir.StringAttr(attributes["dnn.target"]).value)
