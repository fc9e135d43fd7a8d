# pyright: basic
"""The matrices of a convolution on Hopper's main loop: pixels by channels.

    A  [pixels of the output, taps * channels]   im2col loads of X
    B  [taps * channels, output channels]        boxes of W, one tap each

Swapped, output channels lie along the instruction's rows, and pixels along its columns.

Padding, strides and dilations are in the tensor map of X; the kernel has no masks.  A matrix of
the batch is a group of channels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import dtypes
from ..codegen import im2col, ops, smem, tma, wgmma
from ..codegen import index as idx
from ..codegen.cluster import Cluster
from ..codegen.im2col import Im2colBox
from ..codegen.index import Coordinate, Group, Index, Part
from ..codegen.kernel import Kernel
from ..codegen.loops import Loops, coordinates_of
from ..codegen.region import Region
from ..dialect.tensor import Tensor
from ..expr import Expr
from .conv import ConvShape, conv_of_call, pixel_matrix
from .conv_halo import Halo
from .conv_halo_sm90 import GROUP, HaloLoop, HaloOperand, HaloSpace, group_of
from .matrices_sm90 import Batch, Matrices
from .region_sm90 import product_calls
from .tile_sm90 import Tiling


def conv_matrices(kernel: Kernel, region: Region, tiling: Tiling) -> Matrices:
    """Those of the convolution of a region."""
    (call,) = product_calls(region)
    shape = conv_of_call(region, call)
    if tiling.halo:
        return _halo_matrices(kernel, region, tiling, call, shape)
    cluster, sides = Cluster(*tiling.cluster, tiling.splits), (tiling.rows, tiling.columns)
    pixels, channels = shape.pixels, Expr.of(shape.k_group)
    kinds, sizes = (PixelOperand, FilterOperand), (pixels, channels)
    if tiling.swaps:
        kinds, sizes = kinds[::-1], (channels, pixels)
    operands = [
        kind(kernel, shape, plan, tiling.row, side, cluster)
        for kind, plan, side in zip(kinds, tiling.operands, sides, strict=True)
    ]
    panel = tiling.row.panel_k
    dims = region.dims_of(call.results[0])
    return Matrices(
        [call],
        operands,
        _loops(shape),
        sizes,
        Expr.of(shape.depth(panel) // panel),
        PixelSpace(kernel, dims, shape.groups, tiling.pair, tiling.swaps),
    )


def _halo_matrices(
    kernel: Kernel, region: Region, tiling: Tiling, call: Any, shape: ConvShape
) -> Matrices:
    """The same, of pixels that come with their halo."""
    row, plans = tiling.row, tiling.operands
    halo = Halo.of(shape, tiling.halo["rows"], tiling.halo["parts"])
    operands = [
        FilterOperand(kernel, shape, plans[0], row, tiling.rows, Cluster()),
        HaloOperand(kernel, shape, halo, plans[1], row),
    ]
    space = HaloSpace(kernel, region.dims_of(call.results[0]), shape.groups, halo)
    panels = shape.padded_channels(row.panel_k) // row.panel_k
    positions = halo.parts * halo.positions
    stays = bool(tiling.halo["stays"])
    return Matrices(
        [call],
        operands,
        _loops(shape),
        (Expr.of(shape.k_group), halo.tiles(shape) * positions),
        Expr.of(panels * shape.taps),
        space,
        lambda operands, filters, pixels: HaloLoop(
            halo, space, shape, operands, filters, pixels, stays
        ),
    )


def _loops(shape: ConvShape) -> Loops:
    """Over the groups of channels."""
    return Loops((Expr.of(shape.groups),), ((GROUP,),) if shape.groups > 1 else ())


def _tap_and_channel(shape: ConvShape, panel: int, k: Any) -> tuple[Any, Any]:
    """(number of the tap, channel of the group) at k."""
    channels = shape.padded_channels(panel)
    tap = ops.div(k, channels) if shape.taps > 1 else 0
    return tap, ops.sub(k, ops.mul(tap, channels))


# ---- operands


@dataclass
class PixelOperand:
    """X: a tile [pixels, a panel of channels] of what one tap meets.

    plan: as of `StagedOperand`.  tile_rows: of the block's tile.
    """

    kernel: Kernel
    shape: ConvShape
    plan: Mapping[str, Any]
    row: wgmma.Instruction
    tile_rows: int
    cluster: Cluster

    is_a = True
    is_async = True
    raw = None

    def __post_init__(self) -> None:
        self.is_rows = bool(self.plan["is_rows"])
        self.panels = wgmma.Panels(self.tile_rows, self.row.element_bytes)
        self.share_rows = self.tile_rows // self.cluster.sharers(of_rows=self.is_rows)
        image, windows = self.shape.image(self.panels.k)
        # The copy engine rounds to tf32 on the way; `wgmma` would cut.
        element = "tf32" if image.type == dtypes.f32 else ""
        self.box = Im2colBox(image, windows, self.panels.k, self.share_rows, element)
        self.map = self.kernel.tensor_map(self.box.recipe)

    @property
    def bytes(self) -> int:
        """Of its tile in a stage."""
        return self.panels.bytes

    def load(
        self, stage: Any, batch: Batch, first: Any, first_k: Any, barrier: Any, rank: Any
    ) -> None:
        """Starts the copy of this block's share of a tile, from a pixel and k on."""
        share, to_ranks = self.cluster.share(rank, of_rows=self.is_rows)
        moved = ops.mul(share, self.share_rows)
        tap, channel = _tap_and_channel(self.shape, self.panels.k, first_k)
        pixel = im2col.first_pixel(self.kernel, self.box, ops.add(first, moved))
        if self.shape.is_split_by_groups(self.panels.k):
            pixel[-1] = group_of(batch)
        else:
            channel = ops.add(channel, ops.mul(group_of(batch), self.shape.c_group))
        offsets = im2col.offsets_of(self.box, im2col.tap_of(self.box, tap))
        place = smem.byte_pointer(stage, self.plan["offset"])
        place = smem.byte_pointer(place, ops.mul(moved, wgmma.ROW_BYTES))
        im2col.load(place, self.map, [channel, *pixel], offsets, barrier, to_ranks=to_ranks)


@dataclass
class FilterOperand:
    """W: a tile [output channels, a panel of channels] of one tap.

    plan: as of `StagedOperand`.  tile_rows: output channels of the block's tile.
    """

    kernel: Kernel
    shape: ConvShape
    plan: Mapping[str, Any]
    row: wgmma.Instruction
    tile_rows: int
    cluster: Cluster

    is_a = False
    is_async = True
    raw = None

    def __post_init__(self) -> None:
        self.is_rows = bool(self.plan["is_rows"])
        self.panels = wgmma.Panels(self.tile_rows, self.row.element_bytes)
        self.share_rows = self.tile_rows // self.cluster.sharers(of_rows=self.is_rows)
        w = self.shape.w
        element = "tf32" if w.type == dtypes.f32 else ""
        self.box = tma.Box(w, (1, 0), (self.panels.k, self.share_rows), element)
        self.map = tma.map_argument(self.kernel, self.box)

    @property
    def bytes(self) -> int:
        """Of its tile in a stage."""
        return self.panels.bytes

    def load(
        self, stage: Any, batch: Batch, first: Any, first_k: Any, barrier: Any, rank: Any
    ) -> None:
        """The same, from a channel of the group and k on."""
        share, to_ranks = self.cluster.share(rank, of_rows=self.is_rows)
        moved = ops.mul(share, self.share_rows)
        tap, channel = _tap_and_channel(self.shape, self.panels.k, first_k)
        output = ops.add(first, ops.mul(group_of(batch), self.shape.k_group))
        at = [Index(ops.add(output, moved)), Index(channel), *map(Index, self._tap(tap))]
        place = smem.byte_pointer(stage, self.plan["offset"])
        place = smem.byte_pointer(place, ops.mul(moved, wgmma.ROW_BYTES))
        tma.load(place, self.map, tma.place(self.box, at), barrier, to_ranks=to_ranks)

    def _tap(self, number: Any) -> list[Any]:
        """Where the filter has the tap with a number, along each spatial axis."""
        found: list[Any] = []
        for window in reversed(self.shape.windows):
            tap = ops.rem(number, window.taps)
            number = ops.div(number, window.taps)
            found.append(ops.sub(window.taps - 1, tap) if self.shape.is_turned else tap)
        return found[::-1]


# ---- where the epilogue's elements lie


@dataclass
class PixelSpace:
    """Rows are the pixels of all images, counted through; columns the channels of a group.

    dims: of Y.  pair: neighbours along the columns that the epilogue works on together.
    swaps: columns are pixels.
    """

    kernel: Kernel
    dims: tuple[Expr, ...]
    groups: int
    pair: int
    swaps: bool
    _counted: dict[Any, Group] = field(default_factory=dict)

    exit_axes = None

    @property
    def pixel_axes(self) -> tuple[int, ...]:
        return (0, *range(2, len(self.dims)))

    def at(self, batch: Batch, row: Coordinate, column: Coordinate) -> list[Coordinate]:
        if self.swaps:
            row, column = column, row
        pixel = self._pixel(row.index())
        parts = {axis: Part(pixel, i) for i, axis in enumerate(self.pixel_axes)}
        if self.groups > 1:
            k_group = self.dims[1].constant
            assert k_group is not None, "channels are a fixed size"
            first = idx.scale(batch[GROUP].index(), k_group // self.groups)
            column = idx.add(first, column.index())
        return coordinates_of(len(self.dims), parts, {1: column})

    def _pixel(self, row: Index) -> Group:
        """A row, to be taken apart into axes where they are needed: once for all that use it."""
        if row.key not in self._counted:
            extents = tuple(self.dims[axis] for axis in self.pixel_axes)
            width = self.pair if self.swaps else 1
            self._counted[row.key] = Group(self.kernel, extents, row, width)
        return self._counted[row.key]

    def box(self, tensor: Tensor, columns: int, rows: int) -> tma.Box:
        matrix = pixel_matrix(tensor, self.groups)
        assert matrix is not None, f"pixels of {tensor.label} have no stride"
        return tma.Box(matrix, (2, 1), (rows, columns) if self.swaps else (columns, rows))

    def corner(self, box: tma.Box, batch: Batch, row: Any, column: Any) -> list[Any]:
        group = batch[GROUP] if batch else Index.of(0)
        if self.swaps:
            row, column = column, row
        return tma.place(box, [group, Index(row), Index(column)])
