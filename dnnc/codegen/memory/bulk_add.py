# pyright: basic
"""Adds a run of f32 numbers in shared memory to one in global memory, in bulk.

Source: PTX ISA, "cp.reduce.async.bulk".
"""

from __future__ import annotations

from typing import Any

from ...mlir import llvm
from .. import ops


def start(target: Any, source: Any, bytes_: int) -> None:
    """Starts the addition; `tma.commit` closes a group of them.

    target: !llvm.ptr<1>.  source: an i32 address of shared memory.  Both multiples of 16, as
    bytes_.  Sums of several blocks come in any order.
    """
    where = llvm.PtrToIntOp(ops.i64_type(), target).result
    text = f"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [$0], [$1], {bytes_};"
    llvm.inline_asm(None, [where, source], text, "l,r", has_side_effects=True)
