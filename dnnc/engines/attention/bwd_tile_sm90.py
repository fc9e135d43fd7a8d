"""How engine sdpa_bwd_sm90 tiles a gradient, and where everything lies in shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...codegen.hopper import wgmma
from ...codegen.hopper.mbarrier import BYTES as BARRIER_BYTES
from ...codegen.hopper.pipeline import Pipeline

CONSUMERS = 2  # warpgroups, of 64 keys each
WRITERS = CONSUMERS  # warps of the producer's that add gradients of queries in memory
_REGISTERS = (24, 240)  # of a thread of the producer, and of a consumer
_CUTTING = (40, 232)  # where the producer cuts rows at lengths
_PANEL = wgmma.ROW_BYTES // 2  # elements of a panel's row
STAGES = 2  # of queries and of dO, and buffers of dS, which are used by the same turns


@dataclass(frozen=True)
class GradientTiling:
    """A tile of keys, which goes through blocks of queries.

    queries: of a step.  depth, width: elements of a query and of a value.  is_longest_first: tiles
    of the first keys have the most queries, and come first.  cuts: whether rows of an operand are
    zeros past lengths.  parts: tiles that share the query heads of the same keys, whose sums of dK
    and dV another kernel adds up.  joins_heads: a tile goes through its query heads of a block of
    queries before the next block.  is_ordered: tiles add to dQ in the order of their keys.
    descends: a tile goes from its last block of queries to its first, so that all of a causal mask
    begin together, and the first keys, which come first, are the first to add to dQ: none waits
    long for its turn.
    """

    queries: int
    depth: int
    width: int
    is_longest_first: bool
    cuts: bool = False
    parts: int = 1
    joins_heads: bool = False
    is_ordered: bool = False
    descends: bool = False

    @staticmethod
    def of(data: Mapping[str, Any]) -> GradientTiling:
        return GradientTiling(**data)

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def keys(self) -> int:
        """Keys of a block of threads."""
        return CONSUMERS * wgmma.M

    @property
    def threads(self) -> int:
        return (CONSUMERS + 1) * wgmma.WARPGROUP_THREADS

    @property
    def splits(self) -> bool:
        """Whether a warpgroup tells the other that its part of dS is there, and waits later: 5%
        faster of small heads under a causal mask, 1 to 2% slower else."""
        return self.is_longest_first and self.shares_queries

    @property
    def registers(self) -> tuple[int, int]:
        return _CUTTING if self.cuts else _REGISTERS

    @property
    def sums(self) -> int:
        """Registers of a thread for dK, dV, scores and dP."""
        return (self.depth + self.width) // 2 + self.queries

    # ---- dQ', [depth, queries], of which each warpgroup has a part

    @property
    def depth_panels(self) -> int:
        return -(-self.depth // _PANEL)

    @property
    def width_panels(self) -> int:
        return -(-self.width // _PANEL)

    @property
    def shares_queries(self) -> bool:
        """Whether warpgroups have different queries of dQ', not different elements of them."""
        return self.depth_panels == 1

    @property
    def dq_columns(self) -> int:
        """Queries of a warpgroup's part."""
        return self.queries // CONSUMERS if self.shares_queries else self.queries

    @property
    def dq_part_bytes(self) -> int:
        """Bytes of a warpgroup's part, in f32."""
        return wgmma.M * self.dq_columns * 4

    @property
    def dq_bytes(self) -> int:
        """Bytes of a block of queries' dQ', in f32."""
        return CONSUMERS * self.dq_part_bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of what rows of a block of queries have, two numbers each."""
        return 2 * self.queries * 4

    # ---- parts of dK and dV, as consumers have them in registers

    def key_part_bytes(self, elements: int) -> int:
        """Bytes of a tile of keys' sums of so many elements, in f32."""
        return self.keys * elements * 4

    # ---- places in shared memory

    @property
    def k_bytes(self) -> int:
        return self.depth_panels * self.keys * wgmma.ROW_BYTES

    @property
    def v_bytes(self) -> int:
        return self.width_panels * self.keys * wgmma.ROW_BYTES

    @property
    def q_bytes(self) -> int:
        return self.depth_panels * self.queries * wgmma.ROW_BYTES

    @property
    def do_bytes(self) -> int:
        return self.width_panels * self.queries * wgmma.ROW_BYTES

    @property
    def ds_part_bytes(self) -> int:
        """Bytes of a warpgroup's part of dS, [queries][its keys]."""
        return self.queries * wgmma.ROW_BYTES

    @property
    def ds_bytes(self) -> int:
        return CONSUMERS * self.ds_part_bytes

    @property
    def v_offset(self) -> int:
        return self.k_bytes

    @property
    def q_offset(self) -> int:
        return self.v_offset + self.v_bytes

    @property
    def do_offset(self) -> int:
        return self.q_offset + STAGES * self.q_bytes

    @property
    def ds_offset(self) -> int:
        return self.do_offset + STAGES * self.do_bytes

    @property
    def dq_offset(self) -> int:
        return self.ds_offset + STAGES * self.ds_bytes

    @property
    def rows_offset(self) -> int:
        return self.dq_offset + self.dq_bytes

    @property
    def q_barriers(self) -> int:
        return self.rows_offset + STAGES * self.row_bytes

    @property
    def do_barriers(self) -> int:
        return self.q_barriers + Pipeline.barrier_bytes(STAGES)

    @property
    def kv_barriers(self) -> int:
        """Barriers of keys and of values."""
        return self.do_barriers + Pipeline.barrier_bytes(STAGES)

    @property
    def smem_bytes(self) -> int:
        return self.kv_barriers + 2 * BARRIER_BYTES + self.number_bytes

    @property
    def number_offset(self) -> int:
        """Where the number of an ordered tile lies."""
        return self.kv_barriers + 2 * BARRIER_BYTES

    @property
    def number_bytes(self) -> int:
        return 16 if self.is_ordered else 0
