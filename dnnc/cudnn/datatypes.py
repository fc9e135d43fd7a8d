# pyright: basic
"""Data types of torch for those of cuDNN, and back."""

from __future__ import annotations

import importlib
from typing import Any

from ..errors import DnncError
from .enums import data_type, type_of

_OF_TORCH = {
    "float16": data_type.HALF,
    "bfloat16": data_type.BFLOAT16,
    "float32": data_type.FLOAT,
    "float64": data_type.DOUBLE,
    "int8": data_type.INT8,
    "int32": data_type.INT32,
    "int64": data_type.INT64,
    "uint8": data_type.UINT8,
    "bool": data_type.BOOLEAN,
    "float8_e4m3fn": data_type.FP8_E4M3,
    "float8_e5m2": data_type.FP8_E5M2,
    "float8_e8m0fnu": data_type.FP8_E8M0,
    "float4_e2m1fn_x2": data_type.FP4_E2M1,
}
_TO_TORCH = {kind: name for name, kind in _OF_TORCH.items()}


def is_torch_available() -> bool:
    """Whether torch can be imported."""
    try:
        importlib.import_module("torch")
    except ImportError:
        return False
    return True


def torch_to_cudnn_data_type(torch_data_type: Any) -> data_type | None:
    """The member for a torch dtype; None for one that cuDNN has not."""
    found = _OF_TORCH.get(str(torch_data_type).removeprefix("torch."))
    if found is not None:
        return found
    try:
        return type_of(torch_data_type)
    except DnncError:
        return None


def cudnn_to_torch_data_type(kind: data_type) -> Any:
    """The torch dtype of a member; None for one that torch has not."""
    name = _TO_TORCH.get(kind)
    return None if name is None else getattr(importlib.import_module("torch"), name, None)


# The names that callers of cudnn-frontend use beside the public ones.
_torch_to_cudnn_data_type = torch_to_cudnn_data_type
_cudnn_to_torch_data_type = cudnn_to_torch_data_type
