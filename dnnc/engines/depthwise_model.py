# pyright: basic
"""How long engine conv_depthwise takes, by arithmetic on what a strip needs."""

from __future__ import annotations

from ..dialect.fusion import Fusion
from ..expr import product, typical
from ..target import Target
from .depthwise_tile import DepthwiseFacts, DepthwiseTiling, met
from .engine import Prediction
from .surface import BANDWIDTH_SHARE, LAUNCH_SECONDS, bytes_of

# Of the instructions that a multiprocessor could start, and seconds before a block's first strip
# (its filter comes to shared memory) and of each strip that waits for memory alone.
_ISSUE_SHARE = 0.75
_FILTER_SECONDS = 0.2e-6
_STRIP_SECONDS = 0.1e-6


def predicted(
    fusion: Fusion, facts: DepthwiseFacts, tiling: DepthwiseTiling, target: Target
) -> Prediction:
    """The longer of what memory and instructions take, after the time that nothing hides."""
    y = fusion.outputs[0]
    counts = (y.shape[0], *tiling.counts(y.shape[2:]))
    strips = typical(product(counts)) * facts.channels // tiling.width
    resident = target.sm_count * _blocks_resident(facts, tiling, target) * tiling.threads
    waves = -(-strips // (resident * tiling.turns))
    memory = bytes_of((*fusion.inputs, *fusion.outputs)) / (target.dram_gbs * 1e9 * BANDWIDTH_SHARE)
    starts = target.f32_tflops * 1e12 / 2 * _ISSUE_SHARE
    # Threads that have nothing left to do in the last wave leave the rest waiting.
    busy = max(strips, waves * tiling.turns * min(resident, strips) * 0.5)
    issue = busy * instructions(facts, tiling) / starts
    latency = LAUNCH_SECONDS + _FILTER_SECONDS + _STRIP_SECONDS * tiling.turns * waves * 0.5
    if issue > memory:
        return Prediction(latency + issue, "instructions")
    return Prediction(latency + memory, "memory" if memory > LAUNCH_SECONDS else "launch")


def _blocks_resident(facts: DepthwiseFacts, tiling: DepthwiseTiling, target: Target) -> int:
    by_registers = target.registers_sm // (registers(facts, tiling) * tiling.threads)
    return max(1, min(by_registers, target.threads_sm // tiling.threads, target.blocks_sm))


def registers(facts: DepthwiseFacts, tiling: DepthwiseTiling) -> int:
    """About what a thread needs."""
    outputs = tiling.rows * tiling.columns * tiling.width * facts.sum_words
    columns = len(met(tiling.columns, facts.shape.windows[-1]))
    line = columns * max(1, tiling.width * facts.bits // 32)
    held = facts.products(tiling.width) if tiling.is_held else tiling.width * 4
    return min(255, 40 + outputs + 2 * line + held * facts.sum_words)


def instructions(facts: DepthwiseFacts, tiling: DepthwiseTiling) -> float:
    """Of a thread for a strip."""
    shape, width = facts.shape, tiling.width
    pixels = 1
    for tile, window in zip(tiling.tiles(len(shape.windows)), shape.windows, strict=True):
        pixels *= len(met(tile, window))
    if tiling.unrolled == "tap":
        pixels = shape.taps * tiling.rows * tiling.columns
    channels = max(1, width // shape.k_group) * shape.c_group
    words = max(1, channels * facts.bits // 32)
    loads = pixels * (3 + words + channels * (facts.bits != facts.sums.bits))
    outputs = tiling.rows * tiling.columns * width
    products = facts.products(outputs)
    filter_ = 0 if tiling.is_held else facts.products(width) / 3
    return 80 + loads + products + filter_ + 3 * outputs
