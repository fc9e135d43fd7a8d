"""What a target's memory gives a product's kernel, whichever instructions multiply: for `predict`.

Models whose predictions are compared with each other have to see the same memory: where one of them
had a faster one, its engine was chosen for products that wait for their weights.
"""

from __future__ import annotations

from ..target import Target
from .surface import BANDWIDTH_SHARE

_SHARPNESS = 4.0  # of the bend: 1 adds both times, many take the longer one


def transfer_seconds(moved_bytes: int, target: Target) -> float:
    """Of all that a kernel reads and writes.

    Before the first loads, and after the last ones, blocks wait for no memory: models add that.
    """
    return moved_bytes / (target.dram_gbs * 1e9 * BANDWIDTH_SHARE)


def bent(a: float, b: float) -> float:
    """The longer of two times, and more where both are as long and hold each other up."""
    longer, shorter = max(a, b), min(a, b)
    return longer * (1 + (shorter / longer) ** _SHARPNESS) ** (1 / _SHARPNESS)
