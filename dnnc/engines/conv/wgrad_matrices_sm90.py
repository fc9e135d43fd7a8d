# pyright: basic
"""The matrices of a filter's gradient on Hopper's main loop: output channels by taps and channels.

    A  [output channels, pixels]        boxes of dY, whose pixels are rows of memory
    B  [pixels, taps * channels]        im2col loads of X, one for each chunk of 64 columns

k counts through the pixels of the output, 64 a stage.  Both operands lie with their rows, not k,
contiguous, in panels of 64: a panel of B is what one tap meets of 64 channels.  A matrix of the
batch is a part of the pixels and a group of channels.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...codegen import ops
from ...codegen.hopper import im2col, tma, wgmma
from ...codegen.hopper.cluster import Cluster
from ...codegen.hopper.im2col import Im2colBox
from ...codegen.hopper.staged_operand import StagePlan
from ...codegen.hopper.transposed_bytes import PANEL, TransposedPanels
from ...codegen.kernel import Kernel
from ...codegen.memory import smem
from ...codegen.region import Region
from ...codegen.walk import index as idx
from ...codegen.walk.index import Coordinate, Index
from ...codegen.walk.loops import Loops
from ...dialect.tensor import Tensor
from ...expr import Expr, ceildiv
from ..product.matrices_sm90 import Batch, Matrices, WholeSpace
from ..product.region_sm90 import product_calls
from ..product.tile_sm90 import Tiling
from .loss_sums_sm90 import LossSums, loss_sums_of, sharers_of
from .pattern import pixel_matrix
from .wgrad import (
    CHUNK,
    GROUP,
    PART,
    PITCH,
    WgradShape,
    channel_pitch,
    group_of,
    part_of,
    place_of_part,
    shape_of_call,
    side_by_side,
    tap_and_channel,
    tap_places,
)
from .wgrad_computed_sm90 import HaloRewriter, TapRewriter, rewriting_of
from .wgrad_halo_sm90 import PixelTile, WgradHalo, WgradHaloLoop
from .wgrad_rewriting_sm90 import ByteRewriter, Making, OperandRewriter
from .wgrad_stem_sm90 import StemSpace, WgradStem, WgradStemLoop


def steps_of(shape: WgradShape, parts: int) -> Expr:
    """Stages of a part of the pixels."""
    return ceildiv(ceildiv(shape.pixels, CHUNK), parts)


def wgrad_matrices(kernel: Kernel, region: Region, tiling: Tiling, parts: int) -> Matrices:
    """The matrices of the gradient of a region; parts: of the pixels, whose sums are apart, or are
    added to one place.

    Of sums apart the region has one output, see `wgrad_sums`.
    """
    (call,) = product_calls(region)
    shape = side_by_side(shape_of_call(region, call))
    cluster = Cluster(*tiling.grid.cluster, tiling.grid.splits)
    if tiling.pixels.ring.slots:
        return _halo_matrices(kernel, region, call, shape, tiling, parts)
    losses = None
    if shape.sums_loss:
        block = tiling.block
        sharers = sharers_of(shape.columns, block)
        sums = loss_sums_of(shape, parts, tiling.grid.splits, sharers)
        panel = wgmma.Panels(block.rows, 2, is_k_major=False)
        losses = LossSums(
            kernel, shape, sums, cluster, block.part[0], panel.panel_bytes, panel.k,
            block.part[1], sharers,
        )  # fmt: skip
    steps = steps_of(shape, parts)
    gradient, image = tiling.operands
    operands = [
        GradientOperand(kernel, shape, gradient, tiling.row, tiling.block.rows, cluster, steps),
        ImageOperand(kernel, shape, image, tiling.row, tiling.block.columns, cluster, steps),
    ]
    return Matrices(
        [call],
        operands,
        _loops(shape, parts),
        (Expr.of(shape.k_group), Expr.of(shape.columns)),
        steps,
        FilterSpace(shape, parts, adds=region.adds),
        rewriter=_rewriter(kernel, region, call, shape, operands, parts, tiling.block.helpers),
        row_sums=losses,
    )


def _rewriter(
    kernel: Kernel, region: Region, call: Any, shape: WgradShape,
    operands: Sequence[PanelOperand], parts: int, helpers: int,
) -> OperandRewriter | None:  # fmt: skip
    """The warps that compute X, or transpose operands of bytes."""
    gradient, image = operands
    if shape.computes:
        steps = steps_of(shape, parts)
        rewriting = rewriting_of(kernel, region, call, shape, image.plan.offset, helpers)
        pixels, loaded = shape.pixels.constant, (steps * parts * CHUNK).constant
        return TapRewriter(
            [image], helpers, kernel=kernel, shape=shape, rewriting=rewriting,
            tile_rows=image.tile_rows, steps=steps,
            is_whole=pixels is not None and pixels == loaded,
        )  # fmt: skip
    if gradient.row.takes_mn_major:
        return None
    makings = [
        Making(TransposedPanels(o.tile_rows // PANEL), o.loaded_offset, o.plan.offset)
        for o in operands
    ]
    return ByteRewriter(operands, makings=makings)


def _halo_matrices(
    kernel: Kernel, region: Region, call: Any, shape: WgradShape, tiling: Tiling, parts: int
) -> Matrices:
    """The matrices of pixels that come with their halo."""
    adds, ring = region.adds, tiling.pixels.ring
    tile = pixel_tile(shape, ring.rows, ring.columns)
    steps = ceildiv(tile.tiles, parts)
    is_stem = isinstance(tile, WgradStem)
    columns = tile.tile_columns if is_stem else shape.columns
    loop, operands = WgradStemLoop if is_stem else WgradHaloLoop, tile.operands(kernel)
    rewriter = ByteRewriter(operands, makings=tile.widened) if tile.widened else None
    if isinstance(tile, WgradHalo) and shape.computes:
        rewriting = rewriting_of(kernel, region, call, shape, tile.image_offset)
        rewriter = HaloRewriter(
            operands, kernel=kernel, tile=tile, rewriting=rewriting, steps=steps
        )
    losses = None
    if shape.sums_loss:
        sharers, positions = sharers_of(columns, tiling.block), tile.rows * tile.columns
        sums = loss_sums_of(shape, parts, 1, sharers)
        losses = LossSums(
            kernel, shape, sums, Cluster(1, 1, 1), CHUNK, 0, positions, tiling.block.part[1],
            sharers,
        )  # fmt: skip
    return Matrices(
        [call],
        operands,
        _loops(shape, parts),
        (Expr.of(shape.k_group), Expr.of(columns)),
        steps,
        StemSpace(shape, partial(place_of_part, adds=adds))
        if is_stem
        else FilterSpace(shape, parts, shape.is_flipped, adds),
        lambda operands, _, pixels: loop(
            kernel, tile, operands, tiling.row, pixels, part_of, group_of, steps, losses, rewriter
        ),
        rewriter,
    )


def pixel_tile(shape: WgradShape, rows: int, columns: int) -> PixelTile:
    """A tile of dY's image whose pixels of X come once for all taps; columns: 0: all of an image,
    whose width is fixed."""
    made = WgradStem if channel_pitch(shape) else WgradHalo
    return made(shape, rows, columns or shape.dy.shape[3].constant or 0)


def _loops(shape: WgradShape, parts: int) -> Loops:
    """Over parts of the pixels, and groups."""
    counts = (parts, shape.groups)
    axes = tuple((axis,) for axis in (PART, GROUP) if counts[axis] > 1)
    return Loops(tuple(map(Expr.of, counts)), axes)


@dataclass
class PanelOperand:
    """A tile of a stage whose panels of 64 rows come by a copy each.

    plan: its raw tile is where bytes come, of which the tile is made.
    tile_rows: of the block's tile.  steps: stages of a part.
    """

    kernel: Kernel
    shape: WgradShape
    plan: StagePlan
    row: wgmma.Instruction
    tile_rows: int
    cluster: Cluster
    steps: Expr

    is_async = True
    raw = None

    def __post_init__(self) -> None:
        self.is_rows, self.is_a = self.plan.is_rows, self.plan.is_a
        self.panels = self._panels()
        self.share_rows = self.tile_rows // self.cluster.sharers(of_rows=self.is_rows)
        self.bytes = self.panels.bytes
        (self.loaded_offset,) = [raw.offset for raw in self.plan.raws] or [self.plan.offset]
        self.box = self._box()
        self.map = self.kernel.tensor_map(self.box.recipe)

    def _panels(self) -> wgmma.Panels:
        """Panels whose rows are contiguous of 16 bits, as they come; else pixels are contiguous."""
        if self.row.takes_mn_major:
            return wgmma.Panels(self.tile_rows, self.row.element_bytes, is_k_major=False)
        return wgmma.Panels(self.tile_rows, self.row.element_bytes, row_bytes=CHUNK)

    @property
    def maps(self) -> list[Any]:
        """Its tensor map."""
        return [self.map]

    def load(
        self, stage: Any, batch: Batch, first: Any, first_k: Any, barrier: Any, rank: Any
    ) -> None:
        """Starts the copies of this block's share of a tile, from a row and k on."""
        share, to_ranks = self.cluster.share(rank, of_rows=self.is_rows)
        before = part_of(batch) * self.kernel.size(self.steps * self.panels.k)
        there = self._pixel(before + first_k)
        target = smem.byte_pointer(stage, self.loaded_offset)
        for panel in range(0, self.share_rows, CHUNK):
            moved = share * self.share_rows + panel
            place = smem.byte_pointer(target, moved * self.panels.k_bytes)
            self._copy(place, batch, first + moved, there, barrier, to_ranks)

    def _box(self) -> Any:
        """The box that a copy brings."""
        raise NotImplementedError

    def _pixel(self, number: Any) -> Any:
        """The place of a stage's first pixel."""
        return number

    def _copy(
        self, place: Any, batch: Batch, row: Any, there: Any, barrier: Any, to_ranks: Any
    ) -> None:
        """Starts the copy of a panel; there: `_pixel`."""
        raise NotImplementedError


@dataclass
class GradientOperand(PanelOperand):
    """dY: rows are output channels of a group."""

    def _box(self) -> tma.Box:
        matrix = pixel_matrix(self.shape.dy, self.shape.groups)
        assert matrix is not None, "pixels of dY have no stride"
        return tma.Box(matrix, (2, 1), (CHUNK, self.panels.k))

    def _copy(
        self, place: Any, batch: Batch, row: Any, there: Any, barrier: Any, to_ranks: Any
    ) -> None:
        at = [Index(group_of(batch)), Index(there), Index(row)]
        tma.load(place, self.map, tma.place(self.box, at), barrier, to_ranks=to_ranks)


@dataclass
class ImageOperand(PanelOperand):
    """X: rows are the columns of dW's matrix, of which a panel is channels of one tap."""

    def _box(self) -> Im2colBox:
        return Im2colBox(self.shape.x, self.shape.windows, CHUNK, self.panels.k)

    def _pixel(self, number: Any) -> Any:
        return im2col.first_pixel(self.kernel, self.box, number)

    def _copy(
        self, place: Any, batch: Batch, row: Any, there: Any, barrier: Any, to_ranks: Any
    ) -> None:
        shape = self.shape
        tap, channel = tap_and_channel(shape, row)  # past the end, of channels that are none
        if shape.is_flipped:
            tap = shape.taps - 1 - tap
        channel = channel + group_of(batch) * shape.c_group
        offsets = im2col.offsets_of(self.box, im2col.tap_of(self.box.windows, tap))
        im2col.load(place, self.map, [channel, *there], offsets, barrier, to_ranks=to_ranks)


# ---- where the epilogue's elements lie


@dataclass(frozen=True)
class FilterSpace(WholeSpace):
    """Rows are the output channels of a group, columns the taps and the channels of each.

    parts: of the pixels; where there are several, tensors have a place for each, one after the
    other.  is_flipped: whether taps are counted from the filter's end.  adds: parts have one place.
    """

    shape: WgradShape
    parts: int
    is_flipped: bool = False
    adds: bool = False

    def is_column(self, batch: Batch, column: Any) -> Any:
        if not self.adds or self.shape.c_group % CHUNK == 0:
            return None  # a tensor map ends with the channels
        _, channel = tap_and_channel(self.shape, column)
        return ops.less(channel, -(-self.shape.c_group // PITCH) * PITCH)

    def at(self, batch: Batch, row: Coordinate, column: Coordinate) -> list[Coordinate]:
        part = place_of_part(batch, adds=self.adds) * self.shape.dw[0]
        first = part + group_of(batch) * self.shape.k_group
        taken = column.index()
        tap, channel = self._tap_and_channel(taken.base)
        places = [Index.of(place) for place in tap_places(self.shape, tap)]
        own = idx.add(Index.of(first), row.index())
        return [own, replace(taken, base=channel), *places]

    def _tap_and_channel(self, column: Any) -> tuple[Any, Any]:
        """The tap and the channel of dW that a column is."""
        tap, channel = tap_and_channel(self.shape, column)
        return self.shape.taps - 1 - tap if self.is_flipped else tap, channel

    def box(self, tensor: Tensor, columns: int, rows: int) -> tma.Box:
        return tma.Box(filter_view(self.shape, tensor, self.parts), (3, 2), (columns, rows))

    def corner(self, box: tma.Box, batch: Batch, row: Any, column: Any) -> list[Any]:
        tap, channel = self._tap_and_channel(column)
        group, part = group_of(batch), part_of(batch)
        places = [tap] if len(box.tensor.shape) == 5 else tap_places(self.shape, tap)
        at = [part, group, row, channel, *places]
        return tma.place(box, list(map(Index, at)))


def filter_view(shape: WgradShape, tensor: Tensor, parts: int) -> Tensor:
    """A tensor of dW's dims as [parts, groups, K / groups, C / groups, taps], where the taps have
    one stride; else with an axis for each spatial one.

    Channels are in whole steps of `PITCH`, of which sums have room for all.
    """
    k, c, *strides = tensor.layout
    axes = [axis for axis, taps in enumerate(shape.dw[2:], 2) if taps != 1]
    nests = all(
        tensor.layout[outer] == tensor.layout[inner] * shape.dw[inner]
        for outer, inner in itertools.pairwise(axes)
    )
    taps, along = shape.dw[2:], tuple(strides)
    if nests:
        taps, along = (shape.taps,), (tensor.layout[axes[-1]] if axes else Expr.of(1),)
    channels = -(-shape.c_group // PITCH) * PITCH
    dims = (parts, shape.groups, shape.k_group, channels, *taps)
    return replace(
        tensor,
        dims=tuple(map(Expr.of, dims)),
        strides=(k * shape.dw[0], k * shape.k_group, k, c, *along),
    )
