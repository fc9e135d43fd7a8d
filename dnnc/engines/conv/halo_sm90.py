# pyright: basic
"""The main loop of a convolution whose pixels come with their halo: see `conv.halo`.

    producer   for each panel of channels, of a volume for each tap of depth, and with a stride for
               each phase: load the tile's pixels; for each of their taps: load its filter
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
from functools import partial
from typing import Any

from ...codegen import ops
from ...codegen.hopper import mbarrier, tma, wgmma
from ...codegen.hopper.pipeline import Cursor, Pipeline
from ...codegen.kernel import Kernel
from ...codegen.state import loop
from ...codegen.tiles.schedule import TilePlace
from ...codegen.walk import index as idx
from ...codegen.walk.index import Coordinate, Index
from ...dialect.tensor import Tensor
from ...expr import Expr
from ..product.exits import SpaceAxes
from ..product.matrices_sm90 import Batch, Rewriter, WholeSpace
from .halo import Halo, loaded_axes, stored_view
from .operands_sm90 import RingOperand, element_of, group_of
from .pattern import GROUP, ConvShape

_HALF_BITS = 16  # of a word, more than rows or columns of a tile
_SIGNS = (1 << 15 | 1 << 31) - (1 << 32)  # of both halves, as an i32
_SHARE_BITS = 12  # of 1 / n, so that multiplying by it divides numbers below 64


def halo_operand(
    kernel: Kernel, shape: ConvShape, halo: Halo, row: wgmma.Instruction, *, is_raw: bool
) -> RingOperand:
    """X: tiles of pixels with their halo, of a panel of channels.

    is_raw: whether X is computed from them.
    """
    panels = wgmma.Panels(halo.positions, row.element_bytes, row_bytes=halo.row_bytes)
    element = "" if is_raw else element_of(shape.x)
    boxes, firsts = [], []
    for phase in halo.phases:
        x, first = phase.view(shape.x)
        axes, extents = loaded_axes(x), (panels.k, halo.pitch, halo.input_rows(phase), 1)
        boxes.append(tma.Box(x, axes, extents[: len(axes)], element))
        firsts.append(first)
    return RingOperand(kernel, boxes, firsts, panels, is_rows=False)


@dataclass
class HaloSpace(WholeSpace):
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

    def mask(self, first_column: Any, offset: Any, width: int) -> Any:
        """Positions past a row's end, or past the image's last row, are no pixels."""
        _, *starts = self.start(first_column)
        ends = [
            ops.minimum(self.kernel.size(size) - start, most)
            for size, start, most in zip(
                self.dims[-2:], starts, (self.halo.rows, self.halo.columns), strict=True
            )
        ]
        # Rows lie in the upper half of a word, columns in the lower one: one register beside the
        # sums, from which a place is taken.  Of either half, the sign says that it is too far.
        last = ((ends[0] - 1) << _HALF_BITS) + (ends[1] - 1)
        found = []
        for i in range(width):
            position = offset + i
            down = position // self.halo.pitch
            place = position + down * ((1 << _HALF_BITS) - self.halo.pitch)
            signs = (last - place) & _SIGNS
            found.append(signs.eq(0))
        return ops.from_elements(found)

    def start(self, column: Any) -> tuple[Any, Any, Any]:
        """(image, row, column of Y's image) where the part of a tile begins that a column of the
        product lies in; images of volumes are counted through."""
        halo = self.halo
        part = column // halo.positions
        tile = part // halo.parts
        per_image, across = halo.tiles_of_image(self.dims), halo.across(self.dims[-1])
        image = self.kernel.divide(tile, per_image)
        inside = self.kernel.remainder(tile, per_image, image)
        down = self.kernel.divide(inside, across)
        beside = self.kernel.remainder(inside, across, down)
        own = part - tile * halo.parts
        row = down * halo.tile_rows + own * halo.rows
        return image, row, beside * halo.columns

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
        image, *starts = self.start(column)
        position = column % self.halo.positions
        down = position // self.halo.pitch
        across = position - down * self.halo.pitch
        sizes = map(self.kernel.size, self.dims[-2:])
        places = [
            ops.minimum(start + moved, size - 1)
            for start, moved, size in zip(starts, (down, across), sizes, strict=True)
        ]
        return list(map(Index.of, [*self.outer(image), *places]))

    def box(self, tensor: Tensor, columns: int, rows: int) -> tma.Box:
        extents = (rows, self.halo.pitch, self.halo.rows)
        return tma.Box(*stored_view(tensor, self.groups), extents)

    def corner(self, box: tma.Box, batch: Batch, row: Any, column: Any) -> list[Any]:
        image, *starts = self.start(column)
        at = [image, group_of(batch), row, *starts]
        if len(self.dims) == 5:
            volume, depth = self.outer(image)
            at = [volume, row, depth, *starts]
        return tma.place(box, list(map(Index, at)))


@dataclass(frozen=True)
class Slots:
    """Places in the rings of filters and of pixels."""

    filters: Cursor
    pixels: Cursor


@dataclass(frozen=True)
class Mainloop:
    """here: the tap that comes.  last_filter, last_pixels: the slots whose products still run, or
    -1."""

    here: Slots
    last_filter: Any
    last_pixels: Any
    sums: list[Any]


@dataclass
class HaloLoop:
    """See the file's docstring.

    filters: their ring.  pixels: theirs.  stays: whether filters do.  rewriter: of pixels that are
    computed.  panel_steps: as `PixelTiles.steps`.
    """

    halo: Halo
    space: HaloSpace
    shape: ConvShape
    operands: Sequence[Any]
    filters: Pipeline
    pixels: Pipeline
    stays: bool
    rewriter: Rewriter | None = None
    panel_steps: Sequence[int] = ()

    @property
    def taps(self) -> int:
        return self.halo.taps

    def _of_phase(self, tap: Any, values: Sequence[int]) -> Any:
        """The value that belongs to the phase of a tap, which has a number in their order;
        values: of each phase."""
        found: Any = values[0]
        for phase, value in zip(self.halo.phases[1:], values[1:], strict=True):
            if len(set(values)) > 1:
                found = ops.select(tap >= phase.first, value, found)
        return found

    def _place_of(self, tap: Any) -> tuple[Any, Any, Any]:
        """(number, row, column) of a tap among those of its phase."""
        phases = self.halo.phases
        number = tap - self._of_phase(tap, [phase.first for phase in phases])
        counts = [phase.columns.taps for phase in phases]
        if len(set(counts)) == 1:
            row = number // counts[0]
        else:  # a multiplication: counts are below 64
            shares = [-(-(1 << _SHARE_BITS) // count) for count in counts]
            row = (number * self._of_phase(tap, shares)) >> _SHARE_BITS
        column = number - row * self._of_phase(tap, counts)
        return number, row, column

    def _filter_of(self, tap: Any) -> Any:
        """The number in the filter of a tap that has one in the order of phases."""
        phases = self.halo.phases
        if len(phases) == 1:
            return tap
        _, *places = self._place_of(tap)
        across = self.halo.windows[1].taps
        found: Any = self._of_phase(
            tap, [p.rows.first_tap * across + p.columns.first_tap for p in phases]
        )
        # Taps of all phases of an axis are as far from each other.
        steps = (phases[0].rows.tap_step * across, phases[0].columns.tap_step)
        for place, step in zip(places, steps, strict=True):
            found = found + place * step
        return found

    def start(self) -> Slots:
        """The record that a loop over tiles carries first."""
        return Slots(Cursor(), Cursor())

    # ---- the producer

    def start_loads(self) -> tuple[Slots, Any]:
        """The record that its loop carries first: the places, and 1 in the block's first tile."""
        return self.start(), 1

    def load_tile(self, place: TilePlace, now: tuple[Slots, Any]) -> tuple[Slots, Any]:
        """Starts loads, by one thread; now: see `start_loads`."""
        filter_, _ = self.operands
        image, *starts = self.space.start(place.column)
        panel_k = filter_.panels.k
        start, is_first = now

        @loop(place.first_step, place.end_step, state=start)
        def end(i: Any, now: Slots) -> Slots:
            filters, pixels = now.filters, now.pixels
            number = i // self.taps  # of a tile of pixels
            tap = i - number * self.taps
            panel = number // self.halo.images
            above = number - panel * self.halo.images
            begins = self._place_of(tap)[0].eq(0)
            with ops.if_(begins):
                self.pixels.wait_empty(pixels)
                at = [*self._at(image, place.batch, panel, above), *starts]
                for number, phase in enumerate(self.halo.phases):
                    is_own = len(self.halo.phases) > 1
                    with ops.if_(tap.eq(phase.first) if is_own else None):
                        self._load_pixels(number, pixels, at)
            pixels = _advanced(pixels, self.pixels.stages, begins)
            tap = above * self.taps + self._filter_of(tap)
            k = tap * self.shape.padded_channels(panel_k) + panel * panel_k
            here = Cursor(i, 0) if self.stays else filters
            with ops.if_(is_first.ne(0) if self.stays else None):
                if not self.stays:
                    self.filters.wait_empty(here)
                barrier = self.filters.full_barrier(here)
                mbarrier.expect(barrier, filter_.bytes)
                filter_.load(self.filters.slot(here), place.batch, place.row, k, barrier, 0)
            if not self.stays:
                filters = filters.next(self.filters.stages)
            return Slots(filters, pixels)

        return end, 0

    def _load_pixels(self, number: int, pixels: Cursor, at: Sequence[Any]) -> None:
        """Starts the copy of a tile's pixels of a phase; at: see `_at`, and the row and column of
        Y's image where it begins."""
        phase = self.halo.phases[number]
        barrier = self._arrival(pixels)
        mbarrier.expect(barrier, self.halo.load_bytes(phase))
        *outer, row, column = at
        corner = [
            *outer, row + phase.rows.corner, column + phase.columns.corner
        ]  # fmt: skip
        self.operands[1].start(number, self.pixels.slot(pixels), corner, barrier)

    def _arrival(self, pixels: Cursor) -> Any:
        """The barrier that a tile's bytes arrive at."""
        if self.rewriter:
            return self.rewriter.barrier(pixels)
        return self.pixels.full_barrier(pixels)

    def _at(self, image: Any, batch: Any, panel: Any, above: Any) -> list[Any]:
        """For a tile of an image of Y, the coordinates in X before those of rows; above: the tap
        of depth that it is for."""
        channels = panel * self.operands[1].panels.k
        channel = channels + group_of(batch) * self.shape.c_group
        first, *depths = self.space.outer(image)
        if self.halo.depth:
            window = self.halo.depth
            start = depths[0] * window.stride + window.lower
            depths = [start + above * window.dilation]
        return [first, channel, *depths]

    # ---- the consumers

    def begin(self, thread: Any, threads: int) -> None:
        """Do nothing: no operand is brought ahead of the loop."""

    def multiply(
        self, here: Slots, place: TilePlace, own: Any, lane: Any,
        sums: Sequence[Any], start_products: Any,
    ) -> tuple[Slots, list[Any]]:  # fmt: skip
        """(places, sums) after a tile; own: the warpgroup; sums: not read by the first products.

        start_products(descriptors, whether sums are added to, sums, k_steps=...) starts those of a
        stage.
        """

        def step(k_steps: int | None, i: Any, now: Mainloop) -> Mainloop:
            filters, pixels = now.here.filters, now.here.pixels
            here = Cursor(i, 0) if self.stays else filters
            tap = i % self.taps
            self.pixels.wait_full(pixels)
            self.filters.wait_full(here)
            descriptors = self._descriptors(here, pixels, tap, own)
            sums = start_products(descriptors, i, now.sums, k_steps=k_steps)
            wgmma.wait(1)
            if not self.stays:
                with ops.if_(now.last_filter >= 0):
                    self.filters.release(Cursor(now.last_filter), lane)
            number = self._place_of(tap)[0]
            begins = number.eq(0)
            with ops.if_(ops.both(begins, now.last_pixels >= 0)):
                self.pixels.release(Cursor(now.last_pixels), lane)
            last = self._of_phase(tap, [phase.taps - 1 for phase in self.halo.phases])
            ends = number.eq(last)
            following = filters if self.stays else filters.next(self.filters.stages)
            after = Slots(following, _advanced(pixels, self.pixels.stages, ends))
            return Mainloop(after, filters.stage, pixels.stage, sums)

        now, begin = Mainloop(here, -1, -1, list(sums)), 0
        for end, k_steps in self._runs(place):
            now = loop(begin, end, state=now)(partial(step, k_steps))
            begin = end
        sums = wgmma.wait_for(now.sums)
        if not self.stays:
            self.filters.release(Cursor(now.last_filter), lane)
        self.pixels.release(Cursor(now.last_pixels), lane)
        return now.here, sums

    def _runs(self, place: TilePlace) -> list[tuple[Any, int | None]]:
        """(end, instructions along k of each) of a tile's steps: those of the last panel of
        channels, which come after all others, may be fewer."""
        if not self.panel_steps:
            return [(place.steps, None)]
        *before, last = self.panel_steps
        if not before:
            return [(place.steps, last)]
        ahead = len(before) * self.halo.images * self.taps
        first = ops.minimum(ops.maximum(ahead - place.first_step, 0), place.steps)
        return [(first, before[-1]), (place.steps, last)]

    def _descriptors(self, filters: Cursor, pixels: Cursor, tap: Any, own: Any) -> list[Any]:
        """The descriptors of a tap's filter, and of the pixels from where it meets a part's
        first one on."""
        filter_, pixel = self.operands
        _, row, column = self._place_of(tap)
        # Of all phases of an axis.
        first = self.halo.phases[0]
        shift = row * (first.rows.step * self.halo.pitch) + column * first.columns.step
        if self.halo.parts > 1:
            shift = shift + own * self.halo.part_step
        place = self.pixels.address(pixels) + shift * self.halo.row_bytes
        rows = self.filters.address(filters)
        if self.halo.parts == 1:  # each warpgroup has channels of its own
            step = filter_.tile_rows // 2 * self.halo.row_bytes
            rows = rows + own * step
        return [wgmma.descriptor(rows, filter_.panels), wgmma.descriptor(place, pixel.panels)]


def _advanced(cursor: Cursor, stages: int, condition: Any) -> Cursor:
    """The place that follows where a condition holds."""
    following = cursor.next(stages)
    pairs = ((following.stage, cursor.stage), (following.phase, cursor.phase))
    return Cursor(*(ops.select(condition, ops.value_of(a), ops.value_of(b)) for a, b in pairs))
