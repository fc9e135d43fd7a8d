"""Reductions at the exit of a convolution: the support surface, and what they take."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...dialect.fusion import Fusion, remembered
from ...dialect.ops import Reduction
from ...dialect.tensor import Tensor, text
from ...expr import Expr, typical
from ...target import Target
from ..engine import Reason
from ..product.bits import whole_bytes
from ..product.exit_model import TileReduction
from ..product.exit_model import exit_seconds as exit_seconds_of
from ..surface import pattern_reason
from .pattern import conv_of, conv_shape_of


def exits_of(fusion: Fusion) -> tuple[Reduction, ...]:
    return tuple(op for op in fusion.with_role("reduction") if isinstance(op, Reduction))


def pixel_axes(fusion: Fusion) -> set[int]:
    """The pixel axes of Y's dims, as far as they are not 1."""
    dims = conv_of(fusion).made.shape
    return {axis for axis in (0, *range(2, len(dims))) if dims[axis].constant != 1}


@remembered
def keeps_pixels(fusion: Fusion) -> bool:
    """Whether a reduction has a result for each pixel."""
    pixels = pixel_axes(fusion)
    return any(pixels - set(op.axes) for op in exits_of(fusion))


def exit_axes_reasons(fusion: Fusion) -> list[Reason]:
    """Pixels are counted through images, rows and columns: all are reduced, or none; those of the
    phases of a gradient with a stride are."""
    dims, pixels = conv_of(fusion).made.shape, pixel_axes(fusion)
    for op in exits_of(fusion):
        reduced = pixels & set(op.axes)
        if reduced and reduced != pixels:
            what = f"{op.label} over axes {sorted(reduced)} of {text(dims)}"
            supported = "reductions over all pixels of all images, over all channels, or over both"
            return [pattern_reason(what, supported)]
    has_phases = conv_shape_of(fusion).spread is not None
    if has_phases and exits_of(fusion) and (keeps_pixels(fusion) or not pixels):
        what = f"reductions to {text(exits_of(fusion)[0].y.shape)}, {conv_of(fusion).label}"
        return [pattern_reason(what, "reductions over all pixels after a gradient with a stride")]
    return []


def has_whole_bytes(output: Tensor, made: Sequence[Expr], group_channels: int) -> bool:
    """Whether the channels of each group of a boolean output are whole bytes; made: Y's dims."""
    return output.shape == tuple(made) and whole_bytes(output, 1, Expr.of(group_channels))


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
    if not exits_of(fusion):
        return 0.0
    shape = conv_shape_of(fusion)
    phases = shape.spread.phases if shape.spread else 1
    pixels, channels = typical(shape.pixels), typical(conv_of(fusion).made.shape[1])
    found = []
    for op in exits_of(fusion):
        each, rate = of_tile(typical(op.y.elements()) >= channels > 1)
        found.append(TileReduction(op, rate, -(-pixels // tile[0]) * phases * each))
    return exit_seconds_of(found, pixels * phases * channels, target)
