# pyright: basic
"""Tiling: what engine matmul_sm90 decides of a region before it emits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ...codegen.hopper import tma, wgmma
from ...codegen.hopper.split import SplitSum
from ...codegen.hopper.staged_operand import StagePlan
from ...codegen.hopper.staged_store import TRANSPOSED_BYTES
from ...dialect.tensor import Tensor
from ...dtypes import DType
from .shared_layout_sm90 import SharedLayout
from .tile_parts_sm90 import BlockTile, EpilogueTiles, PixelTiles, TileGrid

# Registers a thread of the producers and of the two consumer warpgroups, by (producers, whether
# they compute).  Together at most what the block is launched with, 168 a thread of three
# warpgroups, 128 of four: a warpgroup that asks for more than the others have given back waits for
# ever.  Two warpgroups have all that an instruction can name from the start.
REGISTERS = {(1, False): (40, 232), (1, True): (80, 208), (2, True): (56, 200)}
# The same, where warps of the producer rewrite an operand, beside up to so many sums or more.
_MOST_SUMS = 128
# The same of three consumer warpgroups, which have a row of a 3x3 filter's gradient each.
_REGISTERS_OF_THREE = {False: (32, 160), True: (80, 144)}  # by whether operands are rewritten
_REWRITING_REGISTERS = {False: (80, 208), True: (56, 224)}
_HELPED_REGISTERS = (72, 184)  # where a warpgroup more rewrites
_PROMOTING_REGISTERS = (72, 216)  # of the more, where half are f32 sums beside a stage's own


@dataclass(frozen=True)
class Tiling:
    """See the file's docstring.

    types: of the instruction's operands.  stages: of the ring of operands.
    operands: the tiles of a stage.
    products: for each matmul of the region, the places of its row and column operand.
    promotes: whether each stage's sums are added to f32 sums of their own.
    row_bytes: of k of a stage.  rewriting: bytes of what warps need that compute an operand in
    shared memory; 0: there are none.
    """

    types: tuple[DType, DType]
    block: BlockTile
    grid: TileGrid
    epilogue: EpilogueTiles
    stages: int
    operands: tuple[StagePlan, ...]
    products: tuple[tuple[int, int], ...] = ((0, 1),)
    promotes: bool = False
    row_bytes: int = wgmma.ROW_BYTES
    rewriting: int = 0
    pixels: PixelTiles = field(default_factory=PixelTiles)

    def renumbered(self, places: Sequence[int]) -> Tiling:
        """A tiling with other numbers of arguments; places: of each, the new one."""
        loads = tuple(places[load] for load in self.epilogue.loads)
        epilogue = replace(self.epilogue, loads=loads)
        operands = tuple(operand.renumbered(places) for operand in self.operands)
        return replace(self, operands=operands, epilogue=epilogue)

    @property
    def row(self) -> wgmma.Instruction:
        return wgmma.INSTRUCTIONS[self.types]

    # ---- sizes

    @property
    def in_pairs(self) -> bool:
        """Whether the two blocks of a cluster have the next tiles along a group's rows, or, of its
        last row of tiles, along the columns; see `GroupTable`."""
        return bool(self.grid.groups) and are_pairs(self.grid.cluster, swaps=self.block.swaps)

    @property
    def most_cluster(self) -> tuple[int, int]:
        """Blocks of a cluster along the rows and columns, where they are most."""
        return (2, 2) if self.in_pairs else self.grid.cluster

    @property
    def k_steps(self) -> int:
        """Instructions along k of a stage."""
        return self.row_bytes // wgmma.K_BYTES

    @property
    def promoted_stages(self) -> int:
        """Stages whose sums are added to f32 sums together, where warps transpose both operands:
        of 128 bytes of k."""
        is_transposed = all(operand.path == "rewritten" for operand in self.operands)
        return wgmma.ROW_BYTES // self.row_bytes if is_transposed else 1

    @property
    def is_all_async(self) -> bool:
        return all(operand.path != "registers" for operand in self.operands)

    @property
    def takes_fragments(self) -> bool:
        """Whether consumers compute the operand along the rows in their registers."""
        return any(operand.path == "fragments" for operand in self.operands)

    @property
    def registers(self) -> tuple[int, int] | None:
        """Registers of a producer's and of a consumer's thread; None: as they are at launch."""
        if self.has_few_registers:
            return _REGISTERS_OF_THREE[self.rewriting > 0]
        if self.block.consumers != 2:
            return None
        if self.block.helpers:
            return _HELPED_REGISTERS
        if self.rewriting:
            is_most = self.sums * (1 + self.promotes) > _MOST_SUMS
            if is_most and self.promotes:
                return _PROMOTING_REGISTERS
            return _REWRITING_REGISTERS[is_most]
        return REGISTERS[self.block.producers, not self.is_all_async]

    @property
    def has_few_registers(self) -> bool:
        """Whether a consumer's thread has few beside its sums."""
        return self.block.consumers == 3

    @property
    def sums(self) -> int:
        """Registers of a thread's sums."""
        return len(self.products) * self.block.blocks_of_rows * self.block.part[1] // 2

    # ---- shared memory

    @property
    def kept_columns(self) -> int:
        """The columns of a row of pixels with a halo that are stored by a copy of its own; 0:
        what is no pixel lies past the image, which cuts it off."""
        return self.pixels.halo.columns if self.pixels.halo else 0

    @cached_property
    def shared(self) -> SharedLayout:
        block, splits = self.block, self.grid.splits
        return SharedLayout(
            block,
            self.grid,
            self.epilogue,
            self.pixels,
            stages=self.stages,
            stage_bytes=sum(operand.bytes for operand in self.operands),
            raw_bytes=sum(o.raw.bytes for o in self.operands if o.raw),
            sums_bytes=sums_bytes(len(self.products), block.rows, block.columns, splits),
            are_sums_in_stages=splits > 1 and self.is_all_async and not self.rewriting,
            rewriting=self.rewriting,
        )


def sums_bytes(products: int, rows: int, columns: int, splits: int) -> int:
    """Bytes of the sums of a tile that the blocks which share its k exchange."""
    return products * SplitSum.bytes(rows, columns) if splits > 1 else 0


def are_pairs(cluster: tuple[int, int], *, swaps: bool) -> bool:
    """Whether a cluster's blocks have tiles of grouped rows in pairs, by its rows and columns."""
    return cluster == (2, 1) and not swaps


def exchanges(reductions: int, blocks_of_rows: int) -> int:
    """Exchanges of row values in a tile: each thread has an upper and a lower row in a block of
    64."""
    return reductions * blocks_of_rows * 2


def stages_transposed(outputs: Sequence[Tensor]) -> bool:
    """Whether the results of a swapped product, of its dims, go through shared memory transposed:
    all are of 16 bits, and their contiguous elements along the instruction's rows."""
    whole = [t for t in outputs if t.type.kind != "b"]
    return bool(whole) and all(
        t.type.bits == 8 * TRANSPOSED_BYTES and stored_by_tma(t, swaps=False) for t in whole
    )


def moves_transposed(tensor: Tensor) -> bool:
    """Whether what an epilogue reads can come so."""
    return tensor.type.bits == 8 * TRANSPOSED_BYTES and moves_by_tma(tensor, swaps=False)


def moves_by_tma(tensor: Tensor, *, swaps: bool) -> bool:
    """Whether tiles of a tensor can be loaded through TMA."""
    row, column = tensor.rank - 2, tensor.rank - 1
    if swaps:
        row, column = column, row
    return tma.refusal(tensor, (column, row)) is None


def stored_by_tma(output: Tensor, *, swaps: bool) -> bool:
    """Whether an output's tiles can leave through TMA.

    It writes whole 16 bytes: a row that ends inside them would be written past its end.
    """
    column = output.rank - 2 if swaps else output.rank - 1
    row_bits = output.shape[column].known_divisor() * output.type.bits
    return moves_by_tma(output, swaps=swaps) and row_bits % (8 * tma.ALIGNMENT) == 0
