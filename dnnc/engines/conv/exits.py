"""Reductions at the exit of a convolution: the support surface, and what they take."""

from __future__ import annotations

from collections.abc import Callable

from ...dialect.fusion import Fusion
from ...dialect.ops import Reduction
from ...dialect.tensor import text
from ...expr import typical
from ...target import Target
from ..engine import Reason
from ..surface import LAUNCH_SECONDS, pattern_reason
from .pattern import conv_of, shape_of

_PARTIAL_BYTES = 4
_MOST_PARTS = 512  # of an element that one kernel combines


def exits_of(fusion: Fusion) -> tuple[Reduction, ...]:
    return tuple(op for op in fusion.with_role("reduction") if isinstance(op, Reduction))


def pixel_axes(fusion: Fusion) -> set[int]:
    """The pixel axes of Y's dims, as far as they are not 1."""
    dims = conv_of(fusion).made.shape
    return {axis for axis in (0, *range(2, len(dims))) if dims[axis].constant != 1}


def exit_axes_reasons(fusion: Fusion) -> list[Reason]:
    """Pixels are counted through images, rows and columns: all are reduced, or none."""
    dims, pixels = conv_of(fusion).made.shape, pixel_axes(fusion)
    for op in exits_of(fusion):
        reduced = pixels & set(op.axes)
        if reduced and reduced != pixels:
            what = f"{op.label} over axes {sorted(reduced)} of {text(dims)}"
            supported = "reductions over all pixels of all images, over all channels, or over both"
            return [pattern_reason(what, supported)]
    return []


def exit_seconds(
    fusion: Fusion,
    tile: tuple[int, int],
    target: Target,
    of_tile: Callable[[bool], tuple[int, float]],
) -> float:
    """Seconds that reductions take beside the rest: in the epilogue, for their partials, and the
    kernels that combine those.

    tile: pixels and channels.  of_tile(whether channels are kept): partials of an element that a
    tile has, and the elements a second of an SM that reductions take.
    """
    seconds, kernels = 0.0, 0
    pixels, channels = (
        typical(shape_of(conv_of(fusion)).pixels),
        typical(conv_of(fusion).made.shape[1]),
    )
    for op in exits_of(fusion):
        elements = typical(op.y.elements())
        each, rate = of_tile(elements >= channels > 1)
        parts = -(-pixels // tile[0]) * each
        seconds += pixels * channels / (rate * target.sm_count)
        seconds += 2 * parts * elements * _PARTIAL_BYTES / (target.dram_gbs * 1e9)
        kernels = max(kernels, 2 if parts > _MOST_PARTS else 1)
    return seconds + kernels * LAUNCH_SECONDS
