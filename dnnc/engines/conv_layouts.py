"""What engines of convolutions copy to channels last: images, filters, results in other layouts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..codegen.region import Region
from ..dialect.fusion import Fusion
from ..dialect.tensor import Tensor
from ..expr import Expr, ceildiv
from .conv import conv_of
from .region_sm90 import product_calls
from .relaid import RelaidFusion, RelaidRegion, Rule, twin_at, twin_of

_ACCESS_BITS = 128  # that strides are multiples of, for the copy engine
_Dims = tuple[Expr, ...]


@dataclass(frozen=True)
class Copied:
    """What is copied to channels last where it is not, beside X.

    filters: W.  results: all of Y's dims.  has_gaps: pixels of X and W begin at whole 16 bytes.
    Else rows of X do, whose pixels follow each other.
    """

    filters: bool
    results: bool
    has_gaps: bool


def relaid_fusion(fusion: Fusion, copied: Copied) -> RelaidFusion:
    """A fusion of one convolution, channels last."""
    op = conv_of(fusion)
    return RelaidFusion.of(fusion, _rule(op.x, (op.x.shape, op.w.shape, op.y.shape), copied))


def relaid_region(region: Region, copied: Copied) -> RelaidRegion:
    """The same of its region."""
    (call,) = product_calls(region)
    dims = [region.dims_of(value) for value in (*list(call.operands)[:2], call.results[0])]
    image = region.arguments.get(call.operands[0])
    return RelaidRegion.of(region, _rule(image, dims, copied))


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
    """Whether the copy engine can't begin where it does, or step along one of some axes."""
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
