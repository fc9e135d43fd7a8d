# pyright: basic
"""Reads off a fusion and its region how a filter's gradient goes on Hopper's main loop."""

from __future__ import annotations

from typing import Any

from ...codegen.hopper import tma, wgmma
from ...codegen.region import Region
from ...dialect.fusion import Fusion, remembered
from ...dialect.ops import ConvWgrad
from ...dialect.tensor import Tensor
from ..engine import Knobs
from ..product.facts_sm90 import SPLITS, ProductFacts, epilogue_loads, instruction_of_types
from ..product.knobs_sm90 import cluster_of, consumers_of, sides_of
from ..product.pattern import is_heavy
from ..product.region_sm90 import instruction_of, product_calls, staged_loads
from ..product.shared_layout_sm90 import SharedLayout, tile_bytes
from ..product.tile_sm90 import Tiling, part_of
from .wgrad import WgradShape, shape_of, shape_of_call, side_by_side, wgrad_of
from .wgrad_halo_sm90 import PixelTile
from .wgrad_matrices_sm90 import filter_view, pixel_tile
from .wgrad_stem_sm90 import WgradStem
from .wgrad_sums import first_region, sums_of

_SUM_BYTES = 4
_NO_FRAGMENTS = "a convolution, whose operands come by TMA"
_PAIR = 2  # neighbouring channels that the epilogue works on together


def main_loop_knobs(knobs: Knobs) -> Knobs:
    """The knobs of the main loop."""
    whole = {"WARP_SPEC_CFG": 1, "STREAM_K": 0, "SCHED_POLICY": 0, "SWAP_AB": 0}
    return {**whole, "TILE_ROWS": 0, "TILE_COLS": 0, **knobs}


def hopper_shape(op: ConvWgrad) -> WgradShape:
    """The gradient with groups side by side."""
    return side_by_side(shape_of(op))


def parts_of(knobs: Knobs) -> int:
    """Parts of the pixels whose sums the workspace has."""
    return knobs["SPLIT_K_BUF"]


def has_sums(shape: WgradShape, knobs: Knobs) -> bool:
    """Whether sums go through the workspace: of parts; where some columns are no elements; and
    where three warpgroups leave no registers for what follows."""
    return parts_of(knobs) > 1 or not shape.is_whole or knobs["TILE_ROWS"] > 0


@remembered
def facts_of(fusion: Fusion, has_sums: bool) -> ProductFacts:
    """The facts of a fusion that the engine takes; has_sums: see there."""
    op = wgrad_of(fusion)
    shape, row = hopper_shape(op), instruction_of_types(op.dy.type, op.x.type)
    moved = [t for t in fusion.outputs if moves_by_tma(shape, t)]
    staged = tuple(t.type.bits // 8 for t in moved)
    loads = [t for t in epilogue_loads(fusion) if moves_by_tma(shape, t)]
    loaded = tuple(t.type.bits // 8 for t in loads)
    if has_sums:
        staged, loaded = (_SUM_BYTES,), ()
    is_direct = not has_sums and len(moved) < len(fusion.outputs)
    return ProductFacts(
        row=row,
        products=1,
        promotes=False,
        splits=max(SPLITS),
        operands=(1, 1),
        no_fragments=(_NO_FRAGMENTS, _NO_FRAGMENTS),
        raw_bits=(0, 0),
        is_computed=(False, False),
        computes=False,
        is_async=(True, True),
        along_rows=((True, True),),
        raw=(),
        is_aligned=True,
        swaps=(0,),
        is_along_columns=False,
        staged=(staged, staged),
        loaded=(loaded, loaded),
        is_direct=(is_direct, is_direct),
        is_heavy=not has_sums and any(is_heavy(other) for other in fusion.ops),
        reductions=0,
        along_row=0,
        width=0,
        is_grouped=False,
        groups=0,
        load_share=1.0,
    )


def moves_by_tma(shape: WgradShape, tensor: Tensor) -> bool:
    """Whether tiles of a tensor of dW's dims go through TMA.

    It writes whole 16 bytes: a row of channels that ends inside them would be written past its end.
    """
    is_of_dw = tuple(n.constant for n in tensor.shape) == shape.dw
    row_bits = shape.c_group * tensor.type.bits
    if not is_of_dw or tensor.type.kind == "b" or row_bits % (8 * tma.ALIGNMENT):
        return False
    return tma.refusal(filter_view(shape, tensor, 1), (3, 2)) is None


def wgrad_tiling_of(region: Region, knobs: Knobs) -> Tiling:
    """The tiling of a region; knobs: of the main loop, see `main_loop_knobs`."""
    calls = product_calls(region)
    shape = side_by_side(shape_of_call(region, calls[0]))
    with_sums = has_sums(shape, knobs)
    if with_sums:
        region = wgrad_first_region(region, knobs)
    if knobs["TILE_ROWS"]:
        return _pixel_tiling(region, knobs, pixel_tile(shape, *halo_of(knobs)))
    rows, columns = sides_of(knobs)
    dims = region.dims_of(calls[0].results[0])
    outputs = tuple(
        "tma" if with_sums or moves_by_tma(shape, t) else "direct" for _, t in region.outputs
    )
    staged = [
        tensor.type.bits // 8
        for (_, tensor), path in zip(region.outputs, outputs, strict=True)
        if path == "tma"
    ]
    splits = knobs["SPLIT_K_SLC"]
    can_load = splits == 1 and not with_sums
    loads = staged_loads(region, calls, lambda t: moves_by_tma(shape, t)) if can_load else []
    arguments = list(region.arguments.values())
    cluster = cluster_of(knobs)
    assert len(dims) == len(shape.dw), "dims of the gradient"
    return Tiling(
        row=instruction_of(region, swaps=True),
        rows=rows,
        columns=columns,
        swaps=False,
        consumers=consumers_of(knobs),
        stages=knobs["STAGES"],
        cluster=cluster,
        group_rows=max(1, knobs["SWIZZLE"] // (rows * cluster[0])),
        operands=_operand_plans(rows, columns),
        products=((0, 1),),
        promotes=False,
        loads=tuple(loads),
        outputs=outputs,
        staged_bytes=tuple(staged),
        loaded_bytes=tuple(arguments[place].type.bits // 8 for place in loads),
        pair=_PAIR,
        splits=splits,
        producers=1,
        groups=0,
        exchanges=0,
        streams=bool(knobs["STREAM_K"]),
        is_dynamic=bool(knobs["SCHED_POLICY"]),
    )


def halo_of(knobs: Knobs) -> tuple[int, int]:
    """Rows and columns of dY's tiles whose pixels of X have a halo."""
    return knobs["TILE_ROWS"], knobs["TILE_COLS"]


def first_sum_of(region: Region, knobs: Knobs) -> int:
    """Elements before those of a part's sums."""
    (call,) = product_calls(region)
    shape = side_by_side(shape_of_call(region, call))
    tile = pixel_tile(shape, *halo_of(knobs)) if knobs["TILE_ROWS"] else None
    return tile.first if isinstance(tile, WgradStem) else 0


def wgrad_first_region(region: Region, knobs: Knobs) -> Region:
    """The region of the first kernel, where sums go through the workspace."""
    (call,) = product_calls(region)
    columns = 0
    if knobs["TILE_ROWS"]:
        tile = pixel_tile(side_by_side(shape_of_call(region, call)), *halo_of(knobs))
        columns = tile.tile_columns if isinstance(tile, WgradStem) else 0
    return first_region(region, wgrad_sums_of(region, knobs), parts_of(knobs), columns)


def wgrad_sums_of(region: Region, knobs: Knobs) -> Tensor:
    """The tensor of one part's sums."""
    (call,) = product_calls(region)
    sums = sums_of(region, side_by_side(shape_of_call(region, call)))
    if knobs["TILE_ROWS"]:
        tile = pixel_tile(side_by_side(shape_of_call(region, call)), *halo_of(knobs))
        return tile.sums(sums) if isinstance(tile, WgradStem) else sums
    return sums


def _pixel_tiling(region: Region, knobs: Knobs, tile: PixelTile) -> Tiling:
    """The tiling of pixels that come with their halo; sums leave registers directly."""
    return Tiling(
        row=instruction_of(region, swaps=True),
        rows=wgmma.M,
        columns=tile.tile_columns,
        swaps=False,
        consumers=tile.consumers,
        stages=1,
        cluster=(1, 1),
        group_rows=1,
        operands=_operand_plans(0, 0),
        products=((0, 1),),
        promotes=False,
        loads=(),
        outputs=("direct",) * len(region.outputs),
        staged_bytes=(),
        loaded_bytes=(),
        pair=_PAIR,
        splits=1,
        producers=1,
        groups=0,
        exchanges=0,
        streams=False,
        is_dynamic=False,
        pixels={
            "slots": knobs["STAGES"],
            "slot_bytes": tile.slot_bytes,
            "rows": tile.rows,
            "columns": tile.columns,
        },
    )


def pixel_smem_bytes(tile: PixelTile, slots: int) -> int:
    """Bytes of shared memory of such a tiling."""
    columns, consumers = tile.tile_columns, tile.consumers
    return SharedLayout(
        columns=columns, part=part_of(wgmma.M, columns, consumers), consumers=consumers,
        sharers=consumers, takes_turns=False, stages=1, stage_bytes=0, producers=1,
        staged_bytes=(), loaded_bytes=(), pixel_slots=slots, pixel_bytes=tile.slot_bytes,
    ).bytes  # fmt: skip


def _operand_plans(rows: int, columns: int) -> tuple[dict[str, Any], ...]:
    """dY's tile of a stage, then X's; see `StagedOperand.plan`."""
    found, offset = [], 0
    for side, is_rows in ((rows, True), (columns, False)):
        bytes_ = tile_bytes(side, wgmma.ROW_BYTES)
        place = {"offset": offset, "bytes": bytes_, "raw": -1, "raw_offset": 0, "raw_bytes": 0}
        found.append({"path": "tma", "is_a": is_rows, "is_rows": is_rows, **place})
        offset += bytes_
    return tuple(found)
