"""What engines of convolutions copy to channels last: images, filters, results in other layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..codegen.region import Region
from ..dialect.fusion import Fusion
from ..dialect.tensor import Tensor
from ..expr import Expr
from .conv import conv_of
from .region_sm90 import product_calls
from .relaid import RelaidFusion, RelaidRegion, Rule, twin_of

_ACCESS_BITS = 128  # that strides are multiples of, for the copy engine
_Dims = tuple[Expr, ...]


@dataclass(frozen=True)
class Copied:
    """What is copied to channels last where it is not, beside X.

    filters: W.  results: all of Y's dims.  has_gaps: pixels of X and W begin at whole 16 bytes.
    """

    filters: bool
    results: bool
    has_gaps: bool


def relaid_fusion(fusion: Fusion, copied: Copied) -> RelaidFusion:
    """A fusion of one convolution, channels last."""
    op = conv_of(fusion)
    return RelaidFusion.of(fusion, _rule((op.x.shape, op.w.shape, op.y.shape), copied))


def relaid_region(region: Region, copied: Copied) -> RelaidRegion:
    """The same of its region."""
    (call,) = product_calls(region)
    dims = [region.dims_of(value) for value in (*list(call.operands)[:2], call.results[0])]
    return RelaidRegion.of(region, _rule(dims, copied))


def _rule(dims: Sequence[_Dims], copied: Copied) -> Rule:
    x, w, y = dims
    wanted = [x, *([w] if copied.filters else []), *([y] if copied.results else [])]
    operands = [w] if x[1] != w[1] else [x, w]  # groups' channels can't have gaps

    def twin(tensor: Tensor) -> Tensor | None:
        if tensor.is_by_value or tensor.type.kind == "b" or tensor.shape not in wanted:
            return None
        if tensor.shape[1].constant is None:
            return None
        wants_gaps = copied.has_gaps and tensor.shape in operands and _is_unaligned(tensor)
        if _is_channels_last(tensor) and not wants_gaps:
            return None
        is_whole = tensor.shape == x and not copied.has_gaps
        return _channels_last(tensor, 1 if is_whole else _ACCESS_BITS)

    return twin


def _is_channels_last(tensor: Tensor) -> bool:
    return 1 in (tensor.layout[1].constant, tensor.shape[1].constant)


def _is_unaligned(tensor: Tensor) -> bool:
    """Whether the copy engine can't begin where it does, or step along an axis."""
    if tensor.alignment * 8 % _ACCESS_BITS:
        return True
    return tensor.shape[1].constant != 1 and any(
        stride.known_divisor() * tensor.type.bits % _ACCESS_BITS for stride in _steps(tensor)
    )


def _steps(tensor: Tensor) -> Sequence[Expr]:
    """Strides that are taken, but for the channels'."""
    pairs = zip(tensor.layout, tensor.shape, strict=True)
    return [s for axis, (s, n) in enumerate(pairs) if axis != 1 and n.constant != 1]


def _channels_last(tensor: Tensor, access_bits: int) -> Tensor:
    """access_bits: that pixels begin at whole ones of."""
    channels, access = tensor.shape[1].constant, max(1, access_bits // tensor.type.bits)
    assert channels is not None, "channels are a fixed size"
    return twin_of(tensor, (0, *range(2, tensor.rank), 1), -(-channels // access) * access)
