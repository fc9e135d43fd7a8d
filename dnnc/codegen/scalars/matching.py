# pyright: basic
"""Finds out what generics of a region compute: questions by which patterns in it are found."""

from __future__ import annotations

from typing import Any

from ...expr import product
from ...mlir import ir
from ..region import Region
from ..walk.region_walk import indexing_maps, inputs_of, is_reduction


def pointwise(value: Any) -> Any:
    """The generic without a reduction that a value comes from; None: something else."""
    op = value.owner
    if isinstance(op, ir.Block) or op.name != "linalg.generic" or is_reduction(op):
        return None
    return op


def times_number(value: Any) -> tuple[Any, Any, float] | None:
    """(a product by a constant, what it multiplies, the constant)."""
    operation = pointwise(value)
    if operation is None or len(inputs_of(operation)) != 1:
        return None
    maps, body = indexing_maps(operation), body_of(operation)
    if maps[0] != maps[1] or [op.name for op in body] != ["arith.constant", "arith.mulf"]:
        return None
    return value, inputs_of(operation)[0], ir.FloatAttr(body[0].attributes["value"]).value


def times_positive(value: Any) -> tuple[Any, Any, float] | None:
    """(a product by a finite constant above 0, what it multiplies, the constant)."""
    found = times_number(value)
    return found if found is not None and 0 < found[2] < float("inf") else None


def body_of(operation: Any) -> list[Any]:
    views = operation.regions[0].blocks[0].operations
    return [view.operation for view in views][:-1]


def operand_of(operation: Any, value: Any) -> Any:
    """The tensor whose element a body's value is, up to exact conversions; else None."""
    while not isinstance(value.owner, ir.Block) and value.owner.name == "arith.extf":
        value = value.owner.operands[0]
    arguments = list(operation.regions[0].blocks[0].arguments)
    inputs = inputs_of(operation)
    return inputs[arguments.index(value)] if value in arguments[: len(inputs)] else None


def unrounded(operation: Any) -> Any:
    """The value that the body of a pointwise operation yields, before it is rounded."""
    value = body_of(operation)[-1].results[0]
    while value.owner.name == "arith.truncf":
        value = value.owner.operands[0]
    return value


def leads_to(source: Any, value: Any, stop: Any = None) -> bool:
    """Whether a value is computed from another, but not through `stop`."""
    seen, pending = {value}, [value]
    while pending:
        value = pending.pop()
        if value == source:
            return True
        if (stop is not None and value == stop) or isinstance(value.owner, ir.Block):
            continue
        operation = value.owner
        operands = list(operation.operands)
        if operation.name == "linalg.generic":
            operands = [*inputs_of(operation), *extracts(operation)]
        pending += (new := set(operands) - seen)
        seen |= new
    return False


def extracts(operation: Any) -> list[Any]:
    """Tensors that a body takes elements of."""
    return [op.operands[0] for op in body_of(operation) if op.name == "tensor.extract"]


def is_single(region: Region, tensor: Any) -> bool:
    """Whether a tensor has one element."""
    return product(region.dims_of(tensor)).constant == 1
