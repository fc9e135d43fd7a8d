"""Choice: the values of matmul_sm90's knobs, named, and what follows from them alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from ...codegen.hopper import wgmma
from ..knob_values import KnobValues
from .tile_parts_sm90 import BlockTile, consumers_of

FRAGMENTS, PING_PONG = 3, 4  # of WARP_SPEC_CFG


@dataclass(frozen=True)
class Choice(KnobValues):
    """One value of each knob; conv_sm90 and conv_wgrad_sm90 choose their main loop's by the same.

    tile_m, tile_n: a block's tile of the product.  blocks_m, blocks_n: of a cluster that shares
    tiles.  splits: blocks of a cluster that share a tile's k.  roles: what the warpgroups do,
    WARP_SPEC_CFG.  swizzle: rows of the product whose tiles follow each other.
    swaps: whether the transpose is computed.
    """

    tile_m: Annotated[int, "TILE_M"]
    tile_n: Annotated[int, "TILE_N"]
    stages: Annotated[int, "STAGES"]
    blocks_m: Annotated[int, "TILE_CGA_M"]
    blocks_n: Annotated[int, "TILE_CGA_N"]
    splits: Annotated[int, "SPLIT_K_SLC"]
    swizzle: Annotated[int, "SWIZZLE"]
    roles: Annotated[int, "WARP_SPEC_CFG"] = 1
    swaps: Annotated[bool, "SWAP_AB"] = False

    @property
    def sides(self) -> tuple[int, int]:
        """The tile along the instruction's rows and columns."""
        return (self.tile_n, self.tile_m) if self.swaps else (self.tile_m, self.tile_n)

    @property
    def cluster(self) -> tuple[int, int]:
        """Blocks of a cluster along the instruction's rows and columns."""
        return (self.blocks_n, self.blocks_m) if self.swaps else (self.blocks_m, self.blocks_n)

    @property
    def shared_blocks(self) -> int:
        """Blocks of a cluster that share tiles."""
        return self.blocks_m * self.blocks_n

    @property
    def takes_fragments(self) -> bool:
        """Whether consumers compute the operand along the rows in their registers."""
        return self.roles == FRAGMENTS

    @property
    def is_ping_pong(self) -> bool:
        """Whether the warpgroups that multiply ping-pong: each has tiles of its own."""
        return self.roles == PING_PONG

    @cached_property
    def block(self) -> BlockTile:
        """The tile, and the warpgroups that make it."""
        consumers = 2 if self.is_ping_pong else consumers_of(*self.sides)
        return BlockTile(*self.sides, self.swaps, consumers, self.producers, self.is_ping_pong)

    @property
    def producers(self) -> int:
        """Warpgroups that load."""
        return 2 if self.roles == 2 else 1

    @property
    def accumulators(self) -> int:
        """Accumulators of one product, in two rows of a thread."""
        rows, columns = self.block.part
        return rows // wgmma.M * columns
