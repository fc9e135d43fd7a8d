# pyright: basic
"""GridBarrier: blocks of a launch wait for each other.

A counter in global memory, 0 at first, counts the blocks that have come; the n-th time, blocks
wait until all have come n times.  All blocks have to be resident.
Source: PTX ISA, "Memory Consistency Model".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...mlir import llvm
from .. import ops

COUNTER_BYTES = 4


@dataclass
class GridBarrier:
    """counter: !llvm.ptr<1> of an i32.  blocks: that meet, i32.  scope: "gpu" or "sys"."""

    counter: Any
    blocks: Any
    scope: str = "gpu"
    meetings: int = 0

    def meet(self) -> None:
        """Wait for all blocks of the grid; what any thread wrote before is then seen by all.

        All threads of a block call it, once in the code for each time.

        Barriers order a block's threads before and after the one that releases and acquires.
        """
        self.meetings += 1
        ops.barrier()
        with ops.if_(ops.thread_id().eq(0)):
            place = llvm.PtrToIntOp(ops.i64_type(), self.counter).result
            wanted = ops.value_of(self.blocks * self.meetings)
            text = (
                f"{{ .reg .pred p; .reg .u32 v; "
                f"red.release.{self.scope}.global.add.u32 [$0], 1; "
                f"again: ld.acquire.{self.scope}.global.u32 v, [$0]; setp.lt.u32 p, v, $1; "
                f"@p bra again; }}"
            )
            llvm.inline_asm(None, [place, wanted], text, "l,r", has_side_effects=True)
        ops.barrier()
