# pyright: basic
"""The parts of a tiling of Hopper's main loop; see `tile_sm90.Tiling`.

Shared memory is laid out by the same parts: `shared_layout_sm90.SharedLayout`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...codegen.hopper import wgmma
from ...codegen.memory.parted import End

MOST_COLUMNS = 256  # of an instruction


@dataclass(frozen=True)
class BlockTile:
    """A block's tile, and the warpgroups that make it.

    rows, columns: of the tile, along the instruction's.  swaps: the instruction's first operand is
    B, and what it computes is the product's transpose.  consumers: warpgroups that multiply, each a
    part of the rows; of 64 rows, a part of the columns.  producers: warpgroups that load, each
    every other stage where there are two.  is_ping_pong: each consumer has tiles of its own,
    alternately.  helpers: warpgroups after the consumers, whose warps rewrite an operand as those
    of the producer do.
    """

    rows: int
    columns: int
    swaps: bool
    consumers: int
    producers: int = 1
    is_ping_pong: bool = False
    helpers: int = 0

    @property
    def threads(self) -> int:
        return wgmma.WARPGROUP_THREADS * (self.producers + self.consumers + self.helpers)

    @property
    def sharers(self) -> int:
        """Warpgroups that multiply a tile."""
        return 1 if self.is_ping_pong else self.consumers

    @property
    def part(self) -> tuple[int, int]:
        """Rows and columns of a warpgroup's part of a tile."""
        if self.rows == wgmma.M:
            return self.rows, self.columns // self.sharers
        return self.rows // self.sharers, self.columns

    @property
    def part_step(self) -> tuple[int, int]:
        """Rows and columns from a warpgroup's part to the next one's."""
        rows, columns = self.part
        if self.sharers == 1:
            return 0, 0
        return (rows, 0) if rows < self.rows else (0, columns)

    @property
    def blocks_of_rows(self) -> int:
        """Instructions' rows of a warpgroup."""
        return self.part[0] // wgmma.M


@dataclass(frozen=True)
class TileGrid:
    """How blocks go through the tiles.

    cluster: rows and columns of blocks.  splits: blocks of a cluster that share a tile's k.
    groups: of rows, at most; 0: the rows are not grouped.  group_rows: rows of tiles that come
    before others.  chunk: tiles along A's rows, of every matrix of the batch, that come before
    others; 0: all.  is_snake: see `codegen.tiles.numbers`.
    """

    cluster: tuple[int, int] = (1, 1)
    splits: int = 1
    groups: int = 0
    group_rows: int = 1
    chunk: int = 0
    is_snake: bool = False


@dataclass(frozen=True)
class EpilogueTiles:
    """The ways of what an epilogue stores and reads.

    outputs: path of each: "tma"; "phases", by TMA, of pixels that lie a stride apart;
    "scattered", by threads, of whole rows in shared memory; "direct", from registers; "bits", of
    booleans; "row", one element a row; "exit", of a reduction over several tiles; or "kept", of an
    operand that is computed.
    loads: arguments, by place, that it reads through shared memory.
    staged_bytes, loaded_bytes: an element of each staged output and load.
    pair: neighbours in a row that it works on together, 1 or 2.
    exchanges: of row values between the blocks of a cluster that share rows, in a tile.
    is_transposed: whether staged tensors are contiguous along the rows.
    gives_up_stores: whether L2 gives up lines of outputs before others.
    ends: of each output, those of the region that are stored in its place; empty: each is as it is.
    """

    outputs: tuple[str, ...]
    staged_bytes: tuple[int, ...] = ()
    loads: tuple[int, ...] = ()
    loaded_bytes: tuple[int, ...] = ()
    pair: int = 1
    exchanges: int = 0
    is_transposed: bool = False
    gives_up_stores: bool = False
    ends: tuple[tuple[End, ...], ...] = ()


@dataclass(frozen=True)
class PixelRing:
    """A ring of pixels that come once for all taps of a filter.

    slots, slot_bytes: how many, and of each; 0: there are none.  rows, columns: of dY's tiles in a
    filter's gradient.
    """

    slots: int = 0
    slot_bytes: int = 0
    rows: int = 0
    columns: int = 0

    @property
    def bytes(self) -> int:
        return self.slots * self.slot_bytes


@dataclass(frozen=True)
class HaloTile:
    """A ring of pixels whose rows have a halo; see `conv.halo_sm90.Halo`.

    columns: of a row of pixels that a copy of its own stores; 0: what is no pixel lies past the
    image, which cuts it off.  buffer_bytes: of one staged output or load.  stays: whether the
    filters stay in shared memory.
    """

    rows: int
    parts: int
    columns: int
    buffer_bytes: int
    stays: bool


@dataclass(frozen=True)
class PixelTiles:
    """The part of a tiling that convolutions alone have.

    beside: groups of channels whose results are the tile's columns, side by side, each the products
    of a part of a panel: see `conv.beside_sm90`.
    steps: the instructions along k of each panel of a pixel, in order; empty: of all `k_steps`.
    zeros: whether pixels that meet no tap have no tiles, see `conv.zeros_sm90`.
    """

    beside: int = 1
    steps: tuple[int, ...] = ()
    ring: PixelRing = field(default_factory=PixelRing)
    halo: HaloTile | None = None
    zeros: bool = False


def consumers_of(rows: int, columns: int) -> int:
    """Warpgroups that multiply a tile."""
    return 1 if rows == wgmma.M and columns <= MOST_COLUMNS else 2
