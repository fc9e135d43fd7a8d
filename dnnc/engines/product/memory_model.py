"""Memory's part in a product's kernel, whichever instructions multiply: for `predict`.

Models whose predictions are compared with each other have to see the same memory: where one of them
had a faster one, its engine was chosen for products that wait for their weights.
"""

from __future__ import annotations

from ...target import Target
from ..surface import BANDWIDTH_SHARE

_SHARPNESS = 4.0  # of the bend: 1 adds both times, many take the longer one

_FEW = 64  # rows that a tile can have all of, so that the other operand is read once
_AGAIN_SHARE = 0.2  # more of memory's time for that operand, where several tiles read it


def transfer_seconds(moved_bytes: float, target: Target) -> float:
    """Seconds of all that a kernel reads and writes.

    Before the first loads, and after the last ones, blocks wait for no memory: models add that.
    """
    return moved_bytes / (target.dram_gbs * 1e9 * BANDWIDTH_SHARE)


def again_share(m: int, n: int, k: int, tile: tuple[int, int]) -> float:
    """The share that memory takes of few rows' or columns' products, of what it would if one
    tile had all of them: tiles beside each other ask for the same weights, and not at the same
    time."""
    a, b, c = m * k, n * k, m * n
    again = a * (tile[1] < n <= _FEW) + b * (tile[0] < m <= _FEW)
    return 1 + _AGAIN_SHARE * again / (a + b + c)


def smooth_max(a: float, b: float) -> float:
    """The longer of two times, and more where both are as long and hold each other up."""
    longer, shorter = max(a, b), min(a, b)
    return longer * (1 + (shorter / longer) ** _SHARPNESS) ** (1 / _SHARPNESS)
