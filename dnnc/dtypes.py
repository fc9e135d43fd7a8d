"""Data types: one row each, with the names that cuDNN, MLIR, NumPy and DLPack give them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .errors import DnncError, Status

if TYPE_CHECKING:
    import numpy


@dataclass(frozen=True, eq=False)
class DType:
    """A data type; each is one object, the row below.

    name: MLIR's spelling and ours.  cudnn: cuDNN's, without CUDNN_DATA_.  value: cuDNN's enum
    value.  bits: storage bits an element, 0 for a compute type that no tensor may have.
    kind: "f" float, "i" signed, "u" unsigned, "b" bool.
    numpy_name: NumPy's or ml_dtypes' name.  dlpack: (type code, bits), None where it has none.
    """

    name: str
    cudnn: str
    value: int
    bits: int
    kind: str
    numpy_name: str
    dlpack: tuple[int, int] | None = field(repr=False)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"dnnc.data_type.{self.cudnn}"

    def __reduce__(self) -> tuple[Any, ...]:
        return of, (self.name,)

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    @property
    def is_fp8(self) -> bool:
        return self.is_float and self.bits == 8

    @property
    def has_storage(self) -> bool:
        """Whether tensors may have it; otherwise it is a compute type only."""
        return self.bits > 0

    @property
    def integer_range(self) -> tuple[int, int]:
        """The smallest and the largest value of an integer or boolean type."""
        if self.kind == "i":
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return 0, (1 << self.bits) - 1

    @property
    def numpy(self) -> numpy.dtype[Any]:
        """The NumPy dtype of one element in host memory (a byte for each boolean)."""
        import numpy

        of_storage(self)
        if hasattr(numpy, self.numpy_name):
            return numpy.dtype(self.numpy_name)
        try:
            import ml_dtypes
        except ImportError as error:
            raise DnncError(
                Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
                f"data type {self.name} needs the package ml_dtypes on the host",
                "pip install ml_dtypes",
            ) from error
        return numpy.dtype(getattr(ml_dtypes, self.numpy_name))

    def storage_bytes(self, elements: int) -> int:
        """Bytes that `elements` consecutive elements take (booleans are packed, eight a byte)."""
        return (elements * self.bits + 7) // 8


f32 = DType("f32", "FLOAT", 0, 32, "f", "float32", (2, 32))
f64 = DType("f64", "DOUBLE", 1, 64, "f", "float64", (2, 64))
f16 = DType("f16", "HALF", 2, 16, "f", "float16", (2, 16))
i8 = DType("i8", "INT8", 3, 8, "i", "int8", (0, 8))
i32 = DType("i32", "INT32", 4, 32, "i", "int32", (0, 32))
ui8 = DType("ui8", "UINT8", 6, 8, "u", "uint8", (1, 8))
bf16 = DType("bf16", "BFLOAT16", 9, 16, "f", "bfloat16", (4, 16))
i64 = DType("i64", "INT64", 10, 64, "i", "int64", (0, 64))
# Eight booleans a byte, the lowest index in the least significant bit (guide, notations).
i1 = DType("i1", "BOOLEAN", 11, 1, "b", "bool", None)
f8e4m3 = DType("f8E4M3FN", "FP8_E4M3", 12, 8, "f", "float8_e4m3fn", (10, 8))
f8e5m2 = DType("f8E5M2", "FP8_E5M2", 13, 8, "f", "float8_e5m2", (12, 8))
# A compute type: products of fp8 are added up in the tensor cores' own accumulators, which keep
# fewer bits than f32 (docs/numerics.md).  In MLIR it is a type of the dialect.
fast_float_for_fp8 = DType("fast_float_for_fp8", "FAST_FLOAT_FOR_FP8", 14, 0, "f", "", None)

# The types that tensors may have, and those that operations may compute in.
ALL = (f32, f64, f16, i8, i32, ui8, bf16, i64, i1, f8e4m3, f8e5m2)
COMPUTE = (*ALL, fast_float_for_fp8)

# Further names, as programs and papers write them.
_ALIASES = {
    "fp64": f64, "fp32": f32, "fp16": f16, "u8": ui8,
    "e4m3": f8e4m3, "e4m3fn": f8e4m3, "f8e4m3": f8e4m3, "fp8e4m3": f8e4m3, "fp8_e4m3fn": f8e4m3,
    "e5m2": f8e5m2, "fp8e5m2": f8e5m2,
}  # fmt: skip

_BY_MLIR_NAME = {row.name: row for row in COMPUTE}
_BY_NAME = _BY_MLIR_NAME | {row.cudnn: row for row in COMPUTE}
_BY_ANY_CASE = {name.lower(): row for name, row in _BY_NAME.items()} | _ALIASES
_BY_DLPACK = {row.dlpack: row for row in ALL if row.dlpack}
_BY_NUMPY_NAME = {row.numpy_name: row for row in ALL}


def of(value: object) -> DType:
    """The row that `value` means.

    value: a DType, a name in any case of letters (ours, cuDNN's, NumPy's, or an alias such as
    "fp16" and "e4m3"), a dtype or a scalar class of NumPy and ml_dtypes (numpy.float16), a torch
    dtype.  Every name of FP8_E4M3 means the type with NaN and no infinity; ml_dtypes' float8_e4m3,
    which has infinities, is none of ours.
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, type):  # Python's own float and int say no size
        row = _BY_NUMPY_NAME.get(value.__name__.removesuffix("_"))
    else:
        name = value if isinstance(value, str) else getattr(value, "name", str(value))
        name = str(name).removeprefix("torch.").lower()
        row = _BY_ANY_CASE.get(name) or _BY_NUMPY_NAME.get(name)
    if row is None:
        raise _unknown(value)
    return row


def of_mlir(name: str) -> DType:
    """The row that an MLIR type's text means; f8E4M3 is another type than f8E4M3FN there."""
    row = _BY_MLIR_NAME.get(name)
    if row is None:
        raise _unknown(name)
    return row


def of_storage(value: object) -> DType:
    """The row that `value` means, which has to be a type that tensors may have."""
    row = of(value)
    if not row.has_storage:
        raise DnncError(
            Status.BAD_PARAM_ATTRIBUTE_TYPE,
            f"{row.cudnn} is a compute type, which nothing is stored in",
            ", ".join(map(str, ALL)),
            "data type",
        )
    return row


def of_dlpack(code: int, bits: int) -> DType:
    """The row of a DLPack type (code, bits), one lane."""
    row = _BY_DLPACK.get((code, bits))
    if row is None:
        raise DnncError(
            Status.NOT_SUPPORTED_DATA_TYPE,
            f"DLPack type code {code} with {bits} bits",
            ", ".join(f"{row.name} {row.dlpack}" for row in ALL if row.dlpack),
            "data type",
        )
    return row


def _unknown(value: object) -> DnncError:
    what, names = f"{value!r} is not a data type", ", ".join((*_BY_NAME, *_ALIASES))
    return DnncError(Status.BAD_PARAM_ATTRIBUTE_TYPE, what, names, "data type")
