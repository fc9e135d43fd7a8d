"""The knobs of products with `mma.sync`, whatever is multiplied: values, what goes together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ... import dtypes
from ...codegen.ampere import mma
from ...dtypes import DType
from ...target import WARP_THREADS, Target
from ..engine import Knob, Reason
from ..surface import smem_reasons
from .choice_sm80 import Sm80Choice
from .pattern import knob_reason
from .shared_layout_sm80 import SharedLayout

# (tile_m, tile_n) -> warps along m and n.
WARPS = {
    (32, 64): (2, 2),
    (32, 128): (1, 4),
    (64, 64): (2, 2),
    (64, 128): (2, 2),
    (128, 64): (2, 2),
    (128, 128): (2, 4),
    (128, 256): (2, 4),
    (256, 128): (4, 2),
}
NARROW_COLUMNS = 32  # of tiles that convolutions alone have, see `conv.together_sm80`
_NARROW_WARPS = {(128, NARROW_COLUMNS): (4, 1)}
GROUP_ROWS = 8  # of tiles, which follow each other


def all_knobs(rows: str, columns: str) -> tuple[Knob, ...]:
    """rows, columns: what those of a tile are."""
    return (
        Knob("TILE_M", (128, 32, 64, 256), rows),
        Knob("TILE_N", (128, 64, 256), columns),
        Knob("TILEK", (16, 32, 64, 128), "depth of a stage"),
        Knob("STAGES", (4, 2, 3, 6), "stages in shared memory"),
        Knob("TF32", (3, 1), "tf32 products for one of f32"),
    )


def knobs_of(operand: DType, every: tuple[Knob, ...]) -> tuple[Knob, ...]:
    """The knobs for a type of A and B: a stage is 64 or 128 bytes deep; TF32 is of f32.

    every: of `all_knobs`.
    """
    chunk = mma.chunk_elems(operand)
    rows, columns, depth, stages, tf32 = every
    common = (rows, columns, replace(depth, values=(4 * chunk, 8 * chunk)), stages)
    return (*common, tf32) if operand == dtypes.f32 else common


def illegal_reasons(
    choice: Sm80Choice,
    operand: DType,
    target: Target,
    beside: int = 1,
    *,
    exits: Callable[[int], int] = lambda threads: 0,
    is_narrow: bool = False,
) -> tuple[Reason, ...]:
    """Every reason why knobs can't be; beside: see `SharedLayout`.  exits: bytes of shared memory
    of reductions, by threads of a block: see `exit_bytes`.  is_narrow: whether tiles are those
    of NARROW_COLUMNS."""
    tile, tiles = choice.tile, _NARROW_WARPS if is_narrow else WARPS
    if tile not in tiles:
        pairs = ", ".join(f"{m}x{n}" for m, n in tiles)
        return (knob_reason(f"tile {tile[0]}x{tile[1]}", pairs),)
    if choice.products == 3 and (choice.area > 128 * 128 or choice.depth > 16):
        # Both halves of the operands are held in registers, and larger tiles would spill.
        what = f"three products with tile {tile[0]}x{tile[1]}x{choice.depth}"
        return (knob_reason(what, "TF32=1, or tiles up to 128x128x16"),)
    layout = SharedLayout.of_choice(choice, operand.bits // 8, beside)
    return smem_reasons(layout.bytes + exits(threads_of(tile)), target)


def candidates_of(
    operand: DType, reasons: Callable[[Sm80Choice], Sequence[Reason]]
) -> list[Sm80Choice]:
    """Choices that are worth a look: every tile with a few depths and stages.

    reasons: why one can't be.
    """
    of_one = (3, 1) if operand == dtypes.f32 else (None,)
    found = (replace(c, products=n) for n in of_one for c in _shapes(operand, WARPS))
    return [choice for choice in found if not reasons(choice)]


def narrow_candidates(operand: DType) -> list[Sm80Choice]:
    """Choices of tiles of NARROW_COLUMNS that are worth a look."""
    return list(_shapes(operand, _NARROW_WARPS))


def _shapes(operand: DType, tiles: Iterable[tuple[int, int]]) -> Iterable[Sm80Choice]:
    chunk = mma.chunk_elems(operand)
    for tile in [*tiles][::-1]:
        for depth, stages in ((8 * chunk, 3), (4 * chunk, 4), (8 * chunk, 6)):
            yield Sm80Choice(*tile, depth, stages)


def warps_of(tile: tuple[int, int]) -> tuple[int, int]:
    """Warps of a block along m and n."""
    return WARPS.get(tile) or _NARROW_WARPS[tile]


def threads_of(tile: tuple[int, int]) -> int:
    """Threads of a block."""
    warps_m, warps_n = warps_of(tile)
    return warps_m * warps_n * WARP_THREADS


def notes_of(
    choice: Sm80Choice, *, is_rounded: bool = False, is_wide: bool = True
) -> tuple[str, ...]:
    """Numerical notes; is_rounded: whether an operand is before it is multiplied.

    is_wide: whether one has numbers that tf32 lacks.
    """
    is_cut = choice.products == 1 and is_wide
    return ("TENSOR_CORE", *(("DOWN_CONVERT_INPUTS",) if is_rounded or is_cut else ()))
