"""Sm80Choice: the values of the knobs of products with `mma.sync`, named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..knob_values import KnobValues


@dataclass(frozen=True)
class Sm80Choice(KnobValues):
    """One value of each knob.

    tile_m, tile_n: a block's tile of the product.  depth: of a stage.  products: in tf32 for one
    of f32; None: operands are of another type.
    """

    tile_m: Annotated[int, "TILE_M"]
    tile_n: Annotated[int, "TILE_N"]
    depth: Annotated[int, "TILEK"]
    stages: Annotated[int, "STAGES"]
    products: Annotated[int | None, "TF32"] = None

    @property
    def tile(self) -> tuple[int, int]:
        return self.tile_m, self.tile_n

    @property
    def area(self) -> int:
        """Elements of the tile, for which threads have registers."""
        return self.tile_m * self.tile_n
