"""The part of an attention's tiling that its masks say, read off the scores as they are lowered."""

from __future__ import annotations

from dataclasses import dataclass

from ...codegen.attention.mask_ranges import is_triangular
from ...codegen.attention.region import AttentionRegion


@dataclass(frozen=True)
class MaskOrder:
    """is_longest_first: tiles of the last queries come first."""

    is_longest_first: bool

    @staticmethod
    def of(parts: AttentionRegion) -> MaskOrder:
        return MaskOrder(is_triangular(parts.masks.condition))
