# pyright: basic
"""Finds the operation that gives a value of kernel code: questions by which idioms are found."""

from __future__ import annotations

from typing import Any

from ...mlir import ir

_CONVERSIONS = ("vector.broadcast", "arith.sitofp", "arith.extsi", "arith.index_cast")


def operands_of(value: Any, name: str) -> list[Any] | None:
    """The operands of the operation that gives a value, if it has this name."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.operation.name != name:
        return None
    return list(owner.operands)


def constant_of(scalar: Any) -> float | None:
    """The float that a scalar is, if it is a constant."""
    owner = scalar.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "arith.constant":
        return None
    return ir.FloatAttr(owner.operation.attributes["value"]).value


def broadcast_of(value: Any) -> Any:
    """The scalar that a fragment repeats; None: it is another."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "vector.broadcast":
        return None
    scalar = owner.operands[0]
    return None if isinstance(scalar.type, ir.VectorType) else scalar


def repeated(value: Any) -> float | None:
    """The constant that a fragment repeats."""
    scalar = broadcast_of(value) if isinstance(value.type, ir.VectorType) else value
    return None if scalar is None else constant_of(scalar)


def integer_behind(value: Any) -> int | None:
    """The constant integer that a float is made of, if it is made of one."""
    op = value.owner
    while not isinstance(op, ir.Block) and op.name in _CONVERSIONS:
        op = op.operands[0].owner
    if isinstance(op, ir.Block) or op.name != "arith.constant":
        return None
    attribute = op.attributes["value"]
    return attribute.value if isinstance(attribute, ir.IntegerAttr) else None
