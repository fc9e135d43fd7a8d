# pyright: basic
"""Hints on what the L2 cache keeps.

`SecondCache`: the fragments that each thread reads last, until its last pass.

Without hints it drops what was read first for what came since, stores among it, so that a pass
that starts with what was read last finds less than half of the cache's size.  Lines that are kept
are given up as the last pass reads them: those of one kernel are not in the next one's way.
Source: PTX ISA 9.0, "Cache Eviction Priority Hints", `createpolicy`.
"""

from __future__ import annotations

from typing import Any

from ...mlir import llvm
from ...target import Target
from .. import ops

_PTX_VERSION = 74  # from which there are policies


class SecondCache:
    """count: a thread's fragments, i32; pinned: how many of them, the last ones, are kept."""

    def __init__(self, count: Any, pinned: int):
        self.begin = count - pinned
        self.first, self.last = given_up_first(), _policy("evict_last")

    @staticmethod
    def is_of(target: Target) -> bool:
        """Whether its PTX has hints."""
        return target.ptx_version >= _PTX_VERSION

    def policy(self, i: Any, *, is_last: bool) -> Any:
        """An i64, for a thread's i-th fragment; is_last: it is not read again."""
        if is_last:
            return self.first
        return ops.select(i < self.begin, self.first, self.last)


def given_up_first() -> Any:
    """The policy, an i64, of lines that give way to all others."""
    return _policy("evict_first")


def _policy(kind: str) -> Any:
    text = f"createpolicy.fractional.L2::{kind}.b64 $0, 1.0;"
    return llvm.inline_asm(ops.i64_type(), [], text, "=l")
