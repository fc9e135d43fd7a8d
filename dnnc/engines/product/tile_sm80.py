"""The tilings of products with `mma.sync`, as `dnn.tile` holds them."""

from __future__ import annotations

from dataclasses import dataclass

from ...codegen.ampere.operand_tile import LoadPlan
from ...codegen.memory.parted import End


@dataclass(frozen=True)
class ProductTiling:
    """The tiling of a kernel of `kernel_sm80`.

    sides: rows, columns and k of a block's tile.  warps: of a block, along rows and columns.
    stages: of the ring of operands.  group_rows: rows of tiles that come before others.
    a, b: how the operands come.  along: the axis, m or n, that the epilogue's fragments lie along;
    vector_elems: their elements.  products: of an instruction each, that make one product.
    outputs: path of each, see `kernel_sm80.output_paths`.
    """

    sides: tuple[int, int, int]
    warps: tuple[int, int]
    stages: int
    group_rows: int
    a: LoadPlan
    b: LoadPlan
    along: str
    vector_elems: int
    products: int
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class MatmulTiling(ProductTiling):
    """The tiling of matmul_sm80.  ends: of each output, those of the region that are stored in its
    place; empty: each is as it is."""

    ends: tuple[tuple[End, ...], ...] = ()


@dataclass(frozen=True)
class ConvTiling(ProductTiling):
    """The tiling of conv_sm80.  depth: the axes of k, in order.  beside: see `SharedLayout`."""

    depth: tuple[int, ...]
    beside: int = 1


@dataclass(frozen=True)
class PartSums:
    """The sums of a filter's gradient.

    parts: of the pixels, that blocks share.  in_workspace: whether sums go through it.
    adds: whether blocks add to sums in memory.
    """

    parts: int
    in_workspace: bool
    adds: bool


@dataclass(frozen=True)
class WgradTiling(ProductTiling):
    """The tiling of conv_wgrad_sm80."""

    sums: PartSums
