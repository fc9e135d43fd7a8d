# pyright: basic
"""Tiling: what engine matmul_sm90 decides of a region before it emits, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from ...codegen.hopper import tma, wgmma
from ...codegen.hopper.split import SplitSum
from ...codegen.hopper.staged_store import TURNED_BYTES
from ...dialect.tensor import Tensor
from .shared_layout_sm90 import SharedLayout

# Registers a thread of the producers and of the two consumer warpgroups, by (producers, whether
# they compute).  Together at most what the block is launched with, 168 a thread of three
# warpgroups, 128 of four: a warpgroup that asks for more than the others have given back waits for
# ever.  Two warpgroups have all that an instruction can name from the start.
REGISTERS = {(1, False): (40, 232), (1, True): (80, 208), (2, True): (56, 200)}
# The same, where warps of the producer rewrite an operand, beside up to so many sums or more.
_MOST_SUMS = 128
# The same of three consumer warpgroups, which have a row of a 3x3 filter's gradient each.
_REGISTERS_OF_THREE = (32, 160)
_REWRITING_REGISTERS = {False: (80, 208), True: (56, 224)}
MOST_COLUMNS = 256  # of an instruction
_MOST_DIRECT_COLUMNS = 64  # of a tile of a swapped product: few rows are few results


_FLAGS = (
    "swaps", "promotes", "is_turned", "takes_turns", "gives_up_stores",
)  # fmt: skip


@dataclass(frozen=True)
class Tiling:
    """See the file's docstring.

    rows, columns: of a block's tile.  swaps: the instruction's first operand is B, and what it
    computes is the product's transpose.  consumers: warpgroups that multiply, each a part of the
    rows; of 64 rows, a part of the columns.  cluster: rows and columns of blocks.
    operands: the tiles of a stage, see `StagedOperand.plan`.
    products: for each matmul of the region, the places of its row and column operand.
    promotes: whether each stage's sums are added to f32 sums of their own.
    loads: arguments, by place, that the epilogue reads through shared memory.
    outputs: path of each: "tma"; "scattered", by threads, of whole rows in shared memory;
    "direct", from registers; "bits", of booleans; "row", one element
    a row; "exit", of a reduction over several tiles; or "kept", of an operand that is computed.
    staged_bytes, loaded_bytes: an element of each staged output and load.
    pair: neighbours in a row that the epilogue works on together, 1 or 2.
    splits: blocks of a cluster that share a tile's k.
    producers: warpgroups that load, each every other stage where there are two.
    groups: of rows, at most; 0: the rows are not grouped.
    exchanges: of row values between the blocks of a cluster that share rows, in a tile.
    is_turned: whether staged tensors are contiguous along the rows.
    takes_turns: the warpgroups that multiply each have tiles of their own, by turns.
    beside: groups of channels whose results are the tile's columns, side by side, each the products
    of a part of a panel: see `conv.beside_sm90`.
    pixels: slots and slot_bytes of a ring of pixels that come once for all taps of a filter; empty:
    they do not.  halo: more of those of `conv.halo_sm90`.  rewriting: bytes of what warps need that
    compute an operand in shared memory; 0: there are none.  row_bytes: of k of a stage.
    panel_steps: of a convolution, the instructions along k of each panel of a pixel, in turn;
    empty: of all `k_steps`.
    gives_up_stores: whether L2 gives up lines of outputs before others.
    chunk: tiles along A's rows, of every matrix of the batch, that come before others; 0: all.
    """

    row: wgmma.Instruction
    rows: int
    columns: int
    swaps: bool
    consumers: int
    stages: int
    cluster: tuple[int, int]
    group_rows: int
    operands: tuple[Mapping[str, Any], ...]
    products: tuple[tuple[int, int], ...]
    promotes: bool
    loads: tuple[int, ...]
    outputs: tuple[str, ...]
    staged_bytes: tuple[int, ...]
    loaded_bytes: tuple[int, ...]
    pair: int
    splits: int
    producers: int
    groups: int
    exchanges: int
    is_turned: bool = False
    takes_turns: bool = False
    beside: int = 1
    pixels: Mapping[str, int] = field(default_factory=dict)
    halo: Mapping[str, int] = field(default_factory=dict)
    rewriting: int = 0
    row_bytes: int = wgmma.ROW_BYTES
    panel_steps: tuple[int, ...] = ()
    gives_up_stores: bool = False
    chunk: int = 0

    @staticmethod
    def of(data: Mapping[str, Any], row: wgmma.Instruction) -> Tiling:
        """From the plain data of `plain`."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
        }
        for flag in _FLAGS:
            values[flag] = bool(values[flag])
        return Tiling(row=row, **values)

    def plain(self) -> dict[str, Any]:
        names = (field.name for field in fields(self) if field.name != "row")
        return {name: _listed(getattr(self, name)) for name in names}

    def renumbered(self, places: Sequence[int]) -> Tiling:
        """A tiling with other numbers of arguments; places: of each, the new one."""

        def moved(operand: Mapping[str, Any]) -> dict[str, Any]:
            found = {**operand, "raw": places[operand["raw"]] if operand["raw"] >= 0 else -1}
            if "raws" in operand:
                found["raws"] = [places[raw] for raw in operand["raws"]]
            return found

        loads = tuple(places[load] for load in self.loads)
        return replace(self, operands=tuple(map(moved, self.operands)), loads=loads)

    # ---- sizes

    @property
    def threads(self) -> int:
        return wgmma.WARPGROUP_THREADS * (self.producers + self.consumers)

    @property
    def part(self) -> tuple[int, int]:
        """Rows and columns of a warpgroup's part of a tile."""
        return part_of(self.rows, self.columns, self.sharers)

    @property
    def part_step(self) -> tuple[int, int]:
        """Rows and columns from a warpgroup's part to the next one's."""
        rows, columns = self.part
        if self.sharers == 1:
            return 0, 0
        return (rows, 0) if rows < self.rows else (0, columns)

    @property
    def sharers(self) -> int:
        """Warpgroups that multiply a tile."""
        return 1 if self.takes_turns else self.consumers

    @property
    def in_pairs(self) -> bool:
        """Whether the two blocks of a cluster have the next tiles along a group's rows, or, of its
        last row of tiles, along the columns; see `GroupTable`."""
        return bool(self.groups) and are_pairs(self.cluster, swaps=self.swaps)

    @property
    def most_cluster(self) -> tuple[int, int]:
        """Blocks of a cluster along the rows and columns, where they are most."""
        return (2, 2) if self.in_pairs else self.cluster

    @property
    def blocks_of_rows(self) -> int:
        """Instructions' rows of a warpgroup."""
        return self.part[0] // wgmma.M

    @property
    def k_steps(self) -> int:
        """Instructions along k of a stage."""
        return self.row_bytes // wgmma.K_BYTES

    @property
    def is_all_async(self) -> bool:
        return all(operand["path"] != "registers" for operand in self.operands)

    @property
    def takes_fragments(self) -> bool:
        """Whether consumers compute the operand along the rows in their registers."""
        return any(operand["path"] == "fragments" for operand in self.operands)

    @property
    def registers(self) -> tuple[int, int] | None:
        """Registers of a producer's and of a consumer's thread; None: as they are at launch."""
        if self.consumers == 3:
            return _REGISTERS_OF_THREE
        if self.consumers != 2:
            return None
        if self.rewriting:
            return _REWRITING_REGISTERS[self.sums > _MOST_SUMS]
        return REGISTERS[self.producers, not self.is_all_async]

    @property
    def has_few_registers(self) -> bool:
        """Whether a consumer's thread has few beside its sums."""
        return self.consumers == 3

    @property
    def sums(self) -> int:
        """Registers of a thread's sums."""
        return len(self.products) * self.blocks_of_rows * self.part[1] // 2

    # ---- shared memory

    @property
    def kept_columns(self) -> int:
        """The columns of a row of pixels with a halo that are stored by a copy of its own; 0:
        what is no pixel lies past the image, which cuts it off."""
        return self.halo["columns"] if self.halo else 0

    @cached_property
    def shared(self) -> SharedLayout:
        return SharedLayout(
            columns=self.columns,
            part=self.part,
            consumers=self.consumers,
            sharers=self.sharers,
            takes_turns=self.takes_turns,
            stages=self.stages,
            stage_bytes=sum(operand["bytes"] for operand in self.operands),
            producers=self.producers,
            staged_bytes=self.staged_bytes,
            loaded_bytes=self.loaded_bytes,
            raw_bytes=sum(operand["raw_bytes"] for operand in self.operands),
            splits=self.splits,
            sums_bytes=sums_bytes(len(self.products), self.rows, self.columns, self.splits),
            peers=self.cluster[1],
            exchanges=self.exchanges,
            groups=self.groups,
            pixel_slots=self.pixels["slots"] if self.pixels else 0,
            pixel_bytes=self.pixels["slot_bytes"] if self.pixels else 0,
            halo_bytes=self.halo["buffer_bytes"] if self.halo else 0,
            rewriting=self.rewriting,
        )


def sums_bytes(products: int, rows: int, columns: int, splits: int) -> int:
    """Bytes of the sums of a tile that the blocks which share its k exchange."""
    return products * SplitSum.bytes(rows, columns) if splits > 1 else 0


def are_pairs(cluster: tuple[int, int], *, swaps: bool) -> bool:
    """Whether a cluster's blocks have tiles of grouped rows in pairs, by its rows and columns."""
    return cluster == (2, 1) and not swaps


def consumers_of(rows: int, columns: int) -> int:
    """Warpgroups that multiply a tile."""
    return 1 if rows == wgmma.M and columns <= MOST_COLUMNS else 2


def part_of(rows: int, columns: int, sharers: int) -> tuple[int, int]:
    """Rows and columns of a tile that each of so many warpgroups has."""
    if rows == wgmma.M:
        return rows, columns // sharers
    return rows // sharers, columns


def _listed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return [_listed(v) for v in value] if isinstance(value, tuple) else value


def exchanges(reductions: int, blocks_of_rows: int) -> int:
    """Exchanges of row values in a tile: each thread has an upper and a lower row in a block of
    64."""
    return reductions * blocks_of_rows * 2


def stages_turned(outputs: Sequence[Tensor]) -> bool:
    """Whether the results of a swapped product, of its dims, go through shared memory turned: all
    are of 16 bits, and their contiguous elements along the instruction's rows."""
    whole = [t for t in outputs if t.type.kind != "b"]
    return bool(whole) and all(
        t.type.bits == 8 * TURNED_BYTES and stored_by_tma(t, swaps=False) for t in whole
    )


def is_turned(columns: int, *, swaps: bool, can_turn: bool) -> bool:
    """Whether a tile of so many columns is turned: few are stored from registers."""
    return swaps and can_turn and columns > _MOST_DIRECT_COLUMNS


def moves_turned(tensor: Tensor) -> bool:
    """Whether what an epilogue reads can come so."""
    return tensor.type.bits == 8 * TURNED_BYTES and moves_by_tma(tensor, swaps=False)


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
