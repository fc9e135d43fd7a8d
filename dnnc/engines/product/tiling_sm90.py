# pyright: basic
"""The tiling that a choice of knobs of matmul_sm90 stands for, made from the facts of a fusion.

`legal` asks it for the shared memory, the kernel is built by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...codegen.ampere.operand_tile import LoadPlan
from ...codegen.hopper import tma, wgmma
from ...codegen.hopper.staged_operand import RawPlace, StagePlan
from .choice_sm90 import Choice
from .ends import Grain
from .facts_sm90 import ProductFacts
from .operands_sm90 import OperandFacts
from .shared_layout_sm90 import rewriting_bytes, tile_bytes
from .tile_parts_sm90 import EpilogueTiles, TileGrid
from .tile_sm90 import Tiling, exchanges

_MOST_DIRECT_COLUMNS = 64  # of a tile of a swapped product: few rows are few results


def tiling_of(facts: ProductFacts, choice: Choice) -> Tiling:
    """The tiling of a fusion with these facts."""
    swaps, (rows, columns) = choice.swaps, choice.sides
    cluster, splits = choice.cluster, choice.splits
    epilogue, is_direct = facts.epilogue[swaps], leaves_few(choice, facts)
    # Warps of a producer that computes have no time to load for the epilogue.
    has_loads = splits == 1 and loads_are_async(choice, facts) and not is_direct
    held, rows_of = columns * (cluster[1] if facts.rows.width else 1), dict(facts.rows.outputs)
    spans = facts.rows.along_row if facts.rows.width > columns else 0
    # Those along the instruction's rows come first.
    distinct = facts.operands.distinct
    order = sorted(range(len(distinct)), key=lambda i: distinct[i].is_a == swaps)
    places = {number: place for place, number in enumerate(order)}
    group_rows = max(1, choice.swizzle // (rows * cluster[0]))
    tiling = Tiling(
        types=(facts.row.b, facts.row.a) if swaps else (facts.row.a, facts.row.b),
        block=choice.block,
        grid=TileGrid(cluster, splits, facts.rows.groups, group_rows),
        epilogue=EpilogueTiles(
            outputs=tuple(
                _path(path, is_direct, not swaps and place in rows_of and rows_of[place] <= held)
                for place, path in enumerate(epilogue.paths)
            ),
            staged_bytes=() if is_direct else epilogue.staged,
            loads=epilogue.loads if has_loads else (),
            loaded_bytes=epilogue.loaded if has_loads else (),
            pair=2 if epilogue.is_even else 1,
            exchanges=exchanges(spans, choice.block.blocks_of_rows),
            is_transposed=swaps and facts.results.can_transpose and not is_direct,
            ends=facts.results.ends,
        ),
        stages=choice.stages,
        operands=_operands([distinct[number] for number in order], facts, choice),
        products=tuple(
            (places[b], places[a]) if swaps else (places[a], places[b])
            for a, b in facts.operands.pairs
        ),
        promotes=facts.promotes,
        row_bytes=facts.row_bytes,
        rewriting=rewriting_bytes(choice.stages, choice.tile_m) if facts.operands.rewrites else 0,
    )
    if facts.rows.groups:
        tiling = _with_groups(tiling)
    return _with_parts(tiling, facts.results.grains) if facts.results.ends else tiling


def _with_groups(tiling: Tiling) -> Tiling:
    """A tiling in which TMA stores an output only where any even row of a buffer lies at an address
    that it takes: the rows up to a group's end go by `tma.move_rows`."""
    staged = iter(tiling.epilogue.staged_bytes)

    def path(path: str) -> str:
        if path != "tma":
            return path
        row_bytes = tiling.shared.buffer_columns * next(staged)
        return "scattered" if 2 * row_bytes % tma.SHARED_ALIGNMENT else path

    outputs = tuple(map(path, tiling.epilogue.outputs))
    return replace(tiling, epilogue=replace(tiling.epilogue, outputs=outputs))


def _with_parts(tiling: Tiling, grains: Sequence[Grain | None]) -> Tiling:
    """A tiling in which TMA stores an output's parts only where a buffer is of one of them."""
    sides = (wgmma.M, tiling.shared.chunk)
    rows, columns = sides[::-1] if tiling.block.swaps else sides

    def path(path: str, grain: Grain | None) -> str:
        if path != "tma" or grain is None:
            return path
        is_whole = not grain.rows % rows and not grain.columns % columns
        return path if is_whole and grain.is_moved else "scattered"

    outputs = tuple(map(path, tiling.epilogue.outputs, grains))
    return replace(tiling, epilogue=replace(tiling.epilogue, outputs=outputs))


def leaves_few(choice: Choice, facts: ProductFacts) -> bool:
    """Whether results that could go through shared memory transposed are few, and do not."""
    results, columns = facts.results, choice.sides[1]
    if not choice.swaps or not results.can_transpose or results.always_transposes:
        return False
    return columns <= _MOST_DIRECT_COLUMNS


def loads_are_async(choice: Choice, facts: ProductFacts) -> bool:
    """Whether no operand passes through the producers' registers."""
    if choice.takes_fragments:  # the one along the rows comes raw
        return facts.operands.is_async(is_a=choice.swaps)
    return facts.operands.is_async(is_a=True) and facts.operands.is_async(is_a=False)


def _path(path: str, is_direct: bool, holds_rows: bool) -> str:
    """See `EpilogueTiles.outputs`.

    holds_rows: a tile has all that an element of the output is made of.
    """
    if path == "exit" and holds_rows:
        return "row"
    return "direct" if path == "tma" and is_direct else path


def _operands(
    operands: Sequence[OperandFacts], facts: ProductFacts, choice: Choice
) -> tuple[StagePlan, ...]:
    """How each operand of a stage is loaded, and where it lies."""
    swaps, sides = choice.swaps, choice.sides
    found: list[StagePlan] = []
    offset = raw_offset = 0
    for operand in operands:
        is_rows = operand.is_a != swaps
        side = sides[0 if is_rows else 1]
        if is_rows and choice.takes_fragments and operand.fragment is not None:
            plan = _of_fragments(operand, side, facts.panel_k)
        else:
            plan = _of_stage(operand, side, facts)
        raw = replace(plan.raw, offset=raw_offset) if plan.raw else None
        found.append(replace(plan, is_rows=is_rows, offset=offset, raw=raw))
        offset += plan.bytes
        raw_offset += raw.bytes if raw else 0
    for place, operand in enumerate(operands):
        if operand.raws:  # raw tiles beside the operands are behind all of them
            plan = found[place]
            found[place] = _with_raws(operand, plan, offset, sides[0 if plan.is_rows else 1])
            offset += found[place].bytes - plan.bytes
    return tuple(found)


def _of_fragments(operand: OperandFacts, side: int, panel_k: int) -> StagePlan:
    """An operand whose raw tile is in the stage: consumers compute it in registers."""
    raw = operand.fragment
    assert raw is not None, "an operand that legal takes has a raw tile"
    load = LoadPlan("fragments", operand.k_contiguous, operand.loads_along_k, operand.is_aligned)
    bytes_ = tile_bytes(side, panel_k * raw.bits // 8)
    return StagePlan(operand.is_a, True, load, bytes=bytes_, raw=RawPlace(raw.place))


def _of_stage(operand: OperandFacts, side: int, facts: ProductFacts) -> StagePlan:
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
    place = None
    if raw is not None:
        place = RawPlace(raw.place, bytes=tile_bytes(side, facts.panel_k * raw.bits // 8))
    load = LoadPlan(operand.path, k_contiguous, along_k, is_aligned)
    bytes_ = tile_bytes(side, operand.row_bytes)
    return StagePlan(operand.is_a, True, load, bytes=bytes_, raw=place)


def _with_raws(operand: OperandFacts, plan: StagePlan, end: int, side: int) -> StagePlan:
    """A plan with the raw tiles of an operand that warps of the producer compute: see
    `ComputedPixels`.

    end: bytes of the operands of a stage.
    """
    raws, bytes_ = list[RawPlace](), plan.bytes
    for raw, row_bytes in zip(operand.raws, operand.beside, strict=True):
        own = tile_bytes(side, row_bytes)
        raws.append(RawPlace(raw.place, end if row_bytes else plan.offset, own))
        end += own
        bytes_ += own
    return replace(plan, bytes=bytes_, raws=tuple(raws))
