"""Which knobs of conv_sm90 go together where pixels come with their halo (TILE_ROWS > 0)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...dialect.fusion import Fusion, remembered, remembered_at_sizes
from ...expr import Expr, typical
from ...target import Target
from ..engine import Knobs, Reason
from ..product.bits import booleans_of
from ..product.choice_sm90 import Choice
from ..product.knobs_sm90 import BESIDE, STAGES, SWIZZLES
from ..product.pattern import knob_reason
from ..product.shared_layout_sm90 import SharedLayout
from ..product.work import ProductWork
from ..surface import fewer_than, smem_reasons
from .before_sm90 import computes, loaded_shape, raws_of, rewrites_in_place
from .choice_sm90 import ConvChoice
from .exits import keeps_pixels
from .exits_sm90 import whole_outputs
from .facts_sm90 import (
    conv_facts_of,
    conv_row_of,
    conv_work_of,
    y_loads,
)
from .halo import (
    Halo,
    columns_refusal,
    halo_refusal,
    image_stored,
    parts_of,
    stays,
    tile_refusal,
)
from .pattern import conv_shape_of
from .surface import MOST_PIXELS
from .tiling_sm90 import halo_tiling_of

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20, 24, 28, 32)  # of TILE_ROWS
COLUMNS = (8, 16, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112)  # of TILE_COLS
STAYING = (9, 25, 27)  # more values of STAGES: all filters of 3x3, 5x5, 3x3x3
_CHANNELS = (64, 128, 256)
_PIXELS = (64, 128, 256, *BESIDE)  # of TILE_M: the least that holds a tile's positions
_MOST_SUMS = {64: 256, 128: 256, 256: 192}  # positions of a part, by channels
_WORTH = 0.6  # of the positions of a candidate, those that are pixels
_OF_HALOS = {"SWAP_AB": 1, "TILE_CGA_M": 1, "TILE_CGA_N": 1, "SPLIT_K_SLC": 1, "WARP_SPEC_CFG": 1}


def halo_of(fusion: Fusion, rows: int, channels: int, columns: int = 0) -> Halo | None:
    """rows, columns: of a tile.  None: a convolution that has no halos, rows that are not whole, or
    an image whose width is needed."""
    if _refusal(fusion) or rows % parts_of(channels):
        return None
    if columns_refusal(conv_shape_of(fusion), columns):
        return None
    return _halo(fusion, rows, channels, columns)


def _halo(fusion: Fusion, rows: int, channels: int, columns: int) -> Halo:
    parts, element_bytes = parts_of(channels), conv_row_of(fusion).element_bytes
    return Halo.of(conv_shape_of(fusion), rows // parts, parts, element_bytes, columns)


def halo_of_choice(fusion: Fusion, choice: ConvChoice) -> Halo:
    """choice: a legal one."""
    return _halo(fusion, choice.rows, choice.channels, choice.columns)


@remembered
def _refusal(fusion: Fusion) -> str:
    """Why there are no halos; "": there are."""
    facts = conv_facts_of(fusion, 1)
    shape = loaded_shape(fusion)
    if shape.spread:
        return "a gradient with a stride"
    if (what := halo_refusal(shape, facts.panel_k)) is not None:
        return what
    if computes(fusion) and (len(raws_of(fusion)) > 1 or not rewrites_in_place(fusion)):
        return "an X that is computed from several tensors, or from elements of another size"
    if computes(fusion) and len(shape.windows) > 2:
        return "an X of volumes that is computed"
    if computes(fusion) and any(window.stride > 1 for window in shape.windows):
        return "an X that is computed, and a stride"
    if computes(fusion) and y_loads(fusion):
        return "an X that is computed, and tensors of Y's dims that are read after it"
    if keeps_pixels(fusion):
        return "a reduction that keeps pixels"
    for tensor in (*whole_outputs(fusion), *booleans_of(fusion)):
        if tensor.type.kind == "b" or not image_stored(tensor, shape.groups):
            return f"output {tensor.label} of {tensor.type}, not channels last by 16 bytes"
    return "sums in f32 of fp8 products" if facts.promotes else ""


def pixels_of(halo: Halo) -> int:
    """TILE_M of a tile."""
    return min(n for n in _PIXELS if n >= halo.parts * halo.positions)


def halo_reasons(choice: ConvChoice, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
    """Why knobs with TILE_ROWS > 0 do not go together."""
    rows, channels = choice.rows, choice.channels
    if what := _refusal(fusion):
        supported = "TILE_ROWS=0, or images with channels last, taps that share pixels"
        return (knob_reason(f"TILE_ROWS={rows} of {what}", supported),)
    for name, value in choice.different_from(_OF_HALOS):
        what = f"TILE_ROWS={rows} and {name}={value}"
        return (knob_reason(what, f"{name}={_OF_HALOS[name]}"),)
    if channels not in _CHANNELS or rows % parts_of(channels):
        what = f"TILE_ROWS={rows} with TILE_N={channels}"
        return (knob_reason(what, f"TILE_N of {_CHANNELS}, with 64 an even TILE_ROWS"),)
    shape, columns = conv_shape_of(fusion), choice.columns
    if (what := columns_refusal(shape, columns)) is not None:
        return (knob_reason(f"TILE_COLS={columns}: {what}", f"TILE_COLS of {COLUMNS}"),)
    halo = _halo(fusion, rows, channels, columns)
    if what := _tile_refusal(halo, channels, fusion):
        what = f"TILE_ROWS={rows}, TILE_COLS={columns}: {what}"
        return (knob_reason(what, "fewer rows or columns"),)
    if choice.loop.tile_m != pixels_of(halo):
        what = f"TILE_M={choice.loop.tile_m} of {halo.parts * halo.positions} positions"
        return (knob_reason(what, f"TILE_M={pixels_of(halo)}"),)
    if too_many := _count_reasons(halo.counted(shape), columns):
        return too_many
    return smem_reasons(layout_of(choice, fusion).bytes, target)


def _count_reasons(positions: Expr, columns: int) -> tuple[Reason, ...]:
    """Tiles that images do not fill have more positions than there are pixels."""
    if (most := positions.bounds()[1]) < MOST_PIXELS:
        return ()
    what = f"TILE_COLS={columns} of up to {most} positions"
    return (knob_reason(what, fewer_than(MOST_PIXELS, positions)),)


def _tile_refusal(halo: Halo, channels: int, fusion: Fusion) -> str | None:
    if halo.positions > _MOST_SUMS[channels]:
        return f"{halo.positions} positions"
    return tile_refusal(halo, conv_facts_of(fusion, 1).row)


def layout_of(choice: ConvChoice, fusion: Fusion) -> SharedLayout:
    """choice: of a tile with a halo that is taken."""
    return halo_tiling_of(fusion, halo_of_choice(fusion, choice), choice).shared


# ---- candidates


@remembered_at_sizes
def halo_candidates(fusion: Fusion, target: Target) -> tuple[Knobs, ...]:
    """The legal choices that are worth a look: tiles of whole rows where there are any, or of some
    columns."""
    if _refusal(fusion):
        return ()
    whole = [choice for choice, _ in _candidates(fusion, target, 0)]
    choices = whole or _cut_candidates(fusion, target)
    return tuple(choice.knobs for choice in choices)


def _cut_candidates(fusion: Fusion, target: Target) -> Iterator[ConvChoice]:
    """Candidates of so many columns and each size of a tile: the rows that images fill best."""
    for columns in COLUMNS:
        best: dict[tuple[int, int], tuple[ConvChoice, float]] = {}
        for choice, share in _candidates(fusion, target, columns):
            size = choice.loop.tile_m, choice.channels
            if size not in best or share >= best[size][1]:
                best[size] = choice, share
        yield from (choice for choice, _ in best.values())


def _candidates(fusion: Fusion, target: Target, columns: int) -> Iterator[tuple[ConvChoice, float]]:
    """(choice, useful share of the positions) of tiles of so many columns."""
    shape = conv_shape_of(fusion)
    for channels in _CHANNELS:
        if channels > _CHANNELS[0] and channels >= 2 * shape.k_group:
            continue  # half of the rows would be of no channel
        for rows in ROWS:
            halo = halo_of(fusion, rows, channels, columns)
            if halo is None or _tile_refusal(halo, channels, fusion):
                continue
            share = _useful(halo, shape.y)
            if share < _WORTH or _count_reasons(halo.counted(shape), columns):
                continue
            loop = Choice(
                pixels_of(halo), channels, min(STAGES), blocks_m=1, blocks_n=1, splits=1,
                roles=1, swizzle=SWIZZLES[0], swaps=True,
            )  # fmt: skip
            if stages := _stages(halo, ConvChoice(loop, rows, columns), fusion, target):
                yield ConvChoice(replace(loop, stages=stages), rows, columns), share


def _useful(halo: Halo, dims: Sequence[Expr]) -> float:
    """The share of the positions that are pixels; dims: of Y."""
    tiles = typical(halo.tiles_of_image(dims))
    return typical(dims[-2]) * typical(dims[-1]) / (tiles * halo.parts * halo.positions)


def _stages(halo: Halo, choice: ConvChoice, fusion: Fusion, target: Target) -> int:
    """All filters where they fit and stay, or as many as fit; 0: none."""
    shape, layout = conv_shape_of(fusion), halo_tiling_of(fusion, halo, choice).shared
    panels = shape.panels(conv_row_of(fusion).element_bytes)
    fitting = [
        n
        for n in (*STAGES, *STAYING)
        if replace(layout, stages=n).bytes <= target.limits.smem_block_bytes
    ]
    staying = [n for n in fitting if stays(shape, choice.channels, n, panels)]
    return max(staying or [n for n in fitting if n in STAGES], default=0)


# ---- predictions


def halo_loads(choice: ConvChoice, fusion: Fusion) -> tuple[float, float]:
    """The share of the pixels and the filters of a stage that each step loads."""
    halo, shape = halo_of_choice(fusion, choice), conv_shape_of(fusion)
    panels = shape.panels(conv_row_of(fusion).element_bytes)
    return halo.load_share, float(not stays(shape, choice.channels, choice.loop.stages, panels))


def halo_stages(choice: ConvChoice, fusion: Fusion) -> int:
    """Stages that loads run ahead: pixels do by all but one of their tiles, whatever filters do."""
    halo = halo_of_choice(fusion, choice)
    return min(choice.loop.stages, (halo.slots - 1) * halo.taps // len(halo.phases) + 1)


def halo_tile(choice: ConvChoice, fusion: Fusion) -> tuple[int, int]:
    """Positions and channels of a tile."""
    halo = halo_of_choice(fusion, choice)
    return halo.parts * halo.positions, choice.channels


def halo_work(choice: ConvChoice, fusion: Fusion) -> ProductWork:
    """The product's sizes, with the positions that are no pixels."""
    halo, shape = halo_of_choice(fusion, choice), conv_shape_of(fusion)
    return replace(conv_work_of(fusion, 1), m=typical(halo.counted(shape)))
