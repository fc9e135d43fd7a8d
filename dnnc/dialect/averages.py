"""Which averages in FLOAT are summed in DOUBLE.

    y = (x - avg(x)) * scale

What an average is off by is in every distance from it, so a norm needs one that is right to a unit
of f32, and the very number of a row whose elements are equal.  Additions in f32 do not give that.
"""

from __future__ import annotations

from .. import dtypes
from ..dtypes import DType
from .fusion import Fusion, remembered
from .ops import Pointwise, Reduction


def total_type(fusion: Fusion, op: Reduction) -> DType:
    """The type that a reduction's totals have before its last step."""
    return dtypes.f64 if is_summed_in_double(fusion, op) else op.compute_type


@remembered
def is_summed_in_double(fusion: Fusion, op: Reduction) -> bool:
    """Whether distances may be taken from an average in FLOAT.

    Of squares, and where only products take it, a unit of an average is a unit of the result.
    """
    if (op.mode, op.compute_type) != ("avg", dtypes.f32) or not op.axes:
        return False
    made = fusion.producers.get(op.x)
    if isinstance(made, Pointwise) and made.mode == "mul" and made.x is made.b:
        return False
    users = [other for other in fusion.ops if op.y in other.operands]
    is_factor = all(isinstance(user, Pointwise) and user.mode == "mul" for user in users)
    return op.y in fusion.outputs or not is_factor
