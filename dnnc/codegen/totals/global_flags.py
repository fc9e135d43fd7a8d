# pyright: basic
"""GlobalFlags: flags in global memory, by which blocks of a launch wait for each other.

A block takes the next number of a counter, so that blocks of smaller numbers have begun whatever
order the device starts them in: waiting for those alone always ends.  A flag says how much of a
block's work is there for others.
Source: PTX ISA, "Memory Consistency Model".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...mlir import llvm
from .. import ops
from ..memory.smem import byte_pointer
from ..value import wrapped

_WORD_BYTES = 4


@dataclass
class GlobalFlags:
    """words: !llvm.ptr<1> of i32, all 0: the counter, then flags."""

    words: Any

    @staticmethod
    def bytes(flags: Any) -> Any:
        """Bytes of words for so many flags, a number or an expression."""
        return (flags + 1) * _WORD_BYTES

    def next_number(self) -> Any:
        """The block's number, i32; by one thread."""
        return _next(llvm.PtrToIntOp(ops.i64_type(), self.words).result)

    def next_of(self, flag: Any) -> Any:
        """Adds 1 to a flag, by number, ordering no other access; gives what it was before."""
        return _next(self._place(flag))

    def add(self, flag: Any) -> None:
        """Adds 1 to a flag, by number, and releases what the warp wrote before its last barrier."""
        text = "red.release.gpu.global.add.u32 [$0], 1;"
        llvm.inline_asm(None, [self._place(flag)], text, "l", has_side_effects=True)

    def look(self, flag: Any) -> Any:
        """The flag, by number; acquires what others wrote before they set it, for bulk
        operations, too."""
        text = "ld.acquire.gpu.global.u32 $0, [$1]; fence.proxy.async;"
        return wrapped(
            llvm.inline_asm(
                ops.i32_type(), [self._place(flag)], text, "=&r,l", has_side_effects=True
            )
        )

    def show(self, flag: Any, value: Any) -> None:
        """Sets a flag, by number, for who sees what this thread wrote before, in bulk too."""
        text = "fence.proxy.async; st.release.gpu.global.u32 [$0], $1;"
        given = [self._place(flag), ops.value_of(value)]
        llvm.inline_asm(None, given, text, "l,r", has_side_effects=True)

    def wait(self, flag: Any, value: Any) -> Any:
        """Waits until a flag is this value or more, and gives what it is; by the thread that then
        writes."""
        text = (
            "{ .reg .pred p; again: ld.acquire.gpu.global.u32 $0, [$1]; "
            "setp.lt.u32 p, $0, $2; @p bra again; fence.proxy.async; }"
        )
        given = [self._place(flag), ops.value_of(value)]
        return wrapped(
            llvm.inline_asm(ops.i32_type(), given, text, "=&r,l,r", has_side_effects=True)
        )

    def _place(self, flag: Any) -> Any:
        at = (flag + 1) * _WORD_BYTES
        return llvm.PtrToIntOp(ops.i64_type(), byte_pointer(self.words, at)).result


def _next(place: Any) -> Any:
    """Adds 1 to the word at an address; gives what it was before."""
    text = "atom.relaxed.gpu.global.add.u32 $0, [$1], 1;"
    return wrapped(llvm.inline_asm(ops.i32_type(), [place], text, "=r,l", has_side_effects=True))
