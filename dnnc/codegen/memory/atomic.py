# pyright: basic
"""Updates of global memory by several blocks, in any order: of integers, so that the result is the
same in each, and sums of f32, of which it is not."""

from __future__ import annotations

from typing import Any

from ...mlir import llvm
from .. import ops
from ..value import wrapped


def update(pointer: Any, value: Any, operation: str) -> None:
    """The i32 at an address becomes what an operation makes of it and a value.

    operation: "max.u32", "min.u32", "max.s32" or "min.s32".
    """
    text = f"red.relaxed.gpu.global.{operation} [$0], $1;"
    where = llvm.PtrToIntOp(ops.i64_type(), pointer).result
    llvm.inline_asm(None, [where, value], text, "l,r", has_side_effects=True)


def seen(pointer: Any) -> Any:
    """The i32 at an address that others update; possibly an older one than the latest."""
    where = llvm.PtrToIntOp(ops.i64_type(), pointer).result
    text = "ld.relaxed.gpu.global.u32 $0, [$1];"
    return wrapped(llvm.inline_asm(ops.i32_type(), [where], text, "=r,l", has_side_effects=True))


def add(pointer: Any, value: Any, *, is_together: bool) -> None:
    """Adds an f32 or i32, or a vector of 2 or 4, to what lies at an address.

    is_together: those of f32 by one instruction, as devices from sm_90 on can, where it is aligned
    to all.
    """
    where = llvm.PtrToIntOp(ops.i64_type(), pointer).result
    elements = ops.elements(value)
    if elements[0].type == ops.i32_type():
        for place, element in enumerate(elements):
            text = f"red.relaxed.gpu.global.add.s32 [$0+{4 * place}], $1;"
            llvm.inline_asm(None, [where, element], text, "l,r", has_side_effects=True)
        return
    width = len(elements) if is_together else 1
    for first in range(0, len(elements), width):
        part = elements[first : first + width]
        names = ", ".join(f"${1 + i}" for i in range(width))
        kind, taken = (f"v{width}.f32", f"{{{names}}}") if width > 1 else ("f32", names)
        text = f"red.relaxed.gpu.global.add.{kind} [$0+{4 * first}], {taken};"
        places = ",".join(["l", *["f"] * width])
        llvm.inline_asm(None, [where, *part], text, places, has_side_effects=True)
