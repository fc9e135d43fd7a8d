"""Orders of elements that strides do not say: F16x16, in which cuDNN keeps weights of attention.

Each matrix of a tensor [B, H, M, N] is tiles of 16 x 16, one row of tiles after the other.  A tile
is what the 32 lanes of a warp hold of the sums of two products on tensor cores, m16n8, side by
side: 8 elements, 16 bytes, a lane.  With i = 16 * I + 8 * a + r and j = 16 * J + 8 * c + 2 * q + e,
element (i, j) lies at

    (I * N/16 + J) * 256 + (4 * r + q) * 8 + 4 * a + 2 * c + e

NVIDIA documents it nowhere.  cuDNN 9.19 was found to store S so on an H100: all elements of 16
shapes of M and N from 64 to 512, in f16 and bf16.

Operations work on [B, H, M, N]; dims and strides of what lies in memory say the order:

    [B * H, I, a, r, J, c, q, e]  --reshape-->  [B, H, M, N], virtual

A tensor whose last two axes are exchanged, of strides [.., 1, N], is the same memory, j before i.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from .. import dtypes
from ..dtypes import DType
from ..errors import DnncError, Status
from ..expr import Expr, product
from .behind_reshapes import behind_reshapes, elements_beside, is_laid_out, restoring
from .op import Op
from .ops.views import Reshape
from .tensor import SIGNED_ORDER, Tensor, packed_strides, text

TILE = 16

_Sizes = tuple[Expr, ...]
_Form = tuple[_Sizes, _Sizes]  # dims and strides

_EXCHANGED = (0, 1, 3, 2)


def unknown_order(tensor: Tensor) -> tuple[str, str] | None:
    """(what is wrong, what is accepted) of the order of a tensor's elements; None: nothing.

    Where those of virtual tensors lie is nobody's concern.
    """
    if tensor.is_virtual or tensor.reordering == "NONE":
        return None
    what = f"{tensor.label} is reordered as {tensor.reordering}"
    if tensor.reordering != SIGNED_ORDER:
        return what, f"NONE, or {SIGNED_ORDER} of the weights of attention"
    if tensor.is_vectorized:
        return f"{what}, and of vectors", f"{SIGNED_ORDER} of elements"
    if tensor.dtype not in (None, dtypes.f16, dtypes.bf16):
        return f"{what}, and of {tensor.dtype}", f"{SIGNED_ORDER} of f16 or bf16"
    return _unknown_form(tensor, what) if is_laid_out(tensor) else None


def _unknown_form(tensor: Tensor, what: str) -> tuple[str, str] | None:
    """Tiles of 16 x 16 are all that the order asks for; cuDNN asks for multiples of 64."""
    if _is_in_memory(tensor):
        return None
    if tensor.rank != 4:
        return f"{what}, and of rank {tensor.rank}", f"{SIGNED_ORDER} of rank 4"
    if any(extent.divided_exactly(Expr.of(TILE)) is None for extent in tensor.shape[2:]):
        return (
            f"{what}, and of dims {text(tensor.shape)}",
            f"a third and a fourth dim that are multiples of {TILE}, written as {TILE} times a "
            "size where it is a symbol",
        )
    if _is_exchanged(tensor) is None:
        return (
            f"{what}, and of strides {text(tensor.layout)}",
            f"{text(packed_strides(tensor.shape))}, or {text(_exchanged_strides(tensor.shape))} "
            "of matrices that are read across",
        )
    return None


def require_known(tensors: Iterable[Tensor]) -> None:
    """NOT_SUPPORTED_LAYOUT for what is declared of this order, and can't be."""
    for tensor in filter(_is_ordered, tensors):
        problem = unknown_order(tensor)
        if problem is not None:
            raise DnncError(Status.NOT_SUPPORTED_LAYOUT, *problem, made_at=tensor.made_at)


def _is_ordered(tensor: Tensor) -> bool:
    return tensor.reordering == SIGNED_ORDER and not tensor.is_virtual


def unfold(ops: Sequence[Op], io_type: DType | None) -> tuple[list[Op], Callable[[], None]]:
    """(operations on elements in place of these, with reshapes of tensors of this order; what gives
    the tensors their form back).

    io_type: of tensors that set none.
    """
    used = dict.fromkeys(t for op in ops for t in (*op.operands, *op.results))
    found = [tensor for tensor in used if _is_ordered(tensor) and not _is_in_memory(tensor)]
    inner = {tensor: elements_beside(tensor) for tensor in found}
    for tensor, elements in inner.items():
        elements.dims, elements.strides = tensor.dims, tensor.strides
    return behind_reshapes(ops, inner, io_type, _Reordered), restoring(found)


class _Reordered(Reshape):
    """Between elements and what lies in memory, which takes its form with the inference."""

    def infer(self) -> None:
        self._infer_type()
        if self.y.dims is None:
            self.y.dims = self.x.shape
        if self.y.strides is None:
            self.y.strides = packed_strides(self.y.dims)
        (stored,) = (t for t in (self.x, self.y) if _is_ordered(t))
        require_known([stored])
        if not _is_in_memory(stored):
            stored.take_form(*_form_in_memory(stored))
        super().infer()


# ---- forms


def _is_exchanged(tensor: Tensor) -> bool | None:
    """Whether packed matrices are read across; None: they are not packed."""
    for strides, found in (
        (packed_strides(tensor.shape), False),
        (_exchanged_strides(tensor.shape), True),
    ):
        pairs = zip(tensor.shape, tensor.layout, strides, strict=True)
        if all(own == wanted or extent.constant == 1 for extent, own, wanted in pairs):
            return found
    return None


def _exchanged_strides(dims: _Sizes) -> _Sizes:
    return packed_strides(dims, _EXCHANGED)


def _form_in_memory(tensor: Tensor) -> _Form:
    """The form of a verified tensor of elements."""
    b, h, first, second = tensor.shape
    return _form(b * h, first, second, is_exchanged=bool(_is_exchanged(tensor)))


def _form(count: Expr, first: Expr, second: Expr, *, is_exchanged: bool) -> _Form:
    """The form of `count` matrices, whose first axis is j where they are exchanged."""
    m, n = (second, first) if is_exchanged else (first, second)
    rows = _axes((m // TILE, n * TILE), (2, 4), (8, 32))
    columns = _axes((n // TILE, TILE * TILE), (2, 2), (4, 8), (2, 1))
    axes = [(count, m * n), *(columns + rows if is_exchanged else rows + columns)]
    dims, strides = zip(*axes, strict=True)
    return dims, strides


def _axes(*pairs: tuple[Expr | int, Expr | int]) -> list[tuple[Expr, Expr]]:
    return [(Expr.of(extent), Expr.of(stride)) for extent, stride in pairs]


def _is_in_memory(tensor: Tensor) -> bool:
    """Whether the tensor is what lies in memory already, as in a graph from its text."""
    if not is_laid_out(tensor) or tensor.rank != 8:
        return False
    is_exchanged = tensor.layout[-1].constant != 1
    cut = 5 if is_exchanged else 4
    first, second = product(tensor.shape[1:cut]), product(tensor.shape[cut:])
    if any(extent.divided_exactly(Expr.of(TILE)) is None for extent in (first, second)):
        return False
    form = _form(tensor.shape[0], first, second, is_exchanged=is_exchanged)
    return form == (tensor.shape, tensor.layout)
