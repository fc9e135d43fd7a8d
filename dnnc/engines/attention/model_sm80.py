"""How long engine sdpa_sm80 is expected to take: memory, products, or too few blocks for either."""

from __future__ import annotations

from dataclasses import dataclass

from ...target import WARP_THREADS, Target
from ..engine import Prediction
from ..surface import BANDWIDTH_SHARE, LAUNCH_SECONDS
from .tile_sm80 import Sm80Tiling

_SHARE = 0.6  # of the tensor cores' rate, with `mma.sync` and softmax alternately
_SHARE_HOPPER = 0.34  # the same, whose full rate only `wgmma` has
_WARPS = 8  # of an SM, that have that rate
_IN_FLIGHT = 14 << 10  # bytes on their way to an SM, that have the bandwidth
_STAGE_SHARE = 0.005  # of the bandwidth, that a stage more costs, and as many keys more as 32
_KEYS_SHARE = 0.01
_AGAIN_SHARE = 0.33  # of memory's time, that bytes take which another tile has read, too
_L2_SHARE = 2.5  # L2's bandwidth, in that of memory
_OTHER_SHARE = 0.05  # of what is not the bound, seen beside it
_PARTS_SECONDS = 2.0e-6  # of the parts' sum, beside its launch and its bytes
_PART_SECONDS = 1.5e-7  # that it takes for each
_START_SECONDS = 1.5e-6  # of a block, until its first keys are there
# Bytes that become f16, of an SM's operations on f32: two an instruction, of which half
# as many start as of multiply-adds.  Source: CUDA C++ programming guide, "Arithmetic Instructions".
_WIDENED = 0.5
_BLOCK_SMEM = 1 << 10  # that the system has of each block
_OTHER_REGISTERS = 64  # beside sums and queries


@dataclass(frozen=True)
class AttentionWork:
    """An attention's typical sizes.

    heads: of the scores.  shared: how many of them share keys.  key_bytes: of K and V in memory.
    other_bytes: of all else that is read or written.  keeps_weights: whether scores are computed
    twice.  element_bytes: of Q, K and V.
    """

    heads: int
    shared: int
    queries: int
    keys: int
    depth: int
    width: int
    key_bytes: int
    other_bytes: int
    keeps_weights: bool = False
    element_bytes: int = 2

    def tiles(self, queries: int, is_packed: bool) -> int:
        """Tiles of so many rows."""
        shared = self.shared if is_packed else 1
        return self.heads // shared * -(-self.queries * shared // queries)


def seconds_of(
    work: AttentionWork, tiling: Sm80Tiling, is_packed: bool, target: Target
) -> Prediction:
    tiles = work.tiles(tiling.queries, is_packed)
    blocks = tiles * tiling.parts * tiling.pieces
    together = _blocks_together(tiling, target) * target.sm_count
    waves, rest = divmod(blocks, together)
    keys = -(-work.keys // tiling.keys) * tiling.keys / tiling.parts  # of a block
    passes = 2 if work.keeps_weights else 1
    elements = passes * work.depth + tiling.width  # of a key and its value
    flops = 2 * tiling.queries * keys * elements
    # L2 has the whole of what blocks read, and what several tiles read again takes time beside
    # memory's: two tiles of the same keys took 1.32 times one of as many rows, on an H200.
    read = blocks * keys * elements * work.element_bytes
    widened = tiling.threads // WARP_THREADS * keys * elements if work.element_bytes == 1 else 0
    again = _AGAIN_SHARE * max(0, read - work.key_bytes)
    moved = (work.key_bytes + work.other_bytes + again) / max(1, blocks)

    seconds, bound = LAUNCH_SECONDS, "memory"
    for count, times in ((together, waves), (rest, 1)):
        if count and times:
            memory = count * moved / _bandwidth(tiling, count, target)
            products = count * flops / _rate(tiling, count, target)
            products += count * widened / (target.f32_tflops * 1e12 * _WIDENED)
            bound = "memory" if memory > products else "tensor cores"
            seconds += times * (max(memory, products) + _OTHER_SHARE * min(memory, products))
            seconds += _START_SECONDS
    seconds += parts_seconds(work, tiling.parts, target)
    return Prediction(seconds, bound)


def parts_seconds(
    work: AttentionWork, parts: int, target: Target, share: float = _L2_SHARE
) -> float:
    """The time of the kernel that adds up so many parts of each tile's keys.  share: of memory's
    bandwidth, that these are written and read at."""
    if parts == 1:
        return 0.0
    moved = 2 * parts * work.heads * work.queries * 4 * (work.width + 2)
    launch = LAUNCH_SECONDS + _PARTS_SECONDS + _PART_SECONDS * parts
    return launch + moved / (share * target.dram_gbs * 1e9)


def _bandwidth(tiling: Sm80Tiling, blocks: int, target: Target) -> float:
    """Bytes a second that so many blocks have, which run at a time."""
    in_flight = blocks * (tiling.stages - 1) * tiling.stage_bytes
    filled = in_flight / (_IN_FLIGHT * target.sm_count)
    share = BANDWIDTH_SHARE * filled / (1.0 + filled**4) ** 0.25
    # More than is needed on its way is slower, on an H100.
    share /= (1 + _STAGE_SHARE * (tiling.stages - 2)) * (1 + _KEYS_SHARE * (tiling.keys / 32 - 1))
    return target.dram_gbs * 1e9 * share


def _rate(tiling: Sm80Tiling, blocks: int, target: Target) -> float:
    """Operations a second of so many blocks."""
    warps = blocks * tiling.threads / WARP_THREADS / target.sm_count
    share = _SHARE_HOPPER if target.capability[0] == 9 else _SHARE
    # Each step has its maxima, sums and barrier, however many keys it has.
    steps = {16: 0.8, 32: 0.93}.get(tiling.keys, 1.0)
    return target.mma_tflops["f16"] * 1e12 * share * steps * min(1.0, warps / _WARPS)


def _blocks_together(tiling: Sm80Tiling, target: Target) -> int:
    """Blocks that an SM has together."""
    held = tiling.held_registers + (tiling.query_registers if tiling.holds_queries else 0)
    registers = min(255, held + _OTHER_REGISTERS) * tiling.threads
    return blocks_of_sm(tiling.smem_bytes, tiling.threads, registers, target)


def blocks_of_sm(smem_bytes: int, threads: int, registers: int, target: Target) -> int:
    """Blocks that an SM has together; registers: of a block."""
    return max(
        1,
        min(
            target.limits.smem_sm_bytes // (smem_bytes + _BLOCK_SMEM),
            target.limits.threads_sm // threads,
            target.limits.registers_sm // registers,
            target.limits.blocks_sm,
        ),
    )
