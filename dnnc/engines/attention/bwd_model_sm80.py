"""How long a main kernel of engine sdpa_bwd_sm80 is expected to take."""

from __future__ import annotations

from ...target import WARP_THREADS, Target
from .bwd_tile_sm80 import PassTiling
from .model_sm80 import blocks_of_sm

_SHARE = 0.5  # of the tensor cores' rate, with `mma.sync`
_SHARE_HOPPER = 0.3  # the same, whose full rate only `wgmma` has
_WARPS = 8  # of an SM, that have that rate
_STEP_SHARES = {16: 0.75, 32: 0.9, 64: 1.0}  # of the rate
_ALONE_SHARE, _ONE_STAGE_SHARE = 0.6, 0.85  # of the rate, of one stage: of one block, of several
_L2_SHARE = 2.5  # L2's bandwidth, in that of memory
_OTHER_SHARE = 0.3  # of what is not the bound, seen beside it
_START_SECONDS = 4.0e-6  # of a wave of blocks
_TILE_SECONDS = 8.0e-6  # of a block's next tile: nothing of the two overlaps
_OTHER_REGISTERS = 64  # beside sums and weights


def pass_seconds(
    tiling: PassTiling, blocks: int, steps: int, target: Target, tiles: int = 1
) -> float:
    """The time of so many blocks, each of so many tiles of so many steps, one after the other."""
    steps = steps * tiles
    together = _together(tiling, target)
    elements = tiling.has_scores * tiling.depth + tiling.product_times * tiling.width
    elements += sum(tiling.width if name == "dv" else tiling.depth for name in tiling.makes)
    flops = 2 * steps * tiling.rows * tiling.step * elements
    read = 2 * (steps * tiling.step + tiling.rows) * (tiling.depth + tiling.width)
    if not tiling.has_scores:
        read += 2 * steps * tiling.rows * tiling.step * max(1, tiling.product_times)
    share = _SHARE_HOPPER if target.capability[0] == 9 else _SHARE
    share *= _STEP_SHARES[tiling.step]
    if tiling.stages == 1:
        share *= _ALONE_SHARE if together == 1 else _ONE_STAGE_SHARE
    rate = target.mma_tflops["f16"] * 1e12 * share / target.sm_count
    bandwidth = target.dram_gbs * 1e9 * _L2_SHARE / target.sm_count
    seconds = 0.0
    waves, rest = divmod(-(-blocks // target.sm_count), together)
    for count, times in ((together, waves), (rest, 1)):
        if count and times:
            warps = count * tiling.threads / WARP_THREADS
            products = count * flops / (rate * min(1.0, warps / _WARPS))
            memory = count * read / bandwidth
            both = max(products, memory) + _OTHER_SHARE * min(products, memory)
            starts = _START_SECONDS + (tiles - 1) * _TILE_SECONDS
            seconds += times * (both + starts)
    return seconds


def _together(tiling: PassTiling, target: Target) -> int:
    """Blocks that an SM has together."""
    registers = min(255, tiling.held_registers + _OTHER_REGISTERS) * tiling.threads
    return blocks_of_sm(tiling.smem_bytes, tiling.threads, registers, target)
