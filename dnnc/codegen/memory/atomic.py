# pyright: basic
"""Updates of global memory by several blocks, in any order: of integers, so that the result is the
same in each."""

from __future__ import annotations

from typing import Any

from ...mlir import llvm
from .. import ops


def update(pointer: Any, value: Any, operation: str) -> None:
    """The i32 at an address becomes what an operation makes of it and a value.

    operation: "max.u32", "min.u32", "max.s32" or "min.s32".
    """
    text = f"red.relaxed.gpu.global.{operation} [$0], $1;"
    where = llvm.PtrToIntOp(ops.i64_type(), pointer).result
    llvm.inline_asm(None, [where, value], text, "l,r", has_side_effects=True)
