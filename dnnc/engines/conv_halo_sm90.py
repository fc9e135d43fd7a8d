# pyright: basic
"""The main loop of a convolution whose pixels come with their halo: see `conv_halo`.

    producer   for each panel of channels, and of a volume for each tap of depth: load the tile's
               pixels; for each tap of an image: load its filter
    consumers  for each of these: wait for the pixels; for each tap: wait for its filter, multiply
               from where the tap meets the pixels on; release the filter before, and after the
               last tap the pixels

Filters and pixels have a ring each.  Where all filters fit at once they are loaded for a block's
first tile, and stay.  Output channels lie along the instruction's rows, positions along its
columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..codegen import index as idx
from ..codegen import mbarrier, ops, tma, wgmma
from ..codegen.index import Coordinate, Index
from ..codegen.kernel import Kernel
from ..codegen.pipeline import Cursor, Pipeline
from ..codegen.schedule import TilePlace
from ..dialect.tensor import Tensor
from ..expr import Expr, ceildiv
from .conv import ConvShape
from .conv_halo import Halo, loaded_axes, stored_view
from .conv_operands_sm90 import GROUP, RingOperand, element_of, group_of
from .exits import SpaceAxes
from .matrices_sm90 import Batch, Rewriter


def halo_operand(
    kernel: Kernel, shape: ConvShape, halo: Halo, row: wgmma.Instruction, *, is_raw: bool
) -> RingOperand:
    """X: tiles of pixels with their halo, of a panel of channels.

    is_raw: whether X is computed from them.
    """
    panels = wgmma.Panels(halo.positions, row.element_bytes, row_bytes=halo.row_bytes)
    extents = (panels.k, halo.pitch, halo.input_rows)
    element = "" if is_raw else element_of(shape.x)
    box = tma.Box(shape.x, loaded_axes(shape.x), extents, element)
    return RingOperand(kernel, box, panels, is_rows=False)


@dataclass
class HaloSpace:
    """Rows are the channels of a group; columns the positions of tiles, counted through.

    dims: of Y.
    """

    kernel: Kernel
    dims: tuple[Expr, ...]
    groups: int
    halo: Halo

    @property
    def axes(self) -> SpaceAxes:
        return SpaceAxes((1,), (0, *range(2, len(self.dims))), {GROUP: 1})

    def is_row(self, row: Any) -> Any:
        return None

    def mask(self, first_column: Any, offset: Any, width: int) -> Any:
        """Positions past a row's end, or past the image's last row, are no pixels."""
        _, first = self.start(first_column)
        rows = ops.sub(self.kernel.size(self.dims[-2]), first)
        found = []
        for i in range(width):
            position = ops.add(offset, i)
            down = ops.div(position, self.halo.pitch)
            across = ops.sub(position, ops.mul(down, self.halo.pitch))
            is_pixel = ops.less(down, ops.minimum(rows, self.halo.rows))
            found.append(ops.both(is_pixel, ops.less(across, self.halo.columns)))
        return ops.from_elements(found)

    @property
    def _tiles_of_image(self) -> Expr:
        return ceildiv(self.dims[-2], self.halo.tile_rows)

    def start(self, column: Any) -> tuple[Any, Any]:
        """(image, row of Y's image) where the part of a tile begins that a column lies in; images
        of volumes are counted through."""
        halo = self.halo
        part = ops.div(column, halo.positions)
        tile = ops.div(part, halo.parts)
        image = self.kernel.divide(tile, self._tiles_of_image)
        inside = self.kernel.remainder(tile, self._tiles_of_image, image)
        own = ops.sub(part, ops.mul(tile, halo.parts))
        row = ops.add(ops.mul(inside, halo.tile_rows), ops.mul(own, halo.rows))
        return image, row

    def at(self, batch: Batch, row: Coordinate, column: Coordinate) -> list[Coordinate]:
        channel = row.index()
        if self.groups > 1:
            k_group = self.dims[1].constant
            assert k_group is not None, "channels are a fixed size"
            first = idx.scale(Index.of(group_of(batch)), k_group // self.groups)
            channel = idx.add(first, channel)
        first, *rest = self._place(column.index())
        return [first, channel, *rest]

    def outer(self, image: Any) -> list[Any]:
        """The coordinates of an image along what is not its rows and columns."""
        if len(self.dims) == 4:
            return [image]
        volume = self.kernel.divide(image, self.dims[2])
        return [volume, self.kernel.remainder(image, self.dims[2], volume)]

    def _place(self, column: Index) -> list[Index]:
        """Where a pixel lies, without its channel; of what is none, where one does."""
        if column.is_uniform:
            return self._pixel(column.base)
        lanes = [self._pixel(column.element(i)) for i in range(2)]
        return [Index(lanes=tuple(i.base for i in both)) for both in zip(*lanes, strict=True)]

    def _pixel(self, column: Any) -> list[Index]:
        image, first = self.start(column)
        position = ops.rem(column, self.halo.positions)
        down = ops.div(position, self.halo.pitch)
        across = ops.sub(position, ops.mul(down, self.halo.pitch))
        last = ops.sub(self.kernel.size(self.dims[-2]), 1)
        row = ops.minimum(ops.add(first, down), last)
        at = [*self.outer(image), row, ops.minimum(across, self.halo.columns - 1)]
        return list(map(Index.of, at))

    def box(self, tensor: Tensor, columns: int, rows: int) -> tma.Box:
        extents = (rows, self.halo.pitch, self.halo.rows)
        return tma.Box(*stored_view(tensor, self.groups), extents)

    def corner(self, box: tma.Box, batch: Batch, row: Any, column: Any) -> list[Any]:
        image, first = self.start(column)
        at = [image, group_of(batch), row, first, 0]
        if len(self.dims) == 5:
            volume, depth = self.outer(image)
            at = [volume, row, depth, first, 0]
        return tma.place(box, list(map(Index, at)))


@dataclass
class HaloLoop:
    """See the file's docstring.

    filters: their ring.  pixels: theirs.  stays: whether filters do.  rewriter: of pixels that are
    computed.
    """

    halo: Halo
    space: HaloSpace
    shape: ConvShape
    operands: Sequence[Any]
    filters: Pipeline
    pixels: Pipeline
    stays: bool
    rewriter: Rewriter | None = None

    @property
    def taps(self) -> int:
        return self.halo.taps

    def start(self) -> list[Any]:
        """What a loop over tiles carries: the places in both rings."""
        return [*Cursor().values, *Cursor().values]

    # ---- the producer

    def start_loads(self) -> list[Any]:
        """What its loop carries: the places, and whether this is the block's first tile."""
        return [*self.start(), ops.const(1)]

    def load_tile(self, place: TilePlace, carried: Sequence[Any]) -> Sequence[Any]:
        """By one thread; carried: of `start_loads`."""
        filter_, pixel = self.operands
        image, row = self.space.start(place.column)
        panel_k = filter_.panels.k
        *carried, is_first = carried

        def step(i: Any, carried: Sequence[Any]) -> Sequence[Any]:
            filters, pixels = Cursor(*carried[:2]), Cursor(*carried[2:])
            number = ops.div(i, self.taps)  # of a tile of pixels
            tap = ops.sub(i, ops.mul(number, self.taps))
            panel = ops.div(number, self.halo.images)
            above = ops.sub(number, ops.mul(panel, self.halo.images))
            begins = ops.compare("eq", tap, 0)
            with ops.if_(begins):
                self.pixels.wait_empty(pixels)
                barrier = self._arrival(pixels)
                mbarrier.expect(barrier, self.halo.load_bytes)
                slot = self.pixels.slot(pixels)
                pixel.start(slot, self._corner(image, row, place.batch, panel, above), barrier)
            pixels = _advanced(pixels, self.pixels.stages, begins)
            tap = ops.add(ops.mul(above, self.taps), tap)
            k = ops.add(ops.mul(tap, self.shape.padded_channels(panel_k)), ops.mul(panel, panel_k))
            here = Cursor(i, 0) if self.stays else filters
            with ops.if_(ops.compare("ne", is_first, 0) if self.stays else None):
                if not self.stays:
                    self.filters.wait_empty(here)
                barrier = self.filters.full_barrier(here)
                mbarrier.expect(barrier, filter_.bytes)
                filter_.load(self.filters.slot(here), place.batch, place.row, k, barrier, 0)
            if not self.stays:
                filters = filters.next(self.filters.stages)
            return [*filters.values, *pixels.values]

        carried = ops.for_(place.first_step, place.end_step, 1, carried, step)
        return [*carried, ops.const(0)]

    def _arrival(self, pixels: Cursor) -> Any:
        """The barrier that a tile's bytes arrive at."""
        if self.rewriter:
            return self.rewriter.barrier(pixels)
        return self.pixels.full_barrier(pixels)

    def _corner(self, image: Any, row: Any, batch: Batch, panel: Any, above: Any) -> list[Any]:
        """Where a tile of X that begins at a row of Y's image has its first pixel; above: the tap
        of depth that it is for."""
        channels = ops.mul(panel, self.operands[1].panels.k)
        channel = ops.add(channels, ops.mul(group_of(batch), self.shape.c_group))
        height, width = self.halo.windows
        first, *depths = self.space.outer(image)
        if self.halo.depth:
            window = self.halo.depth
            start = ops.add(ops.mul(depths[0], window.stride), window.lower)
            depths = [ops.add(start, ops.mul(above, window.dilation))]
        return [first, channel, *depths, ops.add(row, height.lower), width.lower]

    # ---- the consumers

    def begin(self, thread: Any, threads: int) -> None:
        """By all consumers: nothing to do."""

    def multiply(
        self, carried: Sequence[Any], place: TilePlace, own: Any, lane: Any,
        sums: Sequence[Any], start_products: Any,
    ) -> tuple[list[Any], list[Any]]:  # fmt: skip
        """(carried, sums) after a tile; own: the warpgroup; sums: not read by the first products.

        start_products(descriptors, whether sums are added to, sums) starts those of a stage.
        """
        nothing = ops.const(-1)

        def step(i: Any, carried: Sequence[Any]) -> Sequence[Any]:
            filters, pixels = Cursor(*carried[:2]), Cursor(*carried[2:4])
            last_filter, last_pixels, *sums = carried[4:]
            here = Cursor(i, 0) if self.stays else filters
            tap = ops.rem(i, self.taps)
            self.pixels.wait_full(pixels)
            self.filters.wait_full(here)
            sums = start_products(self._descriptors(here, pixels, tap, own), i, sums)
            wgmma.wait(1)
            if not self.stays:
                with ops.if_(ops.compare("sge", last_filter, 0)):
                    self.filters.release(Cursor(last_filter), lane)
            begins = ops.compare("eq", tap, 0)
            with ops.if_(ops.both(begins, ops.compare("sge", last_pixels, 0))):
                self.pixels.release(Cursor(last_pixels), lane)
            ends = ops.compare("eq", tap, self.taps - 1)
            following = filters if self.stays else filters.next(self.filters.stages)
            after = _advanced(pixels, self.pixels.stages, ends)
            slots = [ops.value_of(filters.stage), ops.value_of(pixels.stage)]
            return [*following.values, *after.values, *slots, *sums]

        start = [*carried, nothing, nothing, *sums]
        *carried, last_filter, last_pixels = (found := ops.for_(0, place.steps, 1, start, step))[:6]
        sums = wgmma.wait_for(found[6:])
        if not self.stays:
            self.filters.release(Cursor(last_filter), lane)
        self.pixels.release(Cursor(last_pixels), lane)
        return list(carried), sums

    def _descriptors(self, filters: Cursor, pixels: Cursor, tap: Any, own: Any) -> list[Any]:
        """Of a tap's filter, and of the pixels from where it meets a part's first one on."""
        filter_, pixel = self.operands
        columns = self.halo.windows[1].taps
        row = ops.div(tap, columns)
        column = ops.sub(tap, ops.mul(row, columns))
        height, width = self.halo.windows
        shift = ops.add(
            ops.mul(row, height.dilation * self.halo.pitch), ops.mul(column, width.dilation)
        )
        if self.halo.parts > 1:
            shift = ops.add(shift, ops.mul(own, self.halo.part_step))
        place = ops.add(self.pixels.address(pixels), ops.mul(shift, self.halo.row_bytes))
        rows = self.filters.address(filters)
        if self.halo.parts == 1:  # each warpgroup has channels of its own
            step = filter_.tile_rows // 2 * self.halo.row_bytes
            rows = ops.add(rows, ops.mul(own, step))
        return [wgmma.descriptor(rows, filter_.panels), wgmma.descriptor(place, pixel.panels)]


def _advanced(cursor: Cursor, stages: int, condition: Any) -> Cursor:
    """The place that follows where a condition holds."""
    following = cursor.next(stages)
    pairs = ((following.stage, cursor.stage), (following.phase, cursor.phase))
    return Cursor(*(ops.select(condition, ops.value_of(a), ops.value_of(b)) for a, b in pairs))
