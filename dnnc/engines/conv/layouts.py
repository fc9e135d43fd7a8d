"""Copies to channels last for engines of convolutions: images, filters, results in other layouts.

A filter that is cast to the type it is multiplied in is always copied, converted on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...codegen.region import Region
from ...dialect.fusion import Fusion
from ...dialect.ops import ConvFprop, Pointwise
from ...dialect.tensor import Tensor
from ...expr import Expr, ceildiv
from ..product.region_sm90 import product_calls
from ..views.relaid import Cast, RelaidFusion, RelaidRegion, Rule, twin_at, twin_of
from .pattern import conv_of

_ACCESS_BITS = 128  # that strides are multiples of, for TMA
_Dims = tuple[Expr, ...]


@dataclass(frozen=True)
class Copied:
    """The tensors that are copied to channels last where they are not, beside X.

    filters: W.  results: all of Y's dims.  has_gaps: pixels of X and W begin at whole 16 bytes.
    Else rows of X do, whose pixels follow each other.
    """

    filters: bool
    results: bool
    has_gaps: bool


def relaid_fusion(fusion: Fusion, copied: Copied) -> RelaidFusion:
    """A fusion of one convolution, channels last."""
    op = conv_of(fusion)
    cast = _cast_of(fusion, op) if copied.filters else None
    rule = _rule(op.x, (op.x.shape, op.w.shape, op.y.shape), copied)
    return RelaidFusion.of(fusion, rule, cast and Cast(cast, _channels_last))


def relaid_region(region: Region, copied: Copied) -> RelaidRegion:
    """The fusion's region with what was relaid."""
    (call,) = product_calls(region)
    x, w = list(call.operands)[:2]
    dims = [region.dims_of(value) for value in (x, w, call.results[0])]
    rule = _rule(region.arguments.get(x), dims, copied)
    is_cast = copied.filters and w not in region.arguments
    return RelaidRegion.of(region, rule, Cast(w.owner, _channels_last) if is_cast else None)


def _cast_of(fusion: Fusion, op: ConvFprop) -> Pointwise | None:
    """The identity that gives W its type, of an input, if nothing else needs that."""
    cast = fusion.producers.get(op.w)
    if not isinstance(cast, Pointwise) or cast.mode != "identity" or op.w is op.x:
        return None
    is_input = cast.x in fusion.inputs and not cast.x.is_by_value and cast.x.type.kind != "b"
    others = [other for other in fusion.ops if other is not op and op.w in other.operands]
    is_alone = not others and op.w not in fusion.outputs and cast.x.shape == op.w.shape
    return cast if is_input and is_alone else None


def _rule(image: Tensor | None, dims: Sequence[_Dims], copied: Copied) -> Rule:
    """image: X; None: it is computed.  dims: of X, W and Y."""
    x, w, y = dims
    wanted = [x, *([w] if copied.filters else []), *([y] if copied.results else [])]
    operands = [w] if x[1] != w[1] else [x, w]  # groups' channels can't have gaps

    def twin(tensor: Tensor) -> Tensor | None:
        if tensor.is_by_value or tensor.type.kind == "b" or tensor.shape not in wanted:
            return None
        if tensor.shape[1].constant is None:
            return None
        if tensor is image and not copied.has_gaps:
            return _with_whole_rows(tensor)
        wants_gaps = copied.has_gaps and tensor.shape in operands and _is_gap_missing(tensor)
        if _is_channels_last(tensor) and not wants_gaps:
            return None
        return _channels_last(tensor)

    return twin


def _is_channels_last(tensor: Tensor) -> bool:
    return 1 in (tensor.layout[1].constant, tensor.shape[1].constant)


def _is_unaligned(tensor: Tensor, axes: Iterable[int]) -> bool:
    """Whether TMA can't begin where it does, or step along one of some axes."""
    taken = (tensor.layout[axis] for axis in axes if tensor.shape[axis].constant != 1)
    strides = (stride.known_divisor() * tensor.type.bits for stride in taken)
    return any(bits % _ACCESS_BITS for bits in (tensor.alignment * 8, *strides))


def _is_gap_missing(tensor: Tensor) -> bool:
    """Whether pixels of several channels begin at other places than whole 16 bytes."""
    is_single = tensor.shape[1].constant == 1
    return _is_unaligned(tensor, () if is_single else (0, *range(2, tensor.rank)))


def _channels_last(tensor: Tensor) -> Tensor:
    """Whose pixels begin at whole 16 bytes."""
    channels, access = tensor.shape[1].constant, max(1, _ACCESS_BITS // tensor.type.bits)
    assert channels is not None, "channels are a fixed size"
    return twin_of(tensor, (0, *range(2, tensor.rank), 1), -(-channels // access) * access)


def _with_whole_rows(tensor: Tensor) -> Tensor | None:
    """An image of pixels side by side, whose rows begin at whole 16 bytes; None: it is one."""
    *outer, across = (0, *range(2, tensor.rank))
    channels, access = tensor.shape[1], max(1, _ACCESS_BITS // tensor.type.bits)
    is_dense = _is_channels_last(tensor) and tensor.layout[across] == channels
    if is_dense and not _is_unaligned(tensor, outer):
        return None
    strides = [Expr.of(1)] * tensor.rank
    strides[across] = channels
    running = ceildiv(tensor.shape[across] * channels, access) * access
    for axis in reversed(outer):
        strides[axis] = running
        running = running * tensor.shape[axis]
    return twin_at(tensor, tuple(strides))
