"""Operand types: how a register's raw bits are viewed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# The views of a register file.  A type's `code` indexes this tuple and `Machine.views`.
VIEWS: tuple[np.dtype[Any], ...] = tuple(
    np.dtype(name)
    for name in (
        *("uint8", "int8", "uint16", "int16", "float16", "uint32", "int32", "float32"),
        *("uint64", "int64", "float64", "bool"),
    )
)
_CODE = {dtype.name: code for code, dtype in enumerate(VIEWS)}
UNSIGNED_OF_WIDTH = {1: np.dtype(bool), **{8 * n: np.dtype(f"uint{8 * n}") for n in (1, 2, 4, 8)}}


@dataclass(frozen=True, slots=True)
class PtxType:
    """A type suffix of PTX.

    width: bits of a register operand.  kind: "u" unsigned or untyped, "s" signed, "f" float,
    "p" predicate.  code: index into VIEWS; packed and narrow floats are seen as their bits.
    """

    name: str
    width: int
    kind: str
    code: int

    @property
    def dtype(self) -> np.dtype[Any]:
        return VIEWS[self.code]

    @property
    def unsigned(self) -> np.dtype[Any]:
        """The unsigned view of the same width (bool for predicates)."""
        return UNSIGNED_OF_WIDTH[self.width]


def _row(name: str, width: int, kind: str, numpy_name: str) -> tuple[str, PtxType]:
    return name, PtxType(name, width, kind, _CODE[numpy_name])


TYPES: dict[str, PtxType] = dict(
    [
        *(_row(f"{k}{w}", w, "u", f"uint{w}") for k in "bu" for w in (8, 16, 32, 64)),
        *(_row(f"s{w}", w, "s", f"int{w}") for w in (8, 16, 32, 64)),
        _row("f16", 16, "f", "float16"),
        _row("f32", 32, "f", "float32"),
        _row("f64", 64, "f", "float64"),
        _row("bf16", 16, "f", "uint16"),
        _row("tf32", 32, "f", "uint32"),
        *(_row(name, 32, "f", "uint32") for name in ("f16x2", "bf16x2")),
        *(_row(name, 32, "u", "uint32") for name in ("u16x2", "s16x2")),
        *(_row(name, 16, "f", "uint16") for name in ("e4m3x2", "e5m2x2")),
        *(_row(name, 8, "f", "uint8") for name in ("e4m3", "e5m2")),
        _row("pred", 1, "p", "bool"),
    ]
)
