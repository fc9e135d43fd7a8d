# pyright: basic
"""PartedTensor: a product's result that lies in several tensors, or along more axes than it has.

    part: columns [start, stop) of the product; each axis of the product is counted through by some
    axes of the part's tensor, which may have any strides

A row and a column are taken apart into coordinates of the part that has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...dialect.tensor import Tensor
from .. import ops
from ..kernel import Kernel
from ..walk import index as idx
from ..walk.index import Coordinate, Group, Index, Part
from .tensors import GlobalTensor


@dataclass(frozen=True)
class End:
    """One output, as what a product gives or a part of it: plain data of a tiling.

    place: among the outputs.  views: between the product's dims and the output's.  start, stop:
    along the last axis; stop 0: its end.  axes: of each axis of the product's dims, those of the
    output that count through it, outermost first; empty: the output has no views.
    """

    place: int
    views: int = 0
    start: int = 0
    stop: int = 0
    axes: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, eq=False)
class StoredPart:
    """One of the tensors, and which part it is."""

    tensor: Tensor
    end: End

    @property
    def axes(self) -> tuple[tuple[int, ...], ...]:
        return self.end.axes

    def at(self, kernel: Kernel, at: Sequence[Coordinate], width: int) -> list[Coordinate]:
        """Coordinates in the tensor of a fragment at some coordinates of the product."""
        found: list[Coordinate] = [Index.of(0)] * self.tensor.rank
        for axis, own in enumerate(self.axes):
            along = at[axis]
            if self.end.start and axis == len(self.axes) - 1:
                along = idx.sub(along.index(), Index.of(self.end.start))
            if len(own) == 1:
                found[own[0]] = along
                continue
            extents = tuple(self.tensor.shape[each] for each in own)
            group = Group(kernel, extents, along.index(), width)
            for position, each in enumerate(own):
                found[each] = Part(group, position)
        return found

    def has(self, column: Any) -> Any:
        """Whether the part has a column, i1; None: it has all."""
        is_past = ops.compare("sge", column, self.end.start) if self.end.start else None
        return ops.both(is_past, ops.less(column, self.end.stop) if self.end.stop else None)


@dataclass(eq=False)
class PartedTensor:
    """A target of stores at coordinates of the product, each of whose fragments is of one part."""

    kernel: Kernel
    parts: Sequence[StoredPart]
    is_exclusive: bool = True

    def store(self, at: Sequence[Coordinate], value: Any, condition: Any = None) -> None:
        """Writes a fragment where the condition (i1, None: always) holds."""
        width = ops.width_of(value)
        column = at[-1].index().element(0)
        for part in self.parts:
            inside = ops.both(condition, part.has(column))
            with ops.if_(inside):
                target = GlobalTensor(self.kernel, part.tensor, self.is_exclusive)
                target.store(part.at(self.kernel, at, width), value)
