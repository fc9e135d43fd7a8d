# pyright: basic
"""The kernel of engine conv_depthwise.

    block = (tile of channels, run of strips);  thread = (fragment of channels, strip of the run)
    the block's part of the filter -> shared memory
    for each round: a strip, `rows` x `columns` pixels of the output
        for each row of the input that they meet: its columns, once
            for each column: multiply by all taps that lie on it, into the outputs' sums
        g2 on each pixel's sums, store

Strips are counted along rows, down the image, through the images; a block has neighbouring ones,
so that rows of the input that two strips share are in the first cache.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.ampere.staged_filter import StagedFilter
from ...codegen.kernel import Kernel
from ...codegen.memory.tensors import GlobalTensor
from ...codegen.ops import Number
from ...codegen.region import Region
from ...codegen.scalars.math import widened
from ...codegen.scalars.scalar import Scalars
from ...codegen.state import each, loop
from ...codegen.stretch import stretch
from ...codegen.tiles.pixels import (
    Pixels,
    Place,
    RowPixels,
    StoredPixels,
    WalkedPixels,
    is_stored,
)
from ...codegen.tiles.strips import Lines, Moves, Strips, finish, linear, met
from ...codegen.walk.index import Index
from ...codegen.walk.region_walk import Walk
from ...expr import Expr, ceildiv, product
from .depthwise_tile import DepthwiseTiling, registers_for
from .pattern import conv_of_call, sums_of_call

# Registers of pixels that are on their way while others are multiplied, where not all of them can
# be (see `DepthwiseKernel._lines_ahead`).
_AHEAD = 48
_ADDRESSES = 16  # registers beside pixels and sums, at the least

Sums = list[list[Any]]  # of each output pixel of a tile, an element each


@dataclass(frozen=True)
class Strip:
    """A tile of the output.  image: its number.  starts: its first pixel, along each axis."""

    image: Number
    starts: tuple[Number, ...]


class DepthwiseKernel:
    """Emits the kernel of a region that is one convolution with what is around it."""

    def __init__(self, kernel: Kernel, region: Region, tiling: DepthwiseTiling):
        self.kernel, self.region, self.tiling = kernel, region, tiling
        (self.call,) = (op for op in region.operations if op.name == "func.call")
        self.shape = conv_of_call(region, self.call)
        self.windows: Sequence[Moves] = self.shape.moves
        self.tiles = tiling.tiles(len(self.windows))
        self.x, self.w = self.call.operands
        self.x_dims = region.dims_of(self.x)
        self.y_dims = region.dims_of(self.call.results[0])
        self.sums = sums_of_call(self.call)
        self.scalars = Scalars(self.sums)
        self.strips = Strips(kernel, self.windows, self.tiles, self.x_dims[2:], self.y_dims[2:])
        self.walk = Walk(kernel, region.leaves(kernel), region.symbols)

    # ---- the grid

    @property
    def channel_tiles(self) -> int:
        """Blocks along the output channels."""
        return self.shape.groups * self.shape.k_group // (self.tiling.width * self.tiling.fragments)

    @property
    def counts(self) -> tuple[Expr, ...]:
        """Strips: images, then along each spatial axis."""
        return (self.y_dims[0], *self.strips.counts)

    @property
    def blocks(self) -> Expr:
        per_block = self.tiling.strips * self.tiling.rounds
        return ceildiv(product(self.counts), per_block) * self.channel_tiles

    # ---- the body

    def emit(self) -> None:
        tiling, block, thread = self.tiling, ops.block_id(), ops.thread_id()
        run = block // self.channel_tiles
        tile = block - run * self.channel_tiles
        own = thread // tiling.fragments
        self.fragment = thread - own * tiling.fragments
        number = tile * tiling.fragments + self.fragment
        width = tiling.width
        self.channel = Index(number * width, 1 if width > 1 else 0, width)
        self.x_channel, self.x_width = self._input_channels(number)
        first = run * (tiling.strips * tiling.rounds) + own
        is_own = None
        if tiling.strips * tiling.fragments < tiling.threads:
            is_own = own < tiling.strips
        if tiling.rounds == 1:
            self._emit_one(tile, first, is_own)
        else:
            self._emit_rounds(tile, first, is_own)

    def _emit_one(self, tile: Any, number: Any, is_own: Any) -> None:
        """Its first pixels are on their way while the filter comes; a strip past the end has those
        of the last one."""
        count = self.kernel.size(product(self.counts))
        strip = self._strip(ops.minimum(number, count - 1))
        walk = self.walk.branch()
        lines = self._lines(strip, walk) if self.tiling.unrolled == "filter" else None
        self._stage_filter(tile)
        # Branched over: else the assembler moves all other loads here too, to no free registers.
        with ops.if_(ops.both(is_own, number < count)):
            self._finish(strip, walk, self._sums(strip, walk, lines))

    def _emit_rounds(self, tile: Any, first: Any, is_own: Any) -> None:
        tiling, count = self.tiling, self.kernel.size(product(self.counts))
        self._stage_filter(tile)
        end = first + tiling.strips * tiling.rounds

        @each(first, end, tiling.strips)
        def _(number: Any) -> None:
            with ops.if_(ops.both(is_own, number < count)):
                strip, walk = self._strip(number), self.walk.branch()
                self._finish(strip, walk, self._sums(strip, walk))

    def _input_channels(self, number: Any) -> tuple[Index, int]:
        """(first input channel, how many) of what a fragment's sums need."""
        width, k_group, group = self.tiling.width, self.shape.k_group, self.shape.c_group
        if width % k_group == 0:
            count = width // k_group * group
            first = number * count
        else:
            count = group
            first = number * width // k_group * group
        return Index(first, 1 if count > 1 else 0, count), count

    def _element_of(self, lane: int, channel: int) -> int:
        """Which of these a sum's channel of the group is."""
        width, k_group, group = self.tiling.width, self.shape.k_group, self.shape.c_group
        return (lane // k_group if width % k_group == 0 else 0) * group + channel

    # ---- the filter

    @stretch("load")
    def _stage_filter(self, tile: Any) -> None:
        tiling, shape = self.tiling, self.shape
        element, taps = self.scalars.type, [window.taps for window in self.windows]
        self.filter = StagedFilter(
            self.kernel, shape.filter_taps, shape.c_group, tiling.fragments, tiling.width, element
        )
        first = tile * (tiling.fragments * tiling.width)
        source = self.shape.w.type

        def load(channel: Number, inner: Number, tap: Number) -> Any:
            places = []
            for extent in reversed(taps):
                rest = tap // extent
                place = tap - rest * extent
                # CONVOLUTION: the last tap lies on the first pixel.
                places.insert(0, extent - 1 - place if shape.is_flipped else place)
                tap = rest
            at = map(Index.of, [*shape.filter_place(first + channel, inner), *places])
            return widened(self.walk.branch().value(self.w, list(at), 1), source, self.sums)[0]

        self.filter.fill(load)
        self.held = self._held_filter()

    def _held_filter(self) -> list[list[list[Any]]] | None:
        """Tap -> channel of the group -> elements, in registers."""
        if not self.tiling.is_held:
            return None
        pointer = self.filter.pointer
        return [self._taken(pointer, tap) for tap in range(self.shape.filter_taps)]

    def _taken(self, pointer: Any, tap: Number) -> list[list[Any]]:
        return [
            self.filter.elements(pointer, self.fragment, tap, channel)
            for channel in range(self.shape.c_group)
        ]

    # ---- one strip

    @stretch("mainloop")
    def _sums(self, strip: Strip, walk: Walk, lines: Lines | None = None) -> Sums:
        # So that what is read of it again in each round is not kept in registers all the time.
        pointer = None if self.held else ops.opaque(self.filter.pointer)
        if self.tiling.unrolled == "filter":
            return self._whole(lines or self._lines(strip, walk), pointer)
        emit = self._by_rows if self.tiling.unrolled == "row" else self._by_taps
        return emit(strip, walk, pointer)

    def _strip(self, number: Any) -> Strip:
        return Strip(*self.strips.starts(number))

    def _pixels(self, walk: Walk, strip: Strip) -> Pixels:
        if self.tiling.along > 1:
            return self._row_pixels(walk, strip)
        leaf = walk.leaves.get(self.x)
        if isinstance(leaf, GlobalTensor) and is_stored(leaf.tensor, self.x_width):
            return StoredPixels(leaf, self.x_channel, self.x_width)
        return WalkedPixels(walk, self.x, self.x_dims, self.x_channel, self.x_width)

    def _row_pixels(self, walk: Walk, strip: Strip) -> RowPixels:
        window, tile = self.windows[-1], self.tiles[-1]
        inputs, outputs = self.x_dims[-1], self.y_dims[-1]
        ahead = -window.origin(0)
        assert isinstance(ahead, int), "padding is fixed"

        def reaches_past(step: int) -> bool:
            return window.may_be_outside(step, tile, inputs, outputs)

        return RowPixels(
            walk, self.x, self.x_dims, self.x_channel, 1, start=strip.starts[-1], ahead=ahead,
            elems=self.tiling.along, reaches_past=reaches_past,
        )  # fmt: skip

    def _zeros(self) -> Sums:
        zero = self.scalars.const(0)
        return [[zero] * self.tiling.width for _ in itertools.product(*map(range, self.tiles))]

    def _add(self, total: list[Any], x: Sequence[Any], tap: Sequence[Sequence[Any]]) -> None:
        """The products of a pixel's channels and a tap's, to the sums of an output pixel."""
        for lane, channel in itertools.product(range(self.tiling.width), range(self.shape.c_group)):
            element = x[self._element_of(lane, channel)]
            total[lane] = self.scalars.fma(element, tap[channel][lane], total[lane])

    def _widened(self, fragment: Any) -> list[Any]:
        return widened(fragment, self.shape.x.type, self.sums)

    # ---- everything written out

    def _meetings(self) -> list[Mapping[int, Sequence[tuple[int, int]]]]:
        """The meetings of each axis."""
        return [met(tile, w) for tile, w in zip(self.tiles, self.windows, strict=True)]

    def _lines(self, strip: Strip, walk: Walk) -> Lines:
        """The lines of X that a strip meets; the first of them begin to come."""
        pixels, last = self._pixels(walk, strip), len(self.tiles) - 1
        meetings = self._meetings()
        places = [
            {step: self.strips.place(strip.starts, axis, step) for step in steps}
            for axis, steps in enumerate(meetings)
        ]
        first = self.strips.origin(strip.starts, last)

        def bring(steps: Sequence[int]) -> list[Any]:
            at = [places[axis][step] for axis, step in enumerate(steps)]
            line = pixels.line(strip.image, at, first)
            return [pixels.load(line, step, place) for step, place in places[last].items()]

        columns = len(meetings[last])
        return Lines.along(meetings[:last], bring, lambda n: self._lines_ahead(n, columns))

    def _whole(self, lines: Lines, pointer: Any) -> Sums:
        sums, taken = self._zeros(), dict(enumerate(self.held or ()))
        *outer, columns = self._meetings()
        for steps, fragments in lines:
            # (output, tap) along the axes before the last, of all that meet the line.
            along = list(itertools.product(*(m[s] for m, s in zip(outer, steps, strict=True))))
            for fragment, pairs in zip(fragments, columns.values(), strict=True):
                x = self._widened(fragment)
                for before, last in itertools.product(along, pairs):
                    outputs, taps = zip(*before, last, strict=True)
                    tap = linear(taps, [w.taps for w in self.windows])
                    if tap not in taken:
                        taken[tap] = self._taken(pointer, tap)
                    self._add(sums[linear(outputs, self.tiles)], x, taken[tap])
        return sums

    def _lines_ahead(self, lines: int, columns: int) -> int:
        """How many lines are loaded before the first is used.

        All of a strip, where registers hold them: the first line meets a row of taps and begins the
        sums of the first row of outputs, and when those of the last row begin, some lines are used
        up.  The more bytes an SM has under way, the nearer it comes to the bandwidth of
        memory.
        """
        tiling, bits = self.tiling, self.shape.x.type.bits * self.x_width
        line, words = columns * max(1, bits // 32), max(1, self.scalars.type.width // 32)
        row, taps = tiling.columns * tiling.width * words, self.windows[-1].taps
        taps *= tiling.width * self.shape.c_group * words
        used_up = self.windows[-2].lines(tiling.rows - 1) if tiling.rows > 1 else 0
        needed = max(lines * line + row + taps, (lines - used_up) * line + tiling.rows * row)
        room = registers_for(tiling.min_blocks, tiling.threads) if tiling.min_blocks else 0
        return lines if needed + _ADDRESSES <= room else max(1, _AHEAD // line)

    # ---- loops over the filter

    def _by_rows(self, strip: Strip, walk: Walk, pointer: Any) -> Sums:
        """The taps along the last axis are written out, a loop goes over the others."""
        last = len(self.windows) - 1
        columns = met(self.tiles[last], self.windows[last])
        places = {step: self.strips.place(strip.starts, last, step) for step in columns}
        first = self.strips.origin(strip.starts, last)

        rows = self.shape.taps // self.windows[last].taps

        @loop(0, rows, state=self._zeros())
        def end(row: Any, sums: Sums) -> Sums:
            pixels = self._pixels(walk.branch(), strip)
            taps = self._taps_of(row, last)
            width = self.windows[last].taps
            taken = [self._taken(pointer, row * width + s) for s in range(width)]
            for outputs in itertools.product(*map(range, self.tiles[:last])):
                at = self._places_of(strip, outputs, taps)
                line = pixels.line(strip.image, at, first)
                loaded = [pixels.load(line, step, place) for step, place in places.items()]
                for fragment, along in zip(loaded, columns.values(), strict=True):
                    x = self._widened(fragment)
                    for output, tap in along:
                        self._add(sums[linear((*outputs, output), self.tiles)], x, taken[tap])
            return sums

        return end

    def _by_taps(self, strip: Strip, walk: Walk, pointer: Any) -> Sums:
        """A loop goes over all taps."""

        @loop(0, self.shape.taps, state=self._zeros())
        def end(tap: Any, sums: Sums) -> Sums:
            pixels = self._pixels(walk.branch(), strip)
            taps = self._taps_of(tap, len(self.windows))
            taken = self._taken(pointer, tap)
            for outputs in itertools.product(*map(range, self.tiles)):
                *at, column = self._places_of(strip, outputs, taps)
                line = pixels.line(strip.image, at, column.number)
                x = self._widened(pixels.load(line, 0, column))
                self._add(sums[linear(outputs, self.tiles)], x, taken)
            return sums

        return end

    def _taps_of(self, number: Any, axes: int) -> list[Number]:
        """The tap along each of the first axes, of a number that counts through them."""
        found: list[Number] = []
        for window in reversed(self.windows[:axes]):
            rest = number // window.taps
            found.insert(0, number - rest * window.taps)
            number = rest
        return found

    def _places_of(
        self, strip: Strip, outputs: Sequence[int], taps: Sequence[Number]
    ) -> list[Place]:
        """Where taps of outputs of the tile lie, along the first axes."""
        found = []
        for axis, (output, tap) in enumerate(zip(outputs, taps, strict=True)):
            window = self.shape.windows[axis]
            reach = tap * window.dilation + output * window.stride
            number = self.strips.origin(strip.starts, axis) + reach
            found.append(Place.of(self.kernel, number, self.x_dims[2 + axis]))
        return found

    # ---- what follows

    @stretch("epilogue")
    def _finish(self, strip: Strip, walk: Walk, sums: Sums) -> None:
        *before, columns = (
            self.strips.outputs_along(strip.starts, axis) for axis in range(len(self.tiles))
        )
        elems = self.tiling.along
        if elems > 1:
            columns = [
                (self._access_of_row(strip, i), columns[i][1])
                for i in range(0, len(columns), elems)
            ]
            flat = list(itertools.chain.from_iterable(sums))
            sums = [flat[i : i + elems] for i in range(0, len(flat), elems)]
        made = (
            (
                [Index.of(strip.image), self.channel, *(index for index, _ in places)],
                [condition for _, condition in places],
                ops.from_elements(total),
            )
            for total, places in zip(sums, itertools.product(*before, columns), strict=True)
        )
        finish(walk, self.call.results[0], self.region.targets(self.kernel), made)

    def _access_of_row(self, strip: Strip, step: int) -> Index:
        """The columns of one access, the last of Y where a tile has more: what is read there with
        the convolution has to lie in its tensor."""
        extent, elems = self.y_dims[-1], self.tiling.along
        first = strip.starts[-1] + step
        if extent.known_divisor() % self.tiles[-1]:
            first = ops.minimum(first, self.kernel.size(extent - elems))
        return Index(first, 1, elems)
