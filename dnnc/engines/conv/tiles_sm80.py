# pyright: basic
"""The pixels of a convolution on the main loop of `mma.sync`, and how k counts.

    A  [pixels of the output, taps * C]   gathered from X: a thread's rows are pixels
    B  [taps * C, output channels]        W: see `conv.filter_sm80`

for each group of channels.  A thread takes the number of each of its pixels apart once a tile, into
the image and the place of the filter's first tap.  A step of k gives the tap and the channel, whose
extents are fixed: a few multiplications by constants, the same for all of a thread's pixels.
Elements on padding are zeros: a copy reads nothing of them, and what comes through registers, after
what is computed before the convolution, is replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import gcd, prod
from typing import Any

from ...codegen import ops
from ...codegen.ampere.operand_tile import LoadPlan, OperandTile, access_bytes, is_unit
from ...codegen.hopper.im2col import Window
from ...codegen.memory import smem
from ...codegen.memory.tensors import offset_bits, register_type
from ...codegen.tiles.padding import PaddingBits
from ...codegen.walk import index as idx
from ...codegen.walk.index import Coordinate, Index
from ...codegen.walk.region_walk import Walk
from ...dialect.fusion import Fusion
from ...dialect.tensor import Tensor
from ...mlir import arith
from ..product.kernel_sm80 import Batch
from ..views.reads import layout_model
from .pattern import GROUP, ConvShape
from .pixel_places import PixelPlaces
from .spread import ChosenPhase

CHANNEL = 1  # the axis of X, and of W forward
_CHUNK_BYTES = 16
_LAST_BIT = 31


def _bit(place: int) -> int:
    return 1 << place


@dataclass(frozen=True)
class Depth:
    """The axes that k counts through, the last one fastest: 1 is that of input channels, the others
    W's own.

    extents: of the axes.  Example, W [64, 32, 3, 3] with the channels last: axes (2, 3, 1) of
    extents (3, 3, 32); k = 70 is channel 6 of the third tap.
    """

    axes: tuple[int, ...]
    extents: tuple[int, ...]

    @staticmethod
    def of(shape: ConvShape, axes: Sequence[int]) -> Depth:
        extents = {CHANNEL: shape.c_group}
        taps = [window.taps for window in shape.windows]
        if shape.spread:  # of the phase that has most
            taps = [max(axis.counts) for axis in shape.spread.axes]
        extents |= {2 + i: count for i, count in enumerate(taps)}
        return Depth(tuple(axes), tuple(extents[axis] for axis in axes))

    @property
    def size(self) -> int:
        return prod(self.extents)

    def split(self, k: Any) -> dict[int, Any]:
        """Axis -> coordinate, at a number below `size`."""
        found: dict[int, Any] = {}
        for axis, extent in zip(self.axes[:0:-1], self.extents[:0:-1], strict=True):
            quotient = k // extent
            found[axis] = k - quotient * extent if extent > 1 else 0
            k = quotient
        return {**found, self.axes[0]: k if self.extents[0] > 1 else 0}


def depth_axes(fusion: Fusion, shape: ConvShape) -> tuple[int, ...]:
    """The order of k: taps and the channels of each where X has its channels together, else as W
    has them in memory."""
    taps = tuple(range(2, shape.w.rank))
    model, filter_ = layout_model(fusion, shape.x), layout_model(fusion, shape.w)
    is_last = model is not None and is_unit(model, CHANNEL)
    if filter_ is None or shape.spread is not None or is_last:
        return (*taps, CHANNEL)
    channels = 0 if shape.is_transposed else CHANNEL
    strides = {axis: filter_.layout[axis].constant for axis in taps}
    strides = {CHANNEL: filter_.layout[channels].constant, **strides}
    if any(stride is None for stride in strides.values()):
        return (*taps, CHANNEL)
    return tuple(sorted(strides, key=lambda axis: -(strides[axis] or 0)))


def pixel_plan(fusion: Fusion, shape: ConvShape) -> LoadPlan:
    """How X comes: see `OperandTile`.  Path "registers": fragments are channels of one tap;
    "elements": they come one by one, and go straight into shared memory."""
    x = shape.x
    model = layout_model(fusion, x)
    is_last = model is not None and is_unit(model, CHANNEL)
    access = gather_bytes(x, shape) if model is x else 0
    is_vector = is_last and shape.c_group * x.type.bits % (8 * _CHUNK_BYTES) == 0
    return plan_of(access, "registers" if is_vector else "elements")


def plan_of(access: int, otherwise: str) -> LoadPlan:
    """The plan of an operand for copies of `access` bytes, or for another path without such."""
    path = "async" if access >= 4 else otherwise
    return LoadPlan(path, k_contiguous=True, loads_along_k=True, access_bytes=access)


def gather_bytes(x: Tensor, shape: ConvShape) -> int:
    """The widest copy that channels of a group, wherever they begin, are aligned to."""
    if not is_unit(x, CHANNEL):
        return 0
    return gcd(access_bytes(x, CHANNEL), shape.c_group * x.type.bits // 8)


@dataclass(frozen=True)
class Phase:
    """The phase of a tile of a gradient with a stride: what its k counts through.

    channels: of a group.
    """

    chosen: ChosenPhase
    channels: int

    @staticmethod
    def of(shape: ConvShape, batch: Batch) -> Phase | None:
        """None: there are no phases."""
        return Phase(shape.spread.chosen(batch), shape.c_group) if shape.spread else None

    @property
    def end(self) -> Any:
        """Numbers of k; none without a tap."""
        size, is_empty = self.chosen.taps * self.channels, self.chosen.is_empty()
        return size if is_empty is None else ops.select(is_empty, 0, size)

    def offsets(self, k: Any) -> dict[int, Any]:
        """Axis -> outputs from the least one that a tap meets, and the channel."""
        return self._split(k, 1)

    def taps(self, k: Any) -> dict[int, Any]:
        """Axis -> place in the filter, and the channel."""
        return self._split(k, 0)

    def _split(self, k: Any, which: int) -> dict[int, Any]:
        tap = k // self.channels
        found = self.chosen.places(tap)[which]
        channel = k - tap * self.channels
        return {CHANNEL: channel, **{2 + axis: place for axis, place in enumerate(found)}}


@dataclass(frozen=True)
class Pixel:
    """A pixel of the output, as a row of a tile.

    image: its number.  starts: where the filter's first tap lies along each spatial axis, before
    the image where there is padding.  offset: of that place, in elements of X, at the group's first
    channel.  outside: a bit for each place along an axis that a tap may have, see
    `PixelTile._first_bits`, set where it lies on padding; None: there are too many.
    """

    image: Any
    starts: tuple[Any, ...]
    offset: Any
    outside: Any


@dataclass(frozen=True)
class Tap:
    """A tap of the filter and a channel: a number of k.

    channel: of the group.  moves: pixels from where the filter begins, along each spatial axis.
    bits: those of these moves in `Pixel.outside`; None: see `is_there`.  is_there: whether k has
    such a number; None: always, or the bits say it.
    """

    channel: Any
    moves: tuple[Any, ...]
    bits: Any
    is_there: Any


@dataclass(frozen=True)
class PixelPlace:
    """The place that the tiles along k have in common: pixels of this thread's fragments, first
    channel."""

    pixels: tuple[Pixel, ...]
    channel: Index


@dataclass
class PixelTile(OperandTile):
    """X: a tile of what the taps meet of it; see the file's docstring."""

    conv: ConvShape = field(kw_only=True)
    depth: Depth = field(kw_only=True)
    phase: Phase | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.is_async = self.plan.path != "registers"
        self.is_copied = self.plan.path == "async"
        self.dims = self.region.dims_of(self.value)
        count = self.side.rows * self.side.k // self._elems
        assert count % self.threads == 0, "every thread has as many fragments"

    @property
    def _elems(self) -> int:
        """The elements of a fragment."""
        return self.plan.access_bytes // self.bytes if self.is_copied else self.chunk

    @property
    def _is_plain(self) -> bool:
        """Whether nothing is computed before the convolution."""
        return self.value in self.region.arguments

    @property
    def _tensor(self) -> Tensor:
        return self.region.arguments[self.value]

    @property
    def _windows(self) -> tuple[Window, ...]:
        return self.conv.windows

    # ---- pixels

    def start(self, batch: Batch, first_row: Any) -> PixelPlace:
        """The pixels of this thread's fragments, from a row on; rows past the last repeat it."""
        self.phase = Phase.of(self.conv, batch)
        channel = Index.of(0)
        if GROUP in batch:
            channel = idx.scale(batch[GROUP].index(), self.conv.c_group)
        pixels = [
            self._pixel(first_row + row, channel) for row, _ in self._pieces(self._elems, True)
        ]
        return PixelPlace(tuple(pixels), channel)

    def _pixel(self, number: Any, channel: Index) -> Pixel:
        if self.conv.pixels.known_divisor() % self.side.rows:
            last = self.kernel.size(self.conv.pixels) - 1
            number = ops.minimum(number, last)
        starts: list[Any] = []
        for window, extent in zip(self._windows[::-1], self.dims[:1:-1], strict=True):
            outputs = window.outputs(extent)
            quotient = self.kernel.divide(number, outputs)
            place = self.kernel.remainder(number, outputs, quotient)
            starts.append(place * window.stride + window.lower)
            number = quotient
        starts.reverse()
        offset = self._offset(number, channel.base, starts) if self._is_plain else 0
        return Pixel(number, tuple(starts), offset, self._outside(starts))

    @cached_property
    def _first_bits(self) -> Mapping[int, int] | None:
        """Spatial axis with padding -> the bit of its first tap; None: they are more than 31.

        The last bit is that of numbers past k's end.
        """
        padding = PaddingBits.of(self._windows)
        return padding.first if padding.count <= _LAST_BIT else None

    def _outside(self, starts: Sequence[Any]) -> Any:
        if self._first_bits is None:
            return None
        outside: Any = ops.const(_bit(_LAST_BIT))
        for axis, first in self._first_bits.items():
            extent = self.kernel.size(self.dims[2 + axis])
            for tap in range(self._windows[axis].taps):
                place = starts[axis] + self._move(axis, tap)
                bit = ops.select(ops.compare("ult", place, extent), 0, _bit(first + tap))
                outside = outside | bit
        return outside

    def _offset(self, image: Any, channel: Any, starts: Sequence[Any]) -> Any:
        """Elements from X's first to a place, which may lie before it.

        Nothing is read off 0 along an axis of one element, whose stride need not keep copies
        aligned.
        """
        bits, total = offset_bits(self._tensor), 0
        places = zip((image, channel, *starts), self._tensor.layout, self.dims, strict=True)
        for coordinate, stride, extent in places:
            if extent.constant == 1:
                continue
            wide = ops.to_i64(coordinate) if bits == 64 else coordinate
            total = total + wide * self.kernel.size(stride, bits)
        return total

    def _move(self, axis: int, tap: Any) -> Any:
        """Pixels from where the filter begins to one of its taps."""
        window = self._windows[axis]
        moved = tap * window.dilation
        return window.reach - moved if self.conv.is_flipped else moved

    def _tap(self, at: Mapping[int, Any], is_there: Any) -> Tap:
        """at: of a number of k, as `Depth.split` gives it."""
        moves = tuple(self._move(axis, at[2 + axis]) for axis in range(len(self._windows)))
        if not self._first_bits:
            return Tap(at[CHANNEL], moves, None, is_there)
        bits: Any = 0
        for axis, first in self._first_bits.items():
            # A number past k's end may have a tap that no shift takes.
            place = at[2 + axis] if is_there is None else at[2 + axis] & _LAST_BIT
            bits = (ops.const(_bit(first)) << place) | bits
        if is_there is not None:
            bits = bits | ops.select(is_there, 0, _bit(_LAST_BIT))
        return Tap(at[CHANNEL], moves, bits, None)

    def _inside(self, pixel: Pixel, tap: Tap) -> Any:
        """Whether a tap lies inside the image, and below k's end; None: always."""
        if tap.bits is not None:
            return ops.compare("eq", pixel.outside & tap.bits, 0)
        inside = tap.is_there
        for axis, window in enumerate(self._windows):
            if window.pre or window.post:
                place = pixel.starts[axis] + tap.moves[axis]
                extent = self.kernel.size(self.dims[2 + axis])
                inside = ops.both(inside, ops.compare("ult", place, extent))
        return inside

    # ---- into shared memory

    def issue(self, place: PixelPlace, first_k: Any, slot: Any) -> None:
        """Starts the copies of a tile into shared memory at `slot`, or stores its elements."""
        if self.is_copied:
            self._copy(place, first_k, slot)
        elif self._is_plain:
            self._gather(place, first_k, slot)
        else:
            leaves = self.region.leaves(self.kernel)
            walk = Walk(self.kernel, leaves, self.region.symbols)
            self.put(self.fetch(walk, place, first_k), slot)

    def _copy(self, place: PixelPlace, first_k: Any, slot: Any) -> None:
        elems, bytes_ = self._elems, self.plan.access_bytes
        pieces = self._pieces(elems, True)
        tap = self._shared_tap(first_k, pieces[0][1])
        moved = self._offset(0, tap.channel, tap.moves)
        for pixel, (row, k) in zip(place.pixels, pieces, strict=True):
            # A copy of nothing does not look where it would begin.
            reads = self._inside(pixel, tap)
            count = None if reads is None else ops.select(reads, bytes_, 0)
            target = smem.byte_pointer(slot, self._place(row, k))
            source = self._address(pixel.offset + moved)
            smem.copy_async(target, source, bytes_, count, is_kept=self.plan.is_kept)

    def _address(self, offset: Any) -> Any:
        pointer = self.kernel.pointer(self._tensor, is_exclusive=True)
        return ops.gep(pointer, offset, register_type(self._tensor.type))

    def _gather(self, place: PixelPlace, first_k: Any, slot: Any) -> None:
        """Loads elements that have a tap and a channel each, which a thread's fragments share."""
        pieces = self._pieces(self.chunk, True)
        element = register_type(self._tensor.type)
        zero = ops.zeros(element)
        first = first_k + pieces[0][1]
        taps = [self._tap_of(first + lane) for lane in range(self.chunk)]
        moved = [self._offset(0, tap.channel, tap.moves) for tap in taps]
        for pixel, (row, k) in zip(place.pixels, pieces, strict=True):
            found = []
            for tap, offset in zip(taps, moved, strict=True):
                reads = self._inside(pixel, tap)
                # Where nothing is to be read it is the tensor's first element.
                at = pixel.offset + offset
                at = at if reads is None else ops.select(reads, at, 0)
                value = ops.load(self._address(at), element, self.bytes)
                found.append(value if reads is None else ops.select(reads, value, zero))
            self._put(ops.from_elements(found), row, k, slot)

    def _is_there(self, k: Any) -> Any:
        """Whether k has a number; None: always."""
        if self.phase:
            return None if self.conv.c_group % self.side.k == 0 else k < self.phase.end
        is_whole = self.depth.size % self.side.k == 0
        return None if is_whole else k < self.depth.size

    def _split(self, k: Any) -> dict[int, Any]:
        """See `Depth.split`; of phases, outputs from the least one instead of taps."""
        return self.phase.offsets(k) if self.phase else self.depth.split(k)

    def _tap_of(self, k: Any) -> Tap:
        return self._tap(self._split(k), self._is_there(k))

    def _shared_tap(self, first_k: Any, inner: Any) -> Tap:
        """The tap and the first channel of this thread's fragments.

        inner: their place in the tile, the same for all of them: their number is a multiple of the
        fragments of a row apart.
        """
        if self.conv.c_group % self.side.k:
            return self._tap_of(first_k + inner)
        at = self._split(first_k)  # the tile is of one tap, for all threads
        return self._tap({**at, CHANNEL: at[CHANNEL] + inner}, None)

    # ---- through registers

    def fetch(self, walk: Walk, place: PixelPlace, first_k: Any) -> list[Any]:
        """The fragments of a tile that this thread stores, in registers; zeros past K."""
        pieces = self._pieces(self.chunk, True)
        return [
            self._fetched(walk, pixel, place.channel, first_k + k)
            for pixel, (_, k) in zip(place.pixels, pieces, strict=True)
        ]

    def _fetched(self, walk: Walk, pixel: Pixel, channel: Index, k: Any) -> Any:
        at, inside = self._lanes(pixel, k) if self.is_async else self._vector(pixel, k)
        at[CHANNEL] = idx.add(at[CHANNEL], channel)
        walk.forget()
        value = walk.value(self.value, at, self.chunk)
        if inside is None:
            return value
        mask = ops.splat(inside, self.chunk)
        return arith.SelectOp(mask, value, ops.zeros(value.type)).result

    def _vector(self, pixel: Pixel, k: Any) -> tuple[list[Index], Any]:
        """(coordinates in X of consecutive channels of one tap; whether it lies inside)."""
        tap = self._kept_tap(k, self.chunk)
        channels = Index(tap.channel, 1, self.chunk)
        places = map(Index, self._kept(pixel, tap))
        return [Index(pixel.image), channels, *places], self._inside(pixel, tap)

    def _lanes(self, pixel: Pixel, k: Any) -> tuple[list[Index], Any]:
        """The lanes of elements that have a tap and a channel each."""
        taps = [self._kept_tap(k + lane, 1) for lane in range(self.chunk)]
        found = [[tap.channel, *self._kept(pixel, tap)] for tap in taps]
        inside = [self._inside(pixel, tap) for tap in taps]
        at = [Index(pixel.image), *(Index(lanes=lanes) for lanes in zip(*found, strict=True))]
        return at, None if inside[0] is None else ops.from_elements(inside)

    def _kept_tap(self, k: Any, count: int) -> Tap:
        """That of `count` numbers, or of the last ones where these are past k's end."""
        is_there = self._is_there(k)
        if is_there is not None:
            end = self.phase.end if self.phase else self.depth.size
            k = ops.minimum(k, end - count)
        return self._tap(self._split(k), is_there)

    def _kept(self, pixel: Pixel, tap: Tap) -> list[Any]:
        """The pixel of X under a tap, kept inside the image."""
        places: list[Any] = []
        for axis, window in enumerate(self._windows):
            place = pixel.starts[axis] + tap.moves[axis]
            if window.pre or window.post:
                last = self.kernel.size(self.dims[2 + axis]) - 1
                place = ops.maximum(0, ops.minimum(place, last))
            places.append(place)
        return places


@dataclass(frozen=True)
class PixelSpace:
    """Rows of the product are the pixels of all images, columns the channels of a group."""

    places: PixelPlaces

    def at(self, batch: Batch, row: Index, column: Index, width: int) -> list[Coordinate]:
        return self.places.of(batch, self.places.pixel(row, width), column)

    def is_there(self, batch: Batch, row: Any) -> Any:
        """See `PixelPlaces`."""
        return self.places.is_there(batch, self.places.pixel(Index(row), 1))
