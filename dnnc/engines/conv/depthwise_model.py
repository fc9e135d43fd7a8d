# pyright: basic
"""How long engine conv_depthwise takes, by arithmetic on what a strip needs."""

from __future__ import annotations

from ...codegen.tiles.strips import met
from ...dialect.fusion import Fusion
from ...expr import product, typical
from ...target import REGISTERS_PER_THREAD, WARP_THREADS, Target
from ..engine import Prediction
from ..surface import BANDWIDTH_SHARE, LAUNCH_SECONDS, bytes_of
from .depthwise_tile import LINE_BYTES, DepthwiseFacts, DepthwiseTiling
from .pattern import conv_of

# What follows was measured on an H100: of 92 times of 16 convolutions these constants are 6.5% off
# (root of the mean square), 5% where the instructions and registers are the assembler's own.
# Clocks are as `Target` has them.

# Warps that a scheduler needs to start an instruction each cycle: of fewer, each waits for its own
# results meanwhile.
_WARPS_TO_HIDE = 2.9
# Of the time that instructions take, what is left beside memory's: of all that an SM
# has to do, and of the blocks that are its last ones, while nothing new is loaded.
_EXPOSED_SHARE = 0.63
_LAST_SHARE = 0.19
# Of the time that one wave's bytes take, what is lost at the end, where blocks do not end together.
_UNEVEN_SHARE = 0.09
_SCHEDULERS = 4
# Of several channels a group, whose filter lies in shared memory: issue slots of a scheduler that
# reading 16 bytes of it takes, while all four share one port; instructions that an element of it
# takes on its way there.
_FILTER_SLOTS = 16
_FILL_INSTRUCTIONS = 25
_OF_GROUPS = 1.15  # what such strips take, of that
_SECTOR_BYTES = 32  # that caches move at the least
# Of memory's bandwidth, what caches give where a block has less than a line of each pixel's
# channels: of one layer, of 170 outputs, 4 bytes a thread.
_SECTORS_SHARE = 0.95
# Of what is written so to L2: 254 us of 940 MB, where memory moves 268 MB.
_SCATTERED_SHARE = 0.75
_OTHER_REGISTERS = 60  # of a thread, beside sums, a row of pixels and the taps that lie on it
_OTHER_REGISTERS_HELD = 48  # the same where all taps stay


def predicted(
    fusion: Fusion, facts: DepthwiseFacts, tiling: DepthwiseTiling, target: Target
) -> Prediction:
    """Memory's time, and what instructions add to it.

    A block first waits for its pixels and then computes, so that the two overlap in part, by what
    other blocks of the SM do meanwhile.  Pixels that neighbouring blocks read again
    come from caches, in no time that shows.
    """
    op = conv_of(fusion)
    spatial = typical(product((op.made.shape[0], *tiling.counts(op.made.shape[2:]))))
    runs = -(-spatial // (tiling.strips * tiling.rounds))
    blocks = max(1, runs * (facts.channels // (tiling.width * tiling.fragments)))
    most = -(-blocks // target.sm_count)  # of an SM
    resident = _resident(facts, tiling, target)
    waves = blocks / (resident * target.sm_count)

    filled = min(1.0, blocks / target.sm_count)
    bandwidth = target.dram_gbs * 1e9 * BANDWIDTH_SHARE * filled
    memory = bytes_of((*fusion.inputs, *fusion.outputs)) / bandwidth
    memory = max(memory, _sector_bytes(fusion, facts, tiling) / (_SECTORS_SHARE * bandwidth))
    if waves > 1:
        memory *= 1 + _UNEVEN_SHARE / waves

    cycles = target.f32_tflops * 1e12 / 2 / (target.sm_count * _SCHEDULERS * WARP_THREADS)
    warps = tiling.threads / WARP_THREADS / _SCHEDULERS
    stretched = max(1.0, _WARPS_TO_HIDE / (resident * warps))
    each = instructions(facts, tiling, **_pointwise(fusion))
    fill = 0.0
    if facts.shape.c_group > 1 and not tiling.is_held:
        each = _OF_GROUPS * max(each, _FILTER_SLOTS * facts.products(tiling.width) / 4)
        elements = facts.products(tiling.width) * tiling.fragments
        fill = _FILL_INSTRUCTIONS * elements / tiling.threads
    block = (tiling.rounds * each + fill) * warps * stretched / cycles
    computed = (_EXPOSED_SHARE * most + _LAST_SHARE * resident) * block

    total = LAUNCH_SECONDS + memory + computed
    seconds = {"memory": memory, "instructions": computed, "launch": LAUNCH_SECONDS}
    return Prediction(total, max(seconds, key=lambda name: seconds[name]))


def _sector_bytes(fusion: Fusion, facts: DepthwiseFacts, tiling: DepthwiseTiling) -> int:
    """Bytes that blocks of other channels move of the same pixels, where none has a line's worth.

    Each reads the pixels of its group and writes its few channels of Y.  Where rows are contiguous
    and threads need several stores for their columns, each writes parts of as many sectors as all
    of them do.
    """
    own, op, size = tiling.width * tiling.fragments, conv_of(fusion), facts.bits // 8
    tiles = facts.channels // own
    if not facts.is_last:
        written = min(tiling.columns * size, _SECTOR_BYTES) / tiling.along
        return int(_SCATTERED_SHARE * written * typical(op.made.elements()))
    if not facts.is_last or tiles == 1 or own * size >= LINE_BYTES:
        return 0
    outputs = typical(op.made.elements()) // facts.channels
    inputs = typical(op.moved.elements()) // (facts.shape.groups * facts.shape.c_group)
    read = max(1, own // facts.shape.k_group) * facts.shape.c_group * size
    # Pixels side by side share sectors, unless strides pass over some.
    inputs_bytes = min(
        inputs * read, facts.products(outputs) // facts.shape.c_group * _sectors(read)
    )
    return tiles * (inputs_bytes + outputs * _sectors(own * size))


def _sectors(bytes_: int) -> int:
    return -(-bytes_ // _SECTOR_BYTES) * _SECTOR_BYTES


def _resident(facts: DepthwiseFacts, tiling: DepthwiseTiling, target: Target) -> int:
    """Blocks of an SM."""
    most = min(target.limits.threads_sm // tiling.threads, target.limits.blocks_sm)
    fitting = target.limits.registers_sm // (registers(facts, tiling) * tiling.threads)
    # Of the registers that it leaves room for the assembler takes all, for loads that come early;
    # of several channels a group it has no such loads.
    asked = tiling.min_blocks or fitting
    return max(1, min(max(asked, fitting) if facts.shape.c_group > 1 else asked, most))


def registers(facts: DepthwiseFacts, tiling: DepthwiseTiling) -> int:
    """About what the assembler gives a thread, where it is free to."""
    live = facts.live(tiling.rows, tiling.columns, tiling.width, is_held=tiling.is_held)
    others = _OTHER_REGISTERS_HELD if tiling.is_held else _OTHER_REGISTERS
    return min(REGISTERS_PER_THREAD, others + live)


def _pointwise(fusion: Fusion) -> dict[str, int]:
    """How many operations there are before the convolution, on X, and after it."""
    roles = list(fusion.roles.values())
    return {"before": roles.count("g1a"), "after": roles.count("g2")}


def instructions(
    facts: DepthwiseFacts, tiling: DepthwiseTiling, before: int = 0, after: int = 0
) -> float:
    """Instructions of a thread for a strip; before, after: operations on each element of X and
    of Y."""
    shape, width = facts.shape, tiling.width
    pixels = 1
    for tile, window in zip(tiling.tiles(len(shape.moves)), shape.moves, strict=True):
        pixels *= len(met(tile, window))
    if tiling.unrolled == "row":  # rows of X are read for each row of outputs
        last = shape.windows[-1]
        pixels = tiling.rows * len(met(tiling.columns, last)) * shape.taps // last.taps
    if tiling.unrolled == "tap":
        pixels = shape.taps * tiling.rows * tiling.columns
    channels = max(1, width // shape.k_group) * shape.c_group
    words = max(1, channels * facts.bits // 32)
    loads = pixels * (2 + words / 2) / tiling.along
    loads += pixels * channels * ((facts.bits != facts.sums.bits) + before)
    outputs = tiling.rows * tiling.columns * width
    filter_ = 0 if tiling.is_held else facts.products(width) / 4
    return 80 + loads + facts.products(outputs) + filter_ + (1 + after) * outputs
