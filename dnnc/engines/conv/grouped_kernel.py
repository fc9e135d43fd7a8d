# pyright: basic
"""The kernel of engine conv_grouped_sm80.

    block = (tile of channels, run of strips);  warp = (results of one group, strip of the run)
    the warp's part of the filter -> registers
    for each round: a strip, `rows` rows of 16 pixels of the output
        for each line of the input that they meet: its pixels, once -> registers
            for each tap on it, before the last axis': multiply, into the sums of its row of outputs
        g2 on the sums, store

An instruction multiplies A [16 pixels, k] by B [k, 8 results] of one group.  Each of the four lanes
that have parts of a row of A loads all channels of another pixel, the one that its tap of the last
axis meets, and what it has of k in each instruction is of those: in which order k goes does not
matter, so long as A and B have the same.  Lanes without a tap have zeros of both, so that nothing
but a tap's own pixels is multiplied.

    lane = 4 * pixel + tap      A: X[pixel * stride + tap, c]      B: W[result, tap, c]

Pixels of the last axis are counted through the images: a short row is no loss.  Strips are counted
down the image first, so that lines that two share are in the caches.

A gradient with a stride has pixels of several phases (see `conv.spread`).  A row of a strip is then
16 pixels of each phase of the last axis: the lanes of four load the outputs that any phase meets,
once, and each phase multiplies those that it meets, with zeros in place of the others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.ampere import mma
from ...codegen.kernel import Kernel
from ...codegen.memory.tensors import GlobalTensor
from ...codegen.ops import Number
from ...codegen.region import Region
from ...codegen.scalars.scalar import Scalars
from ...codegen.state import each
from ...codegen.stretch import stretch
from ...codegen.tiles.pixels import Pixels, Place, StoredPixels, WalkedPixels, is_stored
from ...codegen.tiles.strips import Lines, Strips, finish, linear, met
from ...codegen.walk.index import Index
from ...codegen.walk.region_walk import Walk
from ...expr import Expr, ceildiv, product
from ...mlir import arith, ir, llvm
from ...target import WARP_THREADS
from ..product.kernel_sm80 import operand_types
from .grouped_tile import PIXELS, RESULTS, TAPS, GroupedTiling, LanePhase, any_tap, phases_of_lanes
from .pattern import conv_of_call, sums_of_call
from .spread import ChosenPhase, SpreadPlaces, selected

_HALVES = (0, 1)  # of an instruction's pixels: a lane has one of each
_LAST_LANE = 3  # bits of a lane's number that say its tap

# Of each row of a strip, of a phase of the last axis, of eight results, of a lane.
Sums = list[list[list[list[Any]]]]


@dataclass(frozen=True, eq=False)
class Column:
    """A pixel of the output along the last axis, of a phase, and of an image.

    inside: whether there is one (i1, or None: surely); else it is the last one, once more.
    first: the pixel of X that the lane's tap of the first set meets.  places: of each set.
    """

    image: Number
    at: Index
    inside: Any
    first: Number
    places: Sequence[Place]


class GroupedKernel:
    """Emits the kernel of a region that is one convolution with what is around it."""

    def __init__(self, kernel: Kernel, region: Region, tiling: GroupedTiling):
        self.kernel, self.region, self.tiling = kernel, region, tiling
        (self.call,) = (op for op in region.operations if op.name == "func.call")
        self.shape = conv_of_call(region, self.call)
        self.x, self.w = self.call.operands
        self.x_dims = region.dims_of(self.x)
        self.y_dims = region.dims_of(self.call.results[0])
        self.instruction = mma.INSTRUCTIONS[operand_types(region)]
        self.scalars = Scalars(sums_of_call(self.call))
        self.last = self.shape.windows[-1]
        self.outer = self.shape.moves[:-1]
        self.phases = phases_of_lanes(self.shape)
        tiles = tiling.tiles(len(self.outer))
        self.strips = Strips(kernel, self.outer, tiles, self.x_dims[2:-1], self.y_dims[2:-1])
        self.walk = Walk(kernel, region.leaves(kernel), region.symbols)

    # ---- the grid

    @property
    def channel_tiles(self) -> int:
        """Blocks along the output channels."""
        return -(-self._all_parts // self.tiling.units)

    @property
    def _all_parts(self) -> int:
        """The parts of the results, those of each warp."""
        return self._parts * self.shape.groups

    @property
    def _parts(self) -> int:
        """The parts of a group's results."""
        return self.shape.k_group // self.tiling.results

    @property
    def columns(self) -> Expr:
        return product((self.y_dims[0], self._row))

    @property
    def _row(self) -> Expr:
        """Pixels of a row of the output, of a phase."""
        return self.shape.counted[-1] if self.shape.spread else self.y_dims[-1]

    @property
    def count(self) -> Expr:
        """Strips."""
        return product((ceildiv(self.columns, PIXELS), *self.strips.counts))

    @property
    def blocks(self) -> Expr:
        return ceildiv(self.count, self.tiling.strips * self.tiling.rounds) * self.channel_tiles

    # ---- the body

    def emit(self) -> None:
        tiling, block, thread = self.tiling, ops.block_id(), ops.thread_id()
        run = block // self.channel_tiles
        tile = block - run * self.channel_tiles
        warp, lane = thread // WARP_THREADS, thread % WARP_THREADS
        self.pixel, self.tap = lane // TAPS, lane & _LAST_LANE
        own = warp // tiling.units
        unit = tile * tiling.units + (warp - own * tiling.units)
        is_there = None
        if self._all_parts % tiling.units:  # the last block has warps without a part
            is_there = unit < self._all_parts
            unit = ops.minimum(unit, self._all_parts - 1)
        group = unit // self._parts
        channels = self.shape.c_group
        self.x_channel = Index(group * channels, 1, channels)
        self.result = unit * tiling.results  # the first one
        self.masks = [[self._mask(lanes) for lanes in phase.sets] for phase in self.phases]
        self.filter = self._filter()

        first = run * (tiling.strips * tiling.rounds) + own
        most = first + tiling.strips * tiling.rounds
        end = ops.minimum(most, self.kernel.size(self.count))
        if is_there is not None:
            end = ops.select(is_there, end, first)

        @each(first, end, tiling.strips)
        def _(number: Any) -> None:
            self._emit_strip(number)

    # ---- the filter

    def _mask(self, lanes: Sequence[int | None]) -> Any:
        """Whether a lane's pixel is one that a phase meets, i1; None: it is wherever any phase
        meets it."""
        if self.shape.spread is None or None not in lanes:
            return None
        return ops.compare("ne", selected(self.tap, [int(tap is not None) for tap in lanes]), 0)

    @stretch("load")
    def _filter(self) -> list[list[list[list[Any] | None]]]:
        """Registers by the tap before the last axis', the phase, the set, the results by eights;
        None: the phase meets nothing of a set."""
        extents = [window.taps for window in self.outer]
        return [
            [
                [
                    self._fragments(at, chosen, phase) if any_tap(phase.sets[chosen]) else None
                    for chosen in range(len(phase.sets))
                ]
                for phase in self.phases
            ]
            for at in itertools.product(*map(range, extents))
        ]

    def _fragments(self, outer: Sequence[int], chosen: int, phase: LanePhase) -> list[Any]:
        eights = range(self.tiling.results // RESULTS)
        if self.shape.spread is None:
            return [self._taken(outer, chosen, eight) for eight in eights]
        lanes = phase.sets[chosen]
        last = selected(self.tap, [0 if tap is None else tap for tap in lanes])
        mask = self.masks[phase.number][chosen]
        masked = None if mask is None else lambda: mask
        return [_words(self._loaded([*outer, last], eight, masked)) for eight in eights]

    def _taken(self, outer: Sequence[int], chosen: int, eight: int) -> list[Any]:
        """The k of eight results that a lane has: its tap's channels of one of them."""
        taps, tap = self.last.taps, self.tap + chosen * TAPS
        last, extents = ops.minimum(tap, taps - 1), [window.taps for window in self.outer]
        places: list[Number] = [*outer, last]
        if self.shape.is_flipped:  # CONVOLUTION: the last tap lies on the first pixel
            extents.append(taps)
            places = [n - 1 - place for n, place in zip(extents, places, strict=True)]
        is_whole = chosen * TAPS + _LAST_LANE < taps
        return _words(self._loaded(places, eight, None if is_whole else lambda: tap < taps))

    def _loaded(
        self, places: Sequence[Number], eight: int, is_tap: Callable[[], Any] | None
    ) -> Any:
        """All channels of a tap and of a lane's result; is_tap: gives a condition for zeros."""
        result = self.result + eight * RESULTS + self.pixel
        channels = self.shape.c_group
        at = [*map(Index.of, self.shape.filter_place(result, 0)), *map(Index.of, places)]
        _, in_ = self.shape.filter_axes
        at[in_] = Index(at[in_].base, 1, 0 if in_ else channels)
        fragment = ops.splat(self.walk.branch().value(self.w, at, channels), channels)
        if is_tap is None:
            return fragment
        zeros = ops.zeros(fragment.type)
        return arith.SelectOp(is_tap(), fragment, zeros).result

    # ---- one strip

    def _emit_strip(self, number: Any) -> None:
        rest, starts = self.strips.starts(number)
        walk = self.walk.branch()
        columns = [self._column(rest, half) for half in _HALVES]
        self._finish(starts, columns, walk, self._sums(starts, columns, walk))

    def _column(self, tile: Any, half: int) -> Column:
        number = tile * PIXELS + self.pixel + half * (PIXELS // 2)
        inside = None
        if self.columns.known_divisor() % PIXELS:
            last = self.kernel.size(self.columns - 1)
            inside = number <= last
            number = ops.minimum(number, last)
        image = self.kernel.divide(number, self._row)
        column = self.kernel.remainder(number, self._row, image)
        start = column * self.last.stride - self.last.pre
        first = start + self.tap * self.last.dilation
        sets = range(-(-self.last.taps // TAPS))
        return Column(image, Index.of(column), inside, first, [self._met(first, s) for s in sets])

    def _met(self, first: Number, chosen: int) -> Place:
        """The pixel of X that the lane's tap of a set meets; outside where it has none."""
        place = Place.of(self.kernel, first + chosen * TAPS * self.last.dilation, self.x_dims[-1])
        if chosen * TAPS + _LAST_LANE < self.last.taps:
            return place
        is_tap = self.tap + chosen * TAPS < self.last.taps
        return Place(place.number, ops.both(place.inside, is_tap))

    def _pixels(self, walk: Walk) -> Pixels:
        leaf, channels = walk.leaves.get(self.x), self.shape.c_group
        if isinstance(leaf, GlobalTensor) and is_stored(leaf.tensor, channels):
            return StoredPixels(leaf, self.x_channel, channels)
        return WalkedPixels(walk, self.x, self.x_dims, self.x_channel, channels)

    @stretch("mainloop")
    def _sums(self, starts: Sequence[Number], columns: Sequence[Column], walk: Walk) -> Sums:
        pixels, tiles = self._pixels(walk), self.strips.tiles
        meetings = [met(tile, w) for tile, w in zip(tiles, self.outer, strict=True)]
        places = [
            {step: self.strips.place(starts, axis, step) for step in steps}
            for axis, steps in enumerate(meetings)
        ]

        def bring(steps: Sequence[int]) -> list[list[list[Any]]]:
            """Registers by the set and the half."""
            at = [places[axis][step] for axis, step in enumerate(steps)]
            lines = [pixels.line(column.image, at, column.first) for column in columns]
            step = TAPS * self.last.dilation
            return [
                [
                    _words(pixels.load(line, chosen * step, column.places[chosen]))
                    for line, column in zip(lines, columns, strict=True)
                ]
                for chosen in range(len(columns[0].places))
            ]

        sums = self._zeros()
        taps = [window.taps for window in self.outer]
        for steps, sets in Lines.along(meetings, bring, lambda _: self.tiling.ahead):
            seen = [self._seen(sets, phase) for phase in self.phases]
            along = (m[step] for m, step in zip(meetings, steps, strict=True))
            for pairs in itertools.product(*along):
                row = linear([output for output, _ in pairs], tiles)
                filters = self.filter[linear([tap for _, tap in pairs], taps)]
                for total, pixels_, own in zip(sums[row], seen, filters, strict=True):
                    self._add(total, pixels_, own)
        return sums

    def _seen(
        self, sets: Sequence[Sequence[Sequence[Any]]], phase: LanePhase
    ) -> Sequence[Sequence[Sequence[Any]]]:
        """A line's registers as a phase meets them: others' pixels are zeros, as infinite ones
        times zeros would not be."""
        masks = self.masks[phase.number]
        return [
            halves if mask is None else [[ops.select(mask, word, 0) for word in h] for h in halves]
            for halves, mask in zip(sets, masks, strict=True)
        ]

    def _zeros(self) -> Sums:
        zero = self.scalars.const(0)
        rows, eights = self.strips.tiles, range(self.tiling.results // RESULTS)
        return [
            [[[zero] * 4 for _ in eights] for _ in self.phases]
            for _ in itertools.product(*map(range, rows))
        ]

    def _add(
        self,
        total: list[list[Any]],
        sets: Sequence[Sequence[Sequence[Any]]],
        taps: Sequence[Sequence[Any] | None],
    ) -> None:
        """The products of a line of pixels and the taps that meet it, to a row's sums."""
        for (low, high), filters in zip(sets, taps, strict=True):
            for eight, b in enumerate(filters or ()):
                for i in range(0, len(b), 2):
                    a = [low[i], high[i], low[i + 1], high[i + 1]]
                    total[eight] = mma.multiply(self.instruction, a, b[i : i + 2], total[eight])

    # ---- what follows

    @stretch("epilogue")
    def _finish(
        self, starts: Sequence[Number], columns: Sequence[Column], walk: Walk, sums: Sums
    ) -> None:
        rows = [self.strips.outputs_along(starts, axis) for axis in range(len(self.outer))]
        across = [[self._across(column, phase) for phase in self.phases] for column in columns]
        made = (
            (
                self._at(columns[half], across[half][phase][0], eight, [at for at, _ in places]),
                [*across[half][phase][1], *(condition for _, condition in places)],
                ops.from_elements(four[2 * half : 2 * half + 2]),
            )
            for row, places in zip(sums, itertools.product(*rows), strict=True)
            for phase, total in enumerate(row)
            for (eight, four), half in itertools.product(enumerate(total), _HALVES)
        )
        finish(walk, self.call.results[0], self.region.targets(self.kernel), made)

    def _across(self, column: Column, phase: LanePhase) -> tuple[Index, list[Any]]:
        """(coordinate along the last axis, kept inside the output; conditions under which the
        output has it) of a column's pixel of a phase."""
        spread = self.shape.spread
        if spread is None:
            return column.at, [column.inside]
        axis = len(spread.axes) - 1
        chosen = ChosenPhase(spread, (*(0,) * axis, phase.number))
        places = SpreadPlaces(self.kernel, spread, self.y_dims, self.x_dims[2:])
        at = places.place(chosen, axis, column.at)
        if places.is_whole(axis):
            return at, [column.inside]
        moved = column.at.base * spread.axes[axis].stride
        place = moved + chosen.origin(axis)
        is_there = place < self.kernel.size(self.y_dims[-1])
        return at, [column.inside, is_there]

    def _at(self, column: Column, across: Index, eight: int, outer: Sequence[Index]) -> list[Index]:
        """Coordinates of the two results of a lane (see `mma`)."""
        channel = self.result + (self.tap * 2 + eight * RESULTS)
        return [Index.of(column.image), Index(channel, 1, 2), *outer, across]


def _words(fragment: Any) -> list[Any]:
    """Its registers."""
    bits = ops.element_of(fragment.type).width * ops.width_of(fragment)
    type_ = ir.VectorType.get([bits // 32], ops.i32_type())
    return ops.elements(llvm.BitcastOp(type_, fragment).result)
