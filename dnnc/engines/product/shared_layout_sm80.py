"""SharedLayout: where everything of a block lies in shared memory, of products with `mma.sync`.

    stage 0: A | B     stage 1: A | B     ...
    tile of sums, over the stages when the last is read
    static: each reduction at the exit, whose parts threads add up

Heuristics ask it for the size of a choice of knobs, the kernel for the offsets of the same choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...dialect.averages import total_type
from ...dialect.fusion import Fusion
from ..views.reduced import reductions_of
from .choice_sm80 import Sm80Choice
from .exits import keeps
from .tile_sm80 import ProductTiling

_PAD_BYTES = 32  # after each row of the tile of sums, against bank conflicts
_SUM_BYTES = 4
_EXIT_ALIGNMENT = 16


def exit_bytes(
    fusion: Fusion, sides: Sequence[Sequence[int]], tile: tuple[int, int], threads: int
) -> int:
    """Static bytes of the reductions at a product's exit.

    sides: axes of the product's dims that count through its tiles' rows and columns.
    """
    found = 0
    for op in reductions_of(fusion):
        dims, reduced = op.x.shape, set(op.axes)
        keeps_row, keeps_column = (keeps(axes, dims, reduced) for axes in sides)
        kept = tile[0] if keeps_row else tile[1] if keeps_column else 1
        parts = threads // kept
        if parts > 1 and not (keeps_row and keeps_column):
            size = parts * kept * total_type(fusion, op).bits // 8
            found += -(-size // _EXIT_ALIGNMENT) * _EXIT_ALIGNMENT
    return found


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
        """Dynamic shared memory."""
        return max(self.stage_bytes * self.stages, self.rows * self.sums_stride)
