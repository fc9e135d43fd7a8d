# pyright: basic
"""Which knobs of matmul_sm90 go together, for a fusion; and the shared memory that they ask for."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from itertools import product as product_of

from ...codegen.hopper import tma, wgmma
from ...dialect.fusion import Fusion
from ...target import Target
from ..engine import Knobs, Reason
from ..surface import smem_reasons
from .choice_sm90 import FRAGMENTS, PING_PONG, Choice
from .facts_sm90 import MOST_SUMS, ProductFacts, promotes
from .pattern import knob_reason, matmuls_of
from .shared_layout_sm90 import SharedLayout, slices_of
from .tiling_sm90 import tiling_of

ROWS = (64, 128, 256)  # of the instruction's side of a tile
COLUMNS = (8, 16, 32, 64, 96, 128, 160, 192, 224, 256)
# The same where instructions have the rows of A along their columns, and results leave transposed:
# any that instructions take, so that a few tiles have all rows and little else.
TRANSPOSED_COLUMNS = tuple(range(40, 257, 8))
BESIDE = (384, 512)  # of tiles of 64 rows, whose warpgroups lie side by side
STAGES = (4, 2, 3, 5, 6, 7, 8, 10, 12)
SWIZZLES = (2048, 512, 1024)
FEW_ROWS = 64  # which instructions have along their columns
MOST_BLOCKS = 4  # of a cluster that shares tiles
MOST_REDUCED = 192  # columns of a row whose reduction flows on

TILES = (
    (128, 256), (256, 128), (128, 224), (128, 192), (128, 160), (128, 128), (128, 96), (128, 64),
    (64, 256), (64, 128), (64, 64), (128, 32), (128, 16), (128, 8), (64, 32), (64, 16), (64, 8),
)  # fmt: skip
# Of some hundred rows along the columns of instructions, whose number rows of tiles may not divide.
_ACROSS = ((128, 224), (128, 192), (128, 160), (128, 96))
_SOME_ROWS = 2048
_MANY = 16  # stages
_MOST_ROUNDS = 6  # of tiles, up to which a round that is not full is worth a look
_ACROSS_ROWS, _LEAST_ACROSS = 128, 72
_ROUND_WIDTHS = tuple(width for height, width in TILES if height == _ACROSS_ROWS)
_MORE_COLUMNS = 24  # of the time of a tile, beside its own
PING_PONG_TILES = ((128, 128), (64, 256), (256, 64), (128, 64), (64, 128))
_WHOLE = ((1, 1, 1), (2, 1, 1), (1, 2, 1))
_CLUSTERS = (*_WHOLE, (1, 1, 2), (1, 1, 4), (1, 1, 8))
_SPLIT_ROWS = ((128, 2), (256, 2), (128, 4), (256, 4))
_FEW_SPLITS = (2, 4)
_MOST_COLUMNS, _MOST_TILE = 256, 128 * 256


# ---- candidates


def candidates_of(facts: ProductFacts, target: Target, size: tuple[int, int, int]) -> list[Knobs]:
    """The legal choices that are worth a look; not to be changed.

    size: rows and columns that the product has in the typical case, and how many there are.
    """
    rows, *_ = size
    swaps = [int(facts.results.is_along_columns)]
    if facts.operands.computes:
        swaps = [0, 1]  # consumers compute the operand along the rows, of either side
    if not swaps[0] and rows <= FEW_ROWS:
        swaps = [1, 0]
    if facts.rows.width:
        swaps = [0]
    swaps = [swap for swap in swaps if swap in facts.results.swaps] or facts.results.swaps
    found = [
        knobs
        for swap in swaps
        for tiles, roles in ((TILES, _alone(facts)), (PING_PONG_TILES, (PING_PONG,)))
        for knobs in legal_choices(facts, target, swap, tiles, roles)
    ]
    if (
        swaps == [0]
        and 1 in facts.results.swaps
        and facts.results.can_transpose
        and rows > FEW_ROWS
    ):
        if rows <= _SOME_ROWS:
            found += legal_choices(facts, target, 1, _ACROSS, clusters=_WHOLE)
        if not facts.rows.reductions:  # beside the sums of wide tiles they would spill
            known = _ACROSS if rows <= _SOME_ROWS else ()
            if fitting := tuple([t for t in across_tiles(size, target) if t not in known]):
                found += legal_choices(facts, target, 1, fitting, clusters=_WHOLE)
            for tile, splits in split_tiles(size, target):
                found += legal_choices(facts, target, 1, (tile,), clusters=((1, 1, splits),))
    return found


def across_tiles(size: tuple[int, int, int], target: Target) -> tuple[tuple[int, int], ...]:
    """Tiles with A's rows along the columns of instructions that fill the rounds they take, where
    the tiles of `TILES` leave more SMs or rows of tiles without work.

    For each number of rounds, those with as few columns as cover the rows in it.  Example: 777 x
    4096 on 132 SMs: in one round 4 x 32 tiles of 200 columns, where 224 would be 12% more.

    size: see `candidates_of`.
    """
    rows, columns, count = size
    down, sms = -(-columns // _ACROSS_ROWS) * count, target.sm_count
    if down * rows > _MOST_ROUNDS * sms * _MOST_COLUMNS:
        return ()
    least, other = math.inf, -(-rows // _ACROSS_ROWS) * count
    for width in _ROUND_WIDTHS:
        for tiles in (down * -(-rows // width), other * -(-columns // width)):
            taken = -(-tiles // sms) * (width + _MORE_COLUMNS)
            least = taken if taken < least else least
    found = list[int]()
    for rounds in range(1, _MOST_ROUNDS + 1):
        most = rounds * sms // down
        for tiles in (most, most & -2):  # pairs share B's rows
            width = 8 * -(-rows // (8 * tiles)) if tiles else 0
            taken = (
                -(-down * -(-rows // width) // sms) * (width + _MORE_COLUMNS) if width else least
            )
            is_new = _LEAST_ACROSS <= width <= _MOST_COLUMNS
            if taken < least and is_new and width not in found:
                found.append(width)
    return tuple((_ACROSS_ROWS, width) for width in found)


def split_tiles(size: tuple[int, int, int], target: Target) -> list[tuple[tuple[int, int], int]]:
    """Tiles of which one round is all of a product, each of some blocks that share its k, and by
    how many.  Example: 389 x 3000 on 132 SMs: 5 x 12 tiles of 80x256 for two blocks each.

    size: see `candidates_of`.
    """
    rows, columns, count = size
    found = list[tuple[tuple[int, int], int]]()
    for height, splits in _SPLIT_ROWS:
        most = target.sm_count // (-(-columns // height) * count * splits)
        width = 8 * splits * -(-rows // (8 * splits * most)) if most else 0
        if _LEAST_ACROSS <= width <= _MOST_TILE // height:
            found.append(((height, width), splits))
    return found


def _alone(facts: ProductFacts) -> tuple[int, ...]:
    """Values of WARP_SPEC_CFG that are worth a look where warpgroups share their tiles."""
    return (FRAGMENTS, 2, 1) if facts.operands.computes else (1,)


@functools.lru_cache(maxsize=512)
def legal_choices(
    facts: ProductFacts,
    target: Target,
    swap: int,
    tiles: tuple[tuple[int, int], ...],
    roles: tuple[int, ...] = (1,),
    clusters: tuple[tuple[int, int, int], ...] = _CLUSTERS,
) -> tuple[Knobs, ...]:
    """Each of the tiles, along the instruction's rows and columns, with each cluster.

    roles: values of WARP_SPEC_CFG.  clusters: blocks along M and N, and those that share k.
    """
    clusters = (*clusters, (1, 4, 1)) if facts.rows.width else clusters
    found: list[Knobs] = []
    for (rows, columns), (*cluster, splits), producers in product_of(tiles, clusters, roles):
        tile = (columns, rows) if swap else (rows, columns)
        if rows * columns == _MOST_TILE and splits in _FEW_SPLITS and clusters is _CLUSTERS:
            continue  # so few of these tiles lie in one round only where `split_tiles` says so
        if producers == FRAGMENTS and rows > 128:
            continue  # a warpgroup that computes two blocks of rows waits for itself
        choice = Choice(
            *tile, stages=2, blocks_m=cluster[0], blocks_n=cluster[1], splits=splits,
            roles=producers, swizzle=SWIZZLES[0], swaps=bool(swap),
        )  # fmt: skip
        if _apart_from_smem(choice, facts):
            continue
        layout = layout_of(replace(choice, stages=1), facts)
        if _chunk_reasons(layout):
            continue
        first, second = layout.bytes, replace(layout, stages=2).bytes
        if facts.operands.rewrites:  # each stage has more than its tiles
            second = layout_of(replace(choice, stages=2), facts).bytes
        if layout.are_sums_in_stages:  # few stages take as much as the sums
            layout = replace(layout, stages=_MANY)
            first = layout.bytes - (_MANY - 1) * layout.stage_bytes
            second = first + layout.stage_bytes
        fitting = 1 + (target.limits.smem_block_bytes - first) // (second - first)
        if fitting >= min(STAGES):  # as many as fit, up to what covers the latency of loads
            stages = max(n for n in STAGES if n <= fitting)
            if replace(layout, stages=stages).bytes > target.limits.smem_block_bytes:
                continue
            found.append(replace(choice, stages=stages).knobs)
    return tuple(found)


# ---- what goes together


def illegal_reasons(choice: Choice, facts: ProductFacts, target: Target) -> tuple[Reason, ...]:
    if reasons := _apart_from_smem(choice, facts):
        return reasons
    layout = layout_of(choice, facts)
    return _chunk_reasons(layout) or smem_reasons(layout.bytes, target)


def _apart_from_smem(choice: Choice, facts: ProductFacts) -> tuple[Reason, ...]:
    rows, columns = choice.sides
    is_listed = (
        columns in COLUMNS
        or (rows == wgmma.M and columns in BESIDE)
        or (columns in TRANSPOSED_COLUMNS and _takes_any_columns(choice, facts))
    )
    own_columns = choice.block.part[1]
    if rows not in ROWS or not is_listed or not facts.row.takes_columns(own_columns):
        name = f"tile {choice.tile_m}x{choice.tile_n}, SWAP_AB={int(choice.swaps)}"
        supported = f"{ROWS} by {COLUMNS}, swapped with SWAP_AB=1; then any multiple of 8 from "
        supported += "40 to 256 where TMA brings the operands with k contiguous and takes results "
        supported += "of 16 bits"
        return (knob_reason(name, supported, of_any=True),)
    sums = choice.accumulators * facts.products * (1 + facts.promotes)
    if sums > facts.most_sums:
        # More accumulators than the registers of two consumer warpgroups hold.
        what = f"{sums} sums in two rows of a thread"
        return (knob_reason(what, f"up to {facts.most_sums}"),)
    if columns in BESIDE and (facts.rows.reductions or choice.splits > 1):
        what = f"{columns} columns with reductions or split k"
        return (knob_reason(what, f"up to {max(COLUMNS)}"),)
    if choice.shared_blocks > MOST_BLOCKS:
        # Larger clusters leave SMs without one.
        what = f"a cluster of more than {MOST_BLOCKS} blocks"
        return (knob_reason(what, f"up to {MOST_BLOCKS}"),)
    if choice.producers == 2 and (
        choice.block.consumers == 1 or columns > 192 or not facts.operands.computes
    ):
        # Of four warpgroups, a thread has 128 registers at launch: too few for 256 columns.
        what = f"WARP_SPEC_CFG=2 with tile {choice.tile_m}x{choice.tile_n}"
        return (knob_reason(what, "operands behind g1, two consumers, up to 192 columns"),)
    what = facts.operands.no_fragments[choice.swaps]
    if choice.takes_fragments and what:
        supported = "one operand of 16 bits along the rows, behind pointwise operations on "
        supported += "what TMA brings with k contiguous; the other one as TMA brings it"
        return (knob_reason(f"WARP_SPEC_CFG={FRAGMENTS}: {what}", supported),)
    if reasons := _ping_pong_reasons(choice, facts):
        return reasons
    if choice.swaps not in facts.results.swaps:
        what = f"SWAP_AB={int(choice.swaps)} with the layout of boolean outputs, or with tensors "
        what += "that are read for the phases of a gradient"
        return (knob_reason(what, f"SWAP_AB={facts.results.swaps[0]}"),)
    if reasons := _split_reasons(choice, facts):
        return reasons
    if reasons := _share_reasons(choice, facts):
        return reasons
    if rows == 256 and choice.producers == 2 and facts.results.is_heavy:
        return (knob_reason("256 rows, WARP_SPEC_CFG=2 and costly functions", "up to 128"),)
    if rows == 256 and not facts.operands.is_aligned:
        # What loads unaligned rows leaves the consumers too few registers for two row blocks.
        return (knob_reason("256 rows with unaligned operands", "up to 128"),)
    return _row_reasons(choice, facts)


def _takes_any_columns(choice: Choice, facts: ProductFacts) -> bool:
    """Whether a tile may have any multiple of 8 columns: the last of its chunks has fewer columns
    than others, as a row of tiles of outputs' parts can't."""
    is_plain = facts.results.can_transpose and not facts.results.ends
    is_async = facts.operands.is_async(is_a=True) and facts.operands.is_async(is_a=False)
    return choice.swaps and is_plain and is_async and not facts.operands.computes


def _chunk_reasons(layout: SharedLayout) -> tuple[Reason, ...]:
    least = min(
        [*layout.epilogue.staged_bytes, *layout.epilogue.loaded_bytes], default=tma.ALIGNMENT
    )
    if layout.chunk * least < tma.ALIGNMENT:
        # A row of a box has 16 bytes at least.
        what = f"chunks of {layout.chunk} columns of {least} bytes"
        return (knob_reason(what, "tiles and slices of 16 columns or more"),)
    return ()


def _ping_pong_reasons(choice: Choice, facts: ProductFacts) -> tuple[Reason, ...]:
    """Warpgroups that ping-pong multiply what TMA brings, and have their rows to themselves."""
    if not choice.is_ping_pong:
        return ()
    what = ""
    if facts.operands.computes or not (
        facts.operands.is_async(is_a=True) and facts.operands.is_async(is_a=False)
    ):
        what = "operands that pass through registers"
    elif facts.promotes:
        what = "fp8 products summed in FLOAT"
    elif facts.rows.is_grouped:
        what = "grouped rows"
    elif facts.operands.rewrites:
        what = "an X that is computed"
    elif choice.splits > 1:
        what = "split k"
    elif facts.rows.width > choice.sides[1]:
        what = f"rows of {facts.rows.width} over several blocks"
    if not what:
        return ()
    supported = "operands that TMA brings, plain tiles, rows that are reduced in one tile"
    return (knob_reason(f"WARP_SPEC_CFG={PING_PONG} with {what}", supported),)


def _row_reasons(choice: Choice, facts: ProductFacts) -> tuple[Reason, ...]:
    """A row that is reduced and goes on lies in the registers of four lanes, or in those of
    the blocks of a cluster that have its columns."""
    width = facts.rows.width
    if not width:
        return ()
    columns, blocks = choice.tile_n, choice.blocks_n
    if choice.swaps or columns > MOST_REDUCED or width > columns * blocks:
        what = f"tile {choice.tile_m}x{columns}, {blocks} side by side, for rows of {width}"
        supported = f"SWAP_AB=0, TILE_N up to {MOST_REDUCED}, TILE_N * TILE_CGA_N of {width}"
        return (knob_reason(what, f"{supported} or more"),)
    if width > columns and choice.blocks_m > 1:
        return (knob_reason("rows over a cluster of several rows", "TILE_CGA_M=1"),)
    return ()


def _split_reasons(choice: Choice, facts: ProductFacts) -> tuple[Reason, ...]:
    """Each block of a split has a part of k, and no row goes over several."""
    splits = choice.splits
    if splits == 1:
        return ()
    if choice.shared_blocks > 1:
        return (knob_reason("split k and shared tiles", "SPLIT_K_SLC=1 or TILE_CGA_*=1"),)
    if facts.rows.reductions:
        return (knob_reason("split k and reductions", "SPLIT_K_SLC=1"),)
    if facts.splits < splits:
        least = splits * facts.panel_k
        return (knob_reason(f"SPLIT_K_SLC={splits}", f"K of {least} or more"),)
    columns = choice.sides[1]
    if columns % (8 * slices_of(columns, splits)):
        return (knob_reason(f"{columns} columns in {splits} parts", "multiples of 8"),)
    return ()


def _share_reasons(choice: Choice, facts: ProductFacts) -> tuple[Reason, ...]:
    """A block's share of an operand tile is whole swizzle atoms, or whole panels."""
    sides = (("A", choice.tile_m, choice.blocks_n),
             ("B", choice.tile_n, choice.blocks_m))  # fmt: skip
    for along_rows in facts.operands.along_rows:
        for (name, side, peers), is_mn_major in zip(sides, along_rows, strict=True):
            whole = wgmma.PANEL_ROWS if is_mn_major else wgmma.ATOM_ROWS
            if side % (peers * whole):
                what = f"{side} rows of {name} shared by {peers} blocks"
                return (knob_reason(what, f"shares that are multiples of {whole}"),)
    return ()


# ---- sizes


def layout_of(choice: Choice, facts: ProductFacts) -> SharedLayout:
    """The shared memory of the kernel with these knobs."""
    return tiling_of(facts, choice).shared


def most_columns(fusion: Fusion) -> int:
    """The most columns of a tile whose rows are reduced: its sums lie in registers beside what
    is computed."""
    found = matmuls_of(fusion)
    most = MOST_SUMS // (len(found) * (1 + promotes(found[0])))
    return max(columns for columns in COLUMNS if columns <= min(most, MOST_REDUCED))
