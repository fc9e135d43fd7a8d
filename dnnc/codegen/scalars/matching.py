# pyright: basic
"""Finds out what generics of a region compute: questions by which patterns in it are found."""

from __future__ import annotations

from typing import Any

from ...expr import product
from ...mlir import ir
from .. import ops
from ..region import Region
from ..walk.region_walk import indexing_maps, inputs_of, is_reduction

F32_DIGITS = 24
_DIGITS = {"f16": 11, "bf16": 8}


def is_sum(operation: Any) -> bool:
    """Whether a reducing generic adds up elements of f32, in f32."""
    body = body_of(operation)
    is_added = [op.name for op in body] == ["arith.addf"]
    return is_added and operation.results[0].type.element_type == ops.f32_type()


def source_of(value: Any) -> Any:
    """Where a value comes from, if all that happens to it is exact conversions."""
    while (op := pointwise(value)) and is_plain(op):
        if len(inputs_of(op)) != 1 or any(o.name != "arith.extf" for o in body_of(op)):
            break
        value = inputs_of(op)[0]
    return value


def digits_of(value: Any) -> int:
    """Significant binary digits of elements, of f32's 24: as many as f16 and bf16 have, and as
    products of two such have."""
    value = source_of(value)
    if digits := _DIGITS.get(str(value.type.element_type)):
        return digits
    made = pointwise(value)
    body = body_of(made) if made else []
    if not body or body[-1].name != "arith.mulf":
        return F32_DIGITS
    factors = [operand_of(made, factor) for factor in body[-1].operands]
    types = ["" if factor is None else str(factor.type.element_type) for factor in factors]
    return sum(_DIGITS.get(type_, F32_DIGITS) for type_ in types)


def are_short(value: Any) -> bool:
    """Whether elements have fewer digits than f32."""
    return digits_of(value) < F32_DIGITS


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


def difference_of(value: Any) -> tuple[Any, Any]:
    """(x, y), where a value is x - y of tensors, x read at its own place; else (None, None)."""
    operation = pointwise(value)
    body = body_of(operation) if operation else []
    names = [op.name for op in body]
    if not names or names[-1] != "arith.subf" or set(names[:-1]) - {"arith.extf"}:
        return None, None
    x, y = (operand_of(operation, each) for each in body[-1].operands)
    return (None, None) if x is None or y is None or not is_plain(operation, x) else (x, y)


def is_plain(operation: Any, *operands: Any) -> bool:
    """Whether some operands (default: all) are read at the place that is computed."""
    maps, inputs = indexing_maps(operation), inputs_of(operation)
    same = {v for v, m in zip(inputs, maps, strict=False) if m == maps[-1]}
    return set(operands or inputs) <= same


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
