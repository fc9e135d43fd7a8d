"""How engine sdpa_sm80 tiles an attention, and where everything lies in shared memory."""

from __future__ import annotations

from dataclasses import dataclass

from ...codegen.ampere import mma
from ...codegen.memory.padded_rows import PaddedRows
from ...target import WARP_THREADS
from .mask_order import MaskOrder
from .surface import POWERS

# Registers of a thread's sums, weights and queries, beside which there is room for the rest.
_HELD = 160


@dataclass(frozen=True)
class Sm80Tiling:
    """A tile of queries, which goes through blocks of keys.

    queries: of a block of threads, 16 a warp.  keys: of a step.  depth: elements of a query.
    width: elements of a value that a block multiplies.  pieces: blocks that have those of a value.
    stages: of keys and values in shared memory.  packed_axis: of the scores, whose
    entries that share keys are rows of one tile, so many of a query as `packed` says; -1, 1: none.
    parts: blocks that share the keys of a tile.  element_bytes: of Q, K and V.
    masks: None until the scores are lowered.
    """

    queries: int
    keys: int
    depth: int
    width: int
    stages: int
    packed_axis: int = -1
    packed: int = 1
    parts: int = 1
    element_bytes: int = 2
    pieces: int = 1
    masks: MaskOrder | None = None

    @property
    def is_longest_first(self) -> bool:
        assert self.masks is not None, "a tiling that is completed"
        return self.masks.is_longest_first

    @property
    def threads(self) -> int:
        return self.queries // mma.M * WARP_THREADS

    @property
    def whole_width(self) -> int:
        """Elements of a value."""
        return self.width * self.pieces

    @property
    def row_unit(self) -> int:
        """Rows whose multiples tiles begin at."""
        return 1

    @property
    def lift(self) -> int:
        """Exponentials are so many powers of two larger."""
        return POWERS if self.element_bytes == 1 else 0

    # ---- registers of a thread

    @property
    def result_registers(self) -> int:
        return self.v_rows.filled * self.v_rows.chunk // 2

    @property
    def query_registers(self) -> int:
        """Registers of the queries, where they stay there."""
        return self.k_rows.filled * self.k_rows.chunk // 4

    @property
    def held_registers(self) -> int:
        """Scores, weights and the result."""
        return self.keys // 2 + self.keys // 4 + self.result_registers

    @property
    def holds_queries(self) -> bool:
        """Whether queries stay in registers; else they are read again each step."""
        return self.held_registers + self.query_registers <= _HELD

    # ---- places in shared memory: stages of keys and values, then queries

    @property
    def q_rows(self) -> PaddedRows:
        return PaddedRows(self.queries, self.depth, self.element_bytes)

    @property
    def k_rows(self) -> PaddedRows:
        return PaddedRows(self.keys, self.depth, self.element_bytes)

    @property
    def v_rows(self) -> PaddedRows:
        return PaddedRows(self.keys, self.width, self.element_bytes)

    @property
    def stage_bytes(self) -> int:
        return self.k_rows.bytes + self.v_rows.bytes

    @property
    def q_offset(self) -> int:
        """In the last stage, if they leave it for registers before that is filled."""
        return (self.stages - int(self.holds_queries)) * self.stage_bytes

    @property
    def smem_bytes(self) -> int:
        return max(self.stages * self.stage_bytes, self.q_offset + self.q_rows.bytes)
