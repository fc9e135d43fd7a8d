"""A fusion's function as a value: equal for fusions that differ in uids and names alone."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, cast

from .fusion import Fusion, remembered
from .op import Op
from .tensor import Tensor


class FusionKey:
    """Equal for equal fusions; its hash is found once."""

    __slots__ = ("_hash", "value")

    def __init__(self, value: Hashable):
        self.value, self._hash = value, hash(value)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FusionKey):
            return NotImplemented
        return self is other or (self._hash == other._hash and self.value == other.value)


@remembered
def key_of(fusion: Fusion) -> FusionKey:
    """Operations, what they read and make, and what kernels know of each tensor, in order.

    Sizes are part of it, symbols by their names.
    """
    place = {tensor: i for i, tensor in enumerate(fusion.tensors)}
    by_uid = {tensor.uid: i for tensor, i in place.items()}
    return FusionKey((
        tuple(_tensor_key(tensor, by_uid) for tensor in place),
        tuple(_op_key(op, place) for op in fusion.ops),
        tuple(place[tensor] for tensor in fusion.outputs),
    ))  # fmt: skip


def _tensor_key(tensor: Tensor, by_uid: Mapping[int | None, int]) -> Hashable:
    prior = tensor.prior_of
    return (
        tensor.dims, tensor.strides, tensor.dtype, tensor.is_virtual, tensor.is_by_value,
        repr(tensor.value), tensor.alignment, tensor.reordering, tensor.offset,
        None if tensor.uid is None else by_uid[tensor.uid],  # which of them share memory
        prior if prior is None else by_uid.get(prior, ("uid", prior)),
    )  # fmt: skip


def _op_key(op: Op, place: Mapping[Tensor, int]) -> Hashable:
    values = (getattr(op, field.name) for field in op.fields)
    return type(op), *(_plain(value, place) for value in values)


def _plain(value: Any, place: Mapping[Tensor, int]) -> Hashable:
    if isinstance(value, Tensor):
        return ("tensor", place[value])
    if isinstance(value, list | tuple):
        return tuple(_plain(each, place) for each in cast("list[Any]", value))
    return repr(value) if isinstance(value, float) else cast("Hashable", value)
