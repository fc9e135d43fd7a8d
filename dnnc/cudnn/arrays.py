# pyright: basic
"""Reads a caller's arrays: descriptors of tensors, and memory by address."""

from __future__ import annotations

import ctypes
import math
from typing import Any, NamedTuple

import numpy as np

from ..errors import DnncError, DnncTypeError, Status
from ..runtime.buffers import buffer_of, is_torch
from .enums import data_type, type_of, type_of_own
from .tensors import row_major


class Described(NamedTuple):
    """An array: dims, strides in elements, type; its number if it is one of the host."""

    dim: list[int]
    stride: list[int]
    data_type: data_type | None
    is_host: bool
    value: float | int | bool | None = None


def is_array(value: Any) -> bool:
    """Whether it is an array of some library, on a device or not."""
    return is_torch(type(value)) or any(
        hasattr(value, name) for name in ("__cuda_array_interface__", "__dlpack__")
    )


def described(array: Any) -> Described:
    """The descriptor of an array."""
    if is_torch(type(array)):
        is_host = array.device.type == "cpu"
        dims, strides = list(array.shape), list(array.stride())
        value = array.item() if is_host and math.prod(dims) == 1 else None
        return Described(dims, strides, type_of(array.dtype), is_host, value)
    if isinstance(array, np.ndarray):
        value = array.reshape(()).item() if array.size == 1 else None
        strides = [stride // array.itemsize for stride in array.strides]
        return Described(list(array.shape), strides, type_of(array.dtype), True, value)
    if not is_array(array):
        what = f"a {type(array).__name__}"
        raise DnncTypeError(Status.BAD_PARAM, what, "a tensor of the graph, or an array")
    found = buffer_of(array, "tensor_like")
    dims = list(found.dims or ())
    strides = row_major(dims) if found.strides is None else list(found.strides)
    return Described(dims, strides, type_of_own(found.dtype), False)


class Memory(NamedTuple):
    """Device memory: an address, and how many bytes are there from it on; None: not known."""

    address: int
    bytes: int | None


def memory_of(value: Any, where: str) -> Memory:
    """The memory of an array or an address; memory of the host is a ValueError."""
    kind = type(value)
    if kind is int:
        return Memory(buffer_of(value, where).address, None)
    if is_torch(kind):
        if not value.is_cuda:
            what = f"a tensor on {value.device}"
            raise DnncError(Status.BAD_PARAM, what, "memory of a CUDA device", where)
        return Memory(value.data_ptr(), _bytes_of_torch(value))
    found = buffer_of(value, where)
    return Memory(found.address, _extent(found.dims, found.strides, _itemsize(value, found.dtype)))


def _bytes_of_torch(tensor: Any) -> int | None:
    """From a torch tensor's first element to the end of its storage."""
    try:
        begins = tensor.storage_offset() * tensor.element_size()
        return tensor.untyped_storage().nbytes() - begins
    except (AttributeError, RuntimeError):  # another class of torch's, without storage
        return None


def _itemsize(value: Any, dtype: Any) -> int | None:
    """Bytes of an element in its library, where a boolean takes one."""
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        return np.dtype(interface["typestr"]).itemsize
    return None if dtype is None else max(1, dtype.bits // 8)


def _extent(dims: Any, strides: Any, itemsize: int | None) -> int | None:
    """Bytes from the first element to the last."""
    if dims is None or itemsize is None:
        return None
    if 0 in dims:
        return 0
    steps = row_major(dims) if strides is None else strides
    return itemsize * (1 + sum((n - 1) * step for n, step in zip(dims, steps, strict=True)))


def bound_number(value: Any, kind: data_type | None, where: str) -> Any:
    """Number bound to a by-value tensor: itself, an array of the host, or the address of one."""
    if type(value) is int:
        return _number_at(value, kind, where)
    if is_torch(type(value)) or isinstance(value, np.ndarray | np.generic | float | bool):
        return value
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    return value


# An address below is none: the first page is never mapped.
_FIRST_PAGE = 4096

_AT = {
    data_type.FLOAT: ctypes.c_float,
    data_type.DOUBLE: ctypes.c_double,
    data_type.INT32: ctypes.c_int32,
    data_type.INT64: ctypes.c_int64,
    data_type.INT8: ctypes.c_int8,
    data_type.UINT8: ctypes.c_uint8,
}


def _number_at(address: int, kind: data_type | None, where: str) -> Any:
    """The number at an address of the host, which an int in a pack is, as in cudnn-frontend."""
    if not _FIRST_PAGE <= address < 1 << 64:
        what = f"{address} for a by-value tensor, where an int is an address of the host"
        raise DnncError(Status.BAD_PARAM, what, "a float, or a host array of one element", where)
    if kind is data_type.HALF:
        return float(np.frombuffer(ctypes.string_at(address, 2), np.float16)[0])
    if kind is data_type.BFLOAT16:
        bits = int.from_bytes(ctypes.string_at(address, 2), "little") << 16
        return float(np.frombuffer(bits.to_bytes(4, "little"), np.float32)[0])
    read = None if kind is None else _AT.get(kind)
    if read is None:
        what = f"an address for a by-value tensor of {kind.name if kind else 'no type'}"
        raise DnncError(Status.BAD_PARAM, what, "a number, or a host array of one element", where)
    return read.from_address(address).value
