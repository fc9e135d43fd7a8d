# pyright: basic
"""Reads what a caller binds to a tensor, and checks that it fits.

A device buffer is anything with `__cuda_array_interface__` or `__dlpack__` (PyTorch, CuPy, JAX),
a torch tensor, or an address.  A by-value tensor takes a number or a host array of one element.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import operator
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import DnncError, Status
from ..plan.plan import TensorRecord
from . import driver

if TYPE_CHECKING:
    from .sized import SizedTensor

WORKSPACE_ALIGNMENT = 256

_DLPACK_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged
_DLPACK_CUDA_HOST = 3


class Buffer(NamedTuple):
    """Memory that a caller gave.

    address: of its first element.  What only an address can't tell is None: dims, strides (in
    elements), dtype, device (an ordinal).
    """

    address: int
    dims: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    dtype: DType | None = None
    device: int | None = None


# What stands for no buffer; it is no device's.
NO_BUFFER = Buffer(0)

Where = str | TensorRecord


def buffer_of(value: Any, where: Where) -> Buffer:
    """The buffer of an address or an array object; a host array is BAD_PARAM.

    where: the tensor, or what messages call it.
    """
    kind = type(value)
    if kind is int:
        if value == 0:
            raise DnncError(
                Status.BAD_PARAM_NULL_POINTER, "address 0", "a device address", _name(where)
            )
        if not 0 < value < 1 << 64:
            raise DnncError(
                Status.BAD_PARAM, f"address {hex(value):.40}", "a device address", _name(where)
            )
        return Buffer(value)
    if is_torch(kind):
        return _of_torch(value, where)
    try:
        interface = getattr(value, "__cuda_array_interface__", None)
        if interface is not None:
            return _of_cuda_array(interface)
        if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
            return _of_dlpack(value, where)
    except DnncError:
        raise
    except Exception as error:  # of the array's own library, or of what it says of itself
        raise DnncError(
            Status.BAD_PARAM,
            f"a {kind.__name__} that can't be read: {type(error).__name__}: {error}",
            "__cuda_array_interface__ or DLPack as they are defined",
            _name(where),
        ) from error
    if isinstance(value, np.ndarray):
        raise _on_host("a NumPy array", where)
    raise DnncError(
        Status.BAD_PARAM,
        f"a {type(value).__name__}",
        "a device array (__cuda_array_interface__ or DLPack), or an address",
        _name(where),
    )


@functools.cache
def is_torch(kind: type) -> bool:
    """Whether a class is one of torch's tensors."""
    return any(base.__module__.partition(".")[0] == "torch" for base in kind.__mro__)


def signature_of(value: Any) -> Hashable:
    """A signature that tells a bound value apart: a number itself, or a tuple for an array.

    Equal signatures bind the same number, or the same memory, dims, strides, data type and device.
    """
    kind = type(value)
    if kind is int or kind is bool or value is None:
        return value
    if kind is float:
        return value.hex()  # tells -0 from 0
    if is_torch(kind):
        if value.is_cuda:
            return (value.data_ptr(), value.shape, value.stride(), value.dtype, value.device)
        if value.numel() == 1:  # a number, which may change where it stands
            return signature_of(value.item())
    if isinstance(value, np.ndarray | np.generic) and value.size == 1:
        return signature_of(value.item())
    return tuple(buffer_of(value, "variant pack"))


def _name(where: Where) -> str:
    return where if isinstance(where, str) else label(where)


def _on_host(kind: str, where: Where) -> DnncError:
    return DnncError(
        Status.BAD_PARAM, f"{kind} in host memory", "memory of a CUDA device", _name(where)
    )


def _of_torch(value: Any, where: Where) -> Buffer:
    if not value.is_cuda:
        raise _on_host(f"a tensor on {value.device}", where)
    dims, strides, dtype = tuple(value.shape), value.stride(), _dtype_or_none(value.dtype)
    return Buffer(value.data_ptr(), dims, strides, dtype, value.get_device())


@functools.cache
def _dtype_or_none(name: Any) -> DType | None:
    """The data type, None for one that is not in the table (torch.bool, ...)."""
    try:
        return dtypes.of(name)
    except DnncError:
        return None


def _of_cuda_array(interface: Mapping[str, Any]) -> Buffer:
    dims = tuple(map(operator.index, interface["shape"]))
    element = np.dtype(interface["typestr"])
    strides = interface.get("strides")
    if strides is not None and len(strides) != len(dims):
        raise ValueError(f"{len(strides)} strides of {len(dims)} dims")
    in_elements = (
        tuple(stride // element.itemsize for stride in strides) if strides else _packed(dims)
    )
    address = operator.index(interface["data"][0])
    return Buffer(address, dims, in_elements, _dtype_or_none(element))


def _packed(dims: Sequence[int]) -> tuple[int, ...]:
    strides, running = [], 1
    for extent in reversed(dims):
        strides.append(running)
        running *= extent
    return tuple(reversed(strides))


class _DLDevice(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("ordinal", ctypes.c_int32))


class _DLDataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", _DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def _of_dlpack(value: Any, where: Where) -> Buffer:
    """Reads a DLPack capsule without taking it over; -1: no stream has to wait for another."""
    capsule = value.__dlpack__(stream=-1)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = ctypes.cast(pointer(capsule, b"dltensor"), ctypes.POINTER(_DLTensor)).contents
    if tensor.device.type not in (*_DLPACK_CUDA, _DLPACK_CUDA_HOST):
        raise _on_host(f"DLPack device type {tensor.device.type}", where)
    dims = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = (
        tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else _packed(dims)
    )
    try:
        dtype = dtypes.of_dlpack(tensor.dtype.code, tensor.dtype.bits)
    except DnncError:
        dtype = None
    address = (tensor.data or 0) + tensor.byte_offset
    return Buffer(address, dims, strides, dtype, tensor.device.ordinal)


# ---- checks


def placed(buffer: Buffer, where: str) -> Buffer:
    """The buffer with its device, which an address alone does not tell.

    An array without elements has none: its address may be 0.
    """
    if buffer.device is not None or 0 in (buffer.dims or ()):
        return buffer
    device = driver.memory_device(buffer.address)
    if device is None:
        raise DnncError(
            Status.BAD_PARAM,
            f"address {buffer.address:#x} is no memory of a CUDA device",
            "memory that CUDA allocated",
            where,
        )
    return buffer._replace(device=device)


def verify_buffer(tensor: SizedTensor, buffer: Buffer, device: int | None) -> None:
    """A buffer has the tensor's data type, dims, strides, alignment and device (None: any).

    That of a peer's tensor may be on any device: whether this one has access to its memory is what
    the caller sees to.
    """
    where, record = tensor.label, tensor.record
    if device is not None and buffer.device not in (None, device) and not record.is_peer:
        raise DnncError(
            Status.BAD_PARAM, f"a buffer on device {buffer.device}", f"device {device}", where
        )
    if buffer.address % record.alignment:
        raise DnncError(
            Status.BAD_PARAM_MISALIGNED_POINTER,
            f"address {buffer.address:#x}",
            f"a multiple of {record.alignment} bytes",
            where,
        )
    if buffer.dims is None:
        return
    if tensor.dtype.kind == "b":
        _verify_packed(tensor, buffer)
        return
    if buffer.dtype is not tensor.dtype and buffer.dtype != tensor.dtype:
        raise DnncError(
            Status.BAD_PARAM, f"data type {buffer.dtype or 'unknown'}", str(tensor.dtype), where
        )
    if tensor.record.reordering == "F16x16" and len(buffer.dims) != len(tensor.dims):
        tensor = _as_matrices(tensor, buffer.dims)
    if buffer.dims != tensor.dims:
        raise DnncError(
            Status.BAD_PARAM_SHAPE_MISMATCH,
            f"dims {list(buffer.dims)}",
            f"{list(tensor.dims)}",
            where,
        )
    if buffer.strides not in (None, tensor.strides) and any(
        given != expected
        for given, expected, extent in zip(
            buffer.strides or (), tensor.strides, tensor.dims, strict=True
        )
        if extent > 1 and 0 not in tensor.dims
    ):
        raise DnncError(
            Status.BAD_PARAM,
            f"strides {list(buffer.strides or ())}",
            f"{list(tensor.strides)}",
            where,
        )


def _as_matrices(tensor: SizedTensor, dims: Sequence[int]) -> SizedTensor:
    """A tensor in the order F16x16 as what its graph declared: an array of packed matrices, whose
    bytes are the buffer.  dims: an array's, whose batch is taken if it is of as many matrices."""
    count, *axes = tensor.dims
    is_exchanged = tensor.strides[-1] != 1
    cut = 4 if is_exchanged else 3
    first, second = math.prod(axes[:cut]), math.prod(axes[cut:])
    batch = tuple(dims[:-2]) if math.prod(dims[:-2]) == count else (count,)
    if is_exchanged:
        *outer, inner, outermost = _packed((*batch, second, first))
        strides = (*outer, outermost, inner)
    else:
        strides = _packed((*batch, first, second))
    return tensor._replace(dims=(*batch, first, second), strides=strides)


def _verify_packed(tensor: SizedTensor, buffer: Buffer) -> None:
    """Packed booleans, which no array library has: enough bytes of any 8-bit type."""
    held = held_bytes(buffer)
    if buffer.dtype is None or buffer.dtype.bits != 8 or held is None or held < tensor.bytes:
        raise DnncError(
            Status.BAD_PARAM,
            f"{held} bytes of data type {buffer.dtype or 'unknown'}",
            f"{tensor.bytes} bytes of packed bits, as ui8",
            tensor.label,
        )


class Span(NamedTuple):
    """The bytes that a tensor takes."""

    record: TensorRecord
    start: int
    bytes: int

    @property
    def end(self) -> int:
        return self.start + self.bytes

    def overlaps(self, other: Span) -> bool:
        return max(self.start, other.start) < min(self.end, other.end)


def verify_apart(spans: Sequence[Span], may_alias: Sequence[tuple[int, int]]) -> None:
    """No output overlaps another tensor, unless the plan allows the two one buffer; nor does what
    devices exchange values through."""
    ordered = sorted([(span.start, span.start + span.bytes) for span in spans if span.bytes])
    if all([before[1] <= after[0] for before, after in itertools.pairwise(ordered)]):
        return
    allowed = {tuple(pair) for pair in may_alias}
    for span in spans:
        if span.record.role != "output" and not span.record.is_peer:
            continue
        for other in spans:
            if other is span or not span.overlaps(other):
                continue
            pair = (span.record.uid, other.record.uid)
            if span.start == other.start and pair in allowed:
                continue
            raise DnncError(
                Status.BAD_PARAM,
                f"its buffer overlaps that of {label(other.record)}",
                "buffers apart; in place only for a graph of one pointwise operation, "
                "on the same address and layout",
                label(span.record),
            )


def verify_workspace(
    buffer: Buffer, needed: int, spans: Sequence[Span], device: int, where: str
) -> int:
    """The address of a workspace that is large enough, aligned, on the device and apart."""
    if buffer is NO_BUFFER:
        raise DnncError(Status.BAD_PARAM, "none is given", f"{needed} bytes", where)
    buffer = placed(buffer, where)
    if buffer.device != device:
        raise DnncError(
            Status.BAD_PARAM, f"memory of device {buffer.device}", f"device {device}", where
        )
    verify_workspace_form(buffer, needed, spans, where)
    return buffer.address


def verify_workspace_form(buffer: Buffer, needed: int, spans: Sequence[Span], where: str) -> None:
    """A workspace is aligned, large enough as far as that is known, and apart."""
    if buffer.address % WORKSPACE_ALIGNMENT:
        raise DnncError(
            Status.BAD_PARAM_MISALIGNED_POINTER,
            f"address {buffer.address:#x}",
            f"a multiple of {WORKSPACE_ALIGNMENT} bytes",
            where,
        )
    held = held_bytes(buffer)
    if held is not None and held < needed:
        raise DnncError(
            Status.BAD_PARAM_SIZE_INSUFFICIENT, f"{held} bytes", f"{needed} bytes", where
        )
    for span in spans:
        if span.overlaps(Span(span.record, buffer.address, needed)):
            raise DnncError(
                Status.BAD_PARAM, f"overlaps {label(span.record)}", "memory of its own", where
            )


def held_bytes(buffer: Buffer) -> int | None:
    """How many bytes an array has; None for an address."""
    if buffer.dims is None or buffer.dtype is None:
        return None
    return buffer.dtype.storage_bytes(math.prod(buffer.dims))


def label(record: TensorRecord) -> str:
    name = f"'{record.name}' " if record.name else ""
    return f"tensor {name}(uid {record.uid})"


def number_of(record: TensorRecord, value: Any) -> float | int:
    """The number bound to a by-value tensor; a device array is BAD_PARAM."""
    where = label(record)
    if value is None:
        value = record.value
    if value is None:
        raise DnncError(Status.BAD_PARAM, "no value", "a number", where)
    if is_torch(type(value)) and value.device.type == "cpu":
        value = value.item() if value.numel() == 1 else value
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, np.ndarray | np.generic) and np.size(value) == 1:
        number = np.asarray(value).reshape(()).item()
        if isinstance(number, bool | int | float):
            return number
    raise DnncError(
        Status.BAD_PARAM, f"a {type(value).__name__}", "a number or a host array of one", where
    )
