"""The type that a product is multiplied in where its operands have two, and the casts that give it.

Tensor cores multiply pairs of a few types.  Two operands of other pairs are multiplied in the
narrowest type of theirs that holds every number of both, so that nothing is rounded:

    conv_fprop(x f16, w i8)   ->   conv_fprop(x, identity(w) f16)

The casts are rewrite patterns of the engines (`Engine.patterns`): what they do before a product
converts its operands.
One operand is rounded: a first one of f32 that is computed takes a second one's 16 bits.  Of a
filter's gradient the second takes the first one's, too.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from ... import dtypes
from ...dialect.fusion import Fusion
from ...dialect.op import Op
from ...dialect.ops import ConvWgrad, Pointwise
from ...dialect.ops.conv import Convolved
from ...dialect.patterns import Pattern, Producer
from ...dialect.tensor import Tensor
from ...dtypes import DType

_Pair = tuple[DType, DType]

CASTABLE = "f16, bf16, f32, i8, ui8 and fp8, sums in f32; or both i8, sums in i32"

_SIXTEEN = (dtypes.f16, dtypes.bf16)
_BYTES = (dtypes.i8, dtypes.ui8, dtypes.f8e4m3, dtypes.f8e5m2)
_SUMS = (dtypes.f32, dtypes.f16, dtypes.fast_float_for_fp8)


def shared_type(a: DType, b: DType) -> DType | None:
    """The narrowest float type of tensor cores that holds all numbers of two; None: none does.

    Eight bits fit f16 and bf16, of which neither holds the other; tf32 holds both.
    """
    pair = {a, b}
    if not pair <= {dtypes.f32, *_SIXTEEN, *_BYTES}:
        return None
    if dtypes.f32 in pair or pair == set(_SIXTEEN):
        return dtypes.f32
    return dtypes.bf16 if dtypes.bf16 in pair else dtypes.f16


def _multiplied_type(op: Op, producer: Producer) -> DType | None:
    """The type that both operands of a product are multiplied as, if they are cast."""
    a, b = op.operands[:2]
    return _other_type(op, producer) or shared_type(a.type, b.type)


def takes_other_type(fusion: Fusion, op: Op) -> bool:
    """Whether an operand is rounded to the other one's type."""
    return _other_type(op, fusion.producers.get) is not None


def _other_type(op: Op, producer: Producer) -> DType | None:
    """The type of 16 bits that a computed operand of f32 takes from the other; None: none does."""
    a, b = op.operands[:2]
    for computed, other in ((a, b), (b, a))[: 2 if isinstance(op, ConvWgrad) else 1]:
        is_wide = computed.type == dtypes.f32 and producer(computed) is not None
        if is_wide and other.type in _SIXTEEN:
            return other.type
    return None


def loses_bits_as_tf32(fusion: Fusion, op: Op) -> bool:
    """Whether an operand has numbers that tf32 lacks, and is multiplied so."""
    is_wide = any(tensor.type == dtypes.f32 for tensor in op.operands[:2])
    return is_wide and not takes_other_type(fusion, op)


def casts(
    engine: str, kinds: Collection[type[Op]], pairs: Collection[_Pair]
) -> tuple[Pattern, ...]:
    """Rewrite patterns by which a convolution multiplies operands of one of some pairs of types.

    engine: whose patterns they are.  kinds: the convolutions that it takes.  pairs: the types that
    it multiplies as they are.
    """

    def rewrite(op: Convolved | ConvWgrad, producer: Producer) -> list[Op] | None:
        """Operands of a convolution are cast to a type that the engine multiplies."""
        type_ = _multiplied_type(op, producer) if _is_cast(op, pairs) else None
        wrong = dict.fromkeys(t for t in op.operands if t.type != type_) if type_ else {}
        if type_ is None or not wrong:
            return None
        cast = {tensor: _as_type(tensor, type_) for tensor in wrong}
        product = op.with_tensors(cast)
        if product.compute_type == dtypes.fast_float_for_fp8:  # of fp8, which these are no longer
            product.compute_type = dtypes.f32
        return [*(_identity(*pair) for pair in cast.items()), product]

    return tuple(
        Pattern(kind, rewrite, f"cast-{kind.op_name}-for-{engine}".replace("_", "-"))
        for kind in kinds
    )


def _is_cast(op: Convolved | ConvWgrad, pairs: Collection[_Pair]) -> bool:
    if op.compute_type not in _SUMS:
        return False
    first, second = op.operands
    return first.type.is_integer or (first.type, second.type) not in pairs


def _as_type(tensor: Tensor, type_: DType) -> Tensor:
    return replace(tensor, dtype=type_, uid=None, is_virtual=True, is_output=False)


def _identity(x: Tensor, y: Tensor) -> Pointwise:
    values: dict[str, Any] = {"mode": "identity", "x": x, "y": y, "compute_type": dtypes.f32}
    return Pointwise(**values)
