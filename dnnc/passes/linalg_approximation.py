"""How exact the functions of an operation must be, by what becomes of its result in a fusion.

What is rounded to 16 bits on every way to memory, and scores, whose exponentials kernels take
approximately, need not be as exact as what an output in f32 shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

from ..dialect.fusion import Fusion
from ..dialect.op import Op
from ..dialect.ops import Pointwise
from ..dialect.tensor import Tensor

# Of scores: an error of 2.6e-6 times it is 3.4e-4 of an exponent at most.
_LARGEST_CAP = 128.0


def approximation(op: Op, fusion: Fusion, scores: Collection[Op]) -> str:
    """What `Scalars` calls it.  scores: the operations on the scores of an attention."""
    result = op.results[0]
    if result.type.bits <= 16:
        return "coarse"
    if op in scores:
        # As exact as the exponentials that kernels of attention take of them.
        return "capped" if _is_capped(result, fusion) else "exponent"
    return "fast" if _is_rounded_later(result, fusion) else "exact"


def stays_float(value: Tensor, fusion: Fusion) -> bool:
    """Whether all that is made of it is floats: 5.9999995 is no 5 then."""
    return all(t.type.is_float for t in _made_of(value, fusion, lambda t: True))


def _is_capped(value: Tensor, fusion: Fusion) -> bool:
    """Whether scores are products of it by numbers of at most `_LARGEST_CAP`."""
    users = [op for op in fusion.ops if value in op.operands]
    return bool(users) and all(_cap_of(op, value) <= _LARGEST_CAP for op in users)


def _is_rounded_later(value: Tensor, fusion: Fusion) -> bool:
    """Whether every way from it to memory passes a type of 16 bits or less."""
    wide = [t for t in _made_of(value, fusion, lambda t: t.type.bits > 16) if t.type.bits > 16]
    return not any(t in fusion.outputs for t in wide)


def _made_of(value: Tensor, fusion: Fusion, goes_on: Callable[[Tensor], bool]) -> set[Tensor]:
    """The value and what is made of it, but not of tensors where it does not go on."""
    found, pending = {value}, [value]
    while pending:
        tensor = pending.pop()
        if goes_on(tensor):
            users = [op for op in fusion.ops if tensor in op.operands]
            new = {result for op in users for result in op.results} - found
            found |= new
            pending += new
    return found


def _cap_of(op: Op, value: Tensor) -> float:
    """The magnitude of the constant that an operation multiplies a tensor by, else infinity."""
    if not isinstance(op, Pointwise) or op.mode != "mul":
        return math.inf
    (other,) = [t for t in op.operands if t is not value] or [value]
    return abs(other.value) if other.value is not None else math.inf
