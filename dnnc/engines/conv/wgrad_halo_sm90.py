# pyright: basic
"""A 3x3 filter's gradient whose pixels of X come once for all taps.

A stage has a tile of dY's image, some rows and columns of it, and what its taps meet of X, with the
halo around it, 64 channels of each.  A warpgroup has the taps of one row of the filter.  Its
instruction takes three of them, side by side: B's panels of 64 columns are the same pixels of X,
each a tap further on.  Positions of dY follow each other along k, 16 an instruction, in two runs of
eight that lie in one row of the image, or one at its end and one at the next one's begin:

    k   dY (r, c) .. (r, c + 7)    X (r + tap row, c + tap column) ..
        the next eight positions   8 pixels further on, or in the next row of X's tile: SBO says

So every position is a pixel of dY, and all its taps are met: nothing is multiplied that is no part
of the gradient, which an infinite element would show.  The sums stay in registers for all tiles of
a part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.hopper import mbarrier, tma, wgmma
from ...codegen.hopper.pipeline import Cursor, Pipeline
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.tiles.schedule import TilePlace
from ...expr import Expr
from ..product.shared_layout_sm90 import aligned
from .operands_sm90 import RingOperand
from .wgrad import CHUNK, WgradShape

TAPS = 3  # of a side of the filter
CONSUMERS = TAPS  # warpgroups: one for each row of the filter
COLUMNS = TAPS * TAPS * CHUNK  # of the tile
_GROUP = 8  # positions that lie in one row
_STEP = 2 * _GROUP  # of an instruction
_MAX_PIXELS = tma.MAX_BOX


@dataclass(frozen=True, eq=False)
class WgradHalo:
    """A tile of dY's image.  rows, columns: of it."""

    shape: WgradShape
    rows: int
    columns: int

    @staticmethod
    def of(shape: WgradShape, rows: int, columns: int) -> WgradHalo:
        """columns: 0: all of an image, whose width is fixed."""
        return WgradHalo(shape, rows, columns or shape.dy.shape[3].constant or 0)

    @property
    def pitch(self) -> int:
        """Pixels of a row of X's tile."""
        return self.columns + self.shape.windows[1].reach

    @property
    def input_rows(self) -> int:
        """Rows of X's tile."""
        return self.rows + self.shape.windows[0].reach

    @property
    def gradient_bytes(self) -> int:
        """Bytes of dY's tile."""
        return self.rows * self.columns * wgmma.ROW_BYTES

    @property
    def image_bytes(self) -> int:
        """Bytes of X's tile."""
        return self.input_rows * self.pitch * wgmma.ROW_BYTES

    @property
    def image_offset(self) -> int:
        """The offset of X's tile in a slot."""
        return aligned(self.gradient_bytes)

    @property
    def slot_bytes(self) -> int:
        return self.image_offset + aligned(self.image_bytes)

    @property
    def across(self) -> Expr:
        """Tiles beside each other in an image."""
        return self.shape.dy.shape[3] // self.columns

    @property
    def per_image(self) -> Expr:
        return self.shape.dy.shape[2] // self.rows * self.across

    @property
    def tiles(self) -> Expr:
        """Tiles of all images."""
        return self.shape.dy.shape[0] * self.per_image

    def refusal(self) -> str | None:
        """Why the gradient has no such tiles."""
        shape, y = self.shape, self.shape.dy.shape
        if shape.dw[2:] != (TAPS, TAPS) or any(window.stride != 1 for window in shape.windows):
            return "a filter that is not 3x3 of stride 1"
        if not shape.is_whole:
            return f"{shape.c_group} channels"
        if not self.columns or self.columns % _GROUP or self.rows * self.columns % _STEP:
            return f"tiles of {self.rows}x{self.columns} pixels"
        if y[2].known_divisor() % self.rows or y[3].known_divisor() % self.columns:
            return f"tiles of {self.rows}x{self.columns} pixels in images of {y[2]}x{y[3]}"
        if max(self.pitch, self.input_rows) > _MAX_PIXELS:
            return f"tiles of X of {self.input_rows}x{self.pitch} pixels"
        for tensor in (shape.x, shape.dy):
            if (what := tma.refusal(tensor, (1, 3, 2))) is not None:
                return f"{tensor.label} with {what}"
        return None


def halo_operands(kernel: Kernel, halo: WgradHalo) -> list[RingOperand]:
    """dY and X: tiles of 64 channels."""
    shape, panels = halo.shape, wgmma.Panels(CHUNK, 2, is_k_major=False)
    sizes = ((shape.dy, halo.columns, halo.rows), (shape.x, halo.pitch, halo.input_rows))
    boxes = [tma.Box(tensor, (1, 3, 2), (CHUNK, columns, rows)) for tensor, columns, rows in sizes]
    return [
        RingOperand(kernel, [box], [0], panels, is_rows)
        for box, is_rows in zip(boxes, (True, False), strict=True)
    ]


@dataclass
class WgradHaloLoop:
    """The main loop, see the file's docstring.

    ring: of slots.  first_tile: of a part, by the batch's coordinates.  steps: tiles of a part.
    """

    kernel: Kernel
    halo: WgradHalo
    operands: Sequence[RingOperand]
    row: wgmma.Instruction
    pixels: Pipeline
    part_of: Any
    group_of: Any
    steps: Expr

    def start(self) -> list[Any]:
        """The place in the ring."""
        return list(Cursor().values)

    def start_loads(self) -> list[Any]:
        return self.start()

    def begin(self, thread: Any, threads: int) -> None:
        """By all consumers: nothing to do."""

    def load_tile(self, place: TilePlace, carried: Sequence[Any]) -> Sequence[Any]:
        """By one thread of the producer."""
        halo, kernel, shape = self.halo, self.kernel, self.halo.shape
        first = ops.mul(self.part_of(place.batch), kernel.size(self.steps))
        group = self.group_of(place.batch)
        filters = ops.add(ops.mul(group, shape.k_group), place.row)
        chunk = ops.mul(ops.div(place.column, COLUMNS), CHUNK)
        channel = ops.add(ops.mul(group, shape.c_group), chunk)
        windows = shape.windows

        def step(i: Any, carried: Sequence[Any]) -> Sequence[Any]:
            cursor = Cursor(*carried)
            number = ops.add(first, i)
            image = kernel.divide(number, halo.per_image)
            inside = kernel.remainder(number, halo.per_image, image)
            down = kernel.divide(inside, halo.across)
            beside = kernel.remainder(inside, halo.across, down)
            row, column = ops.mul(down, halo.rows), ops.mul(beside, halo.columns)
            self.pixels.wait_empty(cursor)
            barrier, slot = self.pixels.full_barrier(cursor), self.pixels.slot(cursor)
            mbarrier.expect(barrier, halo.gradient_bytes + halo.image_bytes)
            gradient, x = self.operands
            gradient.start(0, slot, [image, filters, row, column], barrier)
            met = [ops.add(a, w.lower) for a, w in zip((row, column), windows, strict=True)]
            x_slot = smem.byte_pointer(slot, halo.image_offset)
            x.start(0, x_slot, [image, channel, *met], barrier)
            return cursor.next(self.pixels.stages).values

        return ops.for_(place.first_step, place.end_step, 1, carried, step)

    def multiply(
        self, carried: Sequence[Any], place: TilePlace, own: Any, lane: Any,
        sums: Sequence[Any], start_products: Any,
    ) -> tuple[list[Any], list[Any]]:  # fmt: skip
        """(carried, sums) after the tiles of a part; own: the warpgroup."""

        def step(i: Any, carried: Sequence[Any]) -> Sequence[Any]:
            cursor, previous, *sums = Cursor(*carried[:2]), *carried[2:]
            self.pixels.wait_full(cursor)
            wgmma.fence()
            sums = [self._multiply(self.pixels.address(cursor), i, own, sums[0])]
            wgmma.commit()
            wgmma.wait(1)
            with ops.if_(ops.compare("sge", previous, 0)):
                self.pixels.release(Cursor(previous), lane)
            following = cursor.next(self.pixels.stages)
            return [*following.values, ops.value_of(cursor.stage), *sums]

        start = [*carried, ops.const(-1), *sums]
        stage, phase, last, *sums = ops.for_(0, place.steps, 1, start, step)
        sums = wgmma.wait_for(sums)
        self.pixels.release(Cursor(last), lane)
        return [stage, phase], sums

    def _multiply(self, slot: Any, is_added: Any, own: Any, sums: Any) -> Any:
        """Starts the products of a slot, at an address; is_added: 0 where they are the first."""
        halo, windows = self.halo, self.halo.shape.windows
        down = ops.mul(own, windows[0].dilation * halo.pitch * wgmma.ROW_BYTES)
        x = ops.add(ops.add(slot, halo.image_offset), down)
        apart = windows[1].dilation * wgmma.ROW_BYTES  # from a tap to the next
        gap = (halo.pitch - halo.columns) * wgmma.ROW_BYTES  # at the end of a row
        groups = _GROUP * wgmma.ROW_BYTES
        gradient = wgmma.descriptor(slot, self.operands[0].panels)
        inside = wgmma.descriptor_of(x, apart, groups)
        over_end = wgmma.descriptor_of(x, apart, groups + gap)
        for first in range(0, halo.rows * halo.columns, _STEP):
            row, column = divmod(first, halo.columns)
            met = inside if column + _GROUP < halo.columns else over_end
            sums = wgmma.multiply(
                self.row,
                TAPS * CHUNK,
                wgmma.moved(gradient, first * wgmma.ROW_BYTES),
                wgmma.moved(met, (row * halo.pitch + column) * wgmma.ROW_BYTES),
                sums,
                1 if first else is_added,
                a_k_major=False,
                b_k_major=False,
            )
        return sums
