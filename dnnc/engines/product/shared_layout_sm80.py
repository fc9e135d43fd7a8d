"""SharedLayout: where everything of a block lies in shared memory, of products with `mma.sync`.

    stage 0: A | B     stage 1: A | B     ...
    tile of sums, over the stages when the last is read

Heuristics ask it for the size of a choice of knobs, the kernel for the offsets of the same choice.
"""

from __future__ import annotations

from dataclasses import dataclass

from .choice_sm80 import Sm80Choice
from .tile_sm80 import ProductTiling

_PAD_BYTES = 32  # after each row of the tile of sums, against bank conflicts
_SUM_BYTES = 4


@dataclass(frozen=True)
class SharedLayout:
    """See the file's docstring.

    rows, columns, depth: of a block's tile.  stages: of the ring of operands.  element_bytes: of an
    operand.  beside: products side by side in a tile, each with its own part of A's rows.
    """

    rows: int
    columns: int
    depth: int
    stages: int
    element_bytes: int
    beside: int = 1

    @staticmethod
    def of_choice(choice: Sm80Choice, element_bytes: int, beside: int = 1) -> SharedLayout:
        return SharedLayout(*choice.tile, choice.depth, choice.stages, element_bytes, beside)

    @staticmethod
    def of_tile(tile: ProductTiling, element_bytes: int, beside: int) -> SharedLayout:
        """The layout of a kernel's attribute `dnn.tile`."""
        return SharedLayout(*tile.sides, tile.stages, element_bytes, beside)

    @property
    def a_bytes(self) -> int:
        """Bytes of A in a stage, behind which B lies."""
        return self.rows * self.beside * self.depth * self.element_bytes

    @property
    def stage_bytes(self) -> int:
        return self.a_bytes + self.columns * self.depth * self.element_bytes

    @property
    def sums_stride(self) -> int:
        """Bytes from one row of the tile of sums to the next."""
        return self.columns * _SUM_BYTES + _PAD_BYTES

    @property
    def bytes(self) -> int:
        return max(self.stage_bytes * self.stages, self.rows * self.sums_stride)
