# pyright: basic
"""Which knobs of conv_wgrad_sm90 go together where pixels have a halo, and what parts fit."""

from __future__ import annotations

from ...codegen.hopper import wgmma
from ...codegen.hopper.cluster import residents
from ...target import Target
from ..engine import Knobs, Reason
from ..product.knobs_sm90 import SWIZZLES
from ..product.pattern import knob_reason
from ..surface import smem_reasons
from .wgrad import WgradShape
from .wgrad_halo_sm90 import COLUMNS, WgradHalo
from .wgrad_model_sm90 import WgradWork
from .wgrad_region_sm90 import halo_of, halo_smem_bytes

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
_WHOLE = {
    "TILE_M": wgmma.M, "TILE_N": COLUMNS, "TILE_CGA_M": 1, "TILE_CGA_N": 1, "SPLIT_K_SLC": 1,
    "SWIZZLE": SWIZZLES[0],
}  # fmt: skip


def fitting_parts(work: WgradWork, knobs: Knobs, target: Target) -> list[int]:
    """Parts for which whole rounds of clusters are about full, and one."""
    cluster = (knobs["TILE_CGA_M"], knobs["TILE_CGA_N"])
    tall, wide = knobs["TILE_M"] * cluster[0], knobs["TILE_N"] * cluster[1]
    tiles = -(-work.rows // tall) * -(-work.columns // wide) * work.groups
    blocks, found = cluster[0] * cluster[1] * knobs["SPLIT_K_SLC"], {1}
    most = residents(target.sm_count, blocks)
    for rounds in _ROUNDS:
        found.update([n for n in PARTS if n * tiles <= rounds * most][-1:])
    return sorted(n for n in found if n <= max(1, work.steps))


def halo_reasons(knobs: Knobs, shape: WgradShape, target: Target) -> tuple[Reason, ...]:
    """Why knobs with TILE_ROWS can't be."""
    for name, value in _WHOLE.items():
        if name != "SWIZZLE" and knobs[name] != value:
            return (knob_reason(f"{name}={knobs[name]} with TILE_ROWS", f"{name}={value}"),)
    halo = WgradHalo.of(shape, *halo_of(knobs))
    if (what := halo.refusal()) is not None:
        supported = (
            "a 3x3 filter of stride 1, channels of a group a multiple of 64, tiles that images are "
            "whole numbers of, of rows of a multiple of 8 pixels and of a multiple of 16 in all"
        )
        return (knob_reason(f"TILE_ROWS={knobs['TILE_ROWS']} with {what}", supported),)
    return smem_reasons(halo_smem_bytes(halo, knobs["STAGES"]), target)


def halo_candidates(shape: WgradShape, work: WgradWork, target: Target) -> list[Knobs]:
    """Legal choices of tiles with a halo that are worth a look."""
    found: list[Knobs] = []
    if shape.dw[2:] != (3, 3):
        return found
    for rows in ROWS:
        for columns in (0, *HALO_COLUMNS):
            halo = WgradHalo.of(shape, rows, columns)
            if (
                halo.refusal()
                or not _LEAST_POSITIONS <= halo.rows * halo.columns <= _MOST_POSITIONS
            ):
                continue
            if columns and WgradHalo.of(shape, rows, 0).refusal() is None:
                continue  # whole rows have less of a halo
            base = {**_WHOLE, "TILE_ROWS": rows, "TILE_COLS": columns}
            slots = [n for n in _SLOTS if halo_smem_bytes(halo, n) <= target.smem_block_bytes]
            if not slots:
                continue
            parts = fitting_parts(work, base, target)
            found += [{**base, "STAGES": max(slots), "SPLIT_K_BUF": n} for n in parts]
    return found


def halo_share(knobs: Knobs, shape: WgradShape) -> float:
    """Rows of memory that a tile with a halo loads for each 64 pixels of dY; 0: there is none."""
    if not knobs["TILE_ROWS"]:
        return 0.0
    halo = WgradHalo.of(shape, *halo_of(knobs))
    positions = halo.rows * halo.columns
    return wgmma.M * (positions + halo.pitch * halo.input_rows) / positions
