"""How long a filter's gradient takes on Hopper's tensor cores: arithmetic for `predict`.

    fill + rounds * (steps * max(multiply, load) + epilogue) + sums of parts

or as long as memory takes.  The numbers were fitted on 130 configurations of six layers, each of
two batches, on an H100: they are off by 12%, and of those configurations choose the fastest but
for 0.4%.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from ...codegen.hopper import wgmma
from ...codegen.hopper.cluster import residents
from ...target import Target
from ..engine import Prediction
from ..product.memory_model import smooth_max, transfer_seconds
from ..product.tile_parts_sm90 import BlockTile, consumers_of
from .wgrad_sums import added_seconds, sum_seconds

_FILL_SECONDS = 0.3e-6  # of a block, the launch with it
_CLUSTER_FILL_SECONDS = 1.8e-6  # more, of blocks that start together
_RATE_SHARE = 0.83  # of the tensor cores' rate
_MORE_COLUMNS = 11  # that an instruction takes beside its own
_LONE_SHARE = 1.5  # of the time of products, where one warpgroup has a tile
_LATENCY_SECONDS = 1.65e-6  # from the start of a stage's loads to its release
_LOAD_RATE = 106e9  # bytes a second that an SM's TMA brings
# That three warps compute 64 channels in, and of all a fourth warpgroup's share, where loads bound
# it: of 45 configurations of 8 layers on an H200.
_ROW_SECONDS = 8e-9
_HELPED_SHARE = 1.03
_FEW_STAGES_SHARE = 1.35
_SHARED_RATE = 170e9  # bytes a second of an SM's shared memory
_MULTICAST_SHARE = 0.57  # of a tile's time to load, that blocks which share it divide
_ROW_BYTES = 128
_EPILOGUE_RATE = 109e9  # elements a second of an SM
_DIRECT_RATE = 22e9  # of elements that are stored one or two at a time
# An exchange of sums in a cluster, for each doubling of its blocks, and bytes a second of it, as of
# products.  Without it three rounds of clusters of eight were predicted 21 us, and took 36.
_SPLIT_SECONDS = 0.5e-6
_SPLIT_RATE = 19e9


@dataclass(frozen=True)
class WgradWork:
    """A gradient's sizes.

    rows, columns, steps: of a group's product, steps of 64 pixels.  groups: how many.
    moved_bytes: of global memory, each tensor once.  sums: elements of dW's sums.
    """

    rows: int
    columns: int
    steps: int
    groups: int
    moved_bytes: int
    sums: int


@dataclass(frozen=True)
class SumsWay:
    """The way of a tile's sums.

    parts: in the workspace.  goes_there: whether sums go through it.  is_direct: whether they are
    stored from registers.  adds: parts are added to one place.
    """

    parts: int
    goes_there: bool
    is_direct: bool
    adds: bool = False


@dataclass(frozen=True)
class MadeOperands:
    """Operands that blocks make.

    transposes: of fp8, by transposing them.  computed_rows: of 64 channels that a warpgroup
    computes in a step.  is_helped: by two.
    """

    is_any: bool
    transposes: bool
    computed_rows: float
    is_helped: bool = False


@dataclass(frozen=True)
class WgradTile:
    """How it is tiled.  tile, cluster: along rows and columns.  splits: blocks of a cluster that
    share a part.  pixels: of pixels that come once for all taps, rows of
    memory that are loaded for 64 pixels of dY, and columns that products take the time of; None:
    they come by im2col.
    """

    tile: tuple[int, int]
    cluster: tuple[int, int]
    stages: int
    splits: int
    sums: SumsWay
    made: MadeOperands
    mma_tflops: float
    target: Target
    pixels: tuple[float, float] | None = None

    @property
    def _residents(self) -> int:
        """Clusters that run together."""
        return residents(self.target.sm_count, self.cluster[0] * self.cluster[1] * self.splits)

    def predict(self, work: WgradWork) -> Prediction:
        """Seconds, and what they are bound by."""
        tall, wide = (side * blocks for side, blocks in zip(self.tile, self.cluster, strict=True))
        tiles = -(-work.rows // tall) * -(-work.columns // wide) * work.groups
        steps, step = ceil(work.steps / (self.sums.parts * self.splits)), self._step_seconds()
        after = self._after_seconds()
        busy = -(-tiles * self.sums.parts // self._residents) * (steps * step + after)
        fill = _FILL_SECONDS
        if self.cluster != (1, 1) or self.splits > 1:
            fill += _CLUSTER_FILL_SECONDS
        transfer = transfer_seconds(work.moved_bytes, self.target)
        seconds = fill + smooth_max(busy, transfer)
        if self.sums.adds:
            seconds += added_seconds(work.sums, self.sums.parts, self.target)
        elif self.sums.goes_there:
            seconds += sum_seconds(work.sums * self.sums.parts, self.target)
        seconds *= _HELPED_SHARE if self.made.is_helped else 1
        return Prediction(seconds, "memory" if transfer > busy else "tensor cores")

    def _step_seconds(self) -> float:
        rows, columns = self.tile
        rate = self.mma_tflops * 1e12 / self.target.sm_count * _RATE_SHARE
        loaded = sum(
            side * (1 - _MULTICAST_SHARE * (1 - 1 / blocks))
            for side, blocks in zip(self.tile, self.cluster[::-1], strict=True)
        )
        if self.pixels:
            loaded, columns = self.pixels
        multiply = 2 * rows * (columns + _MORE_COLUMNS) * 64 / rate
        if consumers_of(*self.tile) == 1:
            multiply *= _LONE_SHARE
        if self.made.transposes:
            multiply, loaded = max(multiply, self._transpose_seconds()), loaded / 2
        step = smooth_max(multiply, loaded * _ROW_BYTES / _LOAD_RATE)
        if self.made.is_any and self.stages == 2:  # loads, what is made of them, and products wait
            step *= _FEW_STAGES_SHARE
        step = step if self.pixels else max(step, _LATENCY_SECONDS / (self.stages - 1))
        if not self.made.computed_rows:
            return step
        return smooth_max(step, self.made.computed_rows * _ROW_SECONDS)

    def _transpose_seconds(self) -> float:
        """Seconds of a step's traffic in shared memory: bytes come, are read, written transposed,
        and read by each warpgroup that multiplies."""
        rows, columns = self.tile
        consumers = consumers_of(rows, columns)
        block = BlockTile(rows, columns, False, consumers)
        products = consumers * block.blocks_of_rows * (wgmma.M + block.part[1])
        return (3 * (rows + columns) + products) * 64 / _SHARED_RATE

    def _after_seconds(self) -> float:
        """Seconds of what follows a tile's products."""
        elements = self.tile[0] * self.tile[1]
        seconds = elements / (_DIRECT_RATE if self.sums.is_direct else _EPILOGUE_RATE)
        if self.splits > 1:
            seconds += _SPLIT_SECONDS * log2(self.splits) + elements * 4 / _SPLIT_RATE
        return seconds
