"""Outputs of conv_sm90 besides tensors of Y's dims and number types: reductions, and booleans."""

from __future__ import annotations

from ...codegen.hopper import wgmma
from ...dialect.fusion import Fusion
from ...dialect.tensor import Tensor
from ...target import Target
from ..engine import Reason
from ..product.bits import bits_reason, booleans_of
from ..product.knobs_sm90 import COLUMNS, ROWS
from ..product.pattern import knob_reason, reducing_epilogue_reasons
from .before_sm90 import computes, kept_operands
from .choice_sm90 import ConvChoice
from .exits import exit_axes_reasons, exit_seconds, exits_of, has_whole_bytes
from .pattern import conv_of, conv_shape_of

_BOOLEANS = "boolean outputs of Y's dims with channels last, those of a group a multiple of 8"
_MOST_COLUMNS = 64  # of tiles of 256 rows
_MOST_SWAPPED = 128  # the same with SWAP_AB=1
_MOST_ALONE = 64 * 128  # results of a tile that one warpgroup has
_EXIT_RATE = 56e9  # elements a second of an SM; twice an epilogue's, not measured
_SPREAD_RATE = 28e9  # the same where lanes exchange what they have of each column
# Of the time of blocks that share pixels, beside exits of what is read: of two layers in four tiles
# 1.05 to 1.14 of those that share none.
_SHARED_PIXELS = 1.06


# ---- the support surface


def exit_reasons(fusion: Fusion) -> list[Reason]:
    """Why what follows the convolution is not pointwise work, or reductions at its exit."""
    return (
        reducing_epilogue_reasons(fusion, 0, kept_operands(fusion))
        or exit_axes_reasons(fusion)
        or _boolean_reasons(fusion)
    )


def _boolean_reasons(fusion: Fusion) -> list[Reason]:
    made, channels = conv_of(fusion).made.shape, conv_shape_of(fusion).k_group
    strange = [t for t in booleans_of(fusion) if not has_whole_bytes(t, made, channels)]
    return [bits_reason(strange[0], _BOOLEANS)] if strange else []


# ---- knobs


def exit_knob_reasons(chosen: ConvChoice, fusion: Fusion) -> tuple[Reason, ...]:
    """Reasons against tiles so large that reductions, beside their accumulators, would spill."""
    if not exits_of(fusion) or chosen.has_halo:
        return ()
    choice = chosen.loop
    rows, columns = choice.sides
    what = f"tile {choice.tile_m}x{choice.tile_n} with reductions"
    if choice.is_ping_pong and rows * columns > _MOST_ALONE:
        return (knob_reason(f"{what}, as ping-pong", f"up to {_MOST_ALONE} results"),)
    if computes(fusion) and not choice.swaps and columns == max(COLUMNS) and rows > wgmma.M:
        return (knob_reason(f"{what} and operations before X", f"fewer than {columns} channels"),)
    most = _MOST_SWAPPED if choice.swaps else _MOST_COLUMNS
    if rows < max(ROWS) or columns <= most:
        return ()
    return (knob_reason(what, f"beside {max(ROWS)} up to {most}"),)


# ---- what there is


def whole_outputs(fusion: Fusion) -> list[Tensor]:
    """The outputs of Y's dims that are no booleans."""
    dims, kept = conv_of(fusion).made.shape, kept_operands(fusion)
    return [t for t in fusion.outputs if t.shape == dims and t.type.kind != "b" and t not in kept]


# ---- the prediction


def exit_share(fusion: Fusion, choice: ConvChoice, *, reads: bool) -> float:
    """The share of the time of products that they take beside reductions.

    reads: whether these are of what is loaded, too."""
    shares = choice.loop.blocks_n > 1 and not choice.has_halo
    return _SHARED_PIXELS if shares and reads and exits_of(fusion) else 1.0


def exit_seconds_of(fusion: Fusion, tile: tuple[int, int], target: Target, *, swaps: bool) -> float:
    """See `exit_seconds`."""

    def of_tile(keeps_channels: bool) -> tuple[int, float]:
        rate = _SPREAD_RATE if keeps_channels and not swaps else _EXIT_RATE
        return 1 if swaps and keeps_channels else 8, rate

    return exit_seconds(fusion, tile, target, of_tile)
