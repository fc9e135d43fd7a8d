"""The tensor descriptor."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..dialect.tensor import Tensor, text
from ..dtypes import DType
from ..errors import DnncError, Status
from ..expr import Expr
from . import enums
from .attributes import dtype_of
from .descriptor import Given
from .enums import cudnnBackendAttributeType_t as Type
from .tables import AXES, BOOLEAN, DATA_TYPE, INT64, Row, kind, tensor_row

_VECTORS = (
    enums.cudnnDataType_t.CUDNN_DATA_INT8x4,
    enums.cudnnDataType_t.CUDNN_DATA_UINT8x4,
    enums.cudnnDataType_t.CUDNN_DATA_INT8x32,
)


@dataclass(frozen=True)
class TensorSpec:
    """A tensor as its descriptor says it; equal ones with one uid are one tensor of a graph.

    had_groups: its groups, a dim of the descriptor, are a part of the channels here.
    """

    uid: int
    dtype: DType
    dims: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    alignment: int
    is_virtual: bool
    is_by_value: bool
    reordering: str
    ragged_offset: TensorSpec | None
    vector_count: int
    vector_dim: int | None
    had_groups: bool = field(default=False, compare=False)

    def tensor(self) -> Tensor:
        """A tensor of a graph; its ragged offset is left to whoever has the graph."""
        return Tensor(
            uid=self.uid,
            dims=self.dims,
            strides=self.strides,
            dtype=self.dtype,
            is_virtual=self.is_virtual,
            is_output=not self.is_virtual,
            is_by_value=self.is_by_value,
            alignment=self.alignment,
            reordering=self.reordering,
            vector_count=self.vector_count,
            vector_dim=self.vector_dim,
        )


def _build(given: Given) -> TensorSpec:
    dims = tuple(Expr.of(size) for size in given.all("DIMENSIONS"))
    strides = tuple(Expr.of(size) for size in given.all("STRIDES"))
    if len(dims) != len(strides):
        raise given.error(
            "STRIDES", f"{len(strides)} strides of {len(dims)} dimensions", "one a dimension",
            Status.BAD_PARAM_SHAPE_MISMATCH,
        )  # fmt: skip
    for suffix, sizes, least in (("DIMENSIONS", dims, 1), ("STRIDES", strides, 0)):
        if any(size.constant is not None and size.constant < least for size in sizes):
            raise given.error(suffix, text(sizes), f"numbers of at least {least}")
    dtype = _dtype(given)
    _verify_alignment(given, dtype)
    vector_count = given.one("VECTOR_COUNT")
    if vector_count != 1 and "VECTORIZED_DIMENSION" not in given:
        raise given.error("VECTORIZED_DIMENSION", "it is not set", "the vectorized dimension")
    reordering = given.one("REORDERING_MODE").name.removeprefix("CUDNN_TENSOR_REORDERING_")
    spec = TensorSpec(
        uid=given.one("UNIQUE_ID"),
        dtype=dtype,
        dims=dims,
        strides=strides,
        alignment=_power_of_two(given.one("BYTE_ALIGNMENT")),
        is_virtual=given.one("IS_VIRTUAL"),
        is_by_value=given.one("IS_BY_VALUE"),
        reordering=reordering,
        ragged_offset=given.payload("RAGGED_OFFSET_DESC"),
        vector_count=vector_count,
        vector_dim=None if vector_count == 1 else given.one("VECTORIZED_DIMENSION"),
    )
    spec.tensor().verify()
    return spec


def _dtype(given: Given) -> DType:
    value = given.one("DATA_TYPE")
    if value in _VECTORS:
        raise given.error(
            "DATA_TYPE", value.name, "CUDNN_DATA_INT8 or CUDNN_DATA_UINT8", Status.NOT_SUPPORTED
        )
    dtype = dtype_of(value)
    if dtype is None:
        raise given.error(
            "DATA_TYPE", value.name, "a data type of dnnc.data_type",
            Status.NOT_SUPPORTED_DATA_TYPE,
        )  # fmt: skip
    return dtype


def _verify_alignment(given: Given, dtype: DType) -> None:
    alignment, size = given.one("BYTE_ALIGNMENT"), max(1, dtype.bits // 8)
    if alignment < 1 or alignment % size:
        raise given.error(
            "BYTE_ALIGNMENT", f"{alignment} of {dtype}", f"a positive multiple of {size}"
        )


def _power_of_two(alignment: int) -> int:
    """The largest power of two that divides an alignment, and so the address."""
    return alignment & -alignment


TENSOR = kind(
    "TENSOR",
    "TENSOR",
    [
        Row("BYTE_ALIGNMENT", INT64, required=True),
        Row("DATA_TYPE", DATA_TYPE, required=True),
        Row("DIMENSIONS", INT64, AXES, required=True, takes_sizes=True),
        Row("STRIDES", INT64, AXES, required=True, takes_sizes=True),
        Row("VECTOR_COUNT", INT64, default=1),
        Row("VECTORIZED_DIMENSION", INT64),
        Row("UNIQUE_ID", INT64, required=True),
        Row("IS_VIRTUAL", BOOLEAN, default=False),
        Row("IS_BY_VALUE", BOOLEAN, default=False),
        Row(
            "REORDERING_MODE",
            Type.CUDNN_TYPE_TENSOR_REORDERING_MODE,
            default=enums.cudnnBackendTensorReordering_t.CUDNN_TENSOR_REORDERING_NONE,
        ),
        tensor_row("RAGGED_OFFSET_DESC", required=False),
    ],
    _build,
)


def conflict(one: TensorSpec, other: TensorSpec) -> DnncError:
    """Two tensors of one graph that differ have one uid."""
    if one.had_groups or other.had_groups:
        return DnncError(
            Status.NOT_SUPPORTED_GRAPH_PATTERN,
            f"tensor {one.uid} has a dim of groups, and an operation beside the convolution",
            "[N, G * C, ...] for all of them",
            "operation graph",
        )
    return DnncError(
        Status.BAD_PARAM_DUPLICATED_ENTRIES,
        f"tensors that differ have the uid {one.uid}",
        "a uid for one tensor only",
        "operation graph",
    )
