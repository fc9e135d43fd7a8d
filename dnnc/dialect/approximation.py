"""How exact the functions of an operation must be, by what becomes of its result in a fusion.

What is rounded to 16 bits on every way to memory, and scores, whose exponentials kernels take
approximately, need not be as exact as what an output in f32 shows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from .fusion import Fusion, remembered
from .op import Op
from .ops import Pointwise
from .tensor import Tensor

# Of scores: an error of 2.6e-6 times it is 3.4e-4 of an exponent at most.
_LARGEST_CAP = 128.0


def approximation(op: Op, fusion: Fusion, scores: Collection[Op]) -> str:
    """The approximation's name as `Scalars` has it.  scores: the operations on the scores of an
    attention."""
    result = op.results[0]
    if result.type.bits <= 16:
        return "coarse"
    if op in scores:
        # As exact as the exponentials that kernels of attention take of them.
        return "capped" if _is_capped(result, fusion) else "exponent"
    return "fast" if _is_rounded_later(result, fusion) else "exact"


def stays_float(value: Tensor, fusion: Fusion) -> bool:
    """Whether all that is made of it is floats: 5.9999995 is no 5 then."""
    return value in _floats(fusion)


def _is_capped(value: Tensor, fusion: Fusion) -> bool:
    """Whether scores are products of it by numbers of at most `_LARGEST_CAP`."""
    users = fusion.readers.get(value, ())
    return bool(users) and all(_cap_of(op, value) <= _LARGEST_CAP for op in users)


def _is_rounded_later(value: Tensor, fusion: Fusion) -> bool:
    """Whether every way from it to memory passes a type of 16 bits or less."""
    return value not in _wide_to_memory(fusion)


@remembered
def _floats(fusion: Fusion) -> frozenset[Tensor]:
    """Floats of which nothing but floats is made."""
    found: set[Tensor] = set()
    for tensor in _last_first(fusion):
        if tensor.type.is_float and all(t in found for t in _made_of(tensor, fusion)):
            found.add(tensor)
    return frozenset(found)


@remembered
def _wide_to_memory(fusion: Fusion) -> frozenset[Tensor]:
    """Tensors of more than 16 bits that reach memory through such alone."""
    found: set[Tensor] = set()
    outputs = set(fusion.outputs)
    for tensor in _last_first(fusion):
        is_wide = tensor.type.bits > 16
        if is_wide and (tensor in outputs or any(t in found for t in _made_of(tensor, fusion))):
            found.add(tensor)
    return frozenset(found)


def _last_first(fusion: Fusion) -> Iterator[Tensor]:
    """Every tensor that the fusion makes, after all that is made of it."""
    return (tensor for op in reversed(fusion.ops) for tensor in op.results)


def _made_of(tensor: Tensor, fusion: Fusion) -> Iterator[Tensor]:
    """The results of the operations that read a tensor."""
    return (result for op in fusion.readers.get(tensor, ()) for result in op.results)


def _cap_of(op: Op, value: Tensor) -> float:
    """The magnitude of the constant that an operation multiplies a tensor by, else infinity."""
    if not isinstance(op, Pointwise) or op.mode != "mul":
        return math.inf
    (other,) = [t for t in op.operands if t is not value] or [value]
    return abs(other.value) if other.value is not None else math.inf
