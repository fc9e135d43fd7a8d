"""Copies to channels last for engines of convolutions: images, filters, results in other layouts.

A filter that is cast to the type it is multiplied in is always copied, converted on the way.  The
filter of a gradient is read transposed: its K are what channels are forward, and lie together in a
copy of it.  Of 16 bits `wgmma` reads it as it is, with its channels last.  What is computed in f32
before a gradient with strides is stored in the type that is multiplied, by a kernel ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ...codegen.region import Region
from ...dialect.fusion import Fusion
from ...dialect.ops import ConvDgrad, Pointwise
from ...dialect.ops.conv import Convolved
from ...dialect.tensor import Tensor
from ...expr import Expr, ceildiv
from ..product.region_sm90 import product_calls
from ..views.relaid import Cast, RelaidFusion, RelaidRegion, Rule, lone_cast, twin_at, twin_of
from .pattern import conv_of, conv_of_call, is_gradient, shape_of

_ACCESS_BITS = 128  # that strides are multiples of, for TMA
_Dims = tuple[Expr, ...]


@dataclass(frozen=True)
class Copied:
    """The tensors that are copied to channels last where they are not, beside X.

    filters: W.  results: all of Y's dims.  has_gaps: pixels of X and W begin at whole 16 bytes.
    Else rows of X do, whose pixels follow each other.  transposes: W of a gradient is copied where
    `wgmma` would transpose it, too.
    """

    filters: bool
    results: bool
    has_gaps: bool
    transposes: bool = False


def relaid_fusion(fusion: Fusion, copied: Copied) -> RelaidFusion:
    """A fusion of one convolution, channels last."""
    op = conv_of(fusion)
    cast = _cast_of(fusion, op) if copied.filters else None
    is_transposed = isinstance(op, ConvDgrad)
    dims = (op.moved.shape, op.w.shape, op.made.shape)
    rule = _rule(op.moved, op.w, dims, copied, is_transposed=is_transposed)
    casts = [Cast(cast, _filter_twin(is_transposed))] if cast else []
    if copied.has_gaps and shape_of(op).spread and (cast := lone_cast(fusion, op, op.moved)):
        casts.append(Cast(cast, _channels_last))
    return RelaidFusion.of(fusion, rule, *casts)


def relaid_region(region: Region, copied: Copied) -> RelaidRegion:
    """The fusion's region with what was relaid."""
    (call,) = product_calls(region)
    x, w = list(call.operands)[:2]
    dims = [region.dims_of(value) for value in (x, w, call.results[0])]
    is_transposed = is_gradient(call)
    image, filter_ = (region.arguments.get(value) for value in (x, w))
    rule = _rule(image, filter_, dims, copied, is_transposed=is_transposed)
    is_cast = copied.filters and w not in region.arguments
    casts = [Cast(w.owner, _filter_twin(is_transposed))] if is_cast else []
    if x not in region.arguments and conv_of_call(region, call).spread:
        casts.append(Cast(x.owner, _channels_last))
    return RelaidRegion.of(region, rule, *casts)


def _cast_of(fusion: Fusion, op: Convolved) -> Pointwise | None:
    """The identity that gives W its type, of an input, if nothing else needs that."""
    cast = fusion.producers.get(op.w)
    if not isinstance(cast, Pointwise) or cast.mode != "identity" or op.w is op.moved:
        return None
    is_input = cast.x in fusion.inputs and not cast.x.is_by_value and cast.x.type.kind != "b"
    others = [other for other in fusion.ops if other is not op and op.w in other.operands]
    is_alone = not others and op.w not in fusion.outputs and cast.x.shape == op.w.shape
    return cast if is_input and is_alone else None


def _filter_twin(is_transposed: bool) -> Callable[[Tensor], Tensor]:
    return _filters_last if is_transposed else _channels_last


def _rule(
    image: Tensor | None,
    filter_: Tensor | None,
    dims: Sequence[_Dims],
    copied: Copied,
    *,
    is_transposed: bool,
) -> Rule:
    """image, filter_: X and W; None: computed, or cast.  dims: of X, W and Y."""
    x, w, y = dims
    wanted = [x, *([w] if copied.filters else []), *([y] if copied.results else [])]
    in_groups = y[1] != w[1] if is_transposed else x[1] != w[1]
    operands = [w] if in_groups else [x, w]  # groups' channels can't have gaps

    def twin(tensor: Tensor) -> Tensor | None:
        if tensor is filter_ and is_transposed and tensor is not image:
            is_read = not copied.filters or _is_read_transposed(
                tensor, transposes=copied.transposes
            )
            return None if is_read else _filters_last(tensor)
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


def channels_last_twin(tensor: Tensor, *, is_forced: bool = False) -> Tensor | None:
    """An operand's twin that TMA reads, channels last; None: it does so as it is.

    is_forced: there is one in any case.
    """
    if _is_channels_last(tensor) and not _is_gap_missing(tensor) and not is_forced:
        return None
    return _channels_last(tensor)


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
    """The tensor with channels last, padded so that pixels begin at whole 16 bytes."""
    channels, access = tensor.shape[1].constant, max(1, _ACCESS_BITS // tensor.type.bits)
    assert channels is not None, "channels are a fixed size"
    return twin_of(tensor, (0, *range(2, tensor.rank), 1), -(-channels // access) * access)


def _is_read_transposed(filter_: Tensor, *, transposes: bool) -> bool:
    """Whether the filter of a gradient is read as it is: K lie together, or what `wgmma`
    transposes; transposes: it shall not."""
    k, *others = range(filter_.rank)
    if filter_.layout[k].constant == 1:
        return not _is_unaligned(filter_, others)
    is_transposed = filter_.type.bits == 16 and filter_.layout[1].constant == 1 and not transposes
    return is_transposed and not _is_unaligned(filter_, (k, *others[1:]))


def _filters_last(filter_: Tensor) -> Tensor:
    """The filter with K last, padded so that each tap's K begin at whole 16 bytes."""
    k, access = filter_.shape[0].constant, max(1, _ACCESS_BITS // filter_.type.bits)
    assert k is not None, "filters are of a fixed size"
    return twin_of(filter_, (*range(1, filter_.rank), 0), -(-k // access) * access)


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
