"""How long reductions at the exit of a product take, beside the rest: arithmetic for `predict`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...dialect.ops import Reduction
from ...expr import typical
from ...target import Target
from ..surface import LAUNCH_SECONDS

_PARTIAL_BYTES = 4
# Partials of an element that one kernel combines, and of one element, or in blocks of few threads.
MOST_PARTS, LONE_PARTS = 4096, 512


@dataclass(frozen=True)
class TileReduction:
    """One reduction, as tiles of the product do it.

    rate: elements a second of an SM.  parts: partials of an element.
    """

    op: Reduction
    rate: float
    parts: int


def exit_seconds(reductions: Sequence[TileReduction], elements: int, target: Target) -> float:
    """Seconds in the epilogue, for partials, and of the kernels that combine those.

    elements: of the product.
    """
    seconds, kernels = 0.0, 0
    for found in reductions:
        results = typical(found.op.y.elements())
        seconds += elements / (found.rate * target.sm_count)
        seconds += 2 * found.parts * results * _PARTIAL_BYTES / (target.dram_gbs * 1e9)
        most = MOST_PARTS if results > 1 else LONE_PARTS
        kernels = max(kernels, 2 if found.parts > most else 1)
    return seconds + kernels * LAUNCH_SECONDS
