"""Tensors whose elements come in vectors: NC/4HW4, NC/32HW32.

Dims and strides of such a tensor count vectors, of 4 or 32 elements along one dimension; the
elements of a vector follow each other in memory.  Operations work on elements:

    x [N, C/32, H, W], vectors of 32 along dimension 1
->  x [N, C/32, 32, H, W], of stride 1 along the 32  --reshape-->  [N, C, H, W], virtual

Under the user's uid stands what lies in memory, of one more dim, right behind that of the vectors;
`unfold` puts the reshape between it and its operations.  Where vectors follow each other along
their dimension, too, as where there is one, the tensor itself is [N, C, H, W], and nothing stands
between.  So is a virtual one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..dtypes import DType
from ..errors import Status
from ..expr import Expr
from .behind_reshapes import behind_reshapes, elements_beside, is_laid_out, restoring
from .op import Op
from .ops.views import Reshape
from .tensor import Tensor, packed_strides, stride_order, text

_Sizes = tuple[Expr, ...]
_Form = tuple[_Sizes, _Sizes]  # dims and strides


class _Folded(Reshape):
    """Y is X's elements as vectors: what it leaves open follows from X."""

    def infer(self) -> None:
        self._infer_type()
        if self.y.is_vectorized:
            fold(self.x, self.y)
            self.y.verify()
            self.y.take_form(*_form_in_memory(self.y))
        super().infer()


def unfold(ops: Sequence[Op], io_type: DType | None) -> tuple[list[Op], Callable[[], None]]:
    """(operations on elements in place of these, with reshapes of vectorized tensors; what makes
    the tensors vectorized again).

    io_type: of tensors that set none.
    """
    used = dict.fromkeys(t for op in ops for t in (*op.operands, *op.results))
    vectorized = [tensor for tensor in used if tensor.is_vectorized]
    for tensor in vectorized:
        tensor.verify_vectors()
    undo = restoring(vectorized)
    made = {tensor for op in ops for tensor in op.results}
    others: dict[Tensor, Tensor] = {}
    for tensor in vectorized:
        if tensor.is_virtual or (is_laid_out(tensor) and _is_in_a_row(tensor)):
            _become_elements(tensor)
            continue
        others[tensor] = elements_of(tensor)
        if tensor not in made and is_laid_out(tensor):
            tensor.take_form(*_form_in_memory(tensor))
    return behind_reshapes(ops, others, io_type, _Folded), undo


def _become_elements(tensor: Tensor) -> None:
    """A tensor of [.., C, ..], which operations work on as it is."""
    if is_laid_out(tensor):
        form = _elements_form if tensor.is_virtual else _form_in_memory
        tensor.take_form(*form(tensor))
    else:  # what it leaves open is inferred of elements
        tensor.dims = _elements_dims(tensor)
        tensor.vector_count, tensor.vector_dim = 1, None


def of_elements(op: Op) -> Op:
    """The operation on elements: itself, or a copy with other tensors for vectorized ones."""
    vectorized = {t: t for t in (*op.operands, *op.results) if t.is_vectorized}
    if not vectorized:
        return op
    for tensor in vectorized:
        tensor.verify_vectors()
        vectorized[tensor] = elements_of(tensor)
    return op.with_tensors(vectorized)


def elements_of(tensor: Tensor) -> Tensor:
    """A virtual tensor of a vectorized one's elements, those of a vector side by side.

    Its other axes are in the order that they have in memory: NC/32HW32 is channels last here, as
    convolutions want it.
    """
    made = elements_beside(tensor)
    if is_laid_out(tensor):
        made.dims, made.strides = _elements_form(tensor)
    else:
        made.dims = _elements_dims(tensor)
    return made


def fold(elements: Tensor, tensor: Tensor) -> None:
    """Fills dims and strides that a vectorized tensor leaves open: of vectors, packed."""
    if not tensor.is_vectorized or elements.dims is None:
        return
    if tensor.dims is None:
        tensor.dims = _vector_dims(elements.dims, tensor)
    if tensor.strides is None:
        tensor.strides = packed_strides(tensor.dims)


def _vector_dims(dims: _Sizes, tensor: Tensor) -> _Sizes:
    axis, count = _axis(tensor), tensor.vector_count
    extent = dims[axis] if 0 <= axis < len(dims) else Expr.of(1)
    if extent.known_divisor() % count:
        raise tensor.error(
            Status.BAD_PARAM_SHAPE_MISMATCH,
            f"vectors of {count}, and dims {text(dims)}",
            f"a multiple of {count} along dimension {axis}",
        )
    return _with(dims, axis, extent // count)


def _elements_dims(tensor: Tensor) -> _Sizes | None:
    """Dims of elements; None where those of vectors are open."""
    if tensor.dims is None:
        return None
    axis = _axis(tensor)
    return _with(tensor.dims, axis, tensor.dims[axis] * tensor.vector_count)


def _elements_form(tensor: Tensor) -> _Form:
    """Dims of elements, packed, the vectors' axis last."""
    axis, dims = _axis(tensor), _elements_dims(tensor)
    assert dims is not None, f"{tensor.label} has no dims"
    outer = (other for other in stride_order(dims, tensor.layout) if other != axis)
    return dims, packed_strides(dims, (*outer, axis))


def _form_in_memory(tensor: Tensor) -> _Form:
    axis, count = _axis(tensor), tensor.vector_count
    strides = tuple(stride * count for stride in tensor.layout)
    if _is_in_a_row(tensor):
        dims = _with(tensor.shape, axis, tensor.shape[axis] * count)
        return dims, _with(strides, axis, Expr.of(1))
    dims = _with(tensor.shape, axis, tensor.shape[axis], Expr.of(count))
    return dims, _with(strides, axis, strides[axis], Expr.of(1))


def _is_in_a_row(tensor: Tensor) -> bool:
    """Whether vectors follow each other along their dimension."""
    axis = _axis(tensor)
    return 1 in (tensor.shape[axis].constant, tensor.layout[axis].constant)


def _axis(tensor: Tensor) -> int:
    assert tensor.vector_dim is not None, f"vectors of {tensor.label} are not verified"
    return tensor.vector_dim


def _with(sizes: _Sizes, axis: int, *values: Expr) -> _Sizes:
    return (*sizes[:axis], *values, *sizes[axis + 1 :])
