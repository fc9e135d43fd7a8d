# pyright: basic
"""Which tile of a product a block works on, and in which order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..expr import Expr
from . import ops
from .kernel import Kernel


@dataclass(frozen=True)
class TileOrder:
    """Tiles of a batch of matrices, numbered so that neighbours share operands in L2.

    rows, columns: tiles of a matrix.  matrices: of the batch.  Groups of `group_rows` rows of
    tiles follow each other; within a group the row runs fastest.

    Example, rows = 3, columns = 2, group_rows = 2: (0, 0) (1, 0) (0, 1) (1, 1) (2, 0) (2, 1).
    """

    rows: Expr
    columns: Expr
    matrices: Expr
    group_rows: int

    @property
    def tiles(self) -> Expr:
        return self.rows * self.columns * self.matrices

    def place(self, kernel: Kernel, number: Any) -> tuple[Any, Any, Any]:
        """(matrix, row, column) of a tile."""
        matrix, inside = 0, number
        if self.matrices.constant != 1:
            per_matrix = self.rows * self.columns
            matrix = kernel.divide(number, per_matrix)
            inside = kernel.remainder(number, per_matrix, matrix)
        rows, columns = kernel.size(self.rows), kernel.size(self.columns)
        per_group = ops.mul(columns, self.group_rows)
        group = ops.div(inside, per_group)
        first = ops.mul(group, self.group_rows)
        height = ops.minimum(ops.sub(rows, first), self.group_rows)
        inner = ops.sub(inside, ops.mul(group, per_group))
        return matrix, ops.add(first, ops.rem(inner, height)), ops.div(inner, height)
