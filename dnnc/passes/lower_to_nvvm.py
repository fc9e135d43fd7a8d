# pyright: basic
"""lower-to-nvvm: the kernels in the LLVM dialect, by upstream passes only.

Precondition: a `gpu.module` of `llvm.func` over arith, math, scf, vector, nvvm, llvm.
Postcondition: llvm and nvvm operations alone.  Nothing outside the gpu.module is touched: it is
lowered in a module of its own, so that no upstream pass sees the graph.

The order: structured control flow goes before `convert-math-to-nvvm` only by habit; that pass
must come before `convert-math-to-llvm`, so that functions become calls of libdevice and not LLVM
intrinsics that the back end can't select.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..mlir import ir, run_pipeline
from .pass_base import Pass

PIPELINE = (
    "builtin.module(canonicalize{top-down=false},cse,convert-scf-to-cf,convert-math-to-nvvm,convert-math-to-llvm,"
    "convert-vector-to-llvm,convert-cf-to-llvm,convert-arith-to-llvm,convert-nvvm-to-llvm,"
    "convert-index-to-llvm,reconcile-unrealized-casts,canonicalize,cse)"
)


@dataclass(frozen=True)
class LowerToNvvm(Pass):
    """The pass; see the file's docstring."""

    name: ClassVar[str] = "lower-to-nvvm"
    takes: ClassVar[str] = "kernel"
    makes: ClassVar[str] = "nvvm"

    def run(self, module: Any) -> None:
        for op in list(module.body.operations):
            if op.operation.name != "gpu.module":
                continue
            alone = isolated(op.operation)
            # The module is verified after the pass: after each upstream one takes a third more.
            run_pipeline(alone, PIPELINE, verifies_each=False)
            replace_with_contents(module, op.operation, alone)


def isolated(operation: Any) -> Any:
    """A module that holds a copy of one operation."""
    alone = ir.Module.create()
    alone.operation.attributes["gpu.container_module"] = ir.UnitAttr.get()
    alone.body.append(operation.clone())
    return alone


def replace_with_contents(module: Any, operation: Any, alone: Any) -> None:
    """Puts copies of another module's operations in place of one operation."""
    with ir.InsertionPoint(operation):
        for op in alone.body.operations:
            op.operation.clone()
    operation.erase()
