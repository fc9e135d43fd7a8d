# pyright: basic
"""The main loop of engine conv_stem_sm90: see `conv.stem`.

producer   for each tile: load its rows of X
consumers  once: put the filter into shared memory, in the order of k
           for each tile: wait for its rows; for each share of k: read this thread's elements,
           multiply

Where output channels are several tiles, a block has those of one: it puts one part of the filter
into shared memory and takes, of its tiles, pixels after pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen import ops
from ...codegen.hopper import tma, wgmma
from ...codegen.hopper.pipeline import Cursor, Pipeline
from ...codegen.hopper.staged_operand import StagePlan
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.region import Region
from ...codegen.state import each
from ...codegen.stretch import stretch
from ...codegen.tiles.schedule import TilePlace
from ...codegen.walk.index import Coordinate, Index
from ...codegen.walk.region_walk import Walk
from ...dialect.tensor import Tensor
from ...expr import Expr
from ...mlir import arith, nvvm
from ..product.matrices_sm90 import Batch, WholeSpace
from .operands_sm90 import RingOperand
from .pattern import ConvShape, image_view
from .stem import ACROSS, GROUP, Stem, rows_view

_FILTER_BARRIER = 6  # named barrier of the consumers; see `epilogue_sm90`
_WORD = 4  # bytes of a register: two elements
_SIZE = 2
_GROUP_WORDS = GROUP * _SIZE // _WORD
# Bytes of two words, the later one's from 4 on: the first word, or what lies across both.
_WHOLE, _INSIDE = 0x3210, 0x5432


def runs_operand(
    kernel: Kernel, shape: ConvShape, stem: Stem, row: wgmma.Instruction
) -> RingOperand:
    """X: rows of pixels."""
    axes = (3, 2, 1) if stem.unit else (2, 1)
    box = tma.Box(rows_view(shape.x, stem), axes, stem.box, is_swizzled=stem.unit > 0)
    panels = wgmma.Panels(wgmma.M, row.element_bytes)
    return RingOperand(kernel, [box], [0], panels, is_rows=True)


@dataclass
class StemFilter:
    """W: all of k, [panel of k][output channels][64], swizzled as products read it.

    value: SSA tensor.  columns: output channels of the tile.
    """

    kernel: Kernel
    region: Region
    value: Any
    shape: ConvShape
    stem: Stem
    plan: StagePlan
    row: wgmma.Instruction
    columns: int

    is_a = False
    is_rows = False
    is_async = True
    raw = None
    maps = ()

    def __post_init__(self) -> None:
        self.panels = wgmma.Panels(self.columns, self.row.element_bytes)

    @property
    def bytes(self) -> int:
        return self.stem.panels * self.panels.bytes

    @stretch("load")
    def fill(self, memory: Any, thread: Any, threads: int) -> None:
        """Copy the filter, two elements of k at a time, by some threads; a barrier follows."""
        first = self._first_channel()
        leaves: dict[Any, Any] = self.region.leaves(self.kernel)
        walk = Walk(self.kernel, leaves, self.region.symbols)
        words = self.stem.panels * wgmma.ROW_BYTES // _WORD

        @each(thread, self.columns * words, threads)
        def _(number: Any) -> None:
            channel = number // words
            word = number - channel * words
            pair = [self._element(walk, first + channel, word, i) for i in (0, 1)]
            per_row = wgmma.ROW_BYTES // _WORD
            panel = word // per_row
            inner = (word - panel * per_row) * _WORD
            swizzled = inner ^ ((channel & (wgmma.ATOM_ROWS - 1)) << 4)
            place = panel * self.panels.bytes + channel * wgmma.ROW_BYTES
            pointer = smem.byte_pointer(memory, place + swizzled)
            ops.store(pointer, ops.from_elements(pair), _WORD)

    def _first_channel(self) -> Any:
        """The first channel of the block's tiles, which follow each other in `TileOrder` of rows
        of tiles."""
        tiles = -(-self.shape.k_group // self.columns)
        return ops.block_id() % tiles * self.columns if tiles > 1 else 0

    def _element(self, walk: Walk, channel: Any, word: Any, i: int) -> Any:
        """The element of k = 2 * word + i; zero where the filter has none."""
        stem, k_group = self.stem, self.shape.k_group
        height, width = stem.windows
        group = word // _GROUP_WORDS
        row = group // stem.groups
        inner = group - row * stem.groups
        element = inner * GROUP + ((word - group * _GROUP_WORDS) * 2 + (i - stem.before))
        inside = ops.both(element < stem.elements, element >= 0)
        inside = ops.both(inside, row < height.taps)
        inside = ops.both(inside, channel < k_group)
        kept = ops.minimum(ops.maximum(element, 0), stem.elements - 1)
        tap, row = kept // stem.channels, ops.minimum(row, height.taps - 1)
        part = kept - tap * stem.channels
        if self.shape.is_flipped:
            tap, row = width.taps - 1 - tap, height.taps - 1 - row
        own = self.shape.filter_place(ops.minimum(channel, k_group - 1), part)
        places = [*own, row, tap]
        found = walk.branch().value(self.value, [Index.of(place) for place in places], 1)
        return arith.SelectOp(inside, found, ops.zeros(found.type)).result


@dataclass
class StemSpace(WholeSpace):
    """Rows are the pixels of blocks, counted through; columns the output channels.

    dims: of Y.
    """

    kernel: Kernel
    dims: tuple[Expr, ...]
    stem: Stem

    def is_row(self, batch: Batch, row: Any) -> Any:
        """Tiles may have pixels past an image's end."""
        _, *places = self._pixel(row)
        down, across = (
            place < self.kernel.size(size)
            for place, size in zip(places, self.dims[2:], strict=True)
        )
        return ops.both(down, across)

    def start(self, row: Any) -> tuple[Any, Any, Any]:
        """(image, row, column) of Y where the block begins that a row lies in."""
        block = row // wgmma.M
        tile = block // self.stem.blocks
        own = block - tile * self.stem.blocks
        down, across = self.stem.tiles(self.dims)
        band = self.kernel.divide(tile, across)
        column = self.kernel.remainder(tile, across, band)
        image = self.kernel.divide(band, down)
        inside = self.kernel.remainder(band, down, image)
        first = inside * self.stem.rows + own * (wgmma.M // ACROSS)
        return image, first, column * ACROSS

    def _pixel(self, row: Any) -> tuple[Any, Any, Any]:
        """(image, row, column) of Y that a row is, or would be past the image's end."""
        image, y, x = self.start(row)
        position = row % wgmma.M
        down = position // ACROSS
        across = position - down * ACROSS
        return image, y + down, x + across

    def at(self, batch: Batch, row: Coordinate, column: Coordinate) -> list[Coordinate]:
        image, *places = self._pixel(row.index().base)
        kept = [
            ops.minimum(place, self.kernel.size(size) - 1)
            for place, size in zip(places, self.dims[2:], strict=True)
        ]
        return [Index.of(image), column.index(), *map(Index.of, kept)]

    def box(self, tensor: Tensor, columns: int, rows: int) -> tma.Box:
        extents = (columns, ACROSS, rows // ACROSS)
        return tma.Box(image_view(tensor, 1), (2, 4, 3), extents)

    def corner(self, box: tma.Box, batch: Batch, row: Any, column: Any) -> list[Any]:
        image, y, x = self.start(row)
        return tma.place(box, list(map(Index, [image, 0, column, y, x])))


@dataclass
class StemLoop:
    """See the file's docstring.  filters: one stage, the filter.  pixels: the ring of rows."""

    stem: Stem
    space: StemSpace
    operands: Sequence[Any]
    filters: Pipeline
    pixels: Pipeline

    def start(self) -> Cursor:
        """The record that a loop over tiles carries first: the place in the ring."""
        return Cursor()

    # ---- the producer

    def start_loads(self) -> Cursor:
        return self.start()

    def load_tile(self, place: TilePlace, pixels: Cursor) -> Cursor:
        """Start the loads of a tile's pixels; one thread does."""
        image, row, column = self.space.start(place.row)
        self.pixels.wait_empty(pixels)
        self.pixels.expect(pixels, self.stem.load_bytes)
        barrier = self.pixels.full_barrier(pixels)
        self.operands[0].start(
            0, self.pixels.slot(pixels), self._corner(image, row, column), barrier
        )
        return pixels.next(self.pixels.stages)

    def _corner(self, image: Any, row: Any, column: Any) -> list[Any]:
        """Where a tile of X that begins at a pixel of Y's image has its first element."""
        stem = self.stem
        height, width = stem.windows
        down = row * height.stride + height.lower
        first = width.lower * stem.channels - stem.lead
        across = column // ACROSS * (ACROSS * stem.step // stem.together)
        corner = [image, down, across + first // stem.together]
        return [*corner, 0] if stem.unit else corner

    # ---- the consumers

    def begin(self, thread: Any, threads: int) -> None:
        """Bring the filter; all consumers do."""
        self.operands[1].fill(self.filters.slot(Cursor()), thread, threads)
        tma.show_writes()
        nvvm.barrier(barrier_id=ops.const(_FILTER_BARRIER), number_of_threads=ops.const(threads))

    def multiply(
        self, pixels: Cursor, place: TilePlace, own: Any, lane: Any,
        sums: Sequence[Any], start_products: Any,
    ) -> tuple[Cursor, list[Any]]:  # fmt: skip
        """(place in the ring, sums) after a tile.

        own: the warpgroup.  sums: not read by the first products.  start_products: not used, as
        the first operand is in registers.
        """
        sums = list(sums)
        self.pixels.wait_full(pixels)
        slot, first = self.pixels.slot(pixels), self._first(own, len(sums), lane)
        filter_, address = self.operands[1], self.filters.address(Cursor())
        height = self.stem.windows[0]
        shares = self.stem.shares(len(sums) * filter_.columns // 2)
        order = [(block, steps) for block in range(len(sums)) for steps in shares]
        for block, steps in order:
            down = block * (wgmma.M // ACROSS) * height.stride * self.stem.pitch * _SIZE
            # Else places of words, and of many steps' filters, which are the same of every tile,
            # live all the time.
            here = ops.opaque(first) if self.stem.unit else first
            there = ops.opaque(address) if len(shares) > 1 else address
            descriptor = wgmma.descriptor(there, filter_.panels)
            words = wgmma.settled(self._words(Runs(self.stem, slot, here, down), steps, lane))
            is_last = (block, steps) == order[-1]
            if is_last:
                tma.end_reads()
                nvvm.bar_warp_sync(ops.const(-1))
                self.pixels.release(pixels, lane)
            sums[block] = self._products(words, steps, descriptor, sums[block])
            wgmma.commit()
            if not is_last:  # registers of products may be written once they are done
                sums[block] = wgmma.wait_for([sums[block]])[0]
        sums[-1:] = wgmma.wait_for(sums[-1:])
        return pixels.next(self.pixels.stages), sums

    def _first(self, own: Any, blocks: int, lane: Any) -> Any:
        """Bytes to where the run of a thread's first pixel begins, from its own words of it on."""
        stem = self.stem
        warp = (ops.thread_id() >> 5) & 3
        row = own * (blocks * (wgmma.M // ACROSS)) + warp
        element = row * (stem.windows[0].stride * stem.pitch)
        across = (lane >> 2) * stem.step
        element = element + (across & -2 if stem.is_split else across)
        words = (lane & 3) * _WORD
        return element * _SIZE + words

    def _words(self, runs: Runs, steps: range, lane: Any) -> list[Any]:
        """Four of each of some steps of k, as `wgmma.OperandLayout` has them."""
        return [
            self._word(runs, group, half, lane)
            for step in steps
            for group in (2 * step, 2 * step + 1)
            for half in (0, 1)
        ]

    def _word(self, runs: Runs, group: int, half: int, lane: Any) -> Any:
        """Two elements of a group, of the upper or the lower of the thread's pixels."""
        offset = self.stem.offset(group)
        if offset is None:
            return ops.const(0)
        word = runs.word(offset, half)
        if self.stem.is_split:
            word = _inside(word, runs.word(offset + _WORD, half), lane)
        valid = self.stem.valid(group)
        return word if len(valid) == GROUP else word & self._mask(valid, lane)

    def _mask(self, valid: range, lane: Any) -> Any:
        """A mask of the two elements that this lane has of a group: those that are in the run."""
        mask = ops.const(0)
        for i, bits in enumerate((0x0000FFFF, 0xFFFF0000)):
            element = (lane & 3) * 2 + i
            inside = ops.both(element < valid.stop, element >= valid.start)
            mask = mask | ops.select(inside, ops.const(ops.signed(bits)), ops.const(0))
        return mask

    def _products(self, words: Sequence[Any], steps: range, descriptor: Any, sums: Any) -> Any:
        """Starts those of some steps of k; the first one of all does not read the sums."""
        filter_ = self.operands[1]
        wgmma.fence()
        per_panel = filter_.row.steps
        for i, step in enumerate(steps):
            panel, inner = divmod(step, per_panel)
            offset = panel * filter_.panels.bytes + filter_.panels.offset(0, inner)
            sums = wgmma.multiply(
                filter_.row,
                filter_.columns,
                list(words[4 * i : 4 * i + 4]),
                wgmma.moved(descriptor, offset),
                sums,
                0 if step == 0 else 1,
            )
        return sums


@dataclass(frozen=True)
class Runs:
    """The runs of a thread's pixels in a block of 64.

    slot: the memory of a tile.  first, down: bytes to the first run, a value and a number.
    """

    stem: Stem
    slot: Any
    first: Any
    down: int

    def word(self, offset: int, half: int) -> Any:
        """The word of the upper or the lower of the pixels, some bytes from its run on."""
        # Eight pixels are a whole number of the swizzle's repeats.
        more = half * (ACROSS // 2) * self.stem.step * _SIZE
        offset += self.down
        if self.stem.unit:
            place = smem.byte_pointer(self.slot, self.stem.swizzled(self.first + offset))
        else:  # one address of a thread, and numbers
            place = smem.byte_pointer(smem.byte_pointer(self.slot, self.first), offset)
        return ops.load(smem.byte_pointer(place, more), ops.i32_type(), _WORD)


def _inside(word: Any, following: Any, lane: Any) -> Any:
    """Two elements that begin inside a word, of pixels with odd numbers."""
    is_odd = ((lane >> 2) & 1).ne(0)
    selector = ops.select(is_odd, ops.const(_INSIDE), ops.const(_WHOLE))
    return nvvm.prmt(word, selector, nvvm.PermuteMode.DEFAULT, hi=following)
