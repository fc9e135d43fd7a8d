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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...codegen import ops
from ...codegen.hopper import mbarrier, tma, wgmma
from ...codegen.hopper.pipeline import Cursor, Pipeline
from ...codegen.hopper.widened_rows import SOURCE_BYTES, WidenedRows
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.state import loop
from ...codegen.tiles.schedule import TilePlace
from ...expr import Expr
from ..product.shared_layout_sm90 import aligned
from .loss_sums_sm90 import LossSums
from .operands_sm90 import RingOperand
from .wgrad import CHUNK, WgradShape
from .wgrad_rewriting_sm90 import Making, OperandRewriter

TAPS = 3  # of a side of the filter
GROUP = 8  # positions that lie in one row
STEP = 2 * GROUP  # of an instruction


@dataclass(frozen=True, eq=False)
class PixelTile:
    """A tile of dY's image, and what its taps meet of X.

    rows, columns: of dY.  consumers: warpgroups that multiply.
    """

    shape: WgradShape
    rows: int
    columns: int

    consumers: ClassVar[int]

    @property
    def tile_columns(self) -> int:
        """Columns of the product's tile."""
        raise NotImplementedError

    @property
    def image_bytes(self) -> int:
        """Bytes of X's tile."""
        raise NotImplementedError

    def own_refusal(self) -> str | None:
        """Why the form does not take the gradient."""
        raise NotImplementedError

    def operands(self, kernel: Kernel) -> list[RingOperand]:
        """dY and X, of 64 output channels and what the form has of X's."""
        raise NotImplementedError

    def x_place(self, image: Any, channel: Any, row: Any, column: Any) -> list[Any]:
        """The coordinates of X's tile; row, column: of dY's image where the tile begins."""
        raise NotImplementedError

    @property
    def gradient_bytes(self) -> int:
        """Bytes of dY's tile."""
        return self.rows * self.columns * wgmma.ROW_BYTES

    @property
    def image_offset(self) -> int:
        """The offset of X's tile in a slot."""
        return aligned(self.gradient_bytes)

    @property
    def widened(self) -> list[Making]:
        """How what comes as bytes is widened: dY, then X, whose bytes lie behind both tiles."""
        ends = (
            (self.shape.dy, self.gradient_bytes, 0),
            (self.shape.x, self.image_bytes, self.image_offset),
        )
        place, found = self._tile_bytes, list[Making]()
        for tensor, bytes_, target in ends:
            if tensor.type.is_fp8:
                how = WidenedRows(bytes_ // wgmma.ROW_BYTES, tensor.type.name)
                found.append(Making(how, place, target))
                place += aligned(how.rows * SOURCE_BYTES)
        return found

    @property
    def _tile_bytes(self) -> int:
        return self.image_offset + aligned(self.image_bytes)

    def loads(self) -> list[tuple[int, int]]:
        """(offset in a slot, bytes) of what comes of dY and of X."""
        sources = {making.target: making.source for making in self.widened}
        ends = ((self.gradient_bytes, 0), (self.image_bytes, self.image_offset))
        return [
            (sources[offset], bytes_ // 2) if offset in sources else (offset, bytes_)
            for bytes_, offset in ends
        ]

    @property
    def slot_bytes(self) -> int:
        bytes_ = (aligned(making.how.rows * SOURCE_BYTES) for making in self.widened)
        return self._tile_bytes + sum(bytes_)

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

    def corner(self, kernel: Kernel, number: Any) -> tuple[Any, Any, Any]:
        """(image, row, column of dY) where a tile begins; number: counted through all images."""
        image = kernel.divide(number, self.per_image)
        inside = kernel.remainder(number, self.per_image, image)
        down = kernel.divide(inside, self.across)
        beside = kernel.remainder(inside, self.across, down)
        return image, down * self.rows, beside * self.columns

    def refusal(self) -> str | None:
        """Why the gradient has no such tiles."""
        if (what := self.own_refusal()) is not None:
            return what
        y = self.shape.dy.shape
        if not self.columns or self.columns % GROUP or self.rows * self.columns % STEP:
            return f"tiles of {self.rows}x{self.columns} pixels"
        if y[2].known_divisor() % self.rows or y[3].known_divisor() % self.columns:
            return f"tiles of {self.rows}x{self.columns} pixels in images of {y[2]}x{y[3]}"
        if max(self.rows, self.columns) > tma.MAX_BOX:
            return f"tiles of {self.rows}x{self.columns} pixels"
        return tma.refusal(self.shape.dy, (1, 3, 2))


@dataclass(frozen=True, eq=False)
class WgradHalo(PixelTile):
    """A tile of dY's image, and the pixels of X with the halo around them, of 64 channels."""

    consumers = TAPS  # one for each row of the filter

    @property
    def tile_columns(self) -> int:
        return TAPS * TAPS * CHUNK

    @property
    def pitch(self) -> int:
        """Pixels of a row of X's tile."""
        return self.columns + self.shape.windows[1].reach

    @property
    def input_rows(self) -> int:
        """Rows of X's tile."""
        return self.rows + self.shape.windows[0].reach

    @property
    def image_bytes(self) -> int:
        return self.input_rows * self.pitch * wgmma.ROW_BYTES

    def own_refusal(self) -> str | None:
        shape = self.shape
        if shape.dw[2:] != (TAPS, TAPS) or any(window.stride != 1 for window in shape.windows):
            return "a filter that is not 3x3 of stride 1"
        if shape.c_group % CHUNK:
            return f"{shape.c_group} channels"
        if max(self.pitch, self.input_rows) > tma.MAX_BOX:
            return f"tiles of X of {self.input_rows}x{self.pitch} pixels"
        return tma.refusal(shape.x, (1, 3, 2))

    def operands(self, kernel: Kernel) -> list[RingOperand]:
        shape, panels = self.shape, wgmma.Panels(CHUNK, 2, is_k_major=False)
        sizes = ((shape.dy, self.columns, self.rows), (shape.x, self.pitch, self.input_rows))
        boxes = [
            tma.Box(tensor, (1, 3, 2), (CHUNK, columns, rows)) for tensor, columns, rows in sizes
        ]
        return [
            RingOperand(kernel, [box], [0], panels, is_rows)
            for box, is_rows in zip(boxes, (True, False), strict=True)
        ]

    def x_place(self, image: Any, channel: Any, row: Any, column: Any) -> list[Any]:
        rows, columns = self.shape.windows
        return [image, channel, row + rows.lower, column + columns.lower]


@dataclass(frozen=True)
class Mainloop:
    """here: the slot that comes.  previous: the one whose products still run, or -1.  row_sums: of
    dY; empty: nobody needs them."""

    here: Cursor
    previous: Any
    products: Any
    row_sums: list[Any]


@dataclass
class PixelLoop:
    """The main loop over the tiles of a part, whose pixels are positions of k.

    pixels: the ring of slots.  part_of, group_of: of a batch's coordinates.  steps: tiles of a
    part.  row_sums: of dY; None: nobody needs them.  rewriter: of what is made of
    what comes.
    """

    kernel: Kernel
    tile: PixelTile
    operands: Sequence[RingOperand]
    row: wgmma.Instruction
    pixels: Pipeline
    part_of: Any
    group_of: Any
    steps: Expr
    row_sums: LossSums | None = None
    rewriter: OperandRewriter | None = None

    def start(self) -> Cursor:
        """The place in the ring."""
        return Cursor()

    def start_loads(self) -> Cursor:
        return self.start()

    def begin(self, thread: Any, threads: int) -> None:
        """Does nothing; all consumers call it."""

    # ---- the producer

    def load_tile(self, place: TilePlace, now: Cursor) -> Cursor:
        """Loads a tile, by one thread of the producer."""
        tile, kernel, shape = self.tile, self.kernel, self.tile.shape
        first = self.part_of(place.batch) * kernel.size(self.steps)
        group = self.group_of(place.batch)
        filters = group * shape.k_group + place.row
        channel = group * shape.c_group + place.column // tile.tile_columns * CHUNK

        @loop(place.first_step, place.end_step, state=now)
        def end(i: Any, here: Cursor) -> Cursor:
            image, row, column = tile.corner(kernel, first + i)
            self.pixels.wait_empty(here)
            barrier, slot = self._loads_barrier(here), self.pixels.slot(here)
            (dy_offset, dy_bytes), (x_offset, x_bytes) = tile.loads()
            mbarrier.expect(barrier, dy_bytes + x_bytes)
            gradient, x = self.operands
            dy_place = smem.byte_pointer(slot, dy_offset) if dy_offset else slot
            gradient.start(0, dy_place, [image, filters, row, column], barrier)
            there = tile.x_place(image, channel, row, column)
            x.start(0, smem.byte_pointer(slot, x_offset), there, barrier)
            return here.next(self.pixels.stages)

        return end

    def _loads_barrier(self, here: Cursor) -> Any:
        """The barrier that a slot's loads arrive at."""
        return self.rewriter.barrier(here) if self.rewriter else self.pixels.full_barrier(here)

    # ---- the consumers

    def multiply(
        self, here: Cursor, place: TilePlace, own: Any, lane: Any,
        sums: Sequence[Any], start_products: Any,
    ) -> tuple[Cursor, list[Any]]:  # fmt: skip
        """(place in the ring, sums) after the tiles of a part; own: the warpgroup."""
        rows = self.row_sums
        (products,) = sums

        @loop(0, place.steps, state=Mainloop(here, -1, products, rows.start() if rows else []))
        def end(i: Any, now: Mainloop) -> Mainloop:
            self.pixels.wait_full(now.here)
            wgmma.fence()
            slot = self.pixels.address(now.here)
            row_sums = now.row_sums

            def between(number: int) -> None:
                nonlocal row_sums
                if rows and rows.is_alone:
                    row_sums = rows.with_round(row_sums, slot, number)

            products = self.multiply_slot(slot, i, own, now.products, between)
            wgmma.commit()
            if rows and not rows.is_alone:
                row_sums = rows.added(row_sums, place, i, slot)
            wgmma.wait(1)
            with ops.if_(now.previous >= 0):
                self.pixels.release(Cursor(now.previous), lane)
            following = now.here.next(self.pixels.stages)
            return Mainloop(following, now.here.stage, products, row_sums)

        sums = [self.finished(each, lane) for each in wgmma.wait_for([end.products])]
        self.pixels.release(Cursor(end.previous), lane)
        if rows:
            rows.store(end.row_sums, place)
        return end.here, sums

    def finished(self, sums: Any, lane: Any) -> Any:
        """The sums that are left, of a tile's."""
        return sums

    def multiply_slot(
        self, slot: Any, is_added: Any, own: Any, sums: Any, between: Callable[[int], None]
    ) -> Any:
        """Starts the products of a slot, at an address; is_added: 0 where they are the first.

        between(n): other work, after the products of the n-th `STEP` positions are started, which
        wait for those before.
        """
        raise NotImplementedError


@dataclass
class WgradHaloLoop(PixelLoop):
    """See the file's docstring."""

    def multiply_slot(
        self, slot: Any, is_added: Any, own: Any, sums: Any, between: Callable[[int], None]
    ) -> Any:
        halo: Any = self.tile
        windows = halo.shape.windows
        down = own * (windows[0].dilation * halo.pitch * wgmma.ROW_BYTES)
        x = slot + halo.image_offset + down
        apart = windows[1].dilation * wgmma.ROW_BYTES  # from a tap to the next
        gap = (halo.pitch - halo.columns) * wgmma.ROW_BYTES  # at the end of a row
        groups = GROUP * wgmma.ROW_BYTES
        gradient = wgmma.descriptor(slot, self.operands[0].panels)
        inside = wgmma.descriptor_of(x, apart, groups)
        over_end = wgmma.descriptor_of(x, apart, groups + gap)
        for first in range(0, halo.rows * halo.columns, STEP):
            row, column = divmod(first, halo.columns)
            met = inside if column + GROUP < halo.columns else over_end
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
            between(first // STEP)
        return sums
