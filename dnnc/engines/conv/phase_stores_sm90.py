# pyright: basic
"""Results of a tile in shared memory to the pixels of a phase, by TMA.

The pixels of a phase lie a stride apart along each axis: they are an image of their own, whose
strides in memory are wider.  Pixels of it that follow each other, through rows and images, are a
column of im2col, and TMA stores such columns, too.  Every phase has a tensor map; the thread that
starts a copy looks which.

Seen on an H200: gradients with 3x3 filters and strides of 2 take up to 10% less than with stores by
threads.  A map whose bounding box has places outside the image ends in an illegal instruction, so
images have all pixels of every phase; boxes may end behind the last channel and the last image.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ...codegen import ops
from ...codegen.hopper import im2col, tma, wgmma
from ...codegen.hopper.im2col import Im2colBox, Window
from ...codegen.kernel import Kernel
from ...codegen.memory.smem import pointer_to
from ...codegen.tiles.schedule import TilePlace
from ...dialect.tensor import Tensor
from ...expr import Expr
from ..surface import bytes_of
from .pattern import GROUP, ConvShape
from .spread import Spread
from .surface import LARGE_BYTES

_MOST_PHASES = 9  # of each a map is a parameter of the kernel


@dataclass(frozen=True)
class PhaseStore:
    """The copies of one output's buffers.

    tensor: of Y's dims.  channels, pixels: of a buffer.  last: pixels of a tile's last one.
    swaps: whether the product's columns are pixels.
    """

    kernel: Kernel
    shape: ConvShape
    tensor: Tensor
    channels: int
    pixels: int
    last: int
    swaps: bool

    @cached_property
    def maps(self) -> dict[int, list[Any]]:
        """Pixels of a buffer -> the map of each phase."""
        return {
            pixels: [
                tma.map_argument(self.kernel, self._box(phase, pixels))
                for phase in range(_spread(self.shape).phases)
            ]
            for pixels in dict.fromkeys((self.pixels, self.last))
        }

    def _box(self, phase: int, pixels: int) -> Im2colBox:
        image = phase_images(self.tensor, self.shape)[phase]
        return Im2colBox(image, _windows(image), self.channels, pixels)

    def start(self, source: Any, there: TilePlace, columns: int, policy: Any) -> None:
        """See `PhaseCopies`."""
        pixels = columns if self.swaps else self.pixels
        pixel, channel = (there.column, there.row)[:: 1 if self.swaps else -1]
        # Boxes of a tile may lie behind the channels of a group.
        with ops.if_(ops.less(channel, self.shape.k_group)):
            self._start(source, there, pixel, channel, pixels, policy)

    def _start(
        self, source: Any, there: TilePlace, pixel: Any, channel: Any, pixels: int, policy: Any
    ) -> None:
        if GROUP in there.batch:
            channel = channel + there.batch[GROUP].index().base * self.shape.k_group
        # All phases have as many pixels along each axis.
        at = [channel, *im2col.first_pixel(self.kernel, self._box(0, pixels), pixel)]
        maps, spread = self.maps[pixels], _spread(self.shape)
        number: Any = 0
        for own, count in zip(spread.chosen(there.batch).numbers, spread.counts, strict=True):
            number = number * count + own
        if len(maps) == 1:
            im2col.store(pointer_to(source), maps[0], at, policy)
            return
        for phase, map_ in enumerate(maps):
            with ops.if_(number.eq(phase)):
                im2col.store(pointer_to(source), map_, at, policy)


def phase_images(tensor: Tensor, shape: ConvShape) -> list[Tensor]:
    """The image of each phase's pixels, in the order of the phases."""
    found = []
    for phases in itertools.product(*([(a, p) for p in a.phases] for a in _spread(shape).axes)):
        dims, strides, first = list(tensor.shape), list(tensor.layout), 0
        for axis, (own, phase) in enumerate(phases, 2):
            pixels, stride = _fixed(dims[axis]), _fixed(strides[axis])
            first += phase.origin * stride
            dims[axis] = Expr.of(-(-(pixels - phase.origin) // own.stride))
            strides[axis] = Expr.of(stride * own.stride)
        image = replace(tensor, dims=tuple(dims), strides=tuple(strides))
        found.append(replace(image, offset=tensor.offset + first))
    return found


def are_stored_by_phase(tensor: Tensor, shape: ConvShape) -> bool:
    """Whether TMA stores the pixels of each phase of a tensor of Y's dims that is channels last.

    Not so of a large one where phases meet no tap: of 1x1 filters with strides of 2, TMA took 1 to
    4% less of up to 103 MB (four layers), 2 and 6% more of 205 and 411 MB, which memory bounds.
    """
    spread, row_bytes = _spread(shape), shape.k_group * tensor.type.bits // 8
    sizes = (*tensor.shape[2:], *tensor.layout[2:], *shape.x.shape[2:])
    if any(size.constant is None for size in sizes):
        return False
    if spread.phases > _MOST_PHASES or row_bytes < wgmma.ROW_BYTES:
        return False
    if spread.empty and bytes_of((tensor,)) > LARGE_BYTES:
        return False
    if shape.groups > 1 and row_bytes % wgmma.ROW_BYTES:
        return False  # boxes end with a group's last channel
    axes = zip(spread.axes, tensor.shape[2:], shape.x.shape[2:], strict=True)
    if not all(axis.is_whole(*pixels) for axis, *pixels in axes):
        return False
    images = phase_images(tensor, shape)
    return all(im2col.refusal(image, _windows(image)) is None for image in images)


def _windows(image: Tensor) -> tuple[Window, ...]:
    return (Window(1),) * (image.rank - 2)


def _spread(shape: ConvShape) -> Spread:
    assert shape.spread is not None, "a gradient with strides"
    return shape.spread


def _fixed(size: Expr) -> int:
    assert size.constant is not None, f"{size} is a symbol"
    return size.constant
