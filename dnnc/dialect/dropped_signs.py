"""Signs of what dropout drops: in the order F16x16, a product of weights and a mask has them.

cuDNN's guide has S, the weights of small attention, declared so, and its mask "in the sign bit to
communicate to bprop": a gradient of the softmax needs the weights that were dropped, too.  cuDNN
9.19 was found to store it so on an H100.  Where elements lie is in `orders`.

    s = p * mask    ->    kept = p * mask, virtual    s = kept where mask is not 0, else -p

p is a softmax's result, mask an `rng` of BERNOULLI or an input; numbers may be multiplied after it.
What else the graph makes of s, it makes of the virtual product.  Of any other tensor of this order
the graph's own value is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .. import dtypes
from ..dtypes import DType
from ..expr import Expr
from .op import Op
from .ops.pointwise import Pointwise
from .ops.rng import Rng
from .ops.softmax import Softmax
from .tensor import SIGNED_ORDER, Tensor, packed_strides

_Makers = Mapping[Tensor, Op]


class _Dropped(NamedTuple):
    """weights * mask * numbers, in this order; compute_type: of the last product."""

    weights: Tensor
    mask: Tensor
    numbers: tuple[Tensor, ...]
    compute_type: DType


def with_signs(ops: Sequence[Op], io_type: DType | None) -> list[Op]:
    """The operations, with those that give signs to what is stored in this order.

    io_type: of tensors that set none.
    """
    makers = {tensor: op for op in ops for tensor in op.results}
    kept: dict[Tensor, Tensor] = {}
    added: list[Op] = []
    for s in makers:
        if s.reordering != SIGNED_ORDER or s.is_virtual:
            continue
        dropped = _dropped(s, makers)
        if dropped is not None:
            kept[s] = _virtual(s.dtype or io_type, f"{s.name}::KEPT" if s.name else "")
            kept[s].dims, kept[s].strides = s.dims, s.strides
            added += _signs(dropped, kept[s], s)
    return [*(op.with_tensors(kept) for op in ops), *added] if kept else list(ops)


def _dropped(s: Tensor, makers: _Makers) -> _Dropped | None:
    numbers: list[Tensor] = []
    first: Pointwise | None = None
    while isinstance(product := makers.get(s), Pointwise) and product.mode == "mul":
        first = first or product
        for one, other in ((product.x, product.b), (product.b, product.x)):
            if one is None or other is None:
                return None
            if _is_number(other):
                numbers.append(other)
                s = one
                break
            if _is_softmax(one, makers) and _is_mask(other, makers):
                return _Dropped(one, other, tuple(reversed(numbers)), first.compute_type)
        else:
            return None
    return None


def _is_number(tensor: Tensor) -> bool:
    return tensor.dims is not None and all(extent.constant == 1 for extent in tensor.dims)


def _is_softmax(tensor: Tensor, makers: _Makers) -> bool:
    op = makers.get(tensor)
    if isinstance(op, Pointwise) and op.mode == "div":
        power = makers.get(op.x)
        return isinstance(power, Pointwise) and power.mode == "exp"
    return isinstance(op, Softmax) and op.algorithm != "LOG"


def _is_mask(tensor: Tensor, makers: _Makers) -> bool:
    op = makers.get(tensor)
    is_drawn = isinstance(op, Rng) and op.distribution == "BERNOULLI"
    return tensor.dims is not None and (is_drawn or op is None)


def _signs(dropped: _Dropped, kept: Tensor, s: Tensor) -> list[Op]:
    """s: the product where the mask keeps it, else minus what it would be."""
    ops: list[Op] = []

    def step(mode: str, y: Tensor, *operands: Tensor, compute_type: DType | None = None) -> Tensor:
        values: dict[str, Any] = dict(zip("xbt", operands, strict=False))
        values["compute_type"] = compute_type or dropped.compute_type
        ops.append(Pointwise(mode=mode, y=y, **values))
        return y

    negative = dropped.weights
    for number in dropped.numbers:
        negative = step("mul", _virtual(dropped.compute_type), negative, number)
    negative = step("neg", _virtual(dropped.compute_type), negative)
    zero = _zero_beside(dropped.mask)
    is_kept = step("cmp_neq", _virtual(dtypes.i1), dropped.mask, zero, compute_type=dtypes.f32)
    step("binary_select", s, kept, negative, is_kept)
    return ops


def _zero_beside(tensor: Tensor) -> Tensor:
    ones = (Expr.of(1),) * tensor.rank
    strides = packed_strides(ones)
    return Tensor(dims=ones, strides=strides, dtype=dtypes.f32, value=0.0)


def _virtual(dtype: DType | None, name: str = "") -> Tensor:
    return Tensor(name=name, dtype=dtype, is_virtual=True)
