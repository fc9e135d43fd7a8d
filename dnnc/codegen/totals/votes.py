# pyright: basic
"""Votes: values that a warp's threads agree on."""

from __future__ import annotations

from typing import Any

from ...mlir import arith, llvm
from .. import ops
from ..value import wrapped


def ballot(condition: Any) -> Any:
    """A bit for each of the warp's threads, all of which come here: whether its i1 is set; i32."""
    text = "{ .reg .pred p; setp.ne.u32 p, $1, 0; vote.sync.ballot.b32 $0, p, 0xffffffff; }"
    word = arith.ExtUIOp(ops.i32_type(), condition).result
    return wrapped(llvm.inline_asm(ops.i32_type(), [word], text, "=r,r", has_side_effects=True))


def count_bits(word: Any) -> Any:
    """How many bits of an i32 are set."""
    text = "popc.b32 $0, $1;"
    return wrapped(llvm.inline_asm(ops.i32_type(), [ops.value_of(word)], text, "=r,r"))


def is_any_above(value: Any, limit: float) -> Any:
    """Whether the f32 of any of the warp's threads, all of which come here, is above a limit; NaN
    is not."""
    text = (
        "{ .reg .pred p, q; setp.gt.f32 p, $1, $2; "
        "vote.sync.any.pred q, p, 0xffffffff; selp.u32 $0, 1, 0, q; }"
    )
    bound = arith.ConstantOp(ops.f32_type(), float(limit)).result
    found = llvm.inline_asm(ops.i32_type(), [value, bound], text, "=r,f,f", has_side_effects=True)
    return ops.compare("ne", found, 0)
