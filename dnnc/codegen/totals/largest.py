# pyright: basic
"""The largest magnitude of what many threads have, as an output of one f32.

Numbers without their sign are ordered as integers are, NaN above all.  The output begins as 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...mlir import llvm
from ...target import WARP_THREADS
from .. import ops
from ..memory import atomic
from ..value import wrapped
from .reduce import shuffle_xor


def larger(found: Any, values: Sequence[Any]) -> Any:
    """The bits of the largest magnitude of f32 scalars, and of what was found before."""
    for value in values:
        bits = wrapped(llvm.BitcastOp(ops.i32_type(), value))
        found = ops.maximum(found, bits & 2147483647)
    return found


def meet(pointer: Any, found: Any, thread: Any, *, looks_first: bool = False) -> None:
    """The f32 at an address becomes the largest of itself and of all lanes' bits.

    looks_first: whether it is read first, and updated only where that makes it larger: updates of
    one address run one after the other, and few of many blocks make it larger.
    """
    distance = 1
    while distance < WARP_THREADS:
        found = ops.maximum(found, shuffle_xor(found, distance))
        distance *= 2
    with ops.if_((wrapped(thread) & (WARP_THREADS - 1)).eq(0)):
        is_larger = ops.compare("ult", atomic.seen(pointer), found) if looks_first else None
        with ops.if_(is_larger):
            atomic.update(pointer, found, "max.u32")
