# pyright: basic
"""Decides the tiling of engine rows, by which `legal` goes and kernels are built."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from ...codegen.walk.fragments import kept_bytes
from ...dialect.averages import is_summed_in_double, total_type
from ...dialect.fusion import Fusion, remembered_at_sizes
from ...dialect.ops import Reduction
from ...expr import Expr, ceildiv, typical
from ...target import WARP_THREADS, Target
from ..views.reduced import Together
from .choice import RowsChoice
from .facts import (
    EXCHANGE_BYTES,
    MOST_ACROSS,
    NARROW,
    along_levels,
    axes_of,
    block_threads,
    is_narrow,
    of_rows,
    parts_of,
    reads_again,
    ring_inputs,
    row_elements,
    row_reads,
)
from .records import (
    COLUMN_WIDTH,
    AxisGroups,
    Load,
    RowMemory,
    RowsTiling,
    Total,
    Totals,
    is_shared,
    loads_of,
    reads_of,
)
from .same_pass import F32_DIGITS, digits_of, squared_distances, sums_of_exponentials

_SIDE = 8  # fragments side by side in a block that adds up columns and starts late
_SEGMENT = 32  # bytes of neighbouring columns that a block reads, at least


@remembered_at_sizes
def tiling_of(fusion: Fusion, choice: RowsChoice, target: Target) -> RowsTiling:
    """The tiling by which kernels are built; `legal` goes by its shared memory."""
    parts, axes = parts_of(fusion), axes_of(fusion)
    # Views may have hidden from `legal` how memory runs; along rows everything is right.
    is_row = axes.is_row or bool(parts.columns or choice.blocks > 1 or choice.resident)
    is_row |= choice.threads > MOST_ACROSS or choice.stages == 1
    is_row |= any(t.type.kind == "b" and t.shape == axes.dims for t in fusion.outputs)
    width = gcd(axes.along(is_row=is_row).known_divisor(), max(1, 128 // axes.smallest))
    if is_narrow(len(parts.columns), choice):
        width = gcd(width, NARROW)
    row = row_elements(fusion)
    fragments = -(-row.bounds()[1] // (width if is_row else 1))
    step = choice.threads * choice.blocks
    count = -(-fragments // step) if choice.held else 0
    is_whole = row.constant is not None and bool(choice.held) and count * step == fragments
    elements = row.bounds()[1] if choice.blocks == 1 else count * choice.threads * width
    side = _side(choice, gcd(width, COLUMN_WIDTH), row, target)
    memory = _memory(fusion, choice, target, (fragments, width, elements))
    totals = _totals(fusion, choice, memory.slots, side, is_row=is_row, is_whole=is_whole)
    return RowsTiling(
        axes=AxisGroups(axes.kept, axes.reduced),
        vector_elems=width,
        along="row" if is_row else "column",
        threads=block_threads(choice, is_row),
        row_threads=choice.threads,
        held=count,
        is_whole=is_whole,
        cluster=choice.blocks,
        blocks=choice.resident,
        config=choice.config,
        memory=memory,
        totals=totals,
    )


def _side(choice: RowsChoice, width: int, row: Expr, target: Target) -> int:
    """Fragments side by side in a block of the kernel that adds up columns: as many as leave a
    block for each SM, where it starts early."""
    if not choice.has_own_rings:
        return _SIDE
    least = max(1, _SEGMENT // (width * 4))
    side, fragments = WARP_THREADS, typical(ceildiv(row, width))
    while side > least and fragments < side * target.sm_count:
        side //= 2
    return side


def _together(fusion: Fusion, choice: RowsChoice) -> Together:
    """Squared distances that warps find with the mean, in whose level they are."""
    found = of_rows(fusion, squared_distances(fusion)) if _meets_ahead(choice) else {}
    return frozenset(found.items())


def _meets_ahead(choice: RowsChoice) -> bool:
    """See `RowsTiling.meets_ahead`."""
    return choice.has_own_rings and is_shared(choice.threads, choice.blocks)


def _memory(
    fusion: Fusion,
    choice: RowsChoice,
    target: Target,
    sizes: tuple[int, int, int],
) -> RowMemory:
    """sizes: fragments of a row, elements of one, and of a row's part in a block, at most."""
    fragments, width, elements = sizes
    again = () if choice.held else loads_of(fusion, reads_again(fusion))
    ring, vectors = (
        ring_inputs(fusion, _together(fusion, choice)) if choice.stages > 1 else ((), ())
    )
    return RowMemory(
        stages=choice.stages if choice.stages > 1 else 0,
        slots=_slots(again, fragments, width, choice, target),
        elements=elements,
        ring=loads_of(fusion, ring),
        vectors=loads_of(fusion, vectors if choice.has_own_rings else ()),
        again=again,
        reads=reads_of(fusion, row_reads(fusion, _together(fusion, choice))),
    )


def _slots(
    again: Sequence[Load], fragments: int, width: int, choice: RowsChoice, target: Target
) -> int:
    """Fragments that a thread keeps in shared memory, of so many of a row: what fits."""
    if choice.stages != 1 or not again:
        return 0
    room = target.limits.smem_block_bytes - EXCHANGE_BYTES
    bits = [load.bits for load in again]
    most = room // kept_bytes(bits, width, 1, block_threads(choice, True))
    return min(most, -(-fragments // (choice.threads * choice.blocks)))


def _totals(
    fusion: Fusion, choice: RowsChoice, slots: int, side: int, *, is_row: bool, is_whole: bool
) -> Totals:
    parts = parts_of(fusion)
    along = list(parts.along)
    is_ahead = _meets_ahead(choice)
    passes = along_levels(fusion, _together(fusion, choice))
    levels = {op: n for n, level in enumerate(passes) for op in level}
    ways = dict[Reduction, tuple[str, Reduction]]()
    # Several blocks of an SM rather go over the row again: moments take registers.
    if is_ahead or slots:
        found = of_rows(fusion, squared_distances(fusion))
        ways |= {op: ("distances", of) for op, of in found.items()}
    if is_row and not choice.held:
        found = of_rows(fusion, sums_of_exponentials(fusion))
        ways |= {op: ("exponentials", of) for op, of in found.items()}

    def total(op: Reduction) -> Total:
        way, of = ways.get(op, ("", op))
        bits = _exchanged_bits(fusion, op, choice, is_row=is_row)
        return Total(levels[op], bits, digits_of(fusion, op.x), way, along.index(of))

    has_wide = any(is_summed_in_double(fusion, op) for op in along)
    return Totals(
        rows=tuple(map(total, along)),
        counts=is_ahead and has_wide and not is_whole,
        columns=tuple(total_type(fusion, op).bits for op in parts.columns),
        side=side,
        extremes=len(parts.extremes),
    )


def _exchanged_bits(fusion: Fusion, op: Reduction, choice: RowsChoice, *, is_row: bool) -> int:
    """Bits of a number that threads exchange for a reduction.

    Averages summed in f64 are of f32 where that has the sum of like elements, and means of f32
    between warps that meet ahead.
    """
    if not is_summed_in_double(fusion, op):
        return op.compute_type.bits
    if _meets_ahead(choice):
        return 32
    is_exact = is_row and not _goes_by_passes(fusion, choice) and is_exact_in_f32(fusion, op)
    return 32 if is_exact else 64


def _goes_by_passes(fusion: Fusion, choice: RowsChoice) -> bool:
    """Whether rows of a ring are taken from it again in each pass, for sums of columns."""
    return choice.stages > 1 and (choice.has_own_rings or bool(parts_of(fusion).columns))


def is_exact_in_f32(fusion: Fusion, op: Reduction) -> bool:
    """Whether an average's elements are so few, of so few digits, that a total of f32 has the sum
    of like ones."""
    most = row_elements(fusion).bounds()[1]
    return digits_of(fusion, op.x) + (most - 1).bit_length() <= F32_DIGITS
