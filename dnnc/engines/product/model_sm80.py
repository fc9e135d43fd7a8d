"""How long a tiled product with mma.sync takes: arithmetic for `predict`, fitted on measurements.

An SM works on as many blocks at once as fit.  A round of them takes

    fill + steps * max(latency of a stage, its multiplications, its loads) + epilogues

and there are as many rounds as it has tiles, or memory takes longer (`memory_model`).  Loads of
fewer bytes than 16 take their instructions' time, which multiplications hide in part.  The numbers
below are those that rank a few hundred configurations of generated and listed shapes best on
Hopper; elsewhere they are taken as they are, but for the rate of the tensor cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot

from ...dialect.tensor import Tensor
from ...dtypes import DType
from ...target import Target
from ..engine import Prediction
from .memory_model import again_share, smooth_max, transfer_seconds
from .work import ProductWork

# Share of the rate of mma.sync that a tile's main loop reaches, and registers of a thread.
TILE_SHARE = {
    (32, 64): 0.86,
    (32, 128): 0.86,
    (64, 64): 0.86,
    (128, 32): 0.86,
    (64, 128): 0.86,
    (128, 64): 0.86,
    (128, 128): 0.93,
    (128, 256): 1.00,
    (256, 128): 1.00,
}
TILE_REGISTERS = {
    (32, 64): 88,
    (32, 128): 120,
    (64, 64): 120,
    (128, 32): 120,
    (64, 128): 168,
    (128, 64): 168,
    (128, 128): 128,
    (128, 256): 240,
    (256, 128): 240,
}
# mma.sync reaches this share of the tensor cores' rate; parts whose own instructions are others
# (wgmma, tcgen05) are far from it.
_MMA_SYNC_SHARE = 0.85
_MMA_SYNC_SHARE_OF_NEWER = 0.42

_LAUNCH_SECONDS = 1.2e-6
_FILL_SECONDS = 0.3e-6  # of a block: its indices, its first loads' addresses
_LOAD_SECONDS = 0.72e-6  # from the issue of a stage's copies until they have landed
_LOAD_RATE = 85e9  # bytes a second that an SM copies from L2
_WHOLE_BYTES = 16  # of a copy; fewer take as long
# Loads a second that an SM issues: of copies of 8 or 4 bytes, and of elements that come
# one by one.  In each step a block that is alone waits, too: for its warps to have issued them, or,
# since elements are in registers until they have come, for these.
_COPY_RATE = 9e9
_COPY_WAIT = 0.15e-6
_ELEMENT_RATE = 8.3e9
_MOST_REGISTERS = 255  # of a thread
LINE_BYTES = 128
_LINE_SHARE = 0.45  # of a copy's time that goes by lines touched, the rest by bytes
_EPILOGUE_RATE = 8e9  # elements a second of an SM
_HEAVY_EPILOGUE_RATE = 6.5e9  # with exp, tanh, erf and the like
EXIT_RATE = 15e9  # elements a second of an SM that reductions take from shared memory
_OVERLAP = 0.77  # of an epilogue that runs beside another block's main loop


def tflops_of(operand: DType, target: Target) -> float:
    """The tensor cores' rate for an operand type.

    Products of fp8 take half of the time of f16's where there are instructions for them.
    """
    if (found := target.mma_tflops.get(operand.name)) is not None:
        return found
    return target.mma_tflops["f16"] * (2 if target.multiplies_fp8 else 1)


def mma_sync_rate(mma_tflops: float, target: Target) -> float:
    """Operations a second of an SM, of an operand type whose peak is this one."""
    is_newer = target.capability[0] in (9, 10)
    share = _MMA_SYNC_SHARE_OF_NEWER if is_newer else _MMA_SYNC_SHARE
    return mma_tflops * 1e12 / target.sm_count * share


@dataclass(frozen=True)
class TiledProduct:
    """A product and how it is tiled.

    tile: (rows, columns).  depth: of a stage.
    threads: of a block.  smem_bytes: of a block.  element_bytes: of an operand.
    lines: of A and B, see `OperandLines.time`.  accesses: bytes of A and of B that an instruction
    loads, 16 at most; 0: elements come one by one, through registers.  products: tensor-core
    products for one of the graph's.  is_heavy: whether the
    epilogue has costly functions.  mma_tflops: the tensor cores' rate for the operand type.
    """

    work: ProductWork
    tile: tuple[int, int]
    depth: int
    stages: int
    threads: int
    smem_bytes: int
    element_bytes: int
    lines: tuple[float, float]
    accesses: tuple[int, int]
    products: int
    is_heavy: bool
    mma_tflops: float

    def predict(self, target: Target) -> Prediction:
        """Seconds, and what they are bound by."""
        work = self.work
        tiles = -(-work.m // self.tile[0]) * -(-work.n // self.tile[1]) * work.count
        each = -(-tiles // target.sm_count)
        together = max(1, min(self._resident(target), each))  # of no rows there are no tiles
        rounds, rest = divmod(each, together)
        busy = rounds * self._round(together, target)
        busy += self._round(rest, target) if rest else 0.0
        transfer = transfer_seconds(work.moved_bytes, target)
        transfer *= again_share(work.m, work.n, work.k, self.tile)
        # What part-filled SMs leave unused is what bounds a small product.
        bound = "memory" if transfer > busy else "tensor cores" if each > 1 else "latency"
        seconds = smooth_max(busy, transfer + _FILL_SECONDS + self._epilogue)
        return Prediction(_LAUNCH_SECONDS + seconds, bound)

    @property
    def _epilogue(self) -> float:
        """Seconds of a block's."""
        rate = _HEAVY_EPILOGUE_RATE if self.is_heavy else _EPILOGUE_RATE
        return self.tile[0] * self.tile[1] / rate

    def _resident(self, target: Target) -> int:
        """Blocks that an SM holds."""
        by_smem = target.limits.smem_sm_bytes // (self.smem_bytes + 1024)
        # An element that is held, or the address of a narrow copy, has a register.
        more = (self._elements + self._copies) // self.threads
        registers = min(_MOST_REGISTERS, TILE_REGISTERS[self.tile] + more)
        by_registers = target.limits.registers_sm // (registers * self.threads)
        return max(1, min(by_smem, by_registers, target.limits.blocks_sm))

    @property
    def _elements(self) -> int:
        """Elements of a stage that come one by one."""
        sides = zip(self.tile, self.accesses, strict=True)
        return self.depth * sum(side for side, access in sides if not access)

    @property
    def _copies(self) -> int:
        """Copies of a stage of 8 or 4 bytes."""
        sides = zip(self.tile, self.accesses, strict=True)
        row_bytes = self.depth * self.element_bytes
        return sum(side * row_bytes // n for side, n in sides if 0 < n < _WHOLE_BYTES)

    def _step(self, blocks: int, multiply: float, load: float) -> float:
        """Seconds of a stage of so many blocks.  multiply, load: of one, without its waits."""
        issue = self._copies / _COPY_RATE + self._elements / _ELEMENT_RATE
        busy = blocks * hypot(multiply, issue)
        if blocks == 1:
            busy += _LOAD_SECONDS if self._elements else _COPY_WAIT if self._copies else 0.0
        return max(_LOAD_SECONDS / (self.stages - 1), busy, blocks * load)

    def _round(self, blocks: int, target: Target) -> float:
        rows, columns = self.tile
        rate = mma_sync_rate(self.mma_tflops, target) * TILE_SHARE[self.tile]
        multiply = 2 * rows * columns * self.depth * self.products / rate
        line_bytes = rows * self.lines[0] + columns * self.lines[1]
        load = line_bytes * self.depth * self.element_bytes / _LOAD_RATE
        step = self._step(blocks, multiply, load)
        epilogue = blocks * self._epilogue * (_OVERLAP if blocks > 1 else 1.0)
        return _FILL_SECONDS + -(-self.work.k // self.depth) * step + epilogue


@dataclass(frozen=True)
class OperandLines:
    """The parts of an operand's layout that say how many lines a tile's copies touch.

    is_along_k: whether consecutive elements are.  is_split: whether rows begin inside a line.
    """

    element_bytes: int
    is_along_k: bool
    is_split: bool

    @staticmethod
    def of(operand: Tensor, k_axis: int) -> OperandLines:
        """k_axis: the operand's axis along K."""
        other = operand.rank - 1 if k_axis == operand.rank - 2 else operand.rank - 2
        element_bytes = max(1, operand.type.bits // 8)
        is_along_k = operand.layout[k_axis].constant == 1
        pitch = operand.layout[other if is_along_k else k_axis]
        is_split = pitch.known_divisor() * element_bytes % LINE_BYTES != 0
        return OperandLines(element_bytes, is_along_k, is_split)

    def time(self, depth: int) -> float:
        """The time of a tile's copies against copies of whole lines.

        A stage holds `depth` elements along K; where they are consecutive and few, or rows begin
        inside a line, more lines are touched for the same bytes.
        """
        run_bytes = min(LINE_BYTES, depth * self.element_bytes) if self.is_along_k else LINE_BYTES
        touched = LINE_BYTES / run_bytes + self.is_split
        return 1 + _LINE_SHARE * (touched - 1)
