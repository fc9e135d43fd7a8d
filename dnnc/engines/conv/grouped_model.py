# pyright: basic
"""How long engine conv_grouped_sm80 takes, by arithmetic on what a strip needs."""

from __future__ import annotations

from ...codegen.ampere import mma
from ...codegen.hopper.im2col import Window
from ...dialect.fusion import Fusion
from ...expr import product, typical
from ...target import WARP_THREADS, Target
from ..engine import Prediction
from ..product.model_sm80 import mma_sync_rate
from ..surface import BANDWIDTH_SHARE, LAUNCH_SECONDS, bytes_of
from .grouped_tile import PIXELS, RESULTS, TAPS, GroupedFacts, GroupedTiling
from .pattern import conv_of

# Fitted to four layers on an H100, of 3x3 filters of f16: the fastest fifteen of 24 configurations
# of each take 0.76 to 1.35 of what is predicted.  What binds them is the first cache, which looks
# up a line at a time.
_LINE_CYCLES = 1.12
_EXPOSED_SHARE = 0.1  # of instructions
_ROUNDS = 1.07  # what it takes that a warp's strips do not overlap
_PART_OF_LINE = 1.04  # what it takes that blocks read parts of lines
_LINE_BYTES = 128
_ENOUGH_WARPS = 16  # of an SM, to hide what they wait for
_WAITING = 0.45
_OWN_REGISTERS, _REGISTER_SHARE = 20, 0.85  # beside those that are counted; of the latter
_REGISTERS = 65536  # of an SM
_SCHEDULERS = 4
_LOAD_BYTES = 16
_LOAD_INSTRUCTIONS = 3  # with its condition and its zeros
_STRIP_INSTRUCTIONS = 90  # where its pixels are
_FILTER_INSTRUCTIONS = 6  # of a register of it
_OUTPUT_INSTRUCTIONS = 8  # of two results of a lane: the address, the condition, the type
# Where Hopper has another engine, which is predicted to take a quarter longer than it does: the two
# take as long, 74 and 76 us of 14x14x512 in 32 groups, of 256 images.
_DOUBT = 1.5
_BESIDE_BYTES = 32  # of a group's channels, which that takes


def predicted(
    fusion: Fusion, facts: GroupedFacts, tiling: GroupedTiling, target: Target
) -> Prediction:
    """Predicted seconds: memory, the L1 cache or products, and a part of what instructions take."""
    op, shape = conv_of(fusion), facts.shape
    strips = -(-typical(product((op.made.shape[0], op.made.shape[-1]))) // (facts.phases * PIXELS))
    for extent, tile in zip(op.made.shape[2:-1], tiling.tiles(len(shape.windows) - 1), strict=True):
        strips *= -(-typical(extent) // tile)
    parts = shape.groups * shape.k_group // tiling.results
    runs = -(-strips // (tiling.strips * tiling.rounds))
    blocks = max(1, runs * -(-parts // tiling.units))
    per_sm = -(-blocks // target.sm_count) * tiling.warps * tiling.rounds  # strips of warps

    bandwidth = target.dram_gbs * 1e9 * BANDWIDTH_SHARE * min(1.0, blocks / target.sm_count)
    memory = bytes_of((*fusion.inputs, *fusion.outputs)) / bandwidth
    cycles = target.f32_tflops * 1e12 / 2 / (target.sm_count * _SCHEDULERS * WARP_THREADS)
    operations = 2 * PIXELS * RESULTS * mma.INSTRUCTIONS[facts.type, facts.type].k
    product_cycles = operations / mma_sync_rate(target.mma_tflops[facts.type.name], target) * cycles
    work = _strip_cycles(facts, tiling, list(fusion.roles.values()), product_cycles)
    busy = {name: per_sm * count / cycles for name, count in work.items()}
    whole = max(memory, busy["lines"], busy["products"])
    seconds = {**busy, "memory": memory, "launch": LAUNCH_SECONDS}
    factor = _waiting_factor(facts, tiling)
    if target.name == "sm_90a" and facts.tap_words * 4 >= _BESIDE_BYTES:
        factor *= _DOUBT
    total = (whole + _EXPOSED_SHARE * busy["instructions"]) * factor + LAUNCH_SECONDS
    return Prediction(total, max(seconds, key=lambda name: seconds[name]))


def _waiting_factor(facts: GroupedFacts, tiling: GroupedTiling) -> float:
    """The factor of all for few warps, rounds and parts of lines."""
    loaded = (facts.lines(tiling.rows) - 1) * facts.line_words
    counted = facts.live(tiling.rows, tiling.results) + loaded
    registers = min(255, int(_REGISTER_SHARE * counted + _OWN_REGISTERS))
    warps = max(1, _REGISTERS // (registers * tiling.threads)) * tiling.warps
    found = max(1.0, _ENOUGH_WARPS / warps) ** _WAITING
    if tiling.rounds > 1:
        found *= _ROUNDS
    if tiling.units * facts.tap_words * 4 < _LINE_BYTES:
        found *= _PART_OF_LINE
    return found


def _strip_cycles(
    facts: GroupedFacts, tiling: GroupedTiling, roles: list[str], product_cycles: float
) -> dict[str, float]:
    """Cycles of an SM for a warp's strip; product_cycles: of an instruction."""
    shape, eights = facts.shape, tiling.results // RESULTS
    loads = facts.lines(tiling.rows) * facts.line_words * 4 / _LOAD_BYTES
    outputs = tiling.rows * facts.phases * eights * 2  # fragments of a lane
    products = tiling.rows * facts.held(tiling.results) // (2 * facts.row_strides)
    lines = _LINE_CYCLES * (loads * _lines_met(shape.windows[-1]) + outputs * PIXELS // 2)
    words = loads * _LOAD_BYTES // 4
    instructions = (
        _STRIP_INSTRUCTIONS
        + facts.held(tiling.results) * _FILTER_INSTRUCTIONS / tiling.rounds
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


def _lines_met(window: Window) -> int:
    """Lines that a load meets: a quarter of a warp at a time has the taps of two pixels."""
    taps = range(0, min(window.taps, TAPS) * window.dilation, window.dilation)
    return 4 * len({*taps, *(window.stride + tap for tap in taps)})
