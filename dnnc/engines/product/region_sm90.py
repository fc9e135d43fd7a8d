# pyright: basic
"""The products of a region at the linalg stage, as kernels of Hopper's main loop find them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...codegen.region import Region
from .tile_sm90 import Tiling

OFFSETS = 2  # operand of the call of a grouped product: the first row of each group


def product_calls(region: Region) -> list[Any]:
    """The calls of the region's anchors, in order."""
    return [op for op in region.operations if op.name == "func.call"]


def operand_values(calls: Sequence[Any], tiling: Tiling) -> list[Any]:
    """The SSA tensor of each operand of the tiling."""
    found: dict[int, Any] = {}
    for call, places in zip(calls, tiling.products, strict=True):
        a, b = list(call.operands)[:2]
        found |= zip(places, (b, a) if tiling.block.swaps else (a, b), strict=True)
    return [found[place] for place in range(len(tiling.operands))]
