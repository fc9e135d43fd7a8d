# pyright: basic
"""Which knobs of engine rows go together, for a fusion and a target."""

from __future__ import annotations

from collections.abc import Callable

from ...codegen.memory.row_ring import MOST_ROWS
from ...dialect.fusion import Fusion
from ...target import REGISTERS_PER_THREAD, STATIC_SMEM_BYTES, WARP_THREADS, Target
from ..engine import Reason
from ..product.pattern import knob_reason
from ..surface import smem_reasons
from .choice import RowsChoice
from .facts import (
    EXCHANGE_BYTES,
    LEAST_THREADS,
    MOST_ACROSS,
    block_threads,
    held_of,
    is_along,
    launched_threads,
    reads_again,
    registers_of,
    ring_inputs,
    row_elements,
    split_reductions,
)
from .shared_layout import SharedLayout
from .tiling import tiling_of

MOST_THREADS = 1024  # of a block
_QUARTER = 4 * WARP_THREADS  # a block's warps, rounded up to as many in each quarter

Reasons = tuple[Reason, ...]


def illegal(choice: RowsChoice, fusion: Fusion, target: Target) -> Reasons:
    """The first reasons why these knobs can't be."""
    for check in _CHECKS:
        if reasons := check(choice, fusion, target):
            return reasons
    return ()


def _cluster(choice: RowsChoice, fusion: Fusion, target: Target) -> Reasons:
    blocks, threads = choice.blocks, choice.threads
    if blocks > 1 and target.capability < (9, 0):
        return (knob_reason(f"TILE_CGA={blocks} on {target}", "TILE_CGA=1"),)
    if blocks > 1 and threads < WARP_THREADS:
        return (knob_reason(f"TILE_CGA={blocks}, TILE_COLS={threads}", "whole warps"),)
    return ()


def _direction(choice: RowsChoice, fusion: Fusion, target: Target) -> Reasons:
    threads, blocks = choice.threads, choice.blocks
    if is_along(fusion):
        return () if threads > 1 else (knob_reason("TILE_COLS=1", "2 or more along rows"),)
    if blocks > 1 or threads > MOST_ACROSS or choice.resident:
        what = f"TILE_COLS={threads}, TILE_CGA={blocks}, CTA_COUNT={choice.resident}"
        supported = f"TILE_COLS up to {MOST_ACROSS}, TILE_CGA=1, CTA_COUNT=0"
        return (knob_reason(f"{what} across rows", supported),)
    return ()


def _config(choice: RowsChoice, fusion: Fusion, target: Target) -> Reasons:
    """Whether there is something for KERNEL_CFG and TILE_ROWS to say."""
    config = choice.config
    if config and target.capability < (9, 0):
        return (knob_reason(f"KERNEL_CFG={config} on {target}", "KERNEL_CFG=0"),)
    if config == 2 and choice.stages < 2:
        return (knob_reason(f"KERNEL_CFG=2, STAGES={choice.stages}", "STAGES of 2 or more"),)
    threads, rows = choice.threads, choice.rows
    if rows and (config != 2 or rows * threads < LEAST_THREADS):
        what = f"TILE_ROWS={rows}, TILE_COLS={threads}, KERNEL_CFG={config}"
        supported = f"TILE_ROWS=0, or {LEAST_THREADS} threads with KERNEL_CFG=2"
        return (knob_reason(what, supported),)
    return ()


def _held(choice: RowsChoice, fusion: Fusion, target: Target) -> Reasons:
    threads, held = choice.threads, choice.held
    row, blocks = row_elements(fusion).bounds()[1], choice.blocks
    if held and held * threads * blocks < row:
        what = f"{threads * blocks} threads of {held} elements for rows of {row}"
        return (knob_reason(what, "as many as a row has, or ARRAY_SIZE_PER_THREAD=0"),)
    if split_reductions(fusion)[1] and not (held and choice.resident):
        return (knob_reason("sums of columns", "held rows, CTA_COUNT of 1 or more"),)
    return ()


def _registers(choice: RowsChoice, fusion: Fusion, target: Target) -> Reasons:
    launched = launched_threads(choice, is_along(fusion))
    if launched > MOST_THREADS:
        what = f"TILE_ROWS={choice.rows}, TILE_COLS={choice.threads}"
        return (knob_reason(what, f"{MOST_THREADS} threads with the warp that loads"),)
    registers = registers_of(fusion, choice)
    if choice.has_own_rings:
        registers, launched = -(-registers // 8) * 8, -(-launched // _QUARTER) * _QUARTER
    resident = launched * max(1, choice.resident)
    if registers * resident > target.limits.registers_sm or registers > REGISTERS_PER_THREAD:
        held = held_of(fusion, choice)
        what = f"{held} elements of each of {resident} threads of an SM"
        return (knob_reason(what, "fewer: they do not fit the registers"),)
    return ()


def _shared_memory(choice: RowsChoice, fusion: Fusion, target: Target) -> Reasons:
    layout = SharedLayout(tiling_of(fusion, choice, target))
    if (needed := layout.static_bytes) > STATIC_SMEM_BYTES:
        totals = len(split_reductions(fusion)[0])
        what = f"{needed} bytes of shared memory for the totals of {totals} reductions"
        return (knob_reason(what, f"{STATIC_SMEM_BYTES}: fewer threads a row"),)
    count, needed = max(1, choice.resident), layout.bytes
    if needed <= target.limits.smem_block_bytes < layout.assembled_bytes:
        what = f"{layout.assembled_bytes} bytes of shared memory, in whole lines"
        return (knob_reason(what, f"at most {target.limits.smem_block_bytes} on {target}"),)
    if (needed + 1024) * count > target.limits.smem_sm_bytes:
        what = f"{needed} bytes of shared memory for each of {count} blocks"
        return (knob_reason(what, f"{target.limits.smem_sm_bytes} in all"),)
    return smem_reasons(max(needed, layout.columns_bytes), target)


def _ring(choice: RowsChoice, fusion: Fusion, target: Target) -> Reasons:
    """Why rows can't come through shared memory."""
    stages, along = choice.stages, is_along(fusion)
    if not stages:
        return ()
    if stages == 1:
        exchanged = SharedLayout(tiling_of(fusion, choice, target)).static_bytes
        is_again = along and not choice.held and bool(reads_again(fusion))
        if is_again and exchanged <= EXCHANGE_BYTES:
            return ()
        what = f"STAGES=1, ARRAY_SIZE_PER_THREAD={choice.held}"
        return (knob_reason(what, "ARRAY_SIZE_PER_THREAD=0, inputs along rows"),)
    if reasons := ring_reasons(stages, fusion, target):
        return reasons
    if choice.has_own_rings:
        return _own_rings(choice, fusion, target)
    rows = block_threads(choice, along) // choice.threads
    if not choice.resident or choice.blocks > 1 or rows > MOST_ROWS:
        what = f"STAGES={stages} with CTA_COUNT=0, clusters or {rows} rows of a block"
        return (knob_reason(what, f"CTA_COUNT of 1 or more, up to {MOST_ROWS} rows"),)
    return ()


def ring_reasons(stages: int, fusion: Fusion, target: Target) -> Reasons:
    """Why no rows can come through a ring of two stages or more, whatever the other knobs."""
    whole, _ = ring_inputs(fusion)
    if target.capability < (9, 0) or not (is_along(fusion) and whole):
        what = f"STAGES={stages} on {target}, {len(whole)} inputs whose rows are runs of bytes"
        return (knob_reason(what, "sm_90, rows of contiguous multiples of 16 bytes"),)
    return ()


def _own_rings(choice: RowsChoice, fusion: Fusion, target: Target) -> Reasons:
    if not (choice.resident and choice.held):
        what = f"KERNEL_CFG=2 with CTA_COUNT={choice.resident}"
        return (knob_reason(what, "CTA_COUNT of 1 or more, held rows"),)
    part = tiling_of(fusion, choice, target).memory.elements
    least = row_elements(fusion).bounds()[0]
    if (choice.blocks - 1) * part >= least:
        what = f"TILE_CGA={choice.blocks}, {part} elements of each block, rows of {least}"
        return (knob_reason(what, "rows of which every block has some"),)
    return ()


_CHECKS: tuple[Callable[[RowsChoice, Fusion, Target], Reasons], ...] = (
    _cluster, _direction, _config, _held, _registers, _shared_memory, _ring,
)  # fmt: skip
