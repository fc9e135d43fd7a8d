# pyright: basic
"""How long engine conv_depthwise takes, by arithmetic on what a strip needs."""

from __future__ import annotations

from ..dialect.fusion import Fusion
from ..dialect.ops import ConvFprop
from ..expr import product, typical
from ..target import WARP_THREADS, Target
from .conv import conv_of
from .depthwise_tile import DepthwiseFacts, DepthwiseTiling, met
from .engine import Prediction
from .surface import BANDWIDTH_SHARE, LAUNCH_SECONDS, bytes_of

# Of the instructions that a multiprocessor could start (four warps' a cycle).
_ISSUE_SHARE = 0.8
_WARPS_A_CYCLE = 4
# How much more the second cache gives than memory.
_CACHE_SHARE = 1.7
# Cycles that a warp waits for the filter, and for the pixels of a strip: as optimistic as the
# fallback's prediction, so that small images are compared alike.
_WAIT_CYCLES = 150
# What is not the bound delays a little, too.
_OTHERS_SHARE = 0.1


def predicted(
    fusion: Fusion, facts: DepthwiseFacts, tiling: DepthwiseTiling, target: Target
) -> Prediction:
    """The longest of what memory, the second cache, instructions and waiting take."""
    op = conv_of(fusion)
    spatial = typical(product((op.y.shape[0], *tiling.counts(op.y.shape[2:]))))
    runs = -(-spatial // (tiling.strips * tiling.turns))
    blocks = runs * (facts.channels // (tiling.width * tiling.fragments))
    most = -(-blocks // target.sm_count)  # of a multiprocessor
    waves = -(-most // _resident(facts, tiling, target))
    cycles = target.f32_tflops * 1e12 / 2 / (target.sm_count * _WARPS_A_CYCLE * WARP_THREADS)
    each, warps = instructions(facts, tiling), tiling.threads // WARP_THREADS
    started = most * warps * tiling.turns * each / (_WARPS_A_CYCLE * _ISSUE_SHARE)
    waited = waves * (_WAIT_CYCLES + tiling.turns * (each + _WAIT_CYCLES))
    bandwidth = target.dram_gbs * 1e9 * BANDWIDTH_SHARE
    moved = bytes_of((*fusion.inputs, *fusion.outputs))
    again = bytes_of((op.x,)) * (_reread(op, facts, tiling) - 1.0)
    seconds = {
        "memory": moved / bandwidth,
        "second cache": (moved + again) / (bandwidth * _CACHE_SHARE),
        "instructions": started / cycles,
        "latency": waited / cycles,
    }
    bound = max(seconds, key=lambda name: seconds[name])
    others = sum(seconds.values()) - seconds[bound]
    total = LAUNCH_SECONDS + seconds[bound] + _OTHERS_SHARE * others
    return Prediction(total, "launch" if seconds[bound] < LAUNCH_SECONDS else bound)


def _reread(op: ConvFprop, facts: DepthwiseFacts, tiling: DepthwiseTiling) -> float:
    """How often blocks read a pixel of X, all together: those of neighbouring runs overlap."""
    windows, tiles = facts.shape.windows, tiling.tiles(len(facts.shape.windows))
    across = typical(tiling.counts(op.y.shape[2:])[-1])
    run = tiling.strips * tiling.turns
    columns = min(run, across) * tiles[-1] * windows[-1].stride
    share = 1.0
    if run < across:
        share += max(0, windows[-1].reach + 1 - windows[-1].stride) / columns
    if len(windows) > 1:
        rows = max(1, run // across) * tiles[-2] * windows[-2].stride
        share *= 1.0 + max(0, windows[-2].reach + 1 - windows[-2].stride) / rows
    return share


def _resident(facts: DepthwiseFacts, tiling: DepthwiseTiling, target: Target) -> int:
    """Blocks of a multiprocessor."""
    by_registers = target.registers_sm // (registers(facts, tiling) * tiling.threads)
    most = min(target.threads_sm // tiling.threads, target.blocks_sm)
    return max(1, tiling.min_blocks, min(by_registers, most))


def registers(facts: DepthwiseFacts, tiling: DepthwiseTiling) -> int:
    """About what the assembler gives a thread, where it is free to."""
    live = facts.live(tiling.rows, tiling.columns, tiling.width)
    held = facts.products(tiling.width) * facts.sum_words // 2 if tiling.is_held else 0
    return min(255, 60 + live + held)


def instructions(facts: DepthwiseFacts, tiling: DepthwiseTiling) -> float:
    """Of a thread for a strip."""
    shape, width = facts.shape, tiling.width
    pixels = 1
    for tile, window in zip(tiling.tiles(len(shape.windows)), shape.windows, strict=True):
        pixels *= len(met(tile, window))
    if tiling.unrolled == "row":  # rows of X are read for each row of outputs
        last = shape.windows[-1]
        pixels = tiling.rows * len(met(tiling.columns, last)) * shape.taps // last.taps
    if tiling.unrolled == "tap":
        pixels = shape.taps * tiling.rows * tiling.columns
    channels = max(1, width // shape.k_group) * shape.c_group
    words = max(1, channels * facts.bits // 32)
    loads = pixels * (2 + words / 2 + channels * (facts.bits != facts.sums.bits))
    outputs = tiling.rows * tiling.columns * width
    products = facts.products(outputs)
    filter_ = 0 if tiling.is_held else facts.products(width) / 4
    return 80 + loads + products + filter_ + 2 * outputs
