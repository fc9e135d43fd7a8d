"""What engines of convolutions copy to channels last: images, filters, results in other layouts."""

from __future__ import annotations

from collections.abc import Sequence

from ..codegen.region import Region
from ..dialect.fusion import Fusion
from ..dialect.tensor import Tensor
from ..expr import Expr
from .conv import conv_of
from .region_sm90 import product_calls
from .relaid import RelaidFusion, RelaidRegion, Rule, twin_of

_ACCESS_BITS = 128  # that strides are multiples of, for the copy engine
_Dims = tuple[Expr, ...]


def relaid_fusion(fusion: Fusion, what: str) -> RelaidFusion:
    """A fusion of one convolution, channels last.

    what: letters of the tensors that are copied where they are not: X and W, with pixels that begin
    at whole 16 bytes; x, without gaps; Y, all of Y's dims.
    """
    op = conv_of(fusion)
    return RelaidFusion.of(fusion, _rule((op.x.shape, op.w.shape, op.y.shape), what))


def relaid_region(region: Region, what: str) -> RelaidRegion:
    """The same of its region."""
    (call,) = product_calls(region)
    dims = [region.dims_of(value) for value in (*list(call.operands)[:2], call.results[0])]
    return RelaidRegion.of(region, _rule(dims, what))


def _rule(dims: Sequence[_Dims], what: str) -> Rule:
    x, w, y = dims
    wanted = {"X": x, "W": w, "x": x, "Y": y}
    copied = [wanted[letter] for letter in what]
    has_groups = x[1] != w[1]

    def twin(tensor: Tensor) -> Tensor | None:
        if tensor.is_by_value or tensor.type.kind == "b" or tensor.shape not in copied:
            return None
        if tensor.shape[1].constant is None:
            return None
        is_operand = tensor.shape == w or (tensor.shape == x and not has_groups)
        has_gaps = "X" in what and is_operand and _is_unaligned(tensor)
        if _is_channels_last(tensor) and not has_gaps:
            return None
        return _channels_last(tensor, 1 if "x" in what and tensor.shape == x else _ACCESS_BITS)

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
