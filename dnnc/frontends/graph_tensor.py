# pyright: basic
"""Tensors of a pygraph, with the setters of cudnn-frontend's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import dtypes
from ..dialect.graph import OperationGraph
from ..dialect.ops import Concatenate, Pointwise, Reshape, Transpose
from ..dialect.tensor import Tensor, sizes
from ..dtypes import DType
from ..expr import Expr
from . import enums
from .enums import REORDERINGS


class GraphTensor(Tensor):
    """A tensor of a pygraph; setters return it, so that they chain."""

    ragged_offset_multiplier: int = 1
    _graph: Any = None
    _inferred: frozenset[str] = frozenset()
    _is_laid_out: bool = False  # the strides are the user's
    _is_typed: bool = False  # the data type is the user's
    _vectors: tuple[int, int] | None = None  # as they were set, whatever the graph makes of them

    def _changed(self, field: str = "") -> GraphTensor:
        """Itself, on the way to a new value of a field, which is then the user's."""
        if self._graph is not None:
            self._graph._require_unplanned()
        self._inferred -= {field}
        return self

    def infer_again(self) -> None:
        """Forgets what was inferred and not set since, but the form of vectors in memory."""
        is_unfolded = self.get_vector_count() != self.vector_count
        for field in self._inferred - ({"dims", "strides"} if is_unfolded else set()):
            setattr(self, field, None)

    def set_output(self, value: bool = True) -> GraphTensor:
        """Whether it is written to a buffer of the caller (it is not virtual then)."""
        self._changed().is_output = value
        self.is_virtual = not value
        return self

    def set_is_virtual(self, value: bool) -> GraphTensor:
        return self.set_output(not value)

    def set_name(self, value: str) -> GraphTensor:
        self._changed().name = value
        return self

    def set_uid(self, value: int) -> GraphTensor:
        """Sets the number that identifies it in a variant pack; unique in its graph."""
        self._changed().uid = value
        return self

    def set_data_type(self, value: Any) -> GraphTensor:
        self._changed("dtype").dtype = data_type_of(value)
        self._is_typed = value is not None
        return self

    def set_dim(self, value: Sequence[Any]) -> GraphTensor:
        """Sets the dims, in elements."""
        self._changed("dims").dims = sizes(value, "dim", self.label)
        if "strides" in self._inferred:  # of the dims that it had
            self._changed("strides").strides = None
            if self._graph is not None:
                self._graph._waiting.again()
        return self._inferred_on()

    def set_stride(self, value: Sequence[Any]) -> GraphTensor:
        """Sets the strides, in elements."""
        self._changed("strides").strides = sizes(value, "stride", self.label)
        self._is_laid_out = True
        return self._inferred_on()

    def _inferred_on(self) -> GraphTensor:
        """Itself, after what waited for its dims and strides was inferred."""
        if self._graph is not None:
            self._graph._infer_waiting()
        return self

    def set_alignment(self, value: int) -> GraphTensor:
        """Sets the bytes that divide the address of its buffers."""
        self._changed().alignment = value
        return self

    set_alignment_value = set_alignment

    def set_is_pass_by_value(self, value: bool) -> GraphTensor:
        self._changed().is_by_value = value
        return self

    def set_reordering_type(self, value: Any) -> GraphTensor:
        self._changed().reordering = enums.choice_of(value, REORDERINGS)
        return self

    def set_ragged_offset(self, value: GraphTensor) -> GraphTensor:
        """Sets where its sequences begin, [B + 1, 1, 1, 1], in elements: see `pygraph.sdpa`."""
        self._changed().ragged_offset = value
        return self

    def set_ragged_offset_multiplier(self, value: int) -> GraphTensor:
        """Sets what ragged offsets are multiplied by."""
        self._changed().ragged_offset_multiplier = value
        return self

    def set_vector_count_and_dimension(self, count: int, dimension: int) -> GraphTensor:
        """Sets that dims and strides count vectors of 4 or 32 elements along a dimension.

        Operations see elements: [N, C / count, H, W] is an image of C channels to them.
        """
        self._changed()
        self._vectors = (count, dimension)
        self.vector_count, self.vector_dim = count, None if count == 1 else dimension
        self.infer_again()
        if self._graph is not None:
            self._graph._waiting.again()
        return self._inferred_on()

    def get_name(self) -> str:
        return self.name

    def get_uid(self) -> int | None:
        return self.uid

    def get_data_type(self) -> DType | None:
        """The data type; of a virtual result that has none set, the graph's intermediate one."""
        return self.dtype if self._graph is None else shown_type(self._graph.graph, self)

    def get_dim(self) -> list[Any]:
        """The dims: ints, or expressions where a symbol is in them."""
        return [_plain(size) for size in self.dims or ()]

    def get_stride(self) -> list[Any]:
        """The strides, in elements; of a virtual result those that it would have in memory."""
        shown = {} if self._graph is None else self._graph.graph.shown_strides
        return [_plain(size) for size in shown.get(self, self.strides) or ()]

    def get_is_virtual(self) -> bool:
        return self.is_virtual

    def get_is_pass_by_value(self) -> bool:
        return self.is_by_value

    def get_alignment(self) -> int:
        return self.alignment

    def get_reordering_type(self) -> enums.tensor_reordering:
        return enums.tensor_reordering(self.reordering)

    def get_vector_count(self) -> int:
        return self._vectors[0] if self._vectors else self.vector_count

    def get_vector_dimension(self) -> int:
        """-1: none was set."""
        return self._vectors[1] if self._vectors else -1


# Operations whose virtual results may have another type inside than the graph's intermediate one.
_TYPED_BY_GRAPH = (Pointwise, Reshape, Transpose, Concatenate)


def shown_type(graph: OperationGraph, tensor: GraphTensor) -> DType | None:
    """The data type that cudnn-frontend infers for a tensor.

    A comparison's virtual result has BOOLEAN inside, a view's what its operand has: these hold all
    values that the intermediate type of the graph would.
    """
    wanted = graph.intermediate_type or graph.io_type
    is_free = tensor.is_virtual and not tensor._is_typed and tensor.dtype not in (None, wanted)
    if is_free and isinstance(graph.producers.get(tensor), _TYPED_BY_GRAPH):
        return wanted
    return tensor.dtype


def _plain(size: Expr) -> Any:
    return size if size.constant is None else size.constant


def data_type_of(value: Any) -> DType | None:
    return None if value is None else dtypes.of(value)
