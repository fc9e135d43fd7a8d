"""Size expressions: integers over named sizes, kept in one normal form so that equal is equal.

A graph's sizes and strides, a plan's grids, workspace, arguments and guards are expressions.
"""

from .evaluators import Evaluator, Guard, compiled
from .products import (
    bound_of,
    bounded,
    bounds_of,
    most_of,
    verify_products,
    with_dims,
)
from .size import (
    DEVICE_VARIABLES,
    Bound,
    Dim,
    Expr,
    Size,
    at_least,
    ceildiv,
    device_dim,
    magic,
    magic_shift,
    maximum,
    minimum,
    product,
    range_text,
)
from .text import parse, parse_guard
from .typical import assumed, assuming, typical, typical_dim, typical_sizes

__all__ = [
    "DEVICE_VARIABLES",
    "Bound",
    "Dim",
    "Evaluator",
    "Expr",
    "Guard",
    "Size",
    "assumed",
    "assuming",
    "at_least",
    "bound_of",
    "bounded",
    "bounds_of",
    "ceildiv",
    "compiled",
    "device_dim",
    "magic",
    "magic_shift",
    "maximum",
    "minimum",
    "most_of",
    "parse",
    "parse_guard",
    "product",
    "range_text",
    "typical",
    "typical_dim",
    "typical_sizes",
    "verify_products",
    "with_dims",
]
