# pyright: basic
"""How long engine conv_grouped_sm80 takes, by arithmetic on what a strip needs."""

from __future__ import annotations

from ..codegen import mma
from ..dialect.fusion import Fusion
from ..expr import product, typical
from ..target import WARP_THREADS, Target
from .conv import conv_of
from .conv_grouped_tile import PIXELS, RESULTS, GroupedFacts, GroupedTiling, columns_met
from .engine import Prediction
from .product_model import mma_sync_rate
from .surface import BANDWIDTH_SHARE, LAUNCH_SECONDS, bytes_of

# Nothing of this is measured.  The first cache looks up a line a cycle at the least, and memory
# hides a part of what a multiprocessor does, as it does of conv_depthwise's.
_EXPOSED_SHARE = 0.6
_SCHEDULERS = 4
_LOAD_BYTES = 16
_LOAD_INSTRUCTIONS = 3  # with its condition and its zeros
_STRIP_INSTRUCTIONS = 90  # where its pixels are
_FILTER_INSTRUCTIONS = 6  # of a register of it
_OUTPUT_INSTRUCTIONS = 8  # of two results of a lane: the address, the condition, the type
_DOUBT = 1.8  # where Hopper has an engine that was measured
_BESIDE_BYTES = 32  # of a group's channels, which that takes


def predicted(
    fusion: Fusion, facts: GroupedFacts, tiling: GroupedTiling, target: Target
) -> Prediction:
    """Memory's time, and what the first cache, instructions or products add to it."""
    op, shape = conv_of(fusion), facts.shape
    strips = -(-typical(product((op.y.shape[0], op.y.shape[-1]))) // PIXELS)
    for extent, tile in zip(op.y.shape[2:-1], tiling.tiles(len(shape.windows) - 1), strict=True):
        strips *= -(-typical(extent) // tile)
    parts = shape.groups * shape.k_group // tiling.results
    runs = -(-strips // (tiling.strips * tiling.turns))
    blocks = max(1, runs * -(-parts // tiling.units))
    per_sm = -(-blocks // target.sm_count) * tiling.warps * tiling.turns  # strips of warps

    bandwidth = target.dram_gbs * 1e9 * BANDWIDTH_SHARE * min(1.0, blocks / target.sm_count)
    memory = bytes_of((*fusion.inputs, *fusion.outputs)) / bandwidth
    cycles = target.f32_tflops * 1e12 / 2 / (target.sm_count * _SCHEDULERS * WARP_THREADS)
    operations = 2 * PIXELS * RESULTS * mma.INSTRUCTIONS[facts.type].k
    product_cycles = operations / mma_sync_rate(target.mma_tflops[facts.type.name], target) * cycles
    work = max(_strip_cycles(facts, tiling, list(fusion.roles.values()), product_cycles).values())
    computed = _EXPOSED_SHARE * per_sm * work / cycles
    seconds = {"memory": memory, "instructions": computed, "launch": LAUNCH_SECONDS}
    is_doubtful = target.name == "sm_90a" and facts.tap_words * 4 >= _BESIDE_BYTES
    total = sum(seconds.values()) * (_DOUBT if is_doubtful else 1.0)
    return Prediction(total, max(seconds, key=lambda name: seconds[name]))


def _strip_cycles(
    facts: GroupedFacts, tiling: GroupedTiling, roles: list[str], product_cycles: float
) -> dict[str, float]:
    """Of a multiprocessor, for a warp's strip; product_cycles: of an instruction's products."""
    shape, eights = facts.shape, tiling.results // RESULTS
    loads = facts.lines(tiling.rows) * facts.line_words * 4 / _LOAD_BYTES
    outputs = tiling.rows * eights * 2  # fragments of a lane
    products = tiling.rows * facts.held(tiling.results) // 2
    lines = loads * columns_met(shape.windows[-1]) + outputs * 8
    words = loads * _LOAD_BYTES // 4
    instructions = (
        _STRIP_INSTRUCTIONS
        + facts.held(tiling.results) * _FILTER_INSTRUCTIONS / tiling.turns
        + loads * _LOAD_INSTRUCTIONS
        + words * (1 + 2 * roles.count("g1a"))
        + products
        + outputs * (_OUTPUT_INSTRUCTIONS + 2 * roles.count("g2"))
    )
    return {
        "lines": lines,
        "instructions": instructions / _SCHEDULERS,
        "products": products * product_cycles,
    }
