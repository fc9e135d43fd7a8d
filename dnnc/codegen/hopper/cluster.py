# pyright: basic
"""Clusters: blocks that run together and reach each other's shared memory."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from ...expr import Expr, Size, maximum
from ...mlir import nvvm
from .. import ops
from ..value import wrapped

MAX_BLOCKS = 8  # that every device takes


@dataclass(frozen=True)
class Cluster:
    """A cluster of rows x columns tiles, each of which `slices` blocks work on together.

    Block r is at row r % rows, column r / rows % columns, slice r / (rows * columns).
    """

    rows: int = 1
    columns: int = 1
    slices: int = 1

    def __post_init__(self) -> None:
        assert 1 <= self.blocks <= MAX_BLOCKS, f"{self} is too large"
        assert self.slices == 1 or self.tiles == 1, f"{self} shares loads and slices"

    @property
    def blocks(self) -> int:
        return self.tiles * self.slices

    @property
    def tiles(self) -> int:
        return self.rows * self.columns

    def rank(self) -> Any:
        """This block's number in its cluster."""
        return wrapped(nvvm.read_ptx_sreg_cluster_ctarank()) if self.blocks > 1 else 0

    def row(self, rank: Any) -> Any:
        return rank % self.rows

    def column(self, rank: Any) -> Any:
        return rank // self.rows % self.columns

    def slice(self, rank: Any) -> Any:
        return rank // self.tiles if self.slices > 1 else 0

    def sharers(self, *, of_rows: bool) -> int:
        """Blocks that load a part each of an operand's tile."""
        return self.columns if of_rows else self.rows

    def share(self, rank: Any, *, of_rows: bool) -> tuple[Any, Any]:
        """A block's part of a tile that several load together: (which, bit r for block r that
        gets it, None where the tile is its own).

        of_rows: of the operand along the rows, which the blocks of a row of the cluster share;
        else of the one that those of a column share.
        """
        if self.sharers(of_rows=of_rows) == 1:
            return 0, None
        row, column = self.row(rank), self.column(rank)
        if of_rows:
            mask = sum(1 << (self.rows * i) for i in range(self.columns))
            return column, ops.const(mask) << row
        return row, ops.const((1 << self.rows) - 1) << (column * self.rows)

    def number(self) -> Any:
        """The cluster's number in the grid."""
        return ops.block_id() // self.blocks

    def count(self) -> Any:
        """Clusters of the grid."""
        return ops.block_count() // self.blocks


def resident_clusters(sms: Size, blocks: int) -> Expr:
    """How many clusters run at the same time, a block to an SM; one at least.

    A cluster lies in one part (GPC) of the device, whose parts differ in size: those of 4 and 8
    blocks leave some SMs unused.  Of the 132 of an H100 120 take part, by the driver's
    count.  One cluster too many would wait for all of the others.
    """
    usable = Expr.of(sms)
    return maximum((usable if blocks <= 2 else usable * 10 // 11) // blocks, 1)


@functools.cache
def residents(sms: int, blocks: int) -> int:
    """The resident blocks for a known number of SMs."""
    found = resident_clusters(sms, blocks).constant
    assert found is not None
    return found


def arrive() -> None:
    """First half of a barrier of all threads of the cluster; writes before it are seen after."""
    nvvm.cluster_arrive(aligned=True)


def wait() -> None:
    nvvm.cluster_wait(aligned=True)


def synchronize(cluster: Cluster) -> None:
    """A barrier of all threads of the cluster, or of the block where it is alone."""
    if cluster.blocks == 1:
        ops.barrier()
        return
    arrive()
    wait()
