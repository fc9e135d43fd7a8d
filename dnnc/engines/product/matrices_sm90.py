# pyright: basic
"""The matrices that a kernel of Hopper's main loop multiplies, and where their elements lie.

The loop multiplies tiles of A [rows, k] and B [k, columns], of each matrix of a batch.  What those
are in the graph is said here: of a matmul, the last two axes of its tensors; of a convolution
(`conv.matrices_sm90`), pixels and channels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...codegen.hopper import tma
from ...codegen.hopper.cluster import Cluster
from ...codegen.hopper.pipeline import Cursor, Pipeline
from ...codegen.hopper.staged_operand import StagedOperand
from ...codegen.kernel import Kernel
from ...codegen.region import Region
from ...codegen.tiles.schedule import TilePlace
from ...codegen.walk.index import Coordinate, Index
from ...codegen.walk.loops import Loops, coordinates_of
from ...dialect.tensor import Tensor
from ...expr import Expr, ceildiv
from .exits import SpaceAxes
from .region_sm90 import operand_values, product_calls
from .tile_sm90 import Tiling

Batch = Mapping[int, Coordinate]


class MatrixSpace(Protocol):
    """Where the elements of a product lie in tensors of its dims.

    axes: for reductions at the exit; None: there can be none.
    """

    @property
    def axes(self) -> SpaceAxes | None: ...

    def is_row(self, batch: Batch, row: Any) -> Any:
        """Whether a row is of the product, i1; None: those before their end all are."""
        ...

    def is_column(self, batch: Batch, column: Any) -> Any:
        """Whether a column is of the product, i1; None: those before their end all are."""
        ...

    def mask(self, first_column: Any, offset: Any, width: int) -> Any:
        """Whether columns are of the product, i1 fragment; None: those before their end all are.

        offset: of the first of them, from the first of a warpgroup's part of a tile.
        """
        ...

    def at(self, batch: Batch, row: Coordinate, column: Coordinate) -> list[Coordinate]:
        """The coordinates in the product's dims."""
        ...

    def box(self, tensor: Tensor, columns: int, rows: int) -> tma.Box:
        """The box that one copy moves of a tensor of the product's dims."""
        ...

    def corner(self, box: tma.Box, batch: Batch, row: Any, column: Any) -> list[Any]:
        """The coordinates in its map of a box that begins at a row and a column."""
        ...

    def loaded_box(self, tensor: Tensor, columns: int, rows: int) -> tma.MovedBox:
        """The box that one copy brings of a tensor of the product's dims."""
        ...

    def load(
        self, target: Any, map_: Any, box: tma.MovedBox, place: TilePlace, barrier: Any
    ) -> None:
        """Starts the copy of such a box from a place on; arguments: see `tma.load`."""
        ...

    def phase_store(self, tensor: Tensor, columns: int, rows: int, last: int) -> PhaseCopies:
        """The copies of a tensor of which the rows, or columns, are pixels a stride apart.

        columns, rows: of a buffer.  last: columns of a tile's last one.
        """
        ...


class PhaseCopies(Protocol):
    """The copies of one output's buffers: see `conv.phase_stores_sm90`."""

    def start(self, source: Any, there: TilePlace, columns: int, policy: Any) -> None:
        """Starts the copy of a buffer of so many columns, by one thread.

        source: i32 address.  there: its first row and column.  policy: see `tma.store`.
        """
        ...


class WholeSpace:
    """The base of a `MatrixSpace`: rows and columns before their end are all of the product,
    without reductions at the exit; what copies bring lies as what they store."""

    @property
    def axes(self) -> SpaceAxes | None:
        return None

    def is_row(self, batch: Batch, row: Any) -> Any:
        return None

    def is_column(self, batch: Batch, column: Any) -> Any:
        return None

    def mask(self, first_column: Any, offset: Any, width: int) -> Any:
        return None

    def phase_store(self, tensor: Tensor, columns: int, rows: int, last: int) -> PhaseCopies:
        raise AssertionError(f"{tensor.label} has no phases")

    def loaded_box(self: MatrixSpace, tensor: Tensor, columns: int, rows: int) -> tma.MovedBox:
        return self.box(tensor, columns, rows)

    def load(
        self: MatrixSpace, target: Any, map_: Any, box: tma.MovedBox, place: TilePlace, barrier: Any
    ) -> None:
        assert isinstance(box, tma.Box), "a box as results are stored"
        tma.load(target, map_, self.corner(box, place.batch, place.row, place.column), barrier)


class Loop(Protocol):
    """A main loop in which pixels of a convolution come once for all taps of its filter.

    pixels: the ring of their tiles.
    """

    pixels: Pipeline

    def start(self) -> Any:
        """The record that a consumers' loop over tiles carries first: its places in the rings."""
        ...

    def start_loads(self) -> Any:
        """The record that the producer's loop carries first."""
        ...

    def load_tile(self, place: TilePlace, now: Any, /) -> Any:
        """Starts the loads of a tile, by one thread of the producer; gives the next record."""
        ...

    def begin(self, thread: Any, threads: int) -> None:
        """Prepare the consumers; all their threads do, before the first tile."""
        ...

    def multiply(
        self, now: Any, place: TilePlace, own: Any, lane: Any,
        sums: Sequence[Any], start_products: Any, /,
    ) -> tuple[Any, list[Any]]:  # fmt: skip
        """(record, accumulators) after a tile.

        own: the warpgroup.  sums: accumulators that the first products do not read.
        start_products(descriptors, whether sums are added to, sums, k_steps=...) starts those of a
        stage.
        """
        ...


class RowSums(Protocol):
    """Sums of the first operand's rows over k, that consumers make while products read it: see
    `conv.loss_sums_sm90`."""

    def start(self) -> list[Any]:
        """The sums of a tile's beginning."""
        ...

    def added(self, sums: Sequence[Any], place: TilePlace, step: Any, address: Any) -> list[Any]:
        """The sums with a stage; step: its number in the tile.  address: of the warpgroup's rows
        in it."""
        ...

    def store(self, sums: Sequence[Any], place: TilePlace) -> None:
        """Stores the sums of a tile."""
        ...


class Zeros(Protocol):
    """Warps of the producer that store zeros: see `conv.zeros_sm90`."""

    def run(self, warp: Any) -> None:
        """Stores the zeros, by these warps of all blocks of the grid; warp: of the thread."""
        ...


class Rewriter(Protocol):
    """Warps of the producer that compute operands in shared memory: see `conv.rewriting_sm90`.

    operands: that bring raw tiles, which have a barrier of their own.  maps: of their copies.
    arrivals: at the barrier of a slot that is rewritten.
    """

    @property
    def arrivals(self) -> int: ...

    @property
    def operands(self) -> Sequence[Any]: ...

    @property
    def maps(self) -> Sequence[Any]: ...

    def place(self, ring: Pipeline, memory: Any) -> None:
        """Says which ring's slots it rewrites, and where its own memory is."""
        ...

    def make(self) -> None:
        """Makes its barriers, by one thread."""
        ...

    def barrier(self, cursor: Cursor) -> Any:
        """That of a slot's raw tiles."""
        ...

    def run(self, tiles: Any) -> None:
        """Rewrite the operand of a block's tiles; the rewriter's warps do."""
        ...


@dataclass(frozen=True)
class AxesSpace(WholeSpace):
    """Rows and columns lie along an axis each; the others count matrices.

    is_transposed: whether boxes have rows of the instruction's rows.
    """

    dims: tuple[Expr, ...]
    row_axis: int
    column_axis: int
    is_transposed: bool = False

    @property
    def axes(self) -> SpaceAxes:
        others = {axis: axis for axis in range(len(self.dims) - 2)}
        return SpaceAxes((self.row_axis,), (self.column_axis,), others)

    def at(self, batch: Batch, row: Coordinate, column: Coordinate) -> list[Coordinate]:
        place = {self.row_axis: row, self.column_axis: column}
        return coordinates_of(len(self.dims), dict(batch), place)

    def box(self, tensor: Tensor, columns: int, rows: int) -> tma.Box:
        axes, extents = (self.column_axis, self.row_axis), (columns, rows)
        if self.is_transposed:
            axes, extents = axes[::-1], extents[::-1]
        return tma.Box(tensor, axes, extents)

    def corner(self, box: tma.Box, batch: Batch, row: Any, column: Any) -> list[Any]:
        return tma.place(box, self.at(batch, Index(row), Index(column)))


@dataclass(frozen=True)
class Matrices:
    """See the file's docstring.

    calls: of the anchors.  operands: of a stage, those along the rows first; `StagedOperand`, or
    what loads whole tiles by TMA as it does.  batch: loops over
    the matrices.  sizes: rows and columns of a matrix.  steps: panels of k.  space: of what the
    epilogue reads and writes.  loop: makes another main loop, see `conv.halo_sm90`, of the
    operands, the ring of stages and a ring of pixels.  rewriter: of an operand that is computed in
    shared memory.  beside: tiles of a row of tiles, a block having the same of each; 1: any.
    steps_of: panels of k of a matrix of the batch, where not all have `steps`.  row_sums: of the
    first operand, which lies in shared memory; None: nobody needs them, or `loop` has them.
    zeros: of what has no tiles; None: all has.
    """

    calls: Sequence[Any]
    operands: Sequence[Any]
    batch: Loops
    sizes: tuple[Expr, Expr]
    steps: Expr
    space: MatrixSpace
    loop: Callable[[Sequence[Any], Pipeline, Pipeline], Loop] | None = None
    rewriter: Rewriter | None = None
    beside: int = 1
    steps_of: Callable[[Batch], Any] | None = None
    row_sums: RowSums | None = None
    zeros: Zeros | None = None

    @property
    def k_panel(self) -> int:
        """Elements of k of a stage."""
        return self.operands[0].panels.k


def matmul_matrices(kernel: Kernel, region: Region, tiling: Tiling) -> Matrices:
    """The matrices of the matmuls, or grouped products, of a region."""
    t = tiling
    calls = product_calls(region)
    cluster = Cluster(*t.grid.cluster, t.grid.splits)
    values = operand_values(calls, t)
    operands = [
        StagedOperand(
            kernel, region, value, plan, t.row,
            t.block.rows if plan.is_rows else t.block.columns, cluster,
            bool(t.grid.groups and plan.is_a), t.in_pairs,
        )
        for value, plan in zip(values, t.operands, strict=True)
    ]  # fmt: skip
    first, second = (operands[place] for place in t.products[0])
    dims = region.dims_of(calls[0].results[0])
    batch_axes = [i for i, n in enumerate(dims[:-2]) if n.constant != 1]
    row, column = len(dims) - 2, len(dims) - 1
    return Matrices(
        calls,
        operands,
        Loops(dims, tuple((axis,) for axis in batch_axes)),
        (first.size, second.size),
        ceildiv(first.k_size, first.panels.k),
        AxesSpace(
            dims, *((column, row) if t.block.swaps else (row, column)), t.epilogue.is_transposed
        ),
    )
