"""By-value numbers as C: one element of the data type that a kernel takes."""

from __future__ import annotations

from .. import dtypes
from ..errors import DnncError, Status
from .interface import NUMBER_TYPES

# Of `rounded`: mantissa bits, bias, the largest finite bits, those past it, those of NaN.  The
# types of 8 bits saturate (docs/numerics.md).
_SMALL_FLOATS = {
    "f16": (10, 15, 0x7BFF, 0x7C00, 0x7E00),
    "bf16": (7, 127, 0x7F7F, 0x7F80, 0x7FC0),
    "f8E4M3FN": (3, 7, 0x7E, 0x7E, 0x7F),
    "f8E5M2": (2, 15, 0x7B, 0x7B, 0x7E),
}


def element(value: str, given: str, wanted: str) -> tuple[str, str]:
    """(C type, C expression) of a number of data type `given` as an element of `wanted`.

    Two types are NOT_SUPPORTED_DATA_TYPE: no plan that dnnc compiles has such an argument.
    """
    if dtypes.of(given) is not dtypes.of(wanted):
        raise DnncError(
            Status.NOT_SUPPORTED_DATA_TYPE,
            f"a number of type {given} that a kernel takes as {wanted}",
            f"an argument of type {given}",
        )
    name = dtypes.of(wanted).name
    if name in _SMALL_FLOATS:
        bits = dtypes.of(wanted).bits
        numbers = ", ".join(hex(n) if n > 127 else str(n) for n in _SMALL_FLOATS[name])
        return f"uint{bits}_t", f"(uint{bits}_t)rounded({value}, {numbers}, {bits - 1})"
    if name == "i1":
        return "uint8_t", f"{value} != 0"
    return NUMBER_TYPES[name], value
