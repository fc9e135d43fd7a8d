# pyright: basic
"""The tiling that a choice of knobs of matmul_sm90 stands for, made from the facts of a fusion.

`legal` asks it for the shared memory, the kernel is built by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...codegen.hopper import tma, wgmma
from ..engine import Knobs
from . import tile_sm90
from .facts_sm90 import ProductFacts
from .operands_sm90 import OperandFacts
from .shared_layout_sm90 import rewriting_bytes, tile_bytes
from .tile_sm90 import Tiling, exchanges, is_turned

FRAGMENTS, TURNS = 3, 4  # of WARP_SPEC_CFG


# ---- what knobs say


def sides_of(knobs: Knobs) -> tuple[int, int]:
    """The tile along the instruction's rows and columns."""
    sides = (knobs["TILE_M"], knobs["TILE_N"])
    return (sides[1], sides[0]) if knobs["SWAP_AB"] else sides


def cluster_of(knobs: Knobs) -> tuple[int, int]:
    """Blocks of a cluster along the instruction's rows and columns."""
    blocks = (knobs["TILE_CGA_M"], knobs["TILE_CGA_N"])
    return (blocks[1], blocks[0]) if knobs["SWAP_AB"] else blocks


def consumers_of(knobs: Knobs) -> int:
    """Warpgroups that multiply."""
    return 2 if knobs["WARP_SPEC_CFG"] == TURNS else tile_sm90.consumers_of(*sides_of(knobs))


def sharers_of(knobs: Knobs) -> int:
    """Warpgroups that multiply a tile together."""
    return 1 if knobs["WARP_SPEC_CFG"] == TURNS else consumers_of(knobs)


def part_of(knobs: Knobs) -> tuple[int, int]:
    """Rows and columns of a tile that each of them has."""
    return tile_sm90.part_of(*sides_of(knobs), sharers_of(knobs))


def producers_of(knobs: Knobs) -> int:
    """Warpgroups that load."""
    return 2 if knobs["WARP_SPEC_CFG"] == 2 else 1


def accumulators(knobs: Knobs) -> int:
    """Accumulators of one product, in two rows of a thread."""
    rows, columns = part_of(knobs)
    return rows // wgmma.M * columns


# ---- the tiling


def tiling_of(facts: ProductFacts, knobs: Knobs) -> Tiling:
    """The tiling of a fusion with these facts."""
    swaps, (rows, columns) = bool(knobs["SWAP_AB"]), sides_of(knobs)
    cluster, splits = cluster_of(knobs), knobs["SPLIT_K_SLC"]
    epilogue, is_direct = facts.epilogue[swaps], leaves_few(knobs, facts)
    # Warps of a producer that computes have no time to load for the epilogue.
    has_loads = splits == 1 and loads_are_async(knobs, facts) and not is_direct
    held, rows_of = columns * (cluster[1] if facts.width else 1), dict(facts.rows)
    spans = facts.along_row if facts.width > columns else 0
    # Those along the instruction's rows come first.
    order = sorted(range(len(facts.operands)), key=lambda i: facts.operands[i].is_a == swaps)
    places = {number: place for place, number in enumerate(order)}
    return Tiling(
        row=wgmma.INSTRUCTIONS[facts.row.b, facts.row.a] if swaps else facts.row,
        rows=rows,
        columns=columns,
        swaps=swaps,
        consumers=consumers_of(knobs),
        stages=knobs["STAGES"],
        cluster=cluster,
        group_rows=max(1, knobs["SWIZZLE"] // (rows * cluster[0])),
        operands=_operands([facts.operands[number] for number in order], facts, knobs),
        products=tuple(
            (places[b], places[a]) if swaps else (places[a], places[b]) for a, b in facts.pairs
        ),
        promotes=facts.promotes,
        loads=epilogue.loads if has_loads else (),
        outputs=tuple(
            _path(path, is_direct, not swaps and place in rows_of and rows_of[place] <= held)
            for place, path in enumerate(epilogue.paths)
        ),
        staged_bytes=() if is_direct else epilogue.staged,
        loaded_bytes=epilogue.loaded if has_loads else (),
        splits=splits,
        producers=producers_of(knobs),
        pair=2 if epilogue.is_even else 1,
        groups=facts.groups,
        streams=bool(knobs["STREAM_K"]),
        is_dynamic=bool(knobs["SCHED_POLICY"]),
        is_turned=is_turned(columns, swaps=swaps, can_turn=facts.can_turn),
        takes_turns=knobs["WARP_SPEC_CFG"] == TURNS,
        exchanges=exchanges(spans, part_of(knobs)[0] // wgmma.M),
        rewriting=rewriting_bytes(knobs["STAGES"], knobs["TILE_M"]) if facts.rewrites else 0,
        row_bytes=facts.row_bytes,
    )


def leaves_few(knobs: Knobs, facts: ProductFacts) -> bool:
    """Whether results that could go through shared memory turned are few, and do not."""
    swaps, columns = bool(knobs["SWAP_AB"]), sides_of(knobs)[1]
    return swaps and facts.can_turn and not is_turned(columns, swaps=swaps, can_turn=True)


def loads_are_async(knobs: Knobs, facts: ProductFacts) -> bool:
    """Whether no operand passes through the producers' registers."""
    if knobs["WARP_SPEC_CFG"] == FRAGMENTS:  # the one along the rows comes raw
        return facts.is_async(is_a=bool(knobs["SWAP_AB"]))
    return facts.is_async(is_a=True) and facts.is_async(is_a=False)


def _path(path: str, is_direct: bool, holds_rows: bool) -> str:
    """See `Tiling.outputs`; holds_rows: a tile has all that an element of the output is made of."""
    if path == "exit" and holds_rows:
        return "row"
    return "direct" if path == "tma" and is_direct else path


def _operands(
    operands: Sequence[OperandFacts], facts: ProductFacts, knobs: Knobs
) -> tuple[dict[str, Any], ...]:
    """How each operand of a stage is loaded, and where it lies; see `StagedOperand.plan`."""
    swaps, sides = bool(knobs["SWAP_AB"]), sides_of(knobs)
    found: list[dict[str, Any]] = []
    offset = raw_offset = 0
    for operand in operands:
        is_rows = operand.is_a != swaps
        side = sides[0 if is_rows else 1]
        if is_rows and knobs["WARP_SPEC_CFG"] == FRAGMENTS and operand.fragment is not None:
            plan = _of_fragments(operand, side, facts.panel_k)
        else:
            plan = _of_stage(operand, side, facts)
        found.append({
            "is_a": operand.is_a, "is_rows": is_rows, "offset": offset, "raw_offset": raw_offset,
            **plan,
        })  # fmt: skip
        offset += plan["bytes"]
        raw_offset += plan["raw_bytes"]
    for plan, operand in zip(found, operands, strict=True):
        if operand.raws:  # raw tiles beside the operands are behind all of them
            plan |= _with_raws(operand, plan, offset, side=knobs["TILE_M"])
    return tuple(found)


def _of_fragments(operand: OperandFacts, side: int, panel_k: int) -> dict[str, Any]:
    """An operand whose raw tile is in the stage: consumers compute it in registers."""
    raw = operand.fragment
    assert raw is not None, "an operand that legal takes has a raw tile"
    return {
        "path": "fragments", "k_contiguous": operand.k_contiguous,
        "loads_along_k": operand.loads_along_k, "is_aligned": operand.is_aligned,
        "raw": raw.place, "bytes": tile_bytes(side, panel_k * raw.bits // 8), "raw_bytes": 0,
    }  # fmt: skip


def _of_stage(operand: OperandFacts, side: int, facts: ProductFacts) -> dict[str, Any]:
    """An operand that lies in the stage as products read it."""
    along_k, k_contiguous = operand.loads_along_k, operand.k_contiguous
    is_aligned, raw = operand.is_aligned, operand.raw
    if side % (tma.ALIGNMENT // facts.row.element_bytes) and not along_k:
        # A chunk of 16 bytes along the rows would be longer than the tile.
        along_k, is_aligned, raw = True, False, None
    if operand.path == "registers" and side % wgmma.PANEL_ROWS:
        k_contiguous = True  # what g1 gives may lie either way
    if raw is not None and not along_k and side * raw.bits // 8 % tma.ALIGNMENT:
        is_aligned, raw = False, None
    return {
        "path": operand.path, "k_contiguous": k_contiguous, "loads_along_k": along_k,
        "is_aligned": is_aligned, "raw": -1 if raw is None else raw.place,
        "bytes": tile_bytes(side, operand.row_bytes),
        "raw_bytes": 0 if raw is None else tile_bytes(side, facts.panel_k * raw.bits // 8),
    }  # fmt: skip


def _with_raws(operand: OperandFacts, plan: dict[str, Any], end: int, side: int) -> dict[str, Any]:
    """More of an operand that warps of the producer compute: see `ComputedPixels`.

    end: bytes of the operands of a stage.
    """
    offsets, bytes_ = list[int](), plan["bytes"]
    for row_bytes in operand.beside:
        offsets.append(end if row_bytes else plan["offset"])
        end += tile_bytes(side, row_bytes)
        bytes_ += tile_bytes(side, row_bytes)
    return {"raws": [raw.place for raw in operand.raws], "raw_offsets": offsets, "bytes": bytes_}
