# pyright: basic
"""The filter of a convolution on the main loop of `mma.sync`.

    B  [taps * C, output channels]   W [K, C / groups, taps], a matrix where its layout nests

A gradient's filter [C, K / groups, taps] has its output channels together where forward it has its
channels last.  Of 8 and 16 bits it is copied so, a row of the tile for each number of k, and
`ldmatrix` transposes it; of f32 output channels are loaded together, and stored apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ...codegen.ampere.operand_tile import LoadPlan, access_bytes, is_unit
from ...codegen.memory.matrix_tile import MatrixTile, Place
from ...codegen.walk import index as idx
from ...codegen.walk.index import Coordinate, Group, Index, Part
from ...codegen.walk.loops import coordinates_of
from ...codegen.walk.region_walk import Walk
from ...dialect.fusion import Fusion
from ...dialect.tensor import Tensor
from ...expr import Expr
from ..views.reads import layout_model
from .pattern import GROUP, ConvShape
from .tiles_sm80 import CHANNEL, Depth, Phase, plan_of

_TRANSPOSED_BITS = (8, 16)  # of elements that `ldmatrix` transposes


def filter_plan(fusion: Fusion, shape: ConvShape, depth: Depth) -> LoadPlan:
    """How W comes: see `OperandTile`."""
    w = shape.w
    is_stored = w in fusion.inputs and not w.is_by_value
    access = matrix_bytes(w, shape, depth) if is_stored else 0
    if access >= 4 or not shape.is_transposed:
        return plan_of(access, "elements")
    model = layout_model(fusion, w)
    if model is None or not is_unit(model, shape.filter_axes[0]):
        return plan_of(0, "elements")
    is_transposed = w.type.bits in _TRANSPOSED_BITS
    access = transposed_bytes(w, shape) if is_stored else 0
    plan = plan_of(access, "elements")
    return replace(plan, k_contiguous=not is_transposed, loads_along_k=False)


def matrix_bytes(w: Tensor, shape: ConvShape, depth: Depth) -> int:
    """The widest copy of numbers of k that lie together; 0: they do not."""
    matrix = filter_matrix(w, shape, depth)
    return access_bytes(matrix, 1) if matrix is not None else 0


def transposed_bytes(w: Tensor, shape: ConvShape) -> int:
    """The widest copy of output channels that `ldmatrix` transposes; 0: there is none."""
    out, _ = shape.filter_axes
    return access_bytes(w, out) if w.type.bits in _TRANSPOSED_BITS and is_unit(w, out) else 0


def filter_matrix(w: Tensor, shape: ConvShape, depth: Depth) -> Tensor | None:
    """W as matrices [groups, k, output channels of a group]; None: k has no stride of 1."""
    if shape.spread:
        return None
    out, in_ = shape.filter_axes
    pairs = zip(depth.axes, depth.extents, strict=True)
    axes = [(in_ if axis == CHANNEL else axis, extent) for axis, extent in pairs if extent != 1]
    for (outer, _), (inner, extent) in itertools.pairwise(axes):
        if w.layout[outer] != w.layout[inner] * extent:
            return None
    if axes and w.layout[axes[-1][0]].constant != 1:
        return None
    channels = shape.c_group if shape.is_transposed else shape.k_group
    dims = (shape.groups, depth.size, shape.k_group)
    return replace(
        w,
        dims=tuple(map(Expr.of, dims)),
        strides=(w.layout[0] * channels, Expr.of(1), w.layout[out]),
    )


@dataclass
class FilterTile(MatrixTile):
    """W: a tile of its matrix [k, output channels of a group]."""

    conv: ConvShape = field(kw_only=True)
    depth_of_conv: Depth = field(kw_only=True)
    phase: Phase | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.is_copied = self.is_async
        self.is_async = True

    def start(self, batch: Mapping[int, Coordinate], first_row: Any) -> Place:
        self.phase = Phase.of(self.conv, batch)
        return super().start(batch, first_row)

    @property
    def k_end(self) -> Any:
        return self.phase.end if self.phase else super().k_end

    @property
    def k_divisor(self) -> int:
        return self.conv.c_group if self.phase else super().k_divisor

    def issue(self, place: Place, first_k: Any, slot: Any) -> None:
        """Starts the copies of a tile into shared memory at `slot`, or stores its elements."""
        if self.is_copied:
            super().issue(place, first_k, slot)
            return
        walk = Walk(self.kernel, self.region.leaves(self.kernel), self.region.symbols)
        self.fill(walk, *place, first_k, slot)

    @property
    def matrix_dims(self) -> tuple[Expr, ...]:
        sizes = (self.conv.groups, self.depth_of_conv.size, self.conv.k_group)
        return tuple(map(Expr.of, sizes))

    @cached_property
    def matrix(self) -> Tensor:
        tensor = self.region.arguments[self.value]
        if not self.k_contiguous:
            return tensor
        found = filter_matrix(tensor, self.conv, self.depth_of_conv)
        assert found is not None, f"{tensor.label} is no matrix"
        return found

    def coordinates(
        self, batch: Mapping[int, Coordinate], row: Coordinate, k: Coordinate
    ) -> list[Coordinate]:
        """Coordinates in W's matrix for copies along k, else in W."""
        if self.is_copied and self.k_contiguous:
            return [batch.get(GROUP, Index.of(0)), k, row]
        out, in_ = self.conv.filter_axes
        dims = self.region.dims_of(self.value)
        pairs = zip(self.depth_of_conv.axes, self.depth_of_conv.extents, strict=True)
        axes = [(in_ if axis == CHANNEL else axis, extent) for axis, extent in pairs if extent != 1]
        extents = tuple(Expr.of(extent) for _, extent in axes)
        width = self.chunk if self.plan.loads_along_k else 1
        taken = Group(self.kernel, extents, k.index(), width)
        parts: dict[int, Coordinate] = {
            axis: Part(taken, place) for place, (axis, _) in enumerate(axes)
        }
        if self.phase:
            parts = self._of_phase(self.phase, k.index(), width)
        at: dict[int, Coordinate] = {**parts, out: row.index()}
        if GROUP in batch:  # W's first axis counts through all groups
            step = self.conv.c_group if self.conv.is_transposed else self.conv.k_group
            first = idx.scale(batch[GROUP].index(), step)
            at[0] = idx.add(first, at[0].index()) if 0 in at else first
        return coordinates_of(len(dims), at, {})

    def _of_phase(self, phase: Phase, k: Index, width: int) -> dict[int, Coordinate]:
        """Coordinates along the axes that k counts through."""
        _, in_ = self.conv.filter_axes
        numbers = [k.base] if k.is_uniform else [k.element(i) for i in range(width)]
        found = [phase.taps(number) for number in numbers]
        return {
            in_ if axis == CHANNEL else axis: Index.of(found[0][axis])
            if k.is_uniform
            else Index(lanes=tuple(at[axis] for at in found))
            for axis in found[0]
        }
