# pyright: basic
"""What engines of convolutions read off the call of an anchor at the linalg stage."""

from __future__ import annotations

from typing import Any

from ..codegen.region import Region
from ..dialect import dnn, structure
from ..dialect.tensor import Tensor
from ..dtypes import DType
from ..mlir import ir
from .conv import ConvShape


def shape_of_call(region: Region, call: Any) -> ConvShape:
    """The convolution that a call of an anchor stands for."""
    attributes = structure.anchor_of(call).attributes
    names = ("pre_padding", "post_padding", "stride", "dilation")
    pre, post, stride, dilation = (
        dnn.attribute_value(attributes[f"dnn.{name}"], tuple) for name in names
    )
    mode = ir.StringAttr(attributes["dnn.convolution_mode"]).value
    x, w = (_tensor_of(region, value) for value in call.operands)
    return ConvShape.of(x, w, pre, post, stride, dilation, mode)


def _tensor_of(region: Region, value: Any) -> Tensor:
    """An argument's tensor, or one of its type that is computed."""
    return region.arguments.get(value) or dnn.read_tensor(value.type, {}, region.symbols)


def sums_of_call(call: Any) -> DType:
    """The type that the convolution's sums are kept in, which it returns."""
    return dnn.read_type(ir.RankedTensorType(call.results[0].type).element_type)
