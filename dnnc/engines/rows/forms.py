"""The knobs of engine rows that are worth a look, for a fusion and a target."""

from __future__ import annotations

from itertools import product as product_of

from ...dialect.fusion import Fusion
from ...target import Target
from .choice import RowsChoice
from .facts import (
    LEAST_THREADS,
    exponentials_of,
    has_functions_before_sums,
    is_along,
    reads_again,
    row_elements,
    split_reductions,
    width_of,
)
from .limits import MOST_THREADS, illegal, ring_reasons
from .records import is_shared

THREADS = (32, 1, 2, 4, 8, 16, 64, 128, 256, 512, 1024)
ELEMENTS = (8, 0, 1, 2, 4, 16, 32, 64)
CONFIGS = (0, 2)  # of KERNEL_CFG
_LONG_ROW = 16384  # elements
_KEPT_BYTES = 64 << 10  # of a row, from where on it may


def worth_a_look(fusion: Fusion, target: Target) -> list[RowsChoice]:
    """Legal choices."""
    has_sums = bool(split_reductions(fusion)[1])
    row = row_elements(fusion).bounds()[1]
    found: list[RowsChoice] = []
    for config in CONFIGS:
        # (CTA_COUNT, STAGES, TILE_ROWS, the longest row that no cluster shares)
        counts, stages, rows, short = (0,), (0, 1), (0,), 2 * _LONG_ROW - 1
        if config == 2:
            counts, stages, rows, short = (1, 2, 3, 4), (3, 4), (0, 8, 16), _LONG_ROW // 2
        elif has_sums:
            counts, stages, rows, short = (1, 2, 4, 8), (0, 2, 3), (0,), _LONG_ROW // 2
        if stages[0] > 1 and ring_reasons(stages[0], fusion, target):
            continue
        clusters = (1, 2, 4, 8) if row > short else (1,)  # it waits longer than a block
        for blocks, threads, held in product_of(clusters, THREADS, sorted(ELEMENTS)):
            if _is_poor(blocks, threads, held, fusion):
                continue
            for count, ring, of_block in product_of(counts, stages, rows):
                if config == 2 and blocks > 1 and _are_few(threads, count):
                    continue
                if of_block and is_shared(threads, blocks):
                    continue  # more than a warp's rows have to wait for each other
                if ring == 1 and not _is_worth_keeping(fusion, blocks, threads, target):
                    continue
                choice = RowsChoice(threads, of_block, held, blocks, count, ring, config)
                if not illegal(choice, fusion, target):
                    found.append(choice)
    return found


def _is_poor(blocks: int, threads: int, held: int, fusion: Fusion) -> bool:
    """Whether knobs that may be legal are slow, or leave threads without work."""
    row = row_elements(fusion).bounds()[1]
    along = is_along(fusion)
    if along and not held and threads * 64 < min(row, 1 << 15):
        return True  # few threads take long
    least = width_of(fusion) if along else 1
    is_wasteful = held > least and held // 2 * threads * blocks >= row
    return is_wasteful or 0 < held < least or (threads > 2 and threads // 2 * least >= row)


def _are_few(threads: int, count: int) -> bool:
    """Whether an SM has few warps that go through rings of clusters: gradients of
    24576 columns took 451 to 469 us by 128 threads of each, 422 to 436 by 256 and more."""
    return max(LEAST_THREADS, threads) * count < 2 * LEAST_THREADS


def _is_worth_keeping(fusion: Fusion, blocks: int, threads: int, target: Target) -> bool:
    """Whether a row that is read again had better stay in shared memory: of a block, or of a
    cluster, where half as many blocks can't hold it.

    One block of an SM computes while nothing is loaded: functions before a
    reduction take longer than reading again does, if they have a pass of their own.
    """
    if threads != MOST_THREADS:
        return False
    if has_functions_before_sums(fusion) and not exponentials_of(fusion):
        return False
    row = row_elements(fusion).bounds()[1]
    bytes_ = row * sum(max(8, t.type.bits) // 8 for t in reads_again(fusion))
    return bytes_ >= (_KEPT_BYTES if blocks == 1 else blocks // 2 * target.limits.smem_block_bytes)
