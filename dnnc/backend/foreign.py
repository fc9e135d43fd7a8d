"""Operation descriptors of cuDNN that the dialect has no operation for.

They take and check what cuDNN's take; a graph that holds one is refused, with the reason.  Once
the dialect has the operation, its descriptor is derived and the rows here are not read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import Status
from .descriptor import Given, Kind
from .enums import cudnnBackendAttributeType_t as Type
from .enums import cudnnBackendDescriptorType_t as DescriptorType
from .nodes import Node, Refusal, Tensors
from .tables import (
    DATA_TYPE,
    INT32,
    INT64,
    Row,
    kind,
    tensor_row,
)
from .tensors import TensorSpec

Check = Callable[[Given], None]


def _rows_of_tensors(required: str, optional: str = "") -> list[Row]:
    rows = [tensor_row(suffix) for suffix in required.split()]
    return rows + [tensor_row(suffix, required=False) for suffix in optional.split()]


def _kind(name: str, prefix: str, rows: list[Row], check: Check, hint: str) -> Kind:
    """A descriptor that graphs refuse; hint: what to do without it."""

    def build(given: Given) -> Node:
        check(given)
        refusal = Refusal(
            Status.NOT_SUPPORTED_GRAPH_PATTERN, "dnnc has no such operation yet", hint, name
        )
        return Node(_nothing, refusal)

    return kind(name, prefix, rows, build)


def _nothing(tensors: Tensors, peer_rank: int) -> list[Any]:
    return []


def _specs(given: Given, suffixes: str) -> list[TensorSpec]:
    """The tensors that are set, of some attributes."""
    return [given.payload(suffix) for suffix in suffixes.split() if suffix in given]


def _require_equal_dims(given: Given, first: str, second: str) -> None:
    specs = _specs(given, f"{first} {second}")
    if len(specs) == 2 and specs[0].dims != specs[1].dims:
        raise given.error(
            second, f"dimensions {[str(n) for n in specs[1].dims]}",
            f"{[str(n) for n in specs[0].dims]}, as of {first}", Status.BAD_PARAM_SHAPE_MISMATCH,
        )  # fmt: skip


def _check_signal(given: Given) -> None:
    _require_equal_dims(given, "XDESC", "YDESC")


def _check_block_scale(given: Given) -> None:
    _require_equal_dims(given, "XDESC", "YDESC")


def _check_nothing(given: Given) -> None:
    """Checks nothing beyond what the tables say."""


_DECOMPOSED = "the matmuls, pointwise operations and reductions that it stands for"
_MATH_PREC = Row("MATH_PREC", DATA_TYPE, required=True)


def _band(prefix: str) -> list[Row]:
    return [
        *_rows_of_tensors(f"{prefix}XDESC {prefix}YDESC"),
        Row(f"{prefix}LOWER_BANDWIDTH", INT64, required=True),
        Row(f"{prefix}UPPER_BANDWIDTH", INT64, required=True),
        Row(f"{prefix}AXIS", INT64, required=True),
        Row(f"{prefix}PAD_VALUE", Type.CUDNN_TYPE_FLOAT),
    ]


KINDS: tuple[Kind, ...] = (
    _kind(
        "OPERATION_SIGNAL", "OPERATION_SIGNAL",
        [
            Row("MODE", Type.CUDNN_TYPE_SIGNAL_MODE, required=True),
            Row("VALUE", INT64, required=True),
            *_rows_of_tensors("FLAGDESC", "XDESC YDESC"),
        ],
        _check_signal, "plans that are launched in order, on streams with events",
    ),
    _kind(
        "OPERATION_BLOCK_SCALE_QUANTIZE", "OPERATION_BLOCK_SCALE_QUANTIZE",
        [
            *_rows_of_tensors("XDESC YDESC SCALE_DESC"), _MATH_PREC,
            Row("BLOCK_SIZE", INT32, required=True),
        ],
        _check_block_scale, "a scale of the whole tensor",
    ),
    _kind(
        "OPERATION_BLOCK_SCALE_DEQUANTIZE", "OPERATION_BLOCK_SCALE_DEQUANTIZE",
        [
            *_rows_of_tensors("XDESC SCALE_DESC YDESC"), _MATH_PREC,
            Row("BLOCK_SIZE", INT32, (1, 2), required=True),
            Row("NEG_SCALE", Type.CUDNN_TYPE_BOOLEAN),
        ],
        _check_block_scale, "a scale of the whole tensor",
    ),
    _kind(
        "OPERATION_EXPAND_BAND_MATRIX", "OPERATION_EXPAND_BAND_MATRIX",
        [*_band(""), *_rows_of_tensors("", "KV_TOKEN_OFFSET_DESC SPECULATIVE_MASK_DESC")],
        _check_nothing, _DECOMPOSED,
    ),
    # The last attribute has no MATRIX in its name.
    _kind(
        "OPERATION_CONTRACT_BAND_MATRIX", "OPERATION_CONTRACT_BAND",
        [*_band("MATRIX_"), Row("MAX_TOKEN_VALUE", INT64)],
        _check_nothing, _DECOMPOSED,
    ),
)  # fmt: skip


def foreign_kinds() -> dict[DescriptorType, Kind]:
    """The descriptors by type."""
    return {made.type: made for made in KINDS}
