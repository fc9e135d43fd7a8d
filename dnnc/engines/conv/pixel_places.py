# pyright: basic
"""PixelPlaces: where elements of a product of pixels by channels lie in tensors of Y's dims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...codegen.kernel import Kernel
from ...codegen.walk import index as idx
from ...codegen.walk.index import Coordinate, Group, Index, Part
from ...codegen.walk.loops import coordinates_of
from ...expr import Expr
from .pattern import GROUP, ConvShape
from .spread import SpreadPlaces


@dataclass(frozen=True, eq=False)
class PixelPlaces:
    """The pixels of all images, or of a phase, are counted through; channels are of a group.

    dims: of Y.
    """

    kernel: Kernel
    dims: tuple[Expr, ...]
    shape: ConvShape

    @cached_property
    def phases(self) -> SpreadPlaces | None:
        """The phases of a gradient with strides; None: there are none."""
        spread, outputs = self.shape.spread, self.shape.x.shape[2:]
        return SpreadPlaces(self.kernel, spread, self.dims, outputs) if spread else None

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes that count pixels: images, then the spatial ones."""
        return (0, *range(2, len(self.dims)))

    def pixel(self, row: Index, width: int) -> Group:
        """A row, to be taken apart into axes where they are needed."""
        extents = self.shape.counted if self.phases else [self.dims[axis] for axis in self.axes]
        return Group(self.kernel, tuple(extents), row, width)

    def of(
        self, batch: Mapping[int, Coordinate], pixel: Group, column: Coordinate
    ) -> list[Coordinate]:
        """The coordinates of an element."""
        parts: dict[int, Coordinate] = {axis: Part(pixel, i) for i, axis in enumerate(self.axes)}
        if self.phases:
            phase = self.phases.spread.chosen(batch)
            for axis in range(len(self.dims) - 2):
                parts[2 + axis] = self.phases.place(phase, axis, parts[2 + axis].index())
        if GROUP in batch:
            channels = self.dims[1].constant
            assert channels is not None, "channels are a fixed size"
            first = idx.scale(batch[GROUP].index(), channels // self.shape.groups)
            column = idx.add(first, column.index())
        return coordinates_of(len(self.dims), parts, {1: column})

    def is_there(self, batch: Mapping[int, Coordinate], pixel: Group) -> Any:
        """Whether the image has a pixel of a phase, i1; None: it has."""
        if self.phases is None or self.phases.are_whole:
            return None
        numbers = [pixel.part(1 + axis).base for axis in range(len(self.dims) - 2)]
        return self.phases.inside(self.phases.spread.chosen(batch), numbers)
