# pyright: basic
"""The matrices of a convolution on Hopper's main loop: pixels by channels.

    A  [pixels of the output, taps * channels]   im2col loads of X
    B  [taps * channels, output channels]        boxes of W, one tap each

Swapped, output channels lie along the instruction's rows, and pixels along its columns.

Padding, strides and dilations are in the tensor map of X; the kernel has no masks.  A matrix of
the batch is a group of channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...codegen import ops
from ...codegen.hopper import im2col, tma
from ...codegen.hopper.cluster import Cluster
from ...codegen.hopper.im2col import Im2colBox
from ...codegen.hopper.staged_operand import StagePlan
from ...codegen.kernel import Kernel
from ...codegen.region import Region
from ...codegen.tiles.schedule import TilePlace
from ...codegen.walk.index import Coordinate, Group, Index
from ...dialect.tensor import Tensor
from ...expr import Expr
from ..product.exits import SpaceAxes
from ..product.matrices_sm90 import Batch, Matrices, WholeSpace
from ..product.region_sm90 import product_calls
from ..product.tile_sm90 import Tiling
from .facts_sm90 import REWRITTEN
from .halo import Halo
from .halo_sm90 import HaloLoop, HaloSpace, halo_operand
from .operands_sm90 import FilterOperand, PixelOperand
from .pattern import GROUP, ConvShape, conv_of_call, pixel_matrix
from .phase_stores_sm90 import PhaseStore
from .pixel_places import PixelPlaces
from .rewriting_sm90 import ComputedPixels, HaloRewriter, PixelRewriter, rewriting_of
from .zeros_sm90 import PhaseZeros


def conv_matrices(kernel: Kernel, region: Region, tiling: Tiling) -> Matrices:
    """The matrices of the convolution of a region."""
    (call,) = product_calls(region)
    shape = conv_of_call(region, call)
    if tiling.pixels.halo:
        return _halo_matrices(kernel, region, tiling, call, shape)
    dims, zeros = region.dims_of(call.results[0]), None
    if tiling.pixels.zeros:
        apart = PixelPlaces(kernel, dims, replace(shape, beside=shape.apart))
        whole = PixelSpace(apart, 1, False)
        targets = [target for _, target in region.targets(kernel)]
        zeros, shape = PhaseZeros(kernel, shape, whole, targets), shape.met
    shape = replace(shape, beside=tiling.pixels.beside)
    pixels, channels = shape.pixels, Expr.of(shape.k_group)
    operands = [
        _operand(kernel, region, tiling, shape, plan, side)
        for plan, side in zip(
            tiling.operands, (tiling.block.rows, tiling.block.columns), strict=True
        )
    ]
    return Matrices(
        [call],
        operands,
        shape.batch,
        (channels, pixels) if tiling.block.swaps else (pixels, channels),
        Expr.of(shape.taps * shape.panels(tiling.row.element_bytes)),
        PixelSpace(PixelPlaces(kernel, dims, shape), tiling.epilogue.pair, tiling.block.swaps),
        rewriter=_rewriter(kernel, region, tiling, operands, call.operands[0], shape),
        steps_of=_steps_of(shape, tiling),
        zeros=zeros,
    )


def _steps_of(shape: ConvShape, tiling: Tiling) -> Callable[[Batch], Any] | None:
    """See `Matrices`: of phases, which meet some of the taps each.  One that meets none has as few
    as the main loop takes, of zeros."""
    spread, panels = shape.spread, shape.panels(tiling.row.element_bytes)
    if spread is None:
        return None

    def steps_of(batch: Batch) -> Any:
        phase = spread.chosen(batch)
        steps, is_empty = phase.taps * panels, phase.is_empty()
        least = max(1, len(tiling.pixels.steps))
        return steps if is_empty is None else ops.select(is_empty, least, steps)

    return steps_of


def _operand(
    kernel: Kernel, region: Region, tiling: Tiling, shape: ConvShape, plan: StagePlan, side: int
) -> Any:
    """The operand of a stage; side: rows of its tile."""
    cluster, row = Cluster(*tiling.grid.cluster, tiling.grid.splits), tiling.row
    if plan.is_rows == tiling.block.swaps:
        return FilterOperand(kernel, shape, plan, row, side, cluster)
    if plan.path == REWRITTEN:
        return ComputedPixels(kernel, region, shape, plan, row, side, cluster)
    return PixelOperand(kernel, shape, plan, row, side, cluster)


def _rewriter(
    kernel: Kernel, region: Region, tiling: Tiling, operands: Sequence[Any], x: Any,
    shape: ConvShape,
) -> PixelRewriter | None:  # fmt: skip
    """Where operations come before x."""
    computed = [o for o in operands if isinstance(o, ComputedPixels)]
    if not computed:
        return None
    rewriting = rewriting_of(kernel, region, x, computed[0].plan, tiling.row, shape)
    kept = next((tensor for value, tensor in region.outputs if value == x), None)
    return PixelRewriter(kernel, shape, rewriting, computed[0], kept)


def _halo_matrices(
    kernel: Kernel, region: Region, tiling: Tiling, call: Any, shape: ConvShape
) -> Matrices:
    """The matrices of pixels that come with their halo."""
    row, plans = tiling.row, tiling.operands
    tile = tiling.pixels.halo
    assert tile is not None, "pixels with a halo"
    halo = Halo.of(shape, tile.rows, tile.parts, row.element_bytes, tile.columns)
    is_raw = plans[1].path == REWRITTEN
    if is_raw:
        shape = replace(shape, x=list(region.arguments.values())[plans[1].raws[0].argument])
    operands = [
        FilterOperand(kernel, shape, plans[0], row, tiling.block.rows, Cluster()),
        halo_operand(kernel, shape, halo, row, is_raw=is_raw),
    ]
    space = HaloSpace(kernel, region.dims_of(call.results[0]), shape.groups, halo)
    rewriter = None
    if is_raw:
        plan = replace(plans[1], offset=0, raws=(replace(plans[1].raws[0], offset=0),))
        rewriting = rewriting_of(kernel, region, call.operands[0], plan, row, shape)
        rewriter = HaloRewriter(kernel, shape, rewriting, operands[1], halo=halo, space=space)
    return Matrices(
        [call],
        operands,
        shape.batch,
        (Expr.of(shape.k_group), halo.counted(shape)),
        Expr.of(shape.taps * shape.panels(row.element_bytes)),
        space,
        lambda operands, filters, pixels: HaloLoop(
            halo, space, shape, operands, filters, pixels, tile.stays, rewriter, tiling.pixels.steps
        ),
        rewriter,
    )


# ---- where the epilogue's elements lie


@dataclass
class PixelSpace(WholeSpace):
    """Rows are the pixels of all images, counted through; columns the channels of a group.

    pair: neighbours along the columns that the epilogue works on together.  swaps: columns are
    pixels.
    """

    places: PixelPlaces
    pair: int
    swaps: bool
    _counted: dict[Any, Group] = field(default_factory=dict)

    @property
    def axes(self) -> SpaceAxes:
        pixels, channels = self.places.axes, (1,)
        rows, columns = (channels, pixels) if self.swaps else (pixels, channels)
        return SpaceAxes(rows, columns, self.places.shape.batch_axes)

    def is_row(self, batch: Batch, row: Any) -> Any:
        return None if self.swaps else self._is_pixel(batch, row)

    def is_column(self, batch: Batch, column: Any) -> Any:
        return self._is_pixel(batch, column) if self.swaps else None

    def _is_pixel(self, batch: Batch, number: Any) -> Any:
        return self.places.is_there(batch, self._pixel(Index(number)))

    def at(self, batch: Batch, row: Coordinate, column: Coordinate) -> list[Coordinate]:
        if self.swaps:
            row, column = column, row
        return self.places.of(batch, self._pixel(row.index()), column)

    def _pixel(self, row: Index) -> Group:
        """A row, taken apart once for all that use it."""
        if row.key not in self._counted:
            self._counted[row.key] = self.places.pixel(row, self.pair if self.swaps else 1)
        return self._counted[row.key]

    def box(self, tensor: Tensor, columns: int, rows: int) -> tma.Box:
        matrix = pixel_matrix(tensor, self.places.shape.groups)
        assert matrix is not None, f"pixels of {tensor.label} have no stride"
        return tma.Box(matrix, (2, 1), (rows, columns) if self.swaps else (columns, rows))

    def corner(self, box: tma.Box, batch: Batch, row: Any, column: Any) -> list[Any]:
        group = batch[GROUP] if GROUP in batch else Index.of(0)
        if self.swaps:
            row, column = column, row
        return tma.place(box, [group, Index(row), Index(column)])

    def phase_store(self, tensor: Tensor, columns: int, rows: int, last: int) -> PhaseStore:
        shape = self.places.shape
        sides = (rows, columns, last) if self.swaps else (columns, rows, rows)
        return PhaseStore(self.places.kernel, shape, tensor, *sides, self.swaps)

    def loaded_box(self, tensor: Tensor, columns: int, rows: int) -> tma.MovedBox:
        if (windows := self.places.shape.phase_windows) is None:
            return super().loaded_box(tensor, columns, rows)
        return Im2colBox(tensor, windows, *((rows, columns) if self.swaps else (columns, rows)))

    def load(
        self, target: Any, map_: Any, box: tma.MovedBox, place: TilePlace, barrier: Any
    ) -> None:
        if not isinstance(box, Im2colBox):
            super().load(target, map_, box, place, barrier)
            return
        shape, phases = self.places.shape, self.places.phases
        assert phases is not None, "phases of pixels"
        pixel, channel = (place.column, place.row)[:: 1 if self.swaps else -1]
        if GROUP in place.batch:
            channel = channel + place.batch[GROUP].index().base * shape.k_group
        phase = phases.spread.chosen(place.batch)
        origins = [phase.origin(axis) for axis in range(len(box.windows))]
        at = [channel, *im2col.first_pixel(self.places.kernel, box, pixel)]
        im2col.load(target, map_, at, im2col.offsets_of(box, origins), barrier)
