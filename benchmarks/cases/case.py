"""A case, and the bytes and operations that follow from its sizes.

Bytes count each large input and output once; floating-point operations are those of the
definition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Buffers = dict[str, Any]

# From this many operations a byte on, a case is bound by arithmetic and shown in TFLOP/s.
_ARITHMETIC_BOUND = 100


@dataclass(frozen=True)
class Case:
    """One row of a table.

    id: family/type/operation/sizes.  flops, bytes: of one call.  unit: what a table shows.
    make: buffers, the outputs among them.  exact: name -> float64 result of some buffers, of
    every `row_step`-th row (of the axis before the last).  dense: id of the case that leaves
    nothing out, whose rate the table compares with.
    """

    id: str
    kind: str
    p: Mapping[str, Any]
    make: Callable[[], Buffers]
    exact: Callable[[Buffers], Buffers]
    flops: float = 0.0
    bytes: float = 0.0
    unit: str = "TFLOP/s"
    tolerance: float = 1e-2
    row_step: int = 1
    dense: str = ""

    def rate(self, seconds: float) -> float:
        """In the case's unit."""
        if self.unit == "TFLOP/s":
            return self.flops / seconds / 1e12
        return self.bytes / seconds / 1e9


def unit(flops: float, bytes_: float) -> str:
    """The unit in which a table shows a case: that of the resource which bounds it."""
    return "TFLOP/s" if flops >= _ARITHMETIC_BOUND * bytes_ else "GB/s"


def row_step(rows: int, width: int, elements: int = 1 << 19) -> int:
    """The step of the rows of which so many elements are computed exactly; width: of a row."""
    most = 1 + elements // width
    return 1 if most >= rows else math.ceil(rows / most) | 1  # odd: every place of a tile occurs
