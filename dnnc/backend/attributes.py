"""Attributes of descriptors: what may be set, what may be got, and how values are checked."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from typing import Any, cast

from .. import dtypes
from ..dtypes import DType
from ..errors import DnncError, Status
from ..expr import Dim, Expr
from ..frontends.handle import Handle
from . import enums
from .enums import cudnnBackendAttributeName_t as Name
from .enums import cudnnBackendAttributeType_t as Type
from .enums import cudnnBackendDescriptorType_t as DescriptorType

DIM_MAX = 8
MANY = 1 << 31  # elements of an attribute that has no limit of its own

# Type of elements -> their enumeration.
ENUM_OF: dict[Type, type[IntEnum]] = {
    Type.CUDNN_TYPE_DATA_TYPE: enums.cudnnDataType_t,
    Type.CUDNN_TYPE_CONVOLUTION_MODE: enums.cudnnConvolutionMode_t,
    Type.CUDNN_TYPE_HEUR_MODE: enums.cudnnBackendHeurMode_t,
    Type.CUDNN_TYPE_KNOB_TYPE: enums.cudnnBackendKnobType_t,
    Type.CUDNN_TYPE_NAN_PROPOGATION: enums.cudnnNanPropagation_t,
    Type.CUDNN_TYPE_NUMERICAL_NOTE: enums.cudnnBackendNumericalNote_t,
    Type.CUDNN_TYPE_LAYOUT_TYPE: enums.cudnnBackendLayoutType_t,
    Type.CUDNN_TYPE_ATTRIB_NAME: enums.cudnnBackendAttributeName_t,
    Type.CUDNN_TYPE_POINTWISE_MODE: enums.cudnnPointwiseMode_t,
    Type.CUDNN_TYPE_GENSTATS_MODE: enums.cudnnGenStatsMode_t,
    Type.CUDNN_TYPE_BN_FINALIZE_STATS_MODE: enums.cudnnBnFinalizeStatsMode_t,
    Type.CUDNN_TYPE_REDUCTION_OPERATOR_TYPE: enums.cudnnReduceTensorOp_t,
    Type.CUDNN_TYPE_BEHAVIOR_NOTE: enums.cudnnBackendBehaviorNote_t,
    Type.CUDNN_TYPE_TENSOR_REORDERING_MODE: enums.cudnnBackendTensorReordering_t,
    Type.CUDNN_TYPE_RESAMPLE_MODE: enums.cudnnResampleMode_t,
    Type.CUDNN_TYPE_PADDING_MODE: enums.cudnnPaddingMode_t,
    Type.CUDNN_TYPE_SIGNAL_MODE: enums.cudnnSignalMode_t,
    Type.CUDNN_TYPE_NORM_MODE: enums.cudnnBackendNormMode_t,
    Type.CUDNN_TYPE_NORM_FWD_PHASE: enums.cudnnBackendNormFwdPhase_t,
    Type.CUDNN_TYPE_RNG_DISTRIBUTION: enums.cudnnRngDistribution_t,
    Type.CUDNN_TYPE_MOE_GROUPED_MATMUL_MODE: enums.cudnnMoeGroupedMatmulMode_t,
}

REALS = (Type.CUDNN_TYPE_FLOAT, Type.CUDNN_TYPE_DOUBLE)


@dataclass(frozen=True)
class Attribute:
    """One attribute of a kind of descriptor.

    types: those that its elements may have.  low, high: how many there may be.
    of: the kinds of descriptors that its elements may be.
    access: "settable"; "read-only", of a finalized descriptor; "input", the same about another
    descriptor that the caller passes; "unsupported", by cuDNN or dnnc, as `why` says.
    is_required: finalizing needs it.  default: what it has unless it is set.
    takes_sizes: its integers may be sizes of `dnnc.Dim`.
    """

    name: Name
    types: tuple[Type, ...]
    low: int = 1
    high: int = 1
    of: tuple[DescriptorType, ...] = ()
    access: str = "settable"
    why: str = ""
    is_required: bool = False
    default: tuple[Any, ...] | None = None
    takes_sizes: bool = False

    @property
    def counts(self) -> str:
        """How many elements it takes, for messages."""
        if self.low == self.high:
            return str(self.low)
        return f"{self.low} or more" if self.high == MANY else f"{self.low} to {self.high}"


@dataclass(frozen=True)
class Elements:
    """Values of an attribute, all of one type."""

    type: Type
    values: tuple[Any, ...]


def read_elements(attribute: Attribute, kind: Type, count: Any, given: Any, where: str) -> Elements:
    """The first `count` elements of what a caller gave, checked; BAD_PARAM where they are wrong."""

    def error(what: str, supported: str, status: Status = Status.BAD_PARAM) -> DnncError:
        return DnncError(status, what, supported, where)

    if not isinstance(count, int) or isinstance(count, bool):
        raise error(f"element count {count!r:.40}", "an integer")
    if kind is Type.CUDNN_TYPE_CHAR:
        return Elements(kind, (_text(given, count, error),))
    if not attribute.low <= count <= attribute.high:
        raise error(f"{count} elements", attribute.counts)
    is_null = given is None and count == 1 and kind is Type.CUDNN_TYPE_VOID_PTR
    items = (None,) if is_null else _items(given, count, error)
    convert = _converter(attribute, kind, error)
    return Elements(kind, tuple(convert(item) for item in items))


_Error = Callable[..., DnncError]


def _items(given: Any, count: int, error: _Error) -> Sequence[Any]:
    """The elements of an array; one element may stand for itself."""
    if count == 0:
        return ()
    if given is None:
        raise error("no array", f"{count} elements", Status.BAD_PARAM_NULL_POINTER)
    if isinstance(given, list | tuple):
        array: Sequence[Any] = cast(Sequence[Any], given)
    elif hasattr(given, "tolist") and getattr(given, "ndim", 0) == 1 and not _is_on_device(given):
        array = given.tolist()
    elif count == 1:
        return (given,)
    else:
        raise error(f"a {given.__class__.__name__}", f"a list of {count} elements")
    if len(array) < count:
        what = f"{len(array)} elements where {count} are announced"
        raise error(what, f"{count} elements", Status.BAD_PARAM_SIZE_INSUFFICIENT)
    return array[:count]


def _is_on_device(given: Any) -> bool:
    """Arrays of device memory are one pointer, not elements."""
    return hasattr(given, "data_ptr") or hasattr(given, "__cuda_array_interface__")


def _text(given: Any, count: int, error: _Error) -> str:
    """Characters up to the first zero, as C reads them."""
    if isinstance(given, bytes | bytearray):
        given = bytes(given).decode("utf-8", "replace")
    if not isinstance(given, str):
        raise error(f"a {given.__class__.__name__}", "text: a str or bytes")
    if not 1 <= count <= len(given) + 1:
        what = f"{count} characters of a text of {len(given)}"
        status = Status.BAD_PARAM if count < 1 else Status.BAD_PARAM_SIZE_INSUFFICIENT
        raise error(what, f"1 to {len(given) + 1}, its end included", status)
    return given[:count].split("\0")[0]


def _converter(attribute: Attribute, kind: Type, error: _Error) -> Callable[[Any], Any]:
    enumeration = ENUM_OF.get(kind)
    if kind is Type.CUDNN_TYPE_DATA_TYPE:
        return lambda item: _data_type(item, error)
    if enumeration is not None:
        return lambda item: _enumerator(enumeration, item, error)
    if kind in _INTEGER_BITS:
        bits, takes_sizes = _INTEGER_BITS[kind], attribute.takes_sizes
        return lambda item: _integer(item, bits, takes_sizes, error)
    if kind in REALS:
        return lambda item: _real(item, kind, error)
    return {
        Type.CUDNN_TYPE_BOOLEAN: lambda item: _boolean(item, error),
        Type.CUDNN_TYPE_FRACTION: lambda item: _fraction(item, error),
        Type.CUDNN_TYPE_HANDLE: lambda item: _handle(item, error),
        Type.CUDNN_TYPE_VOID_PTR: lambda item: item,
        Type.CUDNN_TYPE_BACKEND_DESCRIPTOR: lambda item: item,  # whoever has the kinds checks it
    }[kind]


_INTEGER_BITS = {Type.CUDNN_TYPE_INT64: 64, Type.CUDNN_TYPE_INT32: 32}


def attribute_name(prefix: str, suffix: str) -> Name:
    """CUDNN_ATTR_TENSOR_UNIQUE_ID of `TENSOR` and `UNIQUE_ID`; DNNC_ATTR_... where that is one."""
    ours = f"DNNC_ATTR_{prefix}_{suffix}"
    return Name[ours if ours in Name.__members__ else f"CUDNN_ATTR_{prefix}_{suffix}"]


def _enumerator(kind: type[IntEnum], item: Any, error: _Error) -> IntEnum:
    is_foreign = isinstance(item, IntEnum) and not isinstance(item, kind)
    known = {int(value): value for value in kind}
    if isinstance(item, int) and not isinstance(item, bool) and not is_foreign and item in known:
        return known[item]
    raise error(f"{item!r:.60}", f"{kind.__name__}: {names_of(known.values())}")


def _data_type(item: Any, error: _Error) -> IntEnum:
    """An enumerator, or a data type as the rest of dnnc writes it."""
    value = item.value if isinstance(item, DType) else item
    return _enumerator(enums.cudnnDataType_t, value, error)


def _integer(item: Any, bits: int, takes_sizes: bool, error: _Error) -> int | Expr:
    if takes_sizes and isinstance(item, Dim | Expr):
        return Expr.of(item)
    accepted = f"an integer of {bits} bits{', or a size of dnnc.Dim' if takes_sizes else ''}"
    if isinstance(item, bool | float | Dim | Expr) or not hasattr(item, "__index__"):
        raise error(f"{item!r:.40}", accepted)
    value = operator.index(item)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise error(f"{value}", accepted, Status.BAD_PARAM_OUT_OF_BOUND)
    return value


def _real(item: Any, kind: Type, error: _Error) -> float:
    if isinstance(item, bool) or not hasattr(item, "__float__"):
        raise error(f"{item!r:.40}", "a number")
    value = float(item)
    if kind is Type.CUDNN_TYPE_FLOAT:
        try:
            return struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            raise error(f"{value}", "a number of FLOAT", Status.BAD_PARAM_OUT_OF_BOUND) from None
    return value


def _boolean(item: Any, error: _Error) -> bool:
    if item is True or item is False or (type(item) is int and item in (0, 1)):
        return bool(item)
    raise error(f"{item!r:.40}", "True or False")


def _fraction(item: Any, error: _Error) -> Fraction:
    if isinstance(item, Fraction):
        return item
    pair = cast(tuple[Any, ...], item) if isinstance(item, tuple) else ()
    if len(pair) == 2 and all(type(part) is int for part in pair) and pair[1] != 0:
        return Fraction(*pair)
    raise error(f"{item!r:.40}", "a fractions.Fraction, or (numerator, denominator)")


def _handle(item: Any, error: _Error) -> Handle:
    if not isinstance(item, Handle):
        raise error(f"{item!r:.40}", "a handle of dnnc.create_handle()")
    if not item.is_open:
        raise error("a handle that was destroyed", "a handle that is open")
    return item


def converted(elements: Elements, kind: Type) -> Elements | None:
    """The elements as another type asks for them; None where they have none."""
    if elements.type is kind:
        return elements
    if elements.type in REALS and kind in REALS:
        values = (_real(value, kind, _overflow) for value in elements.values)
        return Elements(kind, tuple(values))
    return None


def _overflow(what: str, supported: str, status: Status) -> DnncError:
    return DnncError(status, what, supported, "attribute")


def dtype_of(value: IntEnum) -> DType | None:
    """dnnc's row of a data type, None where it has none."""
    return next((row for row in dtypes.COMPUTE if row.value == value), None)


def names_of(types: Iterable[Any]) -> str:
    """Enumerators, as messages list them."""
    return ", ".join(value.name for value in types)
