# pyright: basic
"""Records a graph: tensors, and nodes with named inputs, outputs and parameters."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from ..dialect.tensor import packed_strides, sizes
from ..errors import DnncError, DnncRuntimeError, Status
from ..expr import Expr
from ..places import current_place
from .enums import data_type, member_of, tensor_reordering, type_of


class Tensor:
    """A tensor of a graph; setters return it, so that they chain.

    dim, stride: in elements; empty until they are set or inferred.  data_type: None until then.
    uid: its number in variant packs.  name: a label.
    dim_assigned, stride_assigned, type_assigned, uid_assigned: whether the caller said so.
    is_result: whether a node makes it, so that dims and strides may be inferred.
    place: the line of the caller's program that made it.
    pass_by_value: the number of a scalar.  scalar_type: whether a pack may replace that.
    """

    def __init__(
        self,
        name: str = "",
        data_type: Any = None,
        dim: Sequence[Any] = (),
        stride: Sequence[Any] = (),
        is_virtual: bool = False,
        is_pass_by_value: bool = False,
        pass_by_value: float | int | None = None,
        uid: int = 0,
        *,
        uid_assigned: bool = False,
        reordering_type: Any = None,
        ragged_offset: Tensor | None = None,
        ragged_offset_multiplier: int = 1,
        alignment_value: int = 1,
        scalar_type: Any = None,
        owner: Any = None,
    ):
        self.name = name
        self.data_type = type_of(data_type)
        self.dim, self.stride = list(dim), list(stride)
        self.is_virtual, self.is_pass_by_value = is_virtual, is_pass_by_value
        self.pass_by_value, self.scalar_type = pass_by_value, scalar_type
        self.uid, self.uid_assigned = uid, uid_assigned
        self.dim_assigned, self.stride_assigned = bool(dim), bool(stride)
        self.type_assigned = self.data_type is not None
        self.reordering_type = _reordering(reordering_type)
        self.ragged_offset = ragged_offset
        self.ragged_offset_multiplier = ragged_offset_multiplier
        self.alignment_value = alignment_value
        self.alignment: int | None = None
        self.is_result = False
        self.place = current_place()
        self.vectors: tuple[int, int] | None = None
        self.owner = owner

    def __repr__(self) -> str:
        kind = self.data_type.name if self.data_type else "no type"
        return f"Tensor({self.name!r}, uid={self.uid}, dim={self.dim}, {kind})"

    def _change(self, what: str) -> Tensor:
        if self.owner is not None:
            self.owner.require_mutable(what)
        return self

    # ---- setters

    def set_output(self, value: bool = True) -> Tensor:
        """Whether it is written to a buffer of the caller."""
        self._change("set an output").is_virtual = not value
        return self

    def set_is_virtual(self, value: bool) -> Tensor:
        return self.set_output(not value)

    def set_name(self, name: str) -> Tensor:
        """Sets its label, which need not be unique."""
        self._change("rename a tensor").name = name
        return self

    def set_uid(self, uid: int) -> Tensor:
        """Sets its number in variant packs; one that another tensor was given is a ValueError."""
        if uid != self.uid:
            self._change("set a uid")
        if self.owner is not None:
            self.owner.take_uid(self, uid)
        self.uid, self.uid_assigned = uid, True
        return self

    def set_data_type(self, dtype: Any) -> Tensor:
        self._change("set a data type").data_type = type_of(dtype)
        self.type_assigned = self.data_type is not None
        return self

    def set_dim(self, dim: Sequence[Any]) -> Tensor:
        self._change("set dims").dim = list(dim)
        self.dim_assigned = True
        if not self.is_result and not self.stride_assigned:
            self.stride = row_major(dim)
        return self

    def set_stride(self, stride: Sequence[Any]) -> Tensor:
        self._change("set strides").stride = list(stride)
        self.stride_assigned = True
        return self

    def set_is_pass_by_value(self, value: bool) -> Tensor:
        self._change("set by-value").is_pass_by_value = value
        return self

    def set_reordering_type(self, reordering_type: Any) -> Tensor:
        self._change("set a reordering").reordering_type = _reordering(reordering_type)
        return self

    def set_ragged_offset(self, ragged_offset: Tensor | None) -> Tensor:
        """Sets where the sequences of packed ones begin."""
        self._change("set a ragged offset").ragged_offset = ragged_offset
        return self

    def set_ragged_offset_multiplier(self, multiplier: int) -> Tensor:
        self._change("set a multiplier").ragged_offset_multiplier = multiplier
        return self

    def set_alignment(self, value: int) -> Tensor:
        """Sets the bytes that divide the address of its buffers."""
        self._change("set an alignment").alignment = value
        return self

    def set_alignment_value(self, value: int) -> Tensor:
        """Promises that it holds multiples of a number, which nothing depends on here."""
        self._change("set an alignment value").alignment_value = value
        return self

    def set_vector_count_and_dimension(self, count: int, dimension: int) -> Tensor:
        """Sets that dims and strides count vectors of 4 or 32 elements along a dimension."""
        self._change("set vectors").vectors = (count, dimension)
        return self

    # ---- getters

    def get_name(self) -> str:
        return self.name

    def get_uid(self) -> int:
        return self.uid

    def get_data_type(self) -> data_type:
        return self._known("data_type") or data_type.NOT_SET

    def get_dim(self) -> list[Any]:
        """Its dims; empty where they can't be inferred yet."""
        return list(self._known("dim"))

    def get_stride(self) -> list[Any]:
        return list(self._known("stride"))

    def _known(self, field: str) -> Any:
        """A field, inferred from the graph as far as it is recorded if it is not known yet."""
        if not getattr(self, field) and self.owner is not None:
            self.owner.infer_early()
        return getattr(self, field)

    def get_is_virtual(self) -> bool:
        return self.is_virtual

    def get_is_pass_by_value(self) -> bool:
        return self.is_pass_by_value

    def get_has_compile_time_constant(self) -> bool:
        """Whether it is a number that no variant pack may replace."""
        kind = self.scalar_type
        return kind is not None and kind.name == "COMPILE_TIME_CONST"

    def get_reordering_type(self) -> tensor_reordering:
        return self.reordering_type

    def get_ragged_offset_multiplier(self) -> int:
        return self.ragged_offset_multiplier

    def get_alignment(self) -> int:
        return 16 if self.alignment is None else self.alignment

    def get_vector_count(self) -> int:
        return self.vectors[0] if self.vectors else 1

    def get_vector_dimension(self) -> int:
        """-1: none was set."""
        return self.vectors[1] if self.vectors else -1

    def validate(self) -> None:
        """Dims and as many strides are known; else a ValueError."""
        if not self.dim or len(self.dim) != len(self.stride):
            what = f"dims {self.dim}, strides {self.stride}"
            raise DnncError(Status.BAD_PARAM, what, "both, of one rank", self.label)

    @property
    def label(self) -> str:
        return f"tensor '{self.name}' (uid {self.uid})"


def _reordering(value: Any) -> tensor_reordering:
    return tensor_reordering.NONE if value is None else member_of(tensor_reordering, value)


def row_major(dim: Sequence[Any]) -> list[Any]:
    """Strides of dims that lie packed, the last one fastest."""
    return [plain(stride) for stride in packed_strides(sizes(dim))]


def plain(size: Expr) -> Any:
    """An int, or the expression where a symbol is in it."""
    return size if size.constant is None else size.constant


class Node:
    """A recorded operation.

    method: the name of the method that made it.  node_type: its family.  arguments: what the method
    was given, by name.  inputs, outputs: tensors by port.  params: all else that was given.
    own_type: the compute type that the call named.  compute_data_type: that, or the graph's.
    place: the line of the caller's program that made it.
    """

    def __init__(
        self, name: str, node_type: Enum, method: str, own_type: Any = None, default: Any = None
    ):
        self.name = name
        self.node_type = node_type
        self.method = method
        self.own_type = type_of(own_type)
        self.compute_data_type = self.own_type or type_of(default)
        self.arguments: dict[str, Any] = {}
        self.inputs: dict[str, Tensor] = {}
        self.outputs: dict[str, Tensor] = {}
        self.params: dict[str, Any] = {}
        self.place = current_place()

    def __repr__(self) -> str:
        return f"Node({self.name!r}, {self.node_type.name})"


def frozen(what: str) -> DnncError:
    """The error of a change after planning."""
    status = Status.BAD_PARAM_NOT_FINALIZED
    return DnncRuntimeError(status, f"can't {what}: the graph has plans", "a new graph")
