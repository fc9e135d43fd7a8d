"""Tensors that lie in memory under other dims than operations see: a reshape stands between.

    x in memory  --reshape-->  elements of x, virtual  -->  operations
    operations  -->  elements of y, virtual  --reshape-->  y in memory

Under the user's uid stands what lies in memory.  `vectors` and `orders` say what that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ..dtypes import DType
from .op import Op
from .ops.views import Reshape
from .tensor import Tensor


def behind_reshapes(
    ops: Sequence[Op],
    elements: Mapping[Tensor, Tensor],
    io_type: DType | None,
    kind: type[Reshape],
) -> list[Op]:
    """The operations on `elements` in place of what lies in memory, then the reshapes between.

    io_type: of tensors that set none.  kind: the reshapes, whose inference fills the forms in that
    are open still.
    """
    made = {tensor for op in ops for tensor in op.results}
    reshapes: list[Op] = []
    for tensor, inner in elements.items():
        inner.dtype = tensor.dtype or io_type
        x, y = (inner, tensor) if tensor in made else (tensor, inner)
        reshapes.append(kind(x=x, y=y, reshape_mode="LOGICAL"))
    return [*(op.with_tensors(elements) for op in ops), *reshapes]


def is_laid_out(tensor: Tensor) -> bool:
    """Whether dims and strides are known, and a pair."""
    return tensor.dims is not None and len(tensor.dims) == len(tensor.strides or ())


def elements_beside(tensor: Tensor) -> Tensor:
    """A virtual tensor for its elements, of the same type, whose form is open."""
    name = f"{tensor.name}::ELEMENTS" if tensor.name else ""
    return Tensor(name=name, dtype=tensor.dtype, is_virtual=True)


def restoring(tensors: Iterable[Tensor]) -> Callable[[], None]:
    """A function that gives tensors back the form that they have now."""
    names = ("dims", "strides", "vector_count", "vector_dim")
    before = [(tensor, {name: getattr(tensor, name) for name in names}) for tensor in tensors]

    def restore() -> None:
        for tensor, fields in before:
            vars(tensor).update(fields)

    return restore
