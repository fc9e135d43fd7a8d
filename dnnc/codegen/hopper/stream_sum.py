# pyright: basic
"""StreamSum: the sums of a tile that several blocks have a part of, through global memory.

    a block without the tile's beginning  writes its sums to its slot, and raises its flag
    the block with the beginning          waits for the flags of the blocks after it, one by one,
                                          and adds their sums to its own, in that order

A block begins with the end of a tile that it leaves to another, and ends with the beginning of
one that it finishes: what it waits for was done first by others.  The order is fixed by the number
of blocks, so the result is the same in every run on a device.  All blocks have to be resident.
Source: Osama et al., "Stream-K", 2023; PTX ISA, "Memory Consistency Model".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...mlir import arith, ir, llvm
from .. import ops
from ..memory.smem import byte_pointer

_GROUP = 4  # registers that lie together: 16 bytes of a thread
_FLAG = 4  # bytes
_WARPGROUP = 128


@dataclass(frozen=True)
class StreamSum:
    """slots: !llvm.ptr<1>, of `bytes` for each block.  flags: !llvm.ptr<1> of i32, all 0.

    groups: consumer warpgroups of a block.  registers: of a thread's sums.
    """

    slots: Any
    flags: Any
    groups: int
    registers: int

    @staticmethod
    def bytes(groups: int, registers: int) -> int:
        """The bytes of a block's slot."""
        return groups * _WARPGROUP * registers * 4

    @staticmethod
    def flag_bytes(groups: int) -> int:
        return groups * _FLAG

    def put(
        self, sums: Sequence[Any], block: Any, group: Any, thread: Any, meet: Callable[[], None]
    ) -> None:
        """Leaves this warpgroup's sums to another block.

        sums: registers.  thread: of the warpgroup.  meet: a barrier of its threads.
        """
        place = self._place(block, group, thread)
        for first in range(0, self.registers, _GROUP):
            values = ops.from_elements(sums[first : first + _GROUP])
            ops.store(byte_pointer(place, self._offset(first)), values, 4 * _GROUP)
        meet()
        with ops.if_(thread.eq(0)):
            self._raise(self._flag(block, group))

    def total(
        self,
        sums: Sequence[Any],
        block: Any,
        last_block: Any,
        group: Any,
        thread: Any,
        meet: Callable[[], None],
    ) -> list[Any]:
        """This warpgroup's sums, and those of the blocks after this one up to last_block."""
        type_ = ops.vector_type(sums[0].type, _GROUP)
        add = arith.AddFOp if isinstance(sums[0].type, ir.FloatType) else arith.AddIOp

        def one(other: Any, carried: Sequence[Any]) -> Sequence[Any]:
            with ops.if_(thread.eq(0)):
                self._await(self._flag(other, group))
            meet()
            place = self._place(other, group, thread)
            found: list[Any] = []
            for first in range(0, self.registers, _GROUP):
                pointer = byte_pointer(place, self._offset(first))
                part = ops.elements(ops.load(pointer, type_, 4 * _GROUP))
                own = carried[first : first + _GROUP]
                found += [add(a, b).result for a, b in zip(own, part, strict=True)]
            return found

        return ops.for_(block + 1, last_block + 1, 1, sums, one)

    # ---- places: [block][warpgroup][group of registers][thread]

    def _place(self, block: Any, group: Any, thread: Any) -> Any:
        number = ops.to_i64(block * self.groups + group)
        bytes_ = number * ops.const(self.bytes(1, self.registers), ops.i64_type())
        start = byte_pointer(self.slots, bytes_)
        return byte_pointer(start, thread * (4 * _GROUP))

    def _offset(self, register: int) -> int:
        return register * 4 * _WARPGROUP

    def _flag(self, block: Any, group: Any) -> Any:
        number = block * self.groups + group
        return byte_pointer(self.flags, number * _FLAG)

    def _raise(self, flag: Any) -> None:
        """Shows what the warpgroup wrote before its barrier to who sees the flag."""
        text = "fence.acq_rel.gpu; st.release.gpu.global.u32 [$0], $1;"
        place = llvm.PtrToIntOp(ops.i64_type(), flag).result
        llvm.inline_asm(None, [place, ops.const(1)], text, "l,r", has_side_effects=True)

    def _await(self, flag: Any) -> None:
        text = (
            "{ .reg .pred p; .reg .u32 v; again: ld.acquire.gpu.global.u32 v, [$0]; "
            "setp.eq.u32 p, v, 0; @p bra again; fence.acq_rel.gpu; }"
        )
        place = llvm.PtrToIntOp(ops.i64_type(), flag).result
        llvm.inline_asm(None, [place], text, "l", has_side_effects=True)
