"""The tiling that a choice of knobs of conv_sm90 stands for, made from a fusion's facts."""

from __future__ import annotations

import math
from dataclasses import replace

from ...codegen.ampere.operand_tile import LoadPlan
from ...codegen.hopper.staged_operand import RawPlace, StagePlan
from ...codegen.hopper.staged_store import TRANSPOSED_BYTES
from ...dialect.fusion import Fusion
from ...dialect.tensor import Tensor
from ...target import Target
from ..product.model_sm90 import SECTOR_BYTES
from ..product.shared_layout_sm90 import rewriting_bytes, tile_bytes
from ..product.tile_parts_sm90 import (
    BlockTile,
    EpilogueTiles,
    HaloTile,
    PixelRing,
    PixelTiles,
    TileGrid,
)
from ..product.tile_sm90 import Tiling
from ..product.tiling_sm90 import tiling_of
from ..surface import bytes_of
from .before_sm90 import computes, raws_of
from .choice_sm90 import ConvChoice
from .facts_sm90 import (
    REWRITTEN,
    beside_of,
    conv_facts_of,
    conv_row_of,
    panel_steps_of,
    staged_y_loads,
    stores_zeros,
    tiled_shape_of,
)
from .halo import CONSUMERS, Halo, image_moves, stays
from .pattern import ConvShape, conv_of, conv_shape_of
from .surface import LARGE_BYTES

_MOST_SHARE = 3  # written for each byte that is read, of convolutions that mostly write


def conv_tiling_of(fusion: Fusion, choice: ConvChoice, target: Target) -> Tiling:
    """The tiling by im2col."""
    beside = beside_of(fusion, choice)
    facts = conv_facts_of(fusion, beside)
    shape = replace(tiled_shape_of(fusion), beside=beside)
    found = tiling_of(facts, choice.loop)
    chunk = chunk_of_phases(shape, choice, target)
    return replace(
        found,
        grid=replace(found.grid, chunk=chunk, is_snake=chunk > 0),
        epilogue=replace(found.epilogue, gives_up_stores=_writes_most(fusion)),
        pixels=PixelTiles(
            beside,
            panel_steps_of(shape, facts.row.element_bytes, choice),
            zeros=stores_zeros(fusion),
        ),
    )


def chunk_of_phases(shape: ConvShape, choice: ConvChoice, target: Target) -> int:
    """Tiles of pixels of every phase that follow each other, so that they find what they read of dY
    in L2: as many as there are SMs for, so that each has as many of every phase."""
    if shape.spread is None or shape.spread.phases == 1:
        return 0
    clusters = target.sm_count // choice.loop.shared_blocks
    across = -(-shape.k_group // (choice.channels * choice.loop.blocks_n))
    return clusters // math.gcd(clusters, across)


def _writes_most(fusion: Fusion) -> bool:
    """Whether outputs, in whole sectors, are most of what moves, and more than L2
    holds: what is read again, as the filter is, had better stay there instead.

    2% less of 56x56x64 to 256 channels, of 256 images; a kernel apart from this took 3% more of an
    output that is as large as the input.
    """
    if any(_fixed_bytes(tensor) % SECTOR_BYTES for tensor in fusion.outputs):
        return False
    written = bytes_of(fusion.outputs)
    return written >= max(_MOST_SHARE * bytes_of(fusion.inputs), LARGE_BYTES)


def _fixed_bytes(tensor: Tensor) -> int:
    """Bytes of its channels that are fixed."""
    return (tensor.shape[1].constant or 1) * tensor.type.bits // 8


def halo_tiling_of(fusion: Fusion, halo: Halo, choice: ConvChoice) -> Tiling:
    """The tiling of pixels that come with their halo."""
    row, shape, channels = conv_row_of(fusion), conv_shape_of(fusion), choice.channels
    dims = conv_of(fusion).made.shape
    outputs = tuple("tma" if t.shape == dims else "exit" for t in fusion.outputs)
    loads = [t for t in staged_y_loads(fusion) if image_moves(t, shape.groups)]
    panels = shape.panels(row.element_bytes)
    return Tiling(
        types=(row.b, row.a),
        block=BlockTile(channels, halo.parts * halo.positions, True, CONSUMERS),
        grid=TileGrid(group_rows=max(1, choice.loop.swizzle // channels)),
        epilogue=EpilogueTiles(
            outputs=outputs,
            staged_bytes=(TRANSPOSED_BYTES,) * outputs.count("tma"),
            loads=tuple(map(fusion.inputs.index, loads)),
            loaded_bytes=(TRANSPOSED_BYTES,) * len(loads),
            pair=2,
            is_transposed=True,
        ),
        stages=choice.loop.stages,
        operands=_halo_operands(fusion, halo, channels),
        row_bytes=halo.row_bytes,
        rewriting=rewriting_bytes(halo.slots, 0) if computes(fusion) else 0,
        pixels=PixelTiles(
            steps=panel_steps_of(shape, row.element_bytes, choice),
            ring=PixelRing(halo.slots, halo.slot_bytes),
            halo=HaloTile(
                halo.rows,
                halo.parts,
                choice.columns,
                halo.buffer_bytes,
                stays(shape, channels, choice.loop.stages, panels),
            ),
        ),
    )


def _halo_operands(fusion: Fusion, halo: Halo, channels: int) -> tuple[StagePlan, ...]:
    """W's tile of a stage, and X, whose pixels have a ring of their own, in which warps of the
    producer may compute it."""
    bytes_ = tile_bytes(channels, halo.row_bytes)
    path, raws = "tma", tuple[RawPlace, ...]()
    if computes(fusion):
        (raw,) = raws_of(fusion)
        path, raws = REWRITTEN, (RawPlace(fusion.inputs.index(raw), bytes_),)
    return (
        StagePlan(False, True, LoadPlan("tma"), bytes=bytes_),
        StagePlan(True, False, LoadPlan(path), bytes_, raws=raws),
    )
