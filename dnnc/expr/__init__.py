"""Size expressions: integers over named sizes, kept in one normal form so that equal is equal.

A graph's sizes and strides, a plan's grids, workspace, arguments and guards are expressions.
"""

from .evaluators import Evaluator, Guard, compiled
from .size import (
    DEVICE_VARIABLES,
    Dim,
    Expr,
    Size,
    assumed,
    assuming,
    at_least,
    ceildiv,
    device_dim,
    magic,
    magic_shift,
    maximum,
    minimum,
    product,
    typical,
    typical_dim,
)
from .text import parse, parse_guard

__all__ = [
    "DEVICE_VARIABLES",
    "Dim",
    "Evaluator",
    "Expr",
    "Guard",
    "Size",
    "assumed",
    "assuming",
    "at_least",
    "ceildiv",
    "compiled",
    "device_dim",
    "magic",
    "magic_shift",
    "maximum",
    "minimum",
    "parse",
    "parse_guard",
    "product",
    "typical",
    "typical_dim",
]
