"""How long a filter's gradient takes on Hopper's tensor cores: arithmetic for `predict`.

    launch + fill + rounds * (steps * max(multiply, load) + epilogue) + sums of parts

or as long as memory takes.  The rates are those that kernels of two tiles and two to nine channels
a warp reached in a prototype on an H100: 410 to 702 TFLOP/s where products, or loads of 57 to 69
GB/s an SM, bound them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from ...target import Target
from ..engine import Prediction
from ..product.memory_model import bent, transfer_seconds
from .wgrad_sums import sum_seconds

_LAUNCH_SECONDS = 0.65e-6
_FILL_SECONDS = 1.0e-6
_CLUSTER_FILL_SECONDS = 1.35e-6
_TILE_SECONDS = 0.33e-6
_RATE_SHARE = 0.93  # of the tensor cores' rate: the clock of a long product
_MORE_COLUMNS = 12  # that an instruction takes beside its own
_LATENCY_SECONDS = 1.5e-6  # from the start of a stage's loads to its release
_LOAD_RATE = 68e9  # bytes a second that an SM's TMA brings
_ROW_BYTES = 128
_EPILOGUE_RATE = 16e9  # elements a second of an SM
_DIRECT_RATE = 22e9  # of elements that are stored one or two at a time
_SPLIT_SECONDS = 0.5e-6  # of an exchange of sums in a cluster, for each doubling of its blocks
_SPLIT_RATE = 19e9  # bytes a second of it


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
class WgradTile:
    """How it is tiled.  tile, cluster: along rows and columns.  parts: in the workspace; has_sums:
    whether sums go through it.  splits: blocks of a cluster that share a part.  residents:
    clusters that run together.  pixels: of pixels that come once for all taps, rows of
    memory that are loaded for 64 pixels of dY, and columns that products take the time of; None:
    they come by im2col.
    """

    tile: tuple[int, int]
    cluster: tuple[int, int]
    stages: int
    splits: int
    parts: int
    has_sums: bool
    is_direct: bool
    mma_tflops: float
    residents: int
    target: Target
    pixels: tuple[float, float] | None = None

    def predict(self, work: WgradWork) -> Prediction:
        """Seconds, and what they are bound by."""
        rows, columns = self.tile
        tall, wide = rows * self.cluster[0], columns * self.cluster[1]
        clusters = -(-work.rows // tall) * -(-work.columns // wide) * work.groups * self.parts
        rounds = -(-clusters // self.residents)
        steps = ceil(work.steps / (self.parts * self.splits))
        step = max(self._step_seconds(), _LATENCY_SECONDS / (self.stages - 1))
        fill = _FILL_SECONDS
        if self.cluster != (1, 1) or self.splits > 1:
            fill += _CLUSTER_FILL_SECONDS
        busy = fill + rounds * (steps * step + self._after_seconds())
        transfer = transfer_seconds(work.moved_bytes, self.target) + fill
        seconds = _LAUNCH_SECONDS + bent(busy, transfer)
        if self.has_sums:
            seconds += sum_seconds(work.sums * self.parts, self.target)
        return Prediction(seconds, "memory" if transfer > busy else "tensor cores")

    def _step_seconds(self) -> float:
        rows, columns = self.tile
        rate = self.mma_tflops * 1e12 / self.target.sm_count * _RATE_SHARE
        loaded = rows / self.cluster[1] + columns / self.cluster[0]
        if self.pixels:
            loaded, columns = self.pixels
        multiply = 2 * rows * (columns + _MORE_COLUMNS) * 64 / rate
        return bent(multiply, loaded * _ROW_BYTES / _LOAD_RATE)

    def _after_seconds(self) -> float:
        """Seconds of what follows a tile's products."""
        elements = self.tile[0] * self.tile[1]
        seconds = _TILE_SECONDS + elements / (
            _DIRECT_RATE / 2 if self.is_direct else _EPILOGUE_RATE
        )
        if self.splits > 1:
            seconds += _SPLIT_SECONDS * log2(self.splits) + elements * 4 / _SPLIT_RATE
        return seconds
