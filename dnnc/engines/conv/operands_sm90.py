# pyright: basic
"""Operands of a convolution on Hopper's main loop, which TMA brings as products read them.

TapOperand     a tile of a stage, of one tap of the filter and a panel of channels:
               PixelOperand, im2col loads of X; FilterOperand, boxes of W
RingOperand    X where its pixels come once for all taps, to a ring of their own: see
               `conv.halo_sm90`, `conv.stem_kernel_sm90`
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ... import dtypes
from ...codegen import ops
from ...codegen.hopper import im2col, tma, wgmma
from ...codegen.hopper.cluster import Cluster
from ...codegen.hopper.im2col import Im2colBox
from ...codegen.hopper.staged_operand import StagePlan
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.walk.index import Index
from ...dialect.tensor import Tensor
from ...expr import Expr, Size
from ..product.matrices_sm90 import Batch
from .pattern import GROUP, ConvShape


def group_of(batch: Batch) -> Any:
    """The number of a group of channels."""
    return batch[GROUP].index().base if GROUP in batch else 0


def element_of(tensor: Tensor) -> str:
    """How TMA reads a tensor's elements: it rounds to tf32, `wgmma` would cut."""
    return "tf32" if tensor.type == dtypes.f32 else ""


def filter_row_bytes(shape: ConvShape, row: wgmma.Instruction) -> int:
    """Bytes of a row of a filter's tile: a panel, or what groups side by side have of it each."""
    return shape.panel_bytes(row.element_bytes) // shape.beside


@dataclass
class TapOperand:
    """A tile [rows, a panel of channels] of one tap.

    tile_rows: of the block's tile.
    """

    kernel: Kernel
    shape: ConvShape
    plan: StagePlan
    row: wgmma.Instruction
    tile_rows: int
    cluster: Cluster
    box: Any = field(init=False)
    map: Any = field(init=False)

    is_async = True
    raw = None
    copy: ClassVar[Callable[..., None]]  # of `_there`, to shared memory

    def __post_init__(self) -> None:
        self.is_rows = self.plan.is_rows
        self.panels = self._panels()
        self.share_rows = self.tile_rows // self.cluster.sharers(of_rows=self.is_rows)
        self.box, self.map = self._box_and_map()

    @property
    def maps(self) -> list[Any]:
        """Its tensor map."""
        return [self.map]

    @property
    def panel_row_bytes(self) -> int:
        """Bytes of a row as products read it."""
        return self.shape.panel_bytes(self.row.element_bytes)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as it comes."""
        return self.panel_row_bytes

    @property
    def bytes(self) -> int:
        """Bytes of its tile in a stage."""
        return self.tile_rows * self.row_bytes

    def load(
        self, stage: Any, batch: Batch, first: Any, first_k: Any, barrier: Any, rank: Any
    ) -> None:
        """Starts the copy of this block's share of a tile, from a row and k on."""
        share, to_ranks = self.cluster.share(rank, of_rows=self.is_rows)
        begins = share * self.share_rows
        channels = self.shape.padded_channels(self.panels.k)
        tap = first_k // channels if self.shape.taps > 1 else 0
        channel = first_k - tap * channels
        if self.shape.spread:  # of no tap, channels past the last one: zeros
            is_empty = self.shape.spread.chosen(batch).is_empty()
            if is_empty is not None:
                # TMA begins at whole 16 bytes, as panels do.
                end = self.shape.groups * self.shape.padded_channels(self.panels.k)
                channel = ops.select(is_empty, end, channel)
        for offset in range(0, self.share_rows, self.box_rows):
            moved = begins + offset
            there = self._there(batch, first, moved, tap, channel)
            place = smem.byte_pointer(stage, self.plan.offset)
            place = smem.byte_pointer(place, moved * self.row_bytes)
            type(self).copy(place, self.map, *there, barrier, to_ranks=to_ranks)

    @property
    def box_rows(self) -> int:
        """Rows of the tile that one copy brings."""
        return self.share_rows

    def _panels(self) -> wgmma.Panels:
        return wgmma.Panels(self.tile_rows, self.row.element_bytes, row_bytes=self.panel_row_bytes)

    def _box_and_map(self) -> tuple[Any, Any]:
        """The box that one copy brings, and its tensor map."""
        raise NotImplementedError

    def _there(
        self, batch: Batch, first: Any, moved: Any, tap: Any, channel: Any
    ) -> Sequence[Sequence[Any]]:
        """Coordinates that `copy` takes for a place; moved: rows from the first one of the tile."""
        raise NotImplementedError


@dataclass
class PixelOperand(TapOperand):
    """X: what a tap meets; rows are pixels of Y."""

    is_a = True
    copy = staticmethod(im2col.load)

    def _box_and_map(self) -> tuple[Any, Any]:
        image, windows = self.shape.image(self.panels.k)
        box = Im2colBox(image, windows, self.panels.k, self.share_rows, element_of(image))
        return box, self.kernel.tensor_map(box.recipe)

    def _there(
        self, batch: Batch, first: Any, moved: Any, tap: Any, channel: Any
    ) -> Sequence[Sequence[Any]]:
        pixel = im2col.first_pixel(self.kernel, self.box, first + moved)
        if self.shape.is_split_by_groups(self.panels.k):
            pixel[-1] = group_of(batch)
        else:
            channel = channel + group_of(batch) * self.shape.c_group
        if self.shape.spread is None:
            places = im2col.tap_of(self.box.windows, tap)
            return [channel, *pixel], im2col.offsets_of(self.box, places)
        _, offsets = self.shape.spread.chosen(batch).places(tap)
        outer = [0] * (len(self.box.windows) - len(offsets))
        return [channel, *pixel], [*offsets[::-1], *outer]


@dataclass
class FilterOperand(TapOperand):
    """W: rows are output channels of a group, or of groups side by side.

    Of a transposed one, whose output channels may be contiguous, the instruction transposes panels.
    """

    is_a = False
    copy = staticmethod(tma.load)

    @property
    def panel_row_bytes(self) -> int:
        return filter_row_bytes(self.shape, self.row)

    @property
    def box_rows(self) -> int:
        return self.share_rows if self.panels.is_k_major else wgmma.PANEL_ROWS

    def _panels(self) -> wgmma.Panels:
        if self.shape.is_filter_k_major:
            return super()._panels()
        size = self.row.element_bytes
        return wgmma.Panels(self.tile_rows, size, False, depth=self.panel_row_bytes // size)

    def _box_and_map(self) -> tuple[Any, Any]:
        w, axes = self.shape.filter(self.panels.k)
        extents = (self.box_rows, self.panels.k)
        if self.panels.is_k_major:
            axes, extents = axes[::-1], extents[::-1]
        box = tma.Box(w, axes, extents, element_of(w))
        return box, tma.map_argument(self.kernel, box)

    def _there(
        self, batch: Batch, first: Any, moved: Any, tap: Any, channel: Any
    ) -> Sequence[Sequence[Any]]:
        group, spread = group_of(batch), self.shape.spread
        taps = spread.chosen(batch).places(tap)[0] if spread else self._tap(tap)
        if not self.shape.is_transposed:
            output = first + group * self.shape.k_group
            at = [output + moved, channel, *taps]
        elif self.box.tensor is self.shape.w:
            channel = channel + group * self.shape.c_group
            at = [channel, first + moved, *taps]
        else:
            at = [group, channel, first + moved, *taps]
        return (tma.place(self.box, list(map(Index, at))),)

    def _tap(self, number: Any) -> list[Any]:
        """Where the filter has the tap with a number, along each spatial axis."""
        found: list[Any] = []
        for window in reversed(self.shape.windows):
            tap = number % window.taps
            number = number // window.taps
            found.append(window.taps - 1 - tap if self.shape.is_flipped else tap)
        return found[::-1]


@dataclass
class RingOperand:
    """X whose tiles of pixels have a ring of their own.

    boxes: what one copy brings, of each phase.  firsts: the elements of X where their tensors
    begin.  panels: of the tile that products read.
    """

    kernel: Kernel
    boxes: Sequence[tma.Box]
    firsts: Sequence[Size]
    panels: wgmma.Panels
    is_rows: bool

    is_a = True
    is_async = True
    raw = None
    bytes = 0  # of its tile in a stage

    def __post_init__(self) -> None:
        begins_inside = all(Expr.of(first).bounds()[0] >= 0 for first in self.firsts)
        assert begins_inside, "TMA takes no map that begins before its tensor"
        self.maps = [
            self.kernel.tensor_map(
                replace(box.recipe, offset=str((first + t.offset) * (t.type.bits // 8)))
            )
            for box, first in zip(self.boxes, self.firsts, strict=True)
            for t in [box.tensor]
        ]

    def start(self, phase: int, slot: Any, at: Sequence[Any], barrier: Any) -> None:
        """Starts the copy of a tile; at: coordinates of the box's tensor."""
        box = self.boxes[phase]
        tma.load(slot, self.maps[phase], tma.place(box, list(map(Index, at))), barrier)
