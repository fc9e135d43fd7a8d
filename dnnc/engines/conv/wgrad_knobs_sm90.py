# pyright: basic
"""Which knobs of conv_wgrad_sm90 go together where pixels have a halo, and what parts fit."""

from __future__ import annotations

from dataclasses import replace

from ...codegen.hopper import wgmma
from ...codegen.hopper.cluster import residents
from ...target import Target
from ..engine import Reason
from ..product.choice_sm90 import Choice
from ..product.knobs_sm90 import SWIZZLES
from ..product.pattern import knob_reason
from ..surface import smem_reasons
from .wgrad import WgradShape
from .wgrad_choice_sm90 import WgradChoice
from .wgrad_halo_sm90 import GROUP, PixelTile
from .wgrad_matrices_sm90 import pixel_tile
from .wgrad_model_sm90 import WgradWork
from .wgrad_region_sm90 import pixel_smem_bytes, pixel_tile_of
from .wgrad_stem_sm90 import WgradStem

ALL_COLUMNS = 576  # of TILE_N: all taps, of 64 channels of 3x3, where TILE_ROWS is not 0
PARTS = (
    *range(1, 17), 18, 20, 22, 24, 26, 28, 32, 36, 40, 44, 48, 56, 60, 64, 66, 72, 80, 88, 96, 112,
    128, 132,
)  # fmt: skip
ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)  # of tiles with a halo
HALO_COLUMNS = (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128)
_SLOTS = (3, 2, 4, 5, 6)
_ROUNDS = (1, 2, 3, 4)  # of blocks, that parts are made to fill
_LEAST_POSITIONS = 96  # of a tile that is worth a look
_MOST_POSITIONS = 512
_NARROW_COLUMNS = 72  # that the time of a narrow product is as long as
_WHOLE = {
    "TILE_M": wgmma.M, "TILE_N": ALL_COLUMNS, "TILE_CGA_M": 1, "TILE_CGA_N": 1, "SPLIT_K_SLC": 1,
}  # fmt: skip


def fitting_parts(work: WgradWork, loop: Choice, target: Target) -> list[int]:
    """Parts for which whole rounds of clusters are about full, and one."""
    tall, wide = loop.tile_m * loop.blocks_m, loop.tile_n * loop.blocks_n
    tiles = -(-work.rows // tall) * -(-work.columns // wide) * work.groups
    blocks, found = loop.shared_blocks * loop.splits, {1}
    most = residents(target.sm_count, blocks)
    for rounds in _ROUNDS:
        found.update([n for n in PARTS if n * tiles <= rounds * most][-1:])
    return sorted(n for n in found if n <= max(1, work.steps))


def pixel_reasons(choice: WgradChoice, shape: WgradShape, target: Target) -> tuple[Reason, ...]:
    """Why knobs with TILE_ROWS can't be."""
    for name, value in choice.different_from(_WHOLE):
        return (knob_reason(f"{name}={value} with TILE_ROWS", f"{name}={_WHOLE[name]}"),)
    tile = pixel_tile_of(shape, choice)
    if (what := tile.refusal()) is not None:
        supported = (
            "a 3x3 filter of stride 1 with channels of a group a multiple of 64, or up to 8 "
            "channels of stride 1 or 4 of stride 2; tiles that images are whole numbers of, of "
            "rows of a multiple of 8 pixels and of a multiple of 16 in all"
        )
        return (knob_reason(f"TILE_ROWS={choice.rows} with {what}", supported),)
    return smem_reasons(pixel_smem_bytes(tile, choice.loop.stages), target)


def pixel_candidates(shape: WgradShape, work: WgradWork, target: Target) -> list[WgradChoice]:
    """Legal choices of such tiles that are worth a look."""
    found: list[WgradChoice] = []
    if pixel_tile(shape, 1, GROUP).own_refusal() is not None:
        return found
    for rows in ROWS:
        for columns in (0, *HALO_COLUMNS):
            tile = pixel_tile(shape, rows, columns)
            positions = tile.rows * tile.columns
            if not _LEAST_POSITIONS <= positions <= _MOST_POSITIONS or tile.refusal():
                continue
            if columns and pixel_tile(shape, rows, 0).refusal() is None:
                continue  # whole rows have less of a halo
            slots = [
                n for n in _SLOTS if pixel_smem_bytes(tile, n) <= target.limits.smem_block_bytes
            ]
            if not slots:
                continue
            loop = Choice(wgmma.M, ALL_COLUMNS, max(slots), 1, 1, 1, SWIZZLES[0])
            parts = fitting_parts(pixel_sizes(work, tile), loop, target)
            found += [WgradChoice(loop, n, rows=rows, columns=columns) for n in parts]
    return found


def pixel_sizes(work: WgradWork, tile: PixelTile) -> WgradWork:
    """The gradient's sizes where a tile has all columns, which are fewer than chunks of channels
    have."""
    if not isinstance(tile, WgradStem):
        return work
    return replace(work, columns=tile.tile_columns, sums=work.rows * tile.tile_columns)


def computed_rows(choice: WgradChoice, shape: WgradShape) -> float:
    """Rows of 64 channels that a warpgroup computes for 64 pixels of dY."""
    if not shape.computes:
        return 0.0
    if not choice.has_halo:
        return choice.loop.tile_n / (1 + choice.is_helped)
    tile = pixel_tile_of(shape, choice)
    return wgmma.M * tile.image_bytes / wgmma.ROW_BYTES / (tile.rows * tile.columns)


def pixel_work(choice: WgradChoice, shape: WgradShape) -> tuple[float, float] | None:
    """Rows of 128 bytes that are loaded for 64 pixels of dY where those of X come once, and columns
    that their products take the time of; None: they come by im2col."""
    if not choice.has_halo:
        return None
    tile = pixel_tile_of(shape, choice)
    positions = tile.rows * tile.columns
    loaded = (tile.gradient_bytes + tile.image_bytes) / wgmma.ROW_BYTES
    narrow = _NARROW_COLUMNS * shape.dw[2] if isinstance(tile, WgradStem) else tile.tile_columns
    return wgmma.M * loaded / positions, narrow
