# pyright: basic
"""Reads off a region how each operand and each output of conv_sm90 goes, as a `Tiling`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...codegen.hopper import tma, wgmma
from ...codegen.hopper.staged_store import TURNED_BYTES
from ...codegen.region import Region, identity_access
from ...dialect import dnn, structure
from ...dialect.tensor import Tensor
from ...dtypes import DType
from ...expr import Expr
from ...mlir import ir
from ...target import Target
from ..engine import Knobs
from ..product.exits import exit_reductions
from ..product.facts_sm90 import instruction_of_types, promotes_sums
from ..product.knobs_sm90 import TURNS, cluster_of, consumers_of, sides_of
from ..product.model_sm90 import SECTOR_BYTES
from ..product.region_sm90 import product_calls, staged_loads
from ..product.shared_layout_sm90 import rewriting_bytes, tile_bytes
from ..product.tile_sm90 import Tiling, stored_by_tma
from ..surface import bytes_of
from .beside_sm90 import shape_of_knobs
from .halo import CONSUMERS, Halo, image_moves, parts_of, stays
from .operands_sm90 import filter_row_bytes
from .pattern import ConvShape, conv_of_call, pixel_matrix

REWRITTEN = "rewritten"  # the path of an X that is computed in shared memory
KEPT = "kept"  # the path of an output that is such an X
SCATTERED = "scattered"  # that of one whose pixels of a phase are no matrix
_MOST_PANELS = 3  # of a pixel, of which the last one's zeros are left out
_MOST_SHARE = 3  # written for each byte that is read, of convolutions that mostly write
_LARGE_BYTES = 100 << 20  # twice what L2 of Hopper holds


def conv_instruction_of(region: Region, *, swaps: bool) -> wgmma.Instruction:
    """Its first operand is W where channels lie along the rows."""
    x, w = list(product_calls(region)[0].operands)[:2]
    types = [dnn.read_type(ir.RankedTensorType(v.type).element_type) for v in (x, w)]
    return instruction_of_types(*(types[::-1] if swaps else types))


def conv_tiling_of(region: Region, knobs: Knobs, target: Target) -> Tiling:
    """knobs: of the main loop, see `main_loop_knobs`."""
    calls = product_calls(region)
    shape = conv_of_call(region, calls[0])
    if knobs["TILE_ROWS"]:
        return _halo_tiling(region, knobs, calls, shape)
    swaps = bool(knobs["SWAP_AB"])
    row = conv_instruction_of(region, swaps=swaps)
    is_computed = calls[0].operands[0] not in region.arguments
    shape = shape_of_knobs(shape, row, knobs, is_computed=is_computed)
    (rows, columns), splits = sides_of(knobs), knobs["SPLIT_K_SLC"]
    dims = region.dims_of(calls[0].results[0])
    outputs = tuple(
        KEPT if value == calls[0].operands[0] else _output_path(t, dims, shape, swaps=swaps)
        for value, t in region.outputs
    )
    staged = tuple(
        tensor.type.bits // 8
        for (_, tensor), path in zip(region.outputs, outputs, strict=True)
        if path in ("tma", SCATTERED)
    )
    exits = exit_reductions(region, outputs)
    loads = staged_loads(region, calls, lambda t: pixels_move_by_tma(t, shape, swaps=swaps), exits)
    row_bytes = shape.panel_bytes(row.element_bytes)
    operands = _operand_plans(
        (rows, columns), (row_bytes, filter_row_bytes(shape, row)), swaps=swaps
    )
    x, rewriting = calls[0].operands[0], 0
    if is_computed:
        pixels = columns if swaps else rows
        panel = shape.panel(row.element_bytes)
        operands = _with_raws(region, x, row, operands, pixels, panel)
        rewriting = rewriting_bytes(knobs["STAGES"], pixels)
    loads = loads if splits == 1 and not rewriting else []
    arguments = list(region.arguments.values())
    loaded = tuple(arguments[place].type.bits // 8 for place in loads)
    compute = dnn.attribute_value(
        structure.anchor_of(calls[0]).attributes["dnn.compute_type"], DType
    )
    cluster = cluster_of(knobs)
    return Tiling(
        row=row,
        rows=rows,
        columns=columns,
        swaps=swaps,
        consumers=consumers_of(knobs),
        stages=knobs["STAGES"],
        cluster=cluster,
        group_rows=max(1, knobs["SWIZZLE"] // (rows * cluster[0])),
        operands=operands,
        products=((0, 1),),
        promotes=promotes_sums(row.a, compute),
        loads=tuple(loads),
        outputs=outputs,
        staged_bytes=staged,
        loaded_bytes=loaded,
        pair=_pair(shape, swaps=swaps),
        splits=splits,
        producers=1,
        groups=0,
        exchanges=0,
        streams=bool(knobs["STREAM_K"]),
        is_dynamic=bool(knobs["SCHED_POLICY"]),
        is_turned=swaps,
        takes_turns=knobs["WARP_SPEC_CFG"] == TURNS,
        beside=shape.beside,
        rewriting=rewriting,
        row_bytes=row_bytes,
        panel_steps=panel_steps_of(shape, row.element_bytes, knobs),
        gives_up_stores=_writes_most(region),
        chunk=_chunk_of_phases(shape, knobs, target),
    )


def _chunk_of_phases(shape: ConvShape, knobs: Knobs, target: Target) -> int:
    """Tiles of pixels of every phase that follow each other, so that they find what they read of dY
    in L2: as many as there are SMs for, so that each has as many of every phase."""
    if shape.spread is None:
        return 0
    clusters = target.sm_count // (knobs["TILE_CGA_M"] * knobs["TILE_CGA_N"])
    across = -(-shape.k_group // (knobs["TILE_N"] * knobs["TILE_CGA_N"]))
    return clusters // math.gcd(clusters, across)


def _writes_most(region: Region) -> bool:
    """Whether outputs, in whole sectors, are most of what moves, and more than L2
    holds: what is read again, as the filter is, had better stay there instead.

    2% less of 56x56x64 to 256 channels, of 256 images; a kernel apart from this took 3% more of an
    output that is as large as the input.
    """
    stored = [tensor for _, tensor in region.outputs]
    if any(_fixed_bytes(tensor) % SECTOR_BYTES for tensor in stored):
        return False
    written = bytes_of(stored)
    return written >= max(_MOST_SHARE * bytes_of(region.arguments.values()), _LARGE_BYTES)


def _fixed_bytes(tensor: Tensor) -> int:
    """Bytes of its channels that are fixed."""
    return (tensor.shape[1].constant or 1) * tensor.type.bits // 8


def _halo_tiling(region: Region, knobs: Knobs, calls: Sequence[Any], shape: ConvShape) -> Tiling:
    """The tiling of pixels that come with their halo."""
    row, channels = conv_instruction_of(region, swaps=True), knobs["TILE_N"]
    parts = parts_of(channels)
    cut = knobs["TILE_COLS"]
    halo = Halo.of(shape, knobs["TILE_ROWS"] // parts, parts, row.element_bytes, cut)
    operands = _operand_plans((channels, 0), (halo.row_bytes, halo.row_bytes), swaps=True)
    x = calls[0].operands[0]
    is_computed = x not in region.arguments
    if is_computed:
        operands = _with_raws(region, x, row, operands, 0, 0)
    dims = region.dims_of(calls[0].results[0])
    outputs = tuple("tma" if t.shape == tuple(dims) else "exit" for _, t in region.outputs)
    exits = exit_reductions(region, outputs)
    loads = staged_loads(region, calls, lambda t: image_moves(t, shape.groups), exits)
    panels = shape.panels(row.element_bytes)
    return Tiling(
        row=row,
        rows=channels,
        columns=parts * halo.positions,
        swaps=True,
        consumers=CONSUMERS,
        stages=knobs["STAGES"],
        cluster=(1, 1),
        group_rows=max(1, knobs["SWIZZLE"] // channels),
        operands=operands,
        products=((0, 1),),
        promotes=False,
        loads=tuple(loads),
        outputs=outputs,
        staged_bytes=(TURNED_BYTES,) * outputs.count("tma"),
        loaded_bytes=(TURNED_BYTES,) * len(loads),
        pair=2,
        splits=1,
        producers=1,
        groups=0,
        exchanges=0,
        streams=False,
        is_dynamic=bool(knobs["SCHED_POLICY"]),
        is_turned=True,
        pixels={"slots": halo.slots, "slot_bytes": halo.slot_bytes},
        halo={
            "rows": halo.rows,
            "parts": parts,
            "columns": cut,
            "buffer_bytes": halo.buffer_bytes,
            "stays": int(stays(shape, channels, knobs["STAGES"], panels)),
        },
        rewriting=rewriting_bytes(halo.slots, 0) if is_computed else 0,
        row_bytes=halo.row_bytes,
        panel_steps=panel_steps_of(shape, row.element_bytes, knobs),
    )


def panel_steps_of(shape: ConvShape, element_bytes: int, knobs: Knobs) -> tuple[int, ...]:
    """See `Tiling`: where it is worth it, and the main loop knows which panel a step has.

    By im2col the panels of a pixel follow each other, and each is code of its own.
    """
    steps = shape.panel_steps(element_bytes)
    is_cut = knobs["SPLIT_K_SLC"] > 1 or knobs["STREAM_K"]
    is_known = knobs["TILE_ROWS"] or len(steps) == 1 or not (is_cut or len(steps) > _MOST_PANELS)
    every = shape.panel_bytes(element_bytes) // wgmma.K_BYTES
    return steps if is_known and steps[-1] < every else ()


def _operand_plans(
    sides: Sequence[int], row_bytes: tuple[int, int], *, swaps: bool
) -> tuple[dict[str, Any], ...]:
    """X, then W, swapped the other way round, a panel of k each; see `StagedOperand.plan`.

    row_bytes: of X's tile, of W's.
    """
    found, offset = [], 0
    for side, is_rows in zip(sides, (True, False), strict=True):
        bytes_ = tile_bytes(side, row_bytes[0 if is_rows != swaps else 1])
        place = {"offset": offset, "bytes": bytes_, "raw": -1, "raw_offset": 0, "raw_bytes": 0}
        found.append({"path": "tma", "is_a": is_rows != swaps, "is_rows": is_rows, **place})
        offset += bytes_
    return tuple(found)


def _with_raws(
    region: Region,
    x: Any,
    row: wgmma.Instruction,
    plans: Sequence[dict[str, Any]],
    pixels: int,
    panel: int,
) -> tuple[dict[str, Any], ...]:
    """The plans of a stage whose X is computed from raw tiles: see `ComputedPixels`.

    pixels: rows of X's tile.  panel: channels of it.
    """
    end = sum(plan["bytes"] for plan in plans)
    tensors, found = list(region.arguments.values()), list[dict[str, Any]]()
    for plan in plans:
        if plan["is_a"]:
            operand, offsets, first = row.a if plan["is_rows"] else row.b, list[int](), end
            raws = _raw_arguments(region, x, operand)
            for place in raws:
                if not offsets and tensors[place].type.bits == operand.bits:
                    offsets.append(plan["offset"])
                    continue
                offsets.append(end)
                end += tile_bytes(pixels, panel * tensors[place].type.bits // 8)
            bytes_ = plan["bytes"] + end - first
            raw = {"raws": raws, "raw_offsets": offsets, "bytes": bytes_}
            plan = {**plan, **raw, "path": REWRITTEN}
        found.append(plan)
    return tuple(found)


def _raw_arguments(region: Region, x: Any, operand: DType) -> list[int]:
    """Places of the arguments that are read at x's elements: see `conv_before_sm90.raws_of`."""
    dims = region.dims_of(x)
    read = {leaf for leaf, _ in region.accesses(x, identity_access(len(dims)))}
    tensors = list(region.arguments.items())
    found = [
        place
        for place, (argument, tensor) in enumerate(tensors)
        if argument in read and tensor.shape == tuple(dims) and not tensor.is_by_value
    ]
    return sorted(found, key=lambda place: tensors[place][1].type.bits != operand.bits)


def _output_path(tensor: Tensor, dims: Sequence[Expr], shape: ConvShape, *, swaps: bool) -> str:
    """See `Tiling.outputs`."""
    if tensor.shape != tuple(dims):
        return "exit"
    if tensor.type.kind == "b":
        return "bits"
    if not pixels_are_staged(tensor, shape, swaps=swaps):
        return "direct"
    return SCATTERED if shape.spread else "tma"


def _pair(shape: ConvShape, *, swaps: bool) -> int:
    """Neighbours along the columns, of Y's dims, that the epilogue works on together."""
    if swaps and shape.spread:  # the image may have one of them alone
        return 1
    size = shape.pixels.known_divisor() if swaps else shape.k_group
    return 2 if size % 2 == 0 else 1


def pixels_move_by_tma(tensor: Tensor, shape: ConvShape, *, swaps: bool) -> bool:
    """Whether tiles of a tensor of Y's dims can be loaded through TMA."""
    return shape.spread is None and _are_rows(tensor, shape.groups, swaps=swaps)


def pixels_are_staged(tensor: Tensor, shape: ConvShape, *, swaps: bool) -> bool:
    """Whether they are stored through shared memory, see `stored_by_tma`."""
    if not _are_rows(tensor, shape.groups, swaps=swaps):
        return False
    matrix = pixel_matrix(tensor, shape.groups)
    return matrix is not None and stored_by_tma(matrix, swaps=False)


def _are_rows(tensor: Tensor, groups: int, *, swaps: bool) -> bool:
    """Whether pixels are rows of a matrix that TMA takes."""
    if swaps and tensor.type.bits != 8 * TURNED_BYTES:
        return False
    matrix = pixel_matrix(tensor, groups)
    return matrix is not None and tma.refusal(matrix, (2, 1)) is None
