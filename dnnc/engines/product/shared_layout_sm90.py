# pyright: basic
"""SharedLayout: where everything of a block of Hopper's main loop lies in shared memory.

    stages, or split sums | pixels | store buffers | load buffers | raw tiles | split sums
    | barriers of all these | groups | row exchange | rewriting | ping-pong

Heuristics ask it for the size of a choice of knobs, kernels for the offsets of the same choice, so
that the one can't differ from the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd

from ...codegen.hopper import mbarrier, wgmma
from ...codegen.hopper.ping_pong import TilePingPong
from ...codegen.hopper.pipeline import Pipeline
from ...codegen.hopper.split import SplitSum
from ...codegen.hopper.staged_store import ALIGNMENT
from ...codegen.tiles.groups import GroupTable
from ...codegen.tiles.padding import WORD_BYTES
from ...codegen.totals.row_exchange import RowExchange
from .tile_parts_sm90 import BlockTile, EpilogueTiles, PixelTiles, TileGrid

LINE_BYTES = 128  # of a staged row at most: the widest swizzle
STORE_BUFFERS = 2  # of a warpgroup
LOAD_BUFFERS = 3
LEAST_STAGES = 2  # of a ring of operands
RAW_BUFFERS = {1: 3, 2: 2}  # of a producer, by how many there are
_HALO_CHUNK = 32  # columns of a buffer that are in registers at a time


@dataclass(frozen=True)
class SharedLayout:
    """See the file's docstring.  Offsets and sizes are in bytes.

    stages, stage_bytes: of the ring of operands.
    raw_bytes: of one slot of the ring of raw tiles, of which each producer has one; 0: none.
    sums_bytes: of what blocks exchange that share a tile's k.  are_sums_in_stages: whether that
    lies where the stages do, once their products are done.
    rewriting: of what warps need that compute an operand in shared memory.
    """

    block: BlockTile
    grid: TileGrid
    epilogue: EpilogueTiles
    pixels: PixelTiles
    stages: int
    stage_bytes: int
    raw_bytes: int = 0
    sums_bytes: int = 0
    are_sums_in_stages: bool = False
    rewriting: int = 0

    # ---- the epilogue's buffers

    @property
    def slices(self) -> int:
        """Blocks that have an epilogue of a tile whose k is split, each of some columns."""
        return slices_of(self.block.columns, self.grid.splits)

    @property
    def own_columns(self) -> int:
        """Columns of a warpgroup's epilogue."""
        return self.block.part[1] // self.slices

    @cached_property
    def chunk(self) -> int:
        """Columns that are in registers together; without a halo, those of a buffer."""
        if self.pixels.halo:
            return _HALO_CHUNK
        sizes = [*self.epilogue.staged_bytes, *self.epilogue.loaded_bytes]
        return chunk_columns(self.own_columns, sizes, is_transposed=self.epilogue.is_transposed)

    @property
    def buffer_columns(self) -> int:
        """Columns of a buffer of staged outputs and loads: a chunk, or with a halo all."""
        return self.block.part[1] if self.pixels.halo else self.chunk

    @property
    def row_uses(self) -> int:
        """Times that 64 rows of a warpgroup's tile fill a buffer."""
        return -(-self.own_columns // self.buffer_columns)

    @property
    def buffer_uses(self) -> int:
        """Times that a warpgroup's tile fills a buffer."""
        return self.block.part[0] // wgmma.M * self.row_uses

    @property
    def last_columns(self) -> int:
        """Columns of a row's last use of a buffer."""
        return self.own_columns - (self.row_uses - 1) * self.buffer_columns

    @property
    def store_buffers(self) -> int:
        """Store buffers of a warpgroup."""
        return 1 if self.pixels.halo else STORE_BUFFERS

    @property
    def load_buffers(self) -> int:
        """Load buffers of a warpgroup's own ring; 0: it has none."""
        if not self.epilogue.loaded_bytes or self.loads_per_stage:
            return 0
        return 1 if self.pixels.halo else LOAD_BUFFERS

    @cached_property
    def loads_per_stage(self) -> int:
        """Buffers of each warpgroup's loads in a stage that brings them, after a tile's last step;
        0: they have a ring of their own."""
        if not self.epilogue.loaded_bytes or self.pixels.ring.slots or self.grid.groups:
            return 0
        most = min(self.stage_bytes // (self.block.sharers * self.load_bytes), self.buffer_uses)
        if most and self.block.is_ping_pong and -(-self.buffer_uses // most) > LEAST_STAGES:
            return 0  # all of a tile's are in the ring before the next tile
        return most

    @property
    def load_steps(self) -> int:
        """Stages of a tile that bring what its epilogue reads."""
        return -(-self.buffer_uses // self.loads_per_stage) if self.loads_per_stage else 0

    @cached_property
    def store_bytes(self) -> int:
        """Bytes of one buffer of every staged output."""
        return self._buffer_bytes(self.epilogue.staged_bytes)

    @cached_property
    def load_bytes(self) -> int:
        """Bytes of one buffer of every staged load."""
        return self._buffer_bytes(self.epilogue.loaded_bytes)

    def _buffer_bytes(self, element_bytes: Sequence[int]) -> int:
        if self.pixels.halo:
            return len(element_bytes) * self.pixels.halo.buffer_bytes
        return sum(aligned(wgmma.M * self.chunk * size) for size in element_bytes)

    # ---- data

    @property
    def pixels_offset(self) -> int:
        """The offset of the ring of pixels."""
        stages = self.stage_bytes * self.stages
        return max(stages, self.sums_bytes) if self.are_sums_in_stages else stages

    @property
    def stores_offset(self) -> int:
        return self.pixels_offset + self.pixels.ring.bytes

    @property
    def loads_offset(self) -> int:
        return self.stores_offset + self.block.consumers * self.store_buffers * self.store_bytes

    @property
    def raw_offset(self) -> int:
        """The offset of the ring of raw tiles."""
        return self.loads_offset + self.block.consumers * self.load_buffers * self.load_bytes

    @property
    def raw_buffers(self) -> int:
        """Slots of one producer's raw tiles."""
        return RAW_BUFFERS[self.block.producers]

    @property
    def split_offset(self) -> int:
        """The offset of the buffer through which split sums are added; its barriers come last."""
        return 0 if self.are_sums_in_stages else self._data_end

    @property
    def _data_end(self) -> int:
        """The end of all data but split sums."""
        return self.raw_offset + self.block.producers * self.raw_buffers * self.raw_bytes

    # ---- barriers, and what is small

    @property
    def barriers_offset(self) -> int:
        return self._data_end + (0 if self.are_sums_in_stages else self.sums_bytes)

    @property
    def load_barriers_offset(self) -> int:
        return self.barriers_offset + Pipeline.barrier_bytes(self.stages)

    @property
    def split_barriers_offset(self) -> int:
        rings = self.block.consumers * Pipeline.barrier_bytes(self.load_buffers)
        return self.load_barriers_offset + rings

    @property
    def raw_barriers_offset(self) -> int:
        return self.split_barriers_offset + SplitSum.barrier_bytes()

    @property
    def groups_offset(self) -> int:
        """The offset of the table of groups."""
        slots = self.block.producers * self.raw_buffers
        return self.raw_barriers_offset + Pipeline.barrier_bytes(slots)

    @property
    def exchange_offset(self) -> int:
        return self.groups_offset + (GroupTable.bytes(self.grid.groups) if self.grid.groups else 0)

    @property
    def exchange_bytes(self) -> int:
        """Bytes of one warpgroup's exchanges."""
        return RowExchange.bytes(self.grid.cluster[1], self.epilogue.exchanges)

    @property
    def exchange_barriers_offset(self) -> int:
        return self.exchange_offset + self.block.consumers * self.exchange_bytes

    @property
    def pixels_barriers_offset(self) -> int:
        barriers = self.block.consumers * RowExchange.barrier_bytes(self.epilogue.exchanges)
        return self.exchange_barriers_offset + barriers

    @property
    def rewriting_offset(self) -> int:
        """The offset of barriers of raw tiles, and what their rewriting needs."""
        return self.pixels_barriers_offset + Pipeline.barrier_bytes(self.pixels.ring.slots)

    @property
    def ping_pong_offset(self) -> int:
        """The offset of the barriers of ping-pong."""
        return self.rewriting_offset + self.rewriting

    @property
    def bytes(self) -> int:
        """Bytes of all."""
        barriers = (
            TilePingPong.barrier_bytes(self.block.consumers) if self.block.is_ping_pong else 0
        )
        return self.ping_pong_offset + barriers


def slices_of(columns: int, splits: int) -> int:
    """A slice has whole blocks of 8 columns."""
    return min(splits, columns // 8)


def chunk_columns(
    columns: int, element_bytes: Sequence[int], *, is_transposed: bool = False
) -> int:
    """Columns whose rows fit the widest swizzle in every staged tensor.

    is_transposed: they are the rows of a chunk, so that the last one may have fewer: any number of
    columns then takes few chunks.
    """
    most = LINE_BYTES // max(element_bytes, default=2)
    found = gcd(columns, most)
    if is_transposed and 2 * found < most:  # half of a line's columns leave memory for stages
        return 8 * -(-(columns // 8) // -(-2 * columns // most))
    return found


def aligned(bytes_: int) -> int:
    """Up to where a tile or a buffer may begin."""
    return -(-bytes_ // ALIGNMENT) * ALIGNMENT


def tile_bytes(rows: int, row_bytes: int) -> int:
    """Bytes of a tile of a stage or a raw tile."""
    return aligned(rows * row_bytes)


def rewriting_bytes(slots: int, pixels: int) -> int:
    """Bytes of a barrier for each slot of raw tiles, and a word for each pixel of a tile."""
    return slots * mbarrier.BYTES + pixels * WORD_BYTES
