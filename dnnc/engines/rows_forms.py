"""The knobs of engine rows that are worth a look, for a fusion and a target."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product as product_of

from ..dialect.fusion import Fusion, remembered
from ..target import Target
from .engine import Knobs
from .reduced import runs_along_row
from .rows_facts import (
    has_functions_before_sums,
    reads_again,
    row_elements,
    split_reductions,
    sums_of_exponentials,
    width_of,
)
from .rows_limits import MOST_THREADS, illegal
from .rows_tiling import is_shared

THREADS = (32, 1, 2, 4, 8, 16, 64, 128, 256, 512, 1024)
ELEMENTS = (8, 0, 1, 2, 4, 16, 32, 64)
CONFIGS = (0, 2)  # of KERNEL_CFG
_LONG_ROW = 16384  # elements
_KEPT_BYTES = 64 << 10  # of a row, from where on it may


@dataclass(frozen=True)
class _Row:
    """What makes knobs poor, of a fusion.

    elements: at most.  is_along: whether threads follow each other along the row.  width: elements
    a thread takes together.  is_worth_keeping: whether a row that is read again had better stay in
    shared memory, of a block of MOST_THREADS.
    """

    elements: int
    is_along: bool
    width: int
    is_worth_keeping: bool


def worth_a_look(fusion: Fusion, target: Target) -> list[Knobs]:
    """Legal knobs."""
    has_sums = bool(split_reductions(fusion)[1])
    row = _row_of(fusion)
    shapes = [
        shape for shape in product_of((1, 2, 4, 8), THREADS, sorted(ELEMENTS))
        if not _is_poor_shape(*shape, row)
    ]  # fmt: skip
    found: list[Knobs] = []
    for config in CONFIGS:
        # (CTA_COUNT, STAGES, TILE_ROWS, the longest row that no cluster shares)
        counts, stages, rows, short = (0,), (0, 1), (0,), 2 * _LONG_ROW - 1
        if config == 2:
            counts, stages, rows, short = (1, 2, 3, 4), (3, 4), (0, 8, 16), _LONG_ROW
        elif has_sums:
            counts, stages, rows, short = (1, 2, 4, 8), (0, 2, 3), (0,), _LONG_ROW // 2
        for blocks, threads, held in shapes:
            if blocks > 1 and row.elements <= short:
                continue  # a cluster waits longer than a block
            for count, ring, of_block in product_of(counts, stages, rows):
                if of_block and is_shared(threads, blocks):
                    continue  # more than a warp's rows have to wait for each other
                if ring == 1 and (
                    threads != MOST_THREADS or blocks > 1 or not row.is_worth_keeping
                ):
                    continue
                knobs = {
                    "TILE_COLS": threads, "TILE_ROWS": of_block, "ARRAY_SIZE_PER_THREAD": held,
                    "TILE_CGA": blocks, "CTA_COUNT": count, "STAGES": ring, "KERNEL_CFG": config,
                }  # fmt: skip
                if not illegal(knobs, fusion, target):
                    found.append(knobs)
    return found


@remembered
def _row_of(fusion: Fusion) -> _Row:
    return _Row(
        elements=row_elements(fusion).bounds()[1],
        is_along=runs_along_row(fusion, split_reductions(fusion)[0][0]),
        width=width_of(fusion),
        is_worth_keeping=_is_worth_keeping(fusion),
    )


def _is_poor_shape(blocks: int, threads: int, held: int, row: _Row) -> bool:
    """Whether blocks of a cluster, threads and elements of each are slow for a row, or leave
    threads without work."""
    if row.is_along and not held and threads * 64 < min(row.elements, 1 << 15):
        return True  # few threads take long
    least = row.width if row.is_along else 1
    is_wasteful = held > least and held // 2 * threads * blocks >= row.elements
    has_idle = threads > 2 and threads // 2 * least >= row.elements
    return is_wasteful or 0 < held < least or has_idle


def _is_worth_keeping(fusion: Fusion) -> bool:
    """One block of a multiprocessor computes while nothing is loaded: functions before a
    reduction take longer than reading again does, if they have a pass of their own."""
    if has_functions_before_sums(fusion) and not sums_of_exponentials(fusion):
        return False
    row = row_elements(fusion).bounds()[1]
    return row * sum(max(8, t.type.bits) // 8 for t in reads_again(fusion)) >= _KEPT_BYTES
