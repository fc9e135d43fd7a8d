"""How long a main kernel of engine sdpa_bwd_sm80 is expected to take."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...target import WARP_THREADS, Target
from ..surface import LAUNCH_SECONDS
from .bwd_tile_sm80 import PassTiling
from .model_sm80 import blocks_of_sm

_SHARE = 0.5  # of the tensor cores' rate, with `mma.sync`
_SHARE_HOPPER = 0.3  # the same, whose full rate only `wgmma` has
_ALONE_SHARE, _ONE_STAGE_SHARE = 0.6, 0.85  # of the rate, of one stage: of one block, of several
_L2_SHARE = 2.5  # L2's bandwidth, in that of memory
_OTHER_REGISTERS = 64  # beside sums and weights


@dataclass(frozen=True)
class _Rates:
    """steps: shares of the rate, by others of a step.  rows: by rows of a tile, 1 if not said.
    warps: of an SM, that have that rate; growth: the power of fewer, that it grows with.  other:
    the share of what is not the bound that is seen beside it.  step: seconds of a step, and of a
    block's next tile (nothing of the two overlaps), a wave of blocks, a launch.  unseen: the share
    of memory's time under them."""

    steps: dict[int, float]
    rows: dict[int, float] = field(default_factory=dict[int, float])
    warps: int = 8
    growth: float = 1.0
    other: float = 0.3
    step: float = 0.0
    next_tile: float = 8.0e-6
    start: float = 4.0e-6
    launch: float = LAUNCH_SECONDS
    unseen: float = 0.0


_SCORES = _Rates({16: 0.75, 32: 0.9, 64: 1.0})
# Fitted to 266 configurations of 21 sizes on an H200: of each size the fastest ones, up to 10%
# slower than the best, are predicted to take 0.65 to 1.17 times as long as they do.
_STORED = _Rates(
    {16: 0.8, 32: 1.03, 64: 1.0}, {128: 0.85}, warps=12, growth=0.25, other=0.7, step=2.8e-8,
    next_tile=1.8e-6, start=0.65e-6, launch=1.3e-6, unseen=0.88,
)  # fmt: skip


def _rates(tiling: PassTiling) -> _Rates:
    return _SCORES if tiling.has_scores else _STORED


def other_seconds(tiling: PassTiling, launches: int, memory: float) -> float:
    """The time beside the main kernels: of launches, and what is seen of memory's."""
    rates = _rates(tiling)
    return launches * rates.launch + (1.0 - rates.unseen) * memory


def pass_seconds(
    tiling: PassTiling, blocks: int, steps: int, target: Target, tiles: int = 1
) -> float:
    """The time of so many blocks, each of so many tiles of so many steps, one after the other."""
    steps, rates = steps * tiles, _rates(tiling)
    together = _together(tiling, target)
    elements = tiling.has_scores * tiling.depth + tiling.product_times * tiling.width
    elements += sum(tiling.width if name == "dv" else tiling.depth for name in tiling.makes)
    flops = 2 * steps * tiling.rows * tiling.step * elements
    read = 2 * (steps * tiling.step + tiling.rows) * (tiling.depth + tiling.width)
    if not tiling.has_scores:
        read += 2 * steps * tiling.rows * tiling.step * max(1, tiling.product_times)
    share = _SHARE_HOPPER if target.capability[0] == 9 else _SHARE
    share *= rates.steps[tiling.step] * rates.rows.get(tiling.rows, 1.0)
    if tiling.stages == 1:
        share *= _ALONE_SHARE if together == 1 else _ONE_STAGE_SHARE
    rate = target.mma_tflops["f16"] * 1e12 * share / target.sm_count
    bandwidth = target.dram_gbs * 1e9 * _L2_SHARE / target.sm_count
    seconds = 0.0
    waves, rest = divmod(-(-blocks // target.sm_count), together)
    for count, times in ((together, waves), (rest, 1)):
        if count and times:
            warps = count * tiling.threads / WARP_THREADS
            products = count * flops / (rate * min(1.0, warps / rates.warps) ** rates.growth)
            memory = count * read / bandwidth
            both = max(products, memory) + rates.other * min(products, memory)
            both += steps * max(1, tiling.product_times) * rates.step
            seconds += times * (both + rates.start + (tiles - 1) * rates.next_tile)
    return seconds


def _together(tiling: PassTiling, target: Target) -> int:
    """Blocks that an SM has together."""
    registers = min(255, tiling.held_registers + _OTHER_REGISTERS) * tiling.threads
    return blocks_of_sm(tiling.smem_bytes, tiling.threads, registers, target)
