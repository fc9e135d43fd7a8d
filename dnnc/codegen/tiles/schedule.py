# pyright: basic
"""Which tile of a product a block works on, and in which order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...expr import Expr
from .. import ops
from ..kernel import Kernel
from ..walk.index import Coordinate


@dataclass(frozen=True)
class TilePlace:
    """A tile's first row and column, and the coordinates of its matrix in the batch.

    first_step, end_step: which panels of k are multiplied.  b_batch: the coordinates of B's
    matrix, where they differ.  end: where a group of rows ends, along the rows of the graph's
    product; None: with the matrix.  is_across: whether the two blocks of a cluster have tiles of
    the same rows, and not of the same columns; None: as the cluster says.  next_steps: panels of
    the block's next tile, which another warpgroup multiplies; None: as many as of this one.
    """

    row: Any
    column: Any
    batch: Mapping[int, Coordinate]
    first_step: Any
    end_step: Any
    b_batch: Mapping[int, Coordinate] | None = None
    end: Any = None
    is_across: Any = None
    next_steps: Any = None

    @property
    def steps(self) -> Any:
        return self.end_step - self.first_step

    def batch_of(self, *, is_a: bool) -> Mapping[int, Coordinate]:
        """The coordinates of an operand's matrix."""
        return self.batch if is_a or self.b_batch is None else self.b_batch

    def moved(self, rows: Any, columns: Any = 0) -> TilePlace:
        return replace(self, row=self.row + rows, column=self.column + columns)


@dataclass(frozen=True)
class TileOrder:
    """Tiles of a batch of matrices, numbered so that neighbours share operands in L2.

    rows, columns: tiles of a matrix.  matrices: of the batch.  Groups of `group_rows` rows of
    tiles follow each other; within a group the row runs fastest.

    chunk: so many rows of tiles of every matrix come before any further rows, where matrices share
    what those read; is_chunk_of_columns: columns, not rows; 0: a whole matrix comes before others.

    Example, rows = 3, columns = 2, group_rows = 2: (0, 0) (1, 0) (0, 1) (1, 1) (2, 0) (2, 1).
    """

    rows: Expr
    columns: Expr
    matrices: Expr
    group_rows: int
    chunk: int = 0
    is_chunk_of_columns: bool = False

    @property
    def tiles(self) -> Expr:
        return self.rows * self.columns * self.matrices

    def place(self, kernel: Kernel, number: Any) -> tuple[Any, Any, Any]:
        """(matrix, row, column) of a tile."""
        if self.chunk:
            return self._in_chunk(kernel, number)
        matrix, inside = 0, number
        if self.matrices.constant != 1:
            per_matrix = self.rows * self.columns
            matrix = kernel.divide(number, per_matrix)
            inside = kernel.remainder(number, per_matrix, matrix)
        rows, columns = kernel.size(self.rows), kernel.size(self.columns)
        return matrix, *in_groups(inside, rows, columns, self.group_rows)

    def _in_chunk(self, kernel: Kernel, number: Any) -> tuple[Any, Any, Any]:
        rows, columns = kernel.size(self.rows), kernel.size(self.columns)
        along, across = (columns, rows) if self.is_chunk_of_columns else (rows, columns)
        each = across * self.chunk * kernel.size(self.matrices)
        first = number // each * self.chunk
        inside = number % each
        height = ops.minimum(along - first, self.chunk)
        per_matrix = across * height
        matrix = inside // per_matrix
        inside = inside - matrix * per_matrix
        if self.is_chunk_of_columns:
            row, column = in_groups(inside, rows, height, self.group_rows)
            return matrix, row, column + first
        row, column = in_groups(inside, height, columns, self.group_rows)
        return matrix, row + first, column


def in_groups(number: Any, rows: Any, columns: Any, group_rows: int) -> tuple[Any, Any]:
    """(row, column) of a tile of rows x columns, in the order of `TileOrder`."""
    per_group = columns * group_rows
    group = number // per_group
    first = group * group_rows
    height = ops.minimum(rows - first, group_rows)
    inner = number - group * per_group
    return first + inner % height, inner // height
