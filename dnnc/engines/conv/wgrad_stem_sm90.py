# pyright: basic
"""The gradient of a first layer's filter: windows of few channels, read where rows of X lie.

What a row of the filter meets of X for an output pixel is one run of taps * channels elements,
channels last, and the run of the next pixel begins stride * channels elements further on.  X is
copied so that these are 16 bytes, and comes to shared memory row by row, as it is.  There the runs
of eight pixels, 16 bytes of each, are what the instruction takes for a matrix of 8 by 8 without a
swizzle; the next 16 bytes of the runs are the next such matrix, 16 bytes further on, and the next
eight pixels 128.  So B is read in place, and no element is there twice.

    columns   [rows of the filter][run, in whole groups of 8 elements]

Sums are left in this order, and a second kernel takes the taps and channels from it.  Rows of the
filter are products of their own, whose columns lie side by side in the sums.

Example, 7x7 taps, 3 channels, stride 2, padding 3: channels 4 apart, runs of 28 elements behind
four, so that they begin at whole 16 bytes of a row: 7 times 32 columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ... import dtypes
from ...codegen import ops
from ...codegen.hopper import tma, wgmma
from ...codegen.kernel import Kernel
from ...codegen.walk import index as idx
from ...codegen.walk.index import Coordinate, Index
from ...dialect.tensor import Tensor
from ...expr import Expr
from ..product.matrices_sm90 import Batch, WholeSpace
from .operands_sm90 import RingOperand
from .wgrad import CHUNK, RUN_STEP, WgradShape, channel_pitch
from .wgrad_halo_sm90 import GROUP, STEP, PixelLoop, PixelTile

_WIDE = 4  # elements that TMA takes for one, of 8 bytes
_MOST_COLUMNS = 256  # of an accumulator


@dataclass(frozen=True, eq=False)
class WgradStem(PixelTile):
    """A tile of dY's image and the rows of X that it meets."""

    consumers = 1

    @property
    def run(self) -> int:
        """Elements of a run, in whole groups."""
        elements = self.first + self.shape.dw[3] * channel_pitch(self.shape)
        return -(-elements // RUN_STEP) * RUN_STEP

    @property
    def first(self) -> int:
        """Elements of a run before its first tap: it begins at whole 16 bytes of a row of X."""
        return self.shape.windows[1].pre * channel_pitch(self.shape) % RUN_STEP

    @property
    def tile_columns(self) -> int:
        return self.shape.dw[2] * self.run

    @property
    def pitch(self) -> int:
        """Bytes of a row of X's tile."""
        return (self.columns - 1) * 16 + self.run * 2

    @property
    def input_rows(self) -> int:
        """Rows of X's tile."""
        window = self.shape.windows[0]
        return (self.rows - 1) * window.stride + window.reach + 1

    @property
    def image_bytes(self) -> int:
        return self.input_rows * self.pitch

    def own_refusal(self) -> str | None:
        if not channel_pitch(self.shape):
            return f"{self.shape.c_group} channels in steps of {self.shape.windows[-1].stride}"
        if self.shape.is_flipped:
            return "a filter that is flipped, of few channels"
        if self.tile_columns > _MOST_COLUMNS:
            return f"a filter of {self.tile_columns} columns"
        if max(self.pitch // 8, self.input_rows) > tma.MAX_BOX:
            return f"tiles of X of {self.input_rows} rows of {self.pitch} bytes"
        return None

    def sums(self, like: Tensor) -> Tensor:
        """The tensor of one part's sums, of dW's dims, in the order of columns."""
        strides = (self.tile_columns, 1, self.run, channel_pitch(self.shape))
        return replace(like, strides=tuple(map(Expr.of, strides)))

    def operands(self, kernel: Kernel) -> list[RingOperand]:
        shape, panels = self.shape, wgmma.Panels(CHUNK, 2, is_k_major=False)
        dy = tma.Box(shape.dy, (1, 3, 2), (CHUNK, self.columns, self.rows))
        n, _, h, w = shape.x.shape
        n_stride, _, h_stride, _ = shape.x.layout
        rows = replace(
            shape.x,
            dims=(n, h, w * channel_pitch(shape) // _WIDE),
            strides=(n_stride // _WIDE, h_stride // _WIDE, Expr.of(1)),
            dtype=dtypes.f64,
        )
        x = tma.Box(rows, (2, 1), (self.pitch // 8, self.input_rows), is_swizzled=False)
        return [
            RingOperand(kernel, [box], [0], panels, is_rows)
            for box, is_rows in ((dy, True), (x, False))
        ]

    def x_place(self, image: Any, channel: Any, row: Any, column: Any) -> list[Any]:
        rows, columns = self.shape.windows
        down = row * rows.stride + rows.lower
        pitch = channel_pitch(self.shape)
        before = columns.pre * pitch + self.first
        across = column * (columns.stride * pitch // _WIDE)
        return [image, down, across - before // _WIDE]


@dataclass
class WgradStemLoop(PixelLoop):
    """The main loop; its products are those of each row of the filter."""

    def multiply_slot(
        self, slot: Any, is_added: Any, own: Any, sums: Any, between: Callable[[int], None]
    ) -> Any:
        tile: Any = self.tile
        window, pitch = tile.shape.windows[0], tile.pitch
        x = slot + tile.image_offset
        gradient = wgmma.descriptor(slot, self.operands[0].panels)
        inside = wgmma.descriptor_of(x, GROUP * 16, 16, 16)
        to_next_row = pitch * window.stride - (tile.columns - GROUP) * 16
        over_end = wgmma.descriptor_of(x, to_next_row, 16, 16)
        for first in range(0, tile.rows * tile.columns, STEP):
            row, column = divmod(first, tile.columns)
            met = inside if column + GROUP < tile.columns else over_end
            for tap in range(window.taps):
                place = (row * window.stride + tap * window.dilation) * pitch + column * 16
                made = wgmma.multiply(
                    self.row,
                    tile.run,
                    wgmma.moved(gradient, first * wgmma.ROW_BYTES),
                    wgmma.moved(met, place),
                    wgmma.columns_of(self.row, sums, tap * tile.run, tile.run),
                    1 if first else is_added,
                    a_k_major=False,
                    b_k_major=False,
                )
                sums = wgmma.with_columns(sums, tap * tile.run, made)
            between(first // STEP)
        return sums

    def finished(self, sums: Any, lane: Any) -> Any:
        """Zeros where a run has no channel of a tap: X's copy has nothing there."""
        tile: Any = self.tile
        shape: WgradShape = tile.shape
        pitch, per_tap, first = channel_pitch(shape), shape.c_group, tile.first
        registers, layout = wgmma.unpacked(sums), wgmma.AccumulatorLayout(shape.dw[2] * self.run)
        _, right = layout.origin(lane)
        for place, value in enumerate(registers):
            column = right + layout.step(place)[1] % self.run  # of a row's
            channel = column % pitch
            is_there = ops.both(channel < per_tap, column < first + shape.dw[3] * pitch)
            registers[place] = ops.select(is_there, value, ops.zeros(value.type))
        return wgmma.packed(sums.type, registers)

    @property
    def run(self) -> int:
        return self.tile.tile_columns // self.tile.shape.dw[2]


@dataclass(frozen=True)
class StemSpace(WholeSpace):
    """Rows are output channels, columns those of the sums: a channel's place is a column's."""

    shape: WgradShape
    part_of: Any

    def at(self, batch: Batch, row: Coordinate, column: Coordinate) -> list[Coordinate]:
        first = self.part_of(batch) * self.shape.dw[0]
        return [idx.add(Index.of(first), row.index()), column, Index.of(0), Index.of(0)]

    def box(self, tensor: Tensor, columns: int, rows: int) -> tma.Box:
        raise AssertionError("sums leave registers directly")

    def corner(self, box: tma.Box, batch: Batch, row: Any, column: Any) -> list[Any]:
        raise AssertionError("sums leave registers directly")
