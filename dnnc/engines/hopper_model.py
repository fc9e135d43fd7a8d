"""How long a product takes on Hopper's tensor cores: arithmetic for `predict`."""

from __future__ import annotations

from dataclasses import dataclass

from ..target import Target
from .engine import Prediction

_LAUNCH_SECONDS = 2.0e-6
_FILL_SECONDS = 1.2e-6  # of a block: barriers, the first loads
_RATE_SHARE = 0.80  # of the tensor cores' rate, at the clocks that a long product runs at
_LOAD_RATE = 45e9  # bytes a second that a multiprocessor's copy engine brings from L2
_REGISTER_LOAD_RATE = 14e9  # through registers
_EPILOGUE_RATE = 40e9  # elements a second of a multiprocessor
_HEAVY_EPILOGUE_RATE = 14e9
_DRAM_SHARE = 0.88


@dataclass(frozen=True)
class HopperProduct:
    """A product and how it is tiled.

    m, n, k, count: sizes, and how many products.  tile, cluster: along M and N.  depth: of a
    stage.  swaps: whether N lies along the instruction's rows.  moved_bytes: of global memory in
    all.  is_heavy: whether the epilogue has costly functions.  is_async: whether TMA loads both
    operands.  mma_tflops: the tensor cores' rate for the operand type.
    """

    m: int
    n: int
    k: int
    count: int
    tile: tuple[int, int]
    cluster: tuple[int, int]
    stages: int
    depth: int
    swaps: bool
    moved_bytes: int
    is_heavy: bool
    is_async: bool
    mma_tflops: float

    def predict(self, target: Target) -> Prediction:
        """Seconds, and what they are bound by."""
        blocks = self.cluster[0] * self.cluster[1]
        tiles = self.count
        for size, tile, cluster in zip((self.m, self.n), self.tile, self.cluster, strict=True):
            tiles *= -(-size // (tile * cluster))
        rounds = -(-tiles // (target.sm_count // blocks))
        busy = _FILL_SECONDS + rounds * self._tile_seconds(target)
        memory = self.moved_bytes / (target.dram_gbs * 1e9 * _DRAM_SHARE)
        bound = "memory" if memory > busy else "tensor cores" if rounds > 1 else "latency"
        return Prediction(_LAUNCH_SECONDS + max(busy, memory), bound)

    def _tile_seconds(self, target: Target) -> float:
        rows, columns = self.tile
        rate = self.mma_tflops * 1e12 / target.sm_count * _RATE_SHARE
        multiply = 2 * rows * columns * self.depth / rate
        loaded = (rows / self.cluster[1] + columns / self.cluster[0]) * 128
        load = loaded / (_LOAD_RATE if self.is_async else _REGISTER_LOAD_RATE)
        steps = -(-self.k // self.depth)
        epilogue_rate = _HEAVY_EPILOGUE_RATE if self.is_heavy else _EPILOGUE_RATE
        return steps * max(multiply, load) + rows * columns / epilogue_rate
