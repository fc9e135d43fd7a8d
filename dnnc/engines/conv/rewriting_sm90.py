# pyright: basic
"""X that operations before a convolution give, on Hopper's main loop: rewritten in shared memory.

    producer, one thread   brings raw tiles, of what g1 reads at X's elements, for a barrier alone
    its other warps        wait for them, rewrite them (`hopper.rewriting`), arrive at `full`

A convolution's padding is of what g1 gives: where a tap lies outside the image there are zeros,
whatever g1 makes of the zeros that TMA brings there.

PixelRewriter   tiles of a stage, of one tap.  Once a tile of the product, the threads take its
                pixels apart, and leave in shared memory which taps lie on padding, a word each
HaloRewriter    pixels that come once for all taps: each is computed once, and padding is seen from
                its place in the tile
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ...codegen import ops
from ...codegen.hopper import im2col, mbarrier, tma, wgmma
from ...codegen.hopper.cluster import Cluster
from ...codegen.hopper.im2col import Im2colBox
from ...codegen.hopper.pipeline import Cursor, Pipeline
from ...codegen.hopper.rewriting import THREADS, WARPS, RawRows, Rewriting
from ...codegen.hopper.staged_operand import StagePlan
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.memory.tensors import GlobalTensor
from ...codegen.region import Region
from ...codegen.state import loop
from ...codegen.tiles.padding import WORD_BYTES, PaddingBits
from ...codegen.tiles.schedule import TilePlace
from ...codegen.walk.index import Index
from ...dialect.tensor import Tensor
from ...mlir import nvvm
from ...target import WARP_THREADS
from ..product.matrices_sm90 import Batch
from ..product.tile_loop_sm90 import Tiles
from .halo import Halo
from .halo_sm90 import HaloSpace
from .operands_sm90 import PixelOperand, group_of
from .pattern import ConvShape, pixel_matrix

_BARRIER = 8  # named barrier of the producer's threads; see `epilogue_sm90`


@dataclass
class RawPixels(PixelOperand):
    """The values that g1 reads at X's elements, as X is loaded; shape: of the convolution, with
    it for X."""

    @property
    def row_bytes(self) -> int:
        return self.panels.k * self.shape.x.type.bits // 8

    def _box_and_map(self) -> tuple[Any, Any]:
        image, windows = self.shape.image(self.panels.k)
        is_swizzled = self.row_bytes in tma.SWIZZLES
        box = Im2colBox(image, windows, self.panels.k, self.share_rows, is_swizzled=is_swizzled)
        return box, self.kernel.tensor_map(box.recipe)


@dataclass
class ComputedPixels:
    """X: raw tiles, the first of which products may read once it is rewritten.

    plan: its raw tiles are of the arguments that g1 reads at X's elements.
    """

    kernel: Kernel
    region: Region
    shape: ConvShape
    plan: StagePlan
    row: wgmma.Instruction
    tile_rows: int
    cluster: Cluster
    raws: list[RawPixels] = field(init=False)

    is_a = True
    is_async = True
    raw = None
    maps = ()

    def __post_init__(self) -> None:
        self.is_rows = self.plan.is_rows
        bytes_ = self.shape.panel_bytes(self.row.element_bytes)
        self.panels = wgmma.Panels(self.tile_rows, self.row.element_bytes, row_bytes=bytes_)
        tensors = list(self.region.arguments.values())
        self.raws = [
            RawPixels(
                self.kernel, replace(self.shape, x=tensors[raw.argument]),
                replace(self.plan, offset=raw.offset), self.row, self.tile_rows, self.cluster,
            )
            for raw in self.plan.raws
        ]  # fmt: skip

    @property
    def bytes(self) -> int:
        """Bytes of the raw tiles of a stage."""
        return sum(raw.bytes for raw in self.raws)

    def load(
        self, stage: Any, batch: Batch, first: Any, first_k: Any, barrier: Any, rank: Any
    ) -> None:
        """Starts the copies of this block's share of the raw tiles."""
        for raw in self.raws:
            raw.load(stage, batch, first, first_k, barrier, rank)


def rewriting_of(
    kernel: Kernel, region: Region, value: Any, plan: StagePlan, row: wgmma.Instruction,
    shape: ConvShape,
) -> Rewriting:  # fmt: skip
    """How X is computed; plan: see `ComputedPixels`."""
    operand = row.a if plan.is_rows else row.b
    row_bytes = shape.panel_bytes(row.element_bytes)
    panel = shape.panel(row.element_bytes)
    arguments = list(region.arguments.items())
    raws = [RawRows(*arguments[raw.argument], raw.offset, panel) for raw in plan.raws]
    extent, offset = shape.c_group, plan.offset
    return Rewriting(kernel, region, value, operand, raws, extent, offset, row_bytes)


@dataclass
class Rewriter:
    """The base of both kinds: the ring whose slots are rewritten, and barriers of raw tiles.

    operand: whose copies arrive there.  arrivals: of a slot's rewriting.
    """

    kernel: Kernel
    shape: ConvShape
    rewriting: Rewriting
    operand: Any
    ring: Pipeline = field(init=False)
    barriers: Any = field(init=False)
    table: Any = field(init=False)

    arrivals = WARPS

    def place(self, ring: Pipeline, memory: Any) -> None:
        """memory: of a barrier for each slot, and of the table of pixels."""
        self.ring, self.barriers = ring, memory
        self.table = smem.byte_pointer(memory, ring.stages * mbarrier.BYTES)

    def make(self) -> None:
        """Makes the barriers, by one thread."""
        for slot in range(self.ring.stages):
            mbarrier.make(smem.byte_pointer(self.barriers, slot * mbarrier.BYTES), 1)

    @property
    def operands(self) -> tuple[Any, ...]:
        return (self.operand,)

    @property
    def maps(self) -> list[Any]:
        return [raw.map for raw in self.operand.raws]

    def barrier(self, cursor: Cursor) -> Any:
        """That of a slot's raw tiles."""
        return smem.byte_pointer(self.barriers, cursor.stage * mbarrier.BYTES)

    def run(self, tiles: Tiles) -> None:
        """Rewrites stages, by WARPS warps of the producer: all but its first one."""
        tiles.each(Cursor(), self._tile)

    def _tile(self, place: TilePlace, here: Cursor) -> Cursor:
        raise NotImplementedError

    def _rewrite(
        self, cursor: Cursor, rows: int, channel: Any, batch: Batch, inside: Any, keep: Any = None
    ) -> Cursor:
        """Rewrites a slot, and gives the next place; inside, keep: see `Rewriting.rewrite`."""
        group = group_of(batch) * self.shape.c_group
        self.rewriting.rewrite(
            self.ring.slot(cursor), rows, self.rewriting.columns(channel, group), inside,
            lambda: mbarrier.wait(self.barrier(cursor), cursor.phase), keep,
        )  # fmt: skip
        tma.show_writes()
        nvvm.bar_warp_sync(ops.const(-1))
        lane = ops.thread_id() & (WARP_THREADS - 1)
        with ops.if_(lane.eq(0)):
            mbarrier.arrive(self.ring.full_barrier(cursor))
        return cursor.next(self.ring.stages)


@dataclass
class PixelRewriter(Rewriter):
    """See the file's docstring.

    kept: X as an output, if it is one.
    """

    kept: Tensor | None = None

    def __post_init__(self) -> None:
        self.padding = PaddingBits.of(self.shape.windows)

    def _tile(self, place: TilePlace, here: Cursor) -> Cursor:
        if self.padding.count:
            self._note_padding(place.row if self.operand.is_rows else place.column)
        panel = self.operand.panels.k
        channels = self.shape.padded_channels(panel)

        @loop(place.first_step, place.end_step, state=here)
        def end(i: Any, here: Cursor) -> Cursor:
            first_k = i * panel
            tap = first_k // channels if self.shape.taps > 1 else 0
            channel = first_k - tap * channels
            bits = self.padding.of_tap(im2col.tap_of(self.shape.windows, tap))
            rows, batch = self.operand.tile_rows, place.batch_of(is_a=True)
            inside, keep = partial(self._inside, bits=bits), self._keeper(place)
            return self._rewrite(here, rows, channel, batch, inside, keep)

        return end

    def _keeper(self, place: TilePlace) -> Any:
        """A function that stores X of one tap as it is computed, by blocks of the first
        channels."""
        if self.kept is None:
            return None
        matrix = pixel_matrix(self.kept, self.shape.groups)
        assert matrix is not None, "a layout that is refused"
        target = GlobalTensor(self.kernel, matrix)
        first, channels = place.row, place.column
        if not self.operand.is_rows:
            first, channels = channels, first
        is_first = ops.compare("eq", channels, 0)  # of one column of tiles, a number
        group = Index.of(group_of(place.batch_of(is_a=True)))

        def keep(row: Any, channel: Index, fragment: Any, is_there: Any) -> None:
            pixel = first + row
            is_pixel = pixel < self.kernel.size(self.shape.pixels)
            condition = ops.both(ops.both(is_first, is_pixel), is_there)
            target.store([group, Index(pixel), channel], fragment, condition)

        return keep

    def _inside(self, row: Any, bits: Any) -> Any:
        if not self.padding.count:
            return None
        word = ops.load(self._word(row), ops.i32_type(), WORD_BYTES)
        return (word & bits).eq(0)

    def _word(self, row: Any) -> Any:
        return smem.byte_pointer(self.table, row * WORD_BYTES)

    def _note_padding(self, first: Any) -> None:
        """Which taps of each pixel of a tile lie on padding; first: its first pixel."""
        self._meet()  # all have read those of the tile before
        rows = self.operand.tile_rows
        for start in range(0, rows, THREADS):
            row = self.rewriting.thread + start
            with ops.if_(row < rows if start + THREADS > rows else None):
                bits = self._bits(first + row)
                ops.store(self._word(row), bits, WORD_BYTES)
        self._meet()

    def _bits(self, number: Any) -> Any:
        """Bits of an output pixel; those past the last image have some, and are not stored."""
        starts: list[Any] = []
        windows = zip(self.shape.windows[::-1], self.shape.y[:1:-1], strict=True)
        for window, outputs in windows:
            quotient = self.kernel.divide(number, outputs)
            place = self.kernel.remainder(number, outputs, quotient)
            starts.append(place * window.stride + window.lower)
            number = quotient
        extents = [self.kernel.size(extent) for extent in self.shape.x.shape[2:]]
        return self.padding.of_pixel(starts[::-1], extents)

    def _meet(self) -> None:
        nvvm.barrier(barrier_id=ops.const(_BARRIER), number_of_threads=ops.const(THREADS))


@dataclass
class HaloRewriter(Rewriter):
    """See the file's docstring."""

    halo: Halo = field(kw_only=True)
    space: HaloSpace = field(kw_only=True)

    @property
    def maps(self) -> list[Any]:
        return []  # the operand's own, which is prefetched as any

    def _tile(self, place: TilePlace, here: Cursor) -> Cursor:
        _, *starts = self.space.start(place.column)
        panel = self.operand.panels.k
        panels = self.shape.panels(self.rewriting.operand.bits // 8)
        (phase,) = self.halo.phases  # what has a stride is not computed
        rows, batch = self.halo.input_rows(phase) * self.halo.pitch, place.batch_of(is_a=True)

        @loop(0, panels, state=here)
        def end(i: Any, here: Cursor) -> Cursor:
            inside = partial(self._inside, starts=starts)
            return self._rewrite(here, rows, i * panel, batch, inside)

        return end

    def _inside(self, position: Any, starts: Sequence[Any]) -> Any:
        """Whether a position of the tile that begins at a row and column of Y's image is inside."""
        down = position // self.halo.pitch
        across = position - down * self.halo.pitch
        found = None
        places = zip(self.halo.windows, (down, across), starts, (2, 3), strict=True)
        for window, moved, start, axis in places:
            if window.pre or window.post:
                at = moved + start + window.lower
                extent = self.kernel.size(self.shape.x.shape[axis])
                found = ops.both(found, ops.compare("ult", at, extent))
        return found
