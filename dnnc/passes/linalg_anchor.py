# pyright: basic
"""Anchors as linalg: a private function that holds the decomposition, and a call of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..codegen.scalars.scalar import convert
from ..dialect import dnn
from ..dialect.op import Op
from ..dialect.tensor import Tensor
from ..dtypes import DType
from ..mlir import func, ir
from .linalg_lowering import Lowering


def call_anchor(low: Lowering, op: Op, sums: DType, body: Callable[..., Any]) -> Any:
    """A private function of the anchor's decomposition, and a call of it."""
    operands = [low.value(source) for source in op.operands]
    result = low.type_of(op.results[0], sums)
    name = f"{low.name}_anchor{low.anchors}"
    low.anchors += 1
    with ir.InsertionPoint(low.module.body):
        function = func.FuncOp(
            name, ([value.type for value in operands], [result]), visibility="private"
        )
        function.add_entry_block()
        function.attributes["dnn.anchor"] = ir.StringAttr.get(op.op_name)
        for key, value in op.attributes().items():
            field_ = next(f for f in op.fields if f.name == key)
            function.attributes[f"dnn.{key}"] = dnn.attribute_of(value, field_.type)
    with ir.InsertionPoint(function.entry_block):
        outer, low.role = low.role, "anchor"
        func.ReturnOp([body(low, op, sums, *function.arguments)])
        low.role = outer
    return func.CallOp([result], ir.FlatSymbolRefAttr.get(name), operands).results[0]


def cast_from(low: Lowering, value: Any, result: Tensor, sums: DType, compute: DType) -> Any:
    """The anchor's sums in the result's data type, through the compute type."""
    compute = compute if compute.has_storage else sums
    if sums == compute == result.type:
        return value
    return low.generic(
        result,
        result.type,
        [(value, ir.AffineMap.get_identity(result.rank))],
        lambda total: convert(convert(total, sums, compute), compute, result.type),
    )
