"""Boolean outputs of products: where each byte, of eight elements, has one writer."""

from __future__ import annotations

from collections.abc import Sequence

from ...dialect.fusion import Fusion
from ...dialect.tensor import Tensor, text
from ...errors import Status
from ...expr import Expr
from ..engine import Reason

BYTE = 8  # elements of a byte


def booleans_of(fusion: Fusion) -> list[Tensor]:
    """The boolean outputs of a fusion."""
    return [t for t in fusion.outputs if t.type.kind == "b"]


def whole_bytes(output: Tensor, column: int, extent: Expr) -> bool:
    """Whether each so many elements along an axis, from its start on, are whole bytes."""
    others = [
        stride
        for axis, stride in enumerate(output.layout)
        if axis != column and output.shape[axis].constant != 1
    ]
    return (
        output.layout[column].constant == 1
        and extent.known_divisor() % BYTE == 0
        and all(stride.known_divisor() % BYTE == 0 for stride in others)
    )


def stored_as_bits(output: Tensor, *, swaps: bool) -> bool:
    """Whether rows of a matrix, or where it swaps its columns, are whole bytes."""
    column = output.rank - 2 if swaps else output.rank - 1
    return whole_bytes(output, column, output.shape[column])


def swaps_of(booleans: Sequence[Tensor]) -> list[int]:
    """0 where rows of all of them are whole bytes, 1 where their columns are."""
    return [swap for swap in (0, 1) if all(stored_as_bits(t, swaps=bool(swap)) for t in booleans)]


def bits_reason(output: Tensor, supported: str) -> Reason:
    """An output that is not stored as whole bytes."""
    what = f"{output.label} of dims {text(output.shape)}, strides {text(output.layout)}"
    return Reason(Status.NOT_SUPPORTED_DATA_TYPE, "boolean output", what, supported)
