# pyright: basic
"""Which knobs of matmul_sm90 go together, for a fusion; and the shared memory that they ask for."""

from __future__ import annotations

import functools
from itertools import product as product_of

from ...codegen.hopper import tma, wgmma
from ...dialect.fusion import Fusion
from ...target import Target
from ..engine import Knobs, Reason
from ..surface import smem_reasons
from .facts_sm90 import MOST_SUMS, ProductFacts, promotes
from .pattern import knob_reason, matmuls_of
from .shared_layout_sm90 import SharedLayout, slices_of
from .tiling_sm90 import (
    FRAGMENTS,
    TURNS,
    accumulators,
    consumers_of,
    loads_are_async,
    part_of,
    sides_of,
    tiling_of,
)

ROWS = (64, 128, 256)  # of the instruction's side of a tile
COLUMNS = (8, 16, 32, 64, 96, 128, 192, 256)
BESIDE = (384, 512)  # of tiles of 64 rows, whose warpgroups lie side by side
STAGES = (4, 2, 3, 5, 6, 7, 8, 10, 12)
SWIZZLES = (2048, 512, 1024, 4096, 8192)
MOST_BLOCKS = 4  # of a cluster that shares tiles
MOST_REDUCED = 192  # columns of a row whose reduction flows on

TILES = (
    (128, 256), (256, 128), (128, 192), (128, 128), (128, 96), (128, 64), (64, 256), (64, 128),
    (64, 64), (128, 32), (128, 16), (128, 8), (64, 32), (64, 16), (64, 8),
)  # fmt: skip
TURN_TILES = ((128, 128), (64, 256), (256, 64), (128, 64), (64, 128))
_CLUSTERS = ((1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (1, 1, 4), (1, 1, 8))


# ---- candidates


def candidates_of(
    facts: ProductFacts,
    target: Target,
    *,
    has_few_rows: bool,
) -> list[Knobs]:
    """The legal choices that are worth a look; not to be changed.

    has_few_rows: the product has up to 64.
    """
    swaps = [int(facts.is_along_columns)]
    if facts.computes:
        swaps = [0, 1]  # consumers compute the operand along the rows, of either side
    if not swaps[0] and has_few_rows:
        swaps = [1, 0]
    if facts.width:
        swaps = [0]
    swaps = [swap for swap in swaps if swap in facts.swaps] or facts.swaps
    return [
        knobs
        for swap in swaps
        for tiles, roles in ((TILES, _alone(facts)), (TURN_TILES, (TURNS,)))
        for knobs in legal_choices(facts, target, swap, tiles, roles)
    ]


def _alone(facts: ProductFacts) -> tuple[int, ...]:
    """Values of WARP_SPEC_CFG that are worth a look where warpgroups share their tiles."""
    return (FRAGMENTS, 2, 1) if facts.computes else (1,)


@functools.lru_cache(maxsize=512)
def legal_choices(
    facts: ProductFacts,
    target: Target,
    swap: int,
    tiles: tuple[tuple[int, int], ...],
    roles: tuple[int, ...] = (1,),
) -> tuple[Knobs, ...]:
    """Each of the tiles, along the instruction's rows and columns, with each cluster.

    roles: values of WARP_SPEC_CFG.
    """
    clusters = (*_CLUSTERS, (1, 4, 1)) if facts.width else _CLUSTERS
    found: list[Knobs] = []
    for (rows, columns), (*cluster, splits), producers in product_of(tiles, clusters, roles):
        tile = (columns, rows) if swap else (rows, columns)
        if producers == FRAGMENTS and rows > 128:
            continue  # a warpgroup that computes two blocks of rows waits for itself
        knobs = {
            "TILE_M": tile[0], "TILE_N": tile[1], "STAGES": 2,
            "TILE_CGA_M": cluster[0], "TILE_CGA_N": cluster[1], "SWAP_AB": swap,
            "SPLIT_K_SLC": splits, "WARP_SPEC_CFG": producers, "STREAM_K": 0,
            "SCHED_POLICY": 0, "SWIZZLE": SWIZZLES[0],
        }  # fmt: skip
        if _apart_from_smem(knobs, facts):
            continue
        first, second = (layout_of({**knobs, "STAGES": n}, facts).bytes for n in (1, 2))
        fitting = 1 + (target.smem_block_bytes - first) // (second - first)
        if fitting >= min(STAGES):  # as many as fit, up to what covers the latency of loads
            knobs["STAGES"] = max(n for n in STAGES if n <= fitting)
            found.append(knobs)
    return tuple(found)


# ---- what goes together


def illegal_reasons(knobs: Knobs, facts: ProductFacts, target: Target) -> tuple[Reason, ...]:
    return _apart_from_smem(knobs, facts) or smem_reasons(layout_of(knobs, facts).bytes, target)


def _apart_from_smem(knobs: Knobs, facts: ProductFacts) -> tuple[Reason, ...]:
    rows, columns = sides_of(knobs)
    is_listed = columns in COLUMNS or (rows == wgmma.M and columns in BESIDE)
    own_columns = part_of(knobs)[1]
    if rows not in ROWS or not is_listed or not facts.row.takes_columns(own_columns):
        name = f"tile {knobs['TILE_M']}x{knobs['TILE_N']}, SWAP_AB={knobs['SWAP_AB']}"
        return (knob_reason(name, f"{ROWS} by {COLUMNS}, swapped with SWAP_AB=1"),)
    sums = accumulators(knobs) * facts.products * (1 + facts.promotes)
    if sums > facts.most_sums:
        # More accumulators than the registers of two consumer warpgroups hold.
        what = f"{sums} sums in two rows of a thread"
        return (knob_reason(what, f"up to {facts.most_sums}"),)
    if columns in BESIDE and (facts.reductions or knobs["SPLIT_K_SLC"] > 1):
        what = f"{columns} columns with reductions or split k"
        return (knob_reason(what, f"up to {max(COLUMNS)}"),)
    if knobs["TILE_CGA_M"] * knobs["TILE_CGA_N"] > MOST_BLOCKS:
        # Larger clusters leave SMs without one.
        what = f"a cluster of more than {MOST_BLOCKS} blocks"
        return (knob_reason(what, f"up to {MOST_BLOCKS}"),)
    if knobs["WARP_SPEC_CFG"] == 2 and (
        consumers_of(knobs) == 1 or columns > 192 or not facts.computes
    ):
        # Of four warpgroups, a thread has 128 registers at launch: too few for 256 columns.
        what = f"WARP_SPEC_CFG=2 with tile {knobs['TILE_M']}x{knobs['TILE_N']}"
        return (knob_reason(what, "operands behind g1, two consumers, up to 192 columns"),)
    what = facts.no_fragments[knobs["SWAP_AB"]]
    if knobs["WARP_SPEC_CFG"] == FRAGMENTS and what:
        supported = "one operand of 16 bits along the rows, behind pointwise operations on "
        supported += "what TMA brings with k contiguous; the other one as TMA brings it"
        return (knob_reason(f"WARP_SPEC_CFG={FRAGMENTS}: {what}", supported),)
    if reasons := _turn_reasons(knobs, facts):
        return reasons
    if knobs["SWAP_AB"] not in facts.swaps:
        what = f"SWAP_AB={knobs['SWAP_AB']} with the layout of boolean outputs, or with tensors "
        what += "that are read for the phases of a gradient"
        return (knob_reason(what, f"SWAP_AB={facts.swaps[0]}"),)
    if reasons := _split_reasons(knobs, facts):
        return reasons
    if reasons := _schedule_reasons(knobs, facts):
        return reasons
    if reasons := _share_reasons(knobs, facts):
        return reasons
    if rows == 256 and knobs["WARP_SPEC_CFG"] == 2 and facts.is_heavy:
        return (knob_reason("256 rows, WARP_SPEC_CFG=2 and costly functions", "up to 128"),)
    if rows == 256 and not facts.is_aligned:
        # What loads unaligned rows leaves the consumers too few registers for two row blocks.
        return (knob_reason("256 rows with unaligned operands", "up to 128"),)
    if reasons := _row_reasons(knobs, facts):
        return reasons
    layout = layout_of(knobs, facts)
    least = min([*layout.staged_bytes, *layout.loaded_bytes], default=tma.ALIGNMENT)
    if layout.chunk * least < tma.ALIGNMENT:
        # A row of a box has 16 bytes at least.
        what = f"chunks of {layout.chunk} columns of {least} bytes"
        return (knob_reason(what, "tiles and slices of 16 columns or more"),)
    return ()


def _turn_reasons(knobs: Knobs, facts: ProductFacts) -> tuple[Reason, ...]:
    """Warpgroups that take turns multiply what TMA brings, and have their rows to themselves."""
    if knobs["WARP_SPEC_CFG"] != TURNS:
        return ()
    what = ""
    if facts.computes or not (facts.is_async(is_a=True) and facts.is_async(is_a=False)):
        what = "operands that pass through registers"
    elif facts.promotes:
        what = "fp8 products summed in FLOAT"
    elif facts.is_grouped:
        what = "grouped rows"
    elif facts.rewrites:
        what = "an X that is computed"
    elif facts.has_phases:
        what = "phases of a gradient with a stride"
    elif any(knobs[name] for name in ("STREAM_K", "SCHED_POLICY")) or knobs["SPLIT_K_SLC"] > 1:
        what = "split k, STREAM_K=1 or SCHED_POLICY=1"
    elif facts.width > sides_of(knobs)[1]:
        what = f"rows of {facts.width} over several blocks"
    if not what:
        return ()
    supported = "operands that TMA brings, plain tiles, rows that are reduced in one tile"
    return (knob_reason(f"WARP_SPEC_CFG={TURNS} with {what}", supported),)


def _row_reasons(knobs: Knobs, facts: ProductFacts) -> tuple[Reason, ...]:
    """A row that is reduced and goes on lies in the registers of four lanes, or in those of
    the blocks of a cluster that have its columns."""
    width = facts.width
    if not width:
        return ()
    columns, blocks = knobs["TILE_N"], knobs["TILE_CGA_N"]
    if knobs["SWAP_AB"] or columns > MOST_REDUCED or width > columns * blocks:
        what = f"tile {knobs['TILE_M']}x{columns}, {blocks} side by side, for rows of {width}"
        supported = f"SWAP_AB=0, TILE_N up to {MOST_REDUCED}, TILE_N * TILE_CGA_N of {width}"
        return (knob_reason(what, f"{supported} or more"),)
    if width > columns and knobs["TILE_CGA_M"] > 1:
        return (knob_reason("rows over a cluster of several rows", "TILE_CGA_M=1"),)
    return ()


def _split_reasons(knobs: Knobs, facts: ProductFacts) -> tuple[Reason, ...]:
    """Each block of a split has a part of k, and no row goes over several."""
    splits = knobs["SPLIT_K_SLC"]
    if splits == 1:
        return ()
    if knobs["TILE_CGA_M"] * knobs["TILE_CGA_N"] > 1:
        return (knob_reason("split k and shared tiles", "SPLIT_K_SLC=1 or TILE_CGA_*=1"),)
    if facts.reductions:
        return (knob_reason("split k and reductions", "SPLIT_K_SLC=1"),)
    if facts.splits < splits:
        least = splits * facts.panel_k
        return (knob_reason(f"SPLIT_K_SLC={splits}", f"K of {least} or more"),)
    columns = sides_of(knobs)[1]
    if columns % (8 * slices_of(columns, splits)):
        return (knob_reason(f"{columns} columns in {splits} parts", "multiples of 8"),)
    return ()


def _schedule_reasons(knobs: Knobs, facts: ProductFacts) -> tuple[Reason, ...]:
    """Which tiles may be cut along k, or taken one by one."""
    names = [name for name in ("STREAM_K", "SCHED_POLICY") if knobs[name]]
    if not names:
        return ()
    blocks = knobs["TILE_CGA_M"] * knobs["TILE_CGA_N"] * knobs["SPLIT_K_SLC"]
    if len(names) > 1 or blocks > 1 or facts.is_grouped:
        what = f"{' and '.join(names)} with clusters, groups or each other"
        return (knob_reason(what, "one of them, SPLIT_K_SLC=1, TILE_CGA_*=1, a plain matmul"),)
    if knobs["STREAM_K"] and facts.has_phases:
        return (knob_reason("STREAM_K=1 and phases of a gradient with a stride", "STREAM_K=0"),)
    if knobs["SCHED_POLICY"] and not loads_are_async(knobs, facts):
        what = "SCHED_POLICY=1 and operands that pass through registers"
        return (knob_reason(what, "operands that TMA brings"),)
    return ()


def _share_reasons(knobs: Knobs, facts: ProductFacts) -> tuple[Reason, ...]:
    """A block's share of an operand tile is whole swizzle atoms, or whole panels."""
    sides = (("A", knobs["TILE_M"], knobs["TILE_CGA_N"]),
             ("B", knobs["TILE_N"], knobs["TILE_CGA_M"]))  # fmt: skip
    for along_rows in facts.along_rows:
        for (name, side, peers), is_mn_major in zip(sides, along_rows, strict=True):
            whole = wgmma.PANEL_ROWS if is_mn_major else wgmma.ATOM_ROWS
            if side % (peers * whole):
                what = f"{side} rows of {name} shared by {peers} blocks"
                return (knob_reason(what, f"shares that are multiples of {whole}"),)
    return ()


# ---- sizes


def layout_of(knobs: Knobs, facts: ProductFacts) -> SharedLayout:
    """The shared memory of the kernel with these knobs."""
    return tiling_of(facts, knobs).shared


def most_columns(fusion: Fusion) -> int:
    """The most columns of a tile whose rows are reduced: its sums lie in registers beside what
    is computed."""
    found = matmuls_of(fusion)
    most = MOST_SUMS // (len(found) * (1 + promotes(found[0])))
    return max(columns for columns in COLUMNS if columns <= min(most, MOST_REDUCED))
