"""How engine sdpa_bwd_sm80 tiles a gradient, and where everything lies in shared memory."""

from __future__ import annotations

from dataclasses import dataclass

from ...codegen.ampere import mma
from ...codegen.memory.padded_rows import PaddedRows
from ...target import WARP_THREADS

ROWS = 128  # queries whose numbers lie together in memory, a multiple of every tile and step


class PlainTiling:
    """Tiles that take all heads that share keys, one after the other; they add nothing up."""

    parts = 1
    joins_heads = descends = is_ordered = False


@dataclass(frozen=True)
class RowsTiling(PlainTiling):
    """The tiling of the kernel that computes what queries have.  width: elements of a value."""

    width: int
    depth: int
    queries: int = ROWS
    keys: int = ROWS
    is_longest_first: bool = False

    @property
    def row_bytes(self) -> int:
        """Bytes of what the queries of a block have, two numbers each."""
        return 2 * self.queries * 4


@dataclass(frozen=True)
class PassTiling(PlainTiling):
    """A tile of keys, or of queries, which goes through blocks of the others.

    of_keys: which of both.  makes: the gradients that come of it, dk, dv or dq.  rows: of a tile,
    16 a warp.  step: others of a block.  depth, width: elements of a query and of a value.
    stages: of blocks in shared memory.  is_longest_first: tiles that have most blocks come first.
    has_scores: whether S is computed, which a P in memory does not need.
    """

    of_keys: bool
    makes: tuple[str, ...]
    rows: int
    step: int
    depth: int
    width: int
    stages: int
    is_longest_first: bool = False
    has_scores: bool = True

    @property
    def threads(self) -> int:
        return self.rows // mma.M * WARP_THREADS

    # ---- as a schedule of tiles of keys calls them

    @property
    def keys(self) -> int:
        return self.rows

    @property
    def queries(self) -> int:
        return self.step

    # ---- registers of a thread

    @property
    def has_products(self) -> bool:
        """Whether dP is computed, which dV does not need."""
        return self.makes != ("dv",)

    @property
    def product_times(self) -> int:
        """How often dP is computed: delta of queries takes it, too, where P is in memory."""
        return self.has_products * (1 if self.has_scores or self.of_keys else 2)

    def registers_of(self, made: str) -> int:
        tile = self.others[1 if made == "dv" else 0]
        return tile.filled * tile.chunk // 2

    @property
    def held_registers(self) -> int:
        """Sums, a block's scores, dP, and words of P and dS."""
        sums = sum(map(self.registers_of, self.makes))
        products = self.has_scores + self.has_products
        return sums + products * self.step // 2 + len(self.makes) * self.step // 4

    # ---- places in shared memory: the tile's rows, then stages of others and of what queries have

    @property
    def own(self) -> tuple[PaddedRows, PaddedRows]:
        """Rows of K and V, or of Q and dO."""
        return PaddedRows(self.rows, self.depth), PaddedRows(self.rows, self.width)

    @property
    def products_offset(self) -> int:
        """Bytes to the own rows of dP."""
        return self.own[0].bytes if self.has_scores else 0

    @property
    def others(self) -> tuple[PaddedRows, PaddedRows]:
        """Rows of Q and dO, or of K and V."""
        return PaddedRows(self.step, self.depth), PaddedRows(self.step, self.width)

    @property
    def row_bytes(self) -> int:
        """Bytes of what a block's queries have, two numbers each."""
        return 2 * self.step * 4 if self.of_keys else 0

    @property
    def rows_offset(self) -> int:
        """Bytes from a stage to what its queries have."""
        first, second = self.others
        return first.bytes + second.bytes

    @property
    def stage_bytes(self) -> int:
        return self.rows_offset + self.row_bytes

    @property
    def stages_offset(self) -> int:
        return self.products_offset + (self.own[1].bytes if self.has_products else 0)

    @property
    def smem_bytes(self) -> int:
        return self.stages_offset + self.stages * self.stage_bytes


@dataclass(frozen=True)
class GradientPasses:
    """The tiling of sdpa_bwd_sm80: that of each of its kernels.  has_order: whether it is known
    which tiles come first, as it is when the scores are lowered."""

    passes: tuple[PassTiling, ...]
    has_order: bool
