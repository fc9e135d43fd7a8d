# pyright: basic
"""Tiling: what engine matmul_sm90 decides of a region before it emits, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

from ..codegen import tma, wgmma
from ..codegen.groups import GroupTable
from ..codegen.operand_tile import access_bytes, is_unit, layout_model
from ..codegen.pipeline import Pipeline
from ..codegen.region import Region, identity_access
from ..codegen.row_exchange import RowExchange
from ..codegen.split import SplitSum
from ..codegen.staged_store import ALIGNMENT
from ..codegen.tile_ring import TileRing
from ..codegen.walk import inputs_of, is_reduction, reduced_axes
from ..dialect.tensor import Tensor
from ..mlir import ir

# Registers a thread of the producers and of the two consumer warpgroups, by (producers, whether
# they compute).  Together at most what the block is launched with, 168 a thread of three
# warpgroups, 128 of four: a warpgroup that asks for more than the others have given back waits for
# ever.  Two warpgroups have all that an instruction can name from the start.
REGISTERS = {(1, False): (40, 232), (1, True): (80, 208), (2, True): (56, 200)}
LINE_BYTES = 128  # of a staged row at most: the widest swizzle
STORE_BUFFERS = 2  # of a warpgroup
LOAD_BUFFERS = 3
RAW_BUFFERS = {1: 3, 2: 2}  # of a producer, by how many there are


@dataclass(frozen=True)
class Tiling:
    """See the file's docstring.

    rows, columns: of a block's tile.  swaps: the instruction's first operand is B, and what it
    computes is the product's transpose.  consumers: warpgroups that multiply.  cluster: rows and
    columns of blocks.  operands: the tiles of a stage, see `StagedOperand.plan`.
    products: for each matmul of the region, the places of its row and column operand.
    promotes: whether each stage's sums are added to f32 sums of their own.
    loads: arguments, by place, that the epilogue reads through shared memory.
    outputs: path of each: "tma"; "direct", from registers; "bits", of booleans; "row", one element
    a row; or "exit", of a reduction over several tiles.
    chunk: columns that go through shared memory together.  staged_bytes, loaded_bytes: an element
    of each staged output and load.  pair: neighbours in a row that the epilogue works on
    together, 1 or 2.  splits: blocks of a cluster that share a tile's k.
    producers: warpgroups that load, each every other stage where there are two.
    groups: of rows, at most; 0: the rows are not grouped.
    exchanges: of row values between the blocks of a cluster that share rows, in a tile.
    streams: blocks end inside tiles, along k.  is_dynamic: blocks take tiles when they are free.
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
    chunk: int
    pair: int
    splits: int
    producers: int
    groups: int
    exchanges: int
    streams: bool
    is_dynamic: bool

    @staticmethod
    def of(data: Mapping[str, Any], row: wgmma.Instruction) -> Tiling:
        """From the plain data of `plain`."""
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
        }
        for flag in ("swaps", "promotes", "streams", "is_dynamic"):
            fields[flag] = bool(fields[flag])
        return Tiling(row=row, **fields)

    def plain(self) -> dict[str, Any]:
        return {name: _listed(value) for name, value in vars(self).items() if name != "row"}

    # ---- sizes

    @property
    def threads(self) -> int:
        return wgmma.WARPGROUP_THREADS * (self.producers + self.consumers)

    @property
    def blocks_of_rows(self) -> int:
        """Instructions' rows of a warpgroup."""
        return self.rows // self.consumers // wgmma.M

    @property
    def slices(self) -> int:
        """Blocks that have an epilogue of a tile whose k is split, each of some columns."""
        return slices_of(self.columns, self.splits)

    @property
    def own_columns(self) -> int:
        """Columns of a block's epilogue."""
        return self.columns // self.slices

    @property
    def is_all_async(self) -> bool:
        return all(operand["path"] != "registers" for operand in self.operands)

    @property
    def takes_fragments(self) -> bool:
        """Whether consumers compute the operand along the rows in their registers."""
        return any(operand["path"] == "fragments" for operand in self.operands)

    @property
    def registers(self) -> tuple[int, int] | None:
        """Of a producer's and of a consumer's thread; None: as they are at launch."""
        if self.consumers != 2:
            return None
        return REGISTERS[self.producers, not self.is_all_async]

    @property
    def stage_bytes(self) -> int:
        return sum(operand["bytes"] for operand in self.operands)

    @property
    def raw_bytes(self) -> int:
        """Of one slot of the raw ring."""
        return sum(operand["raw_bytes"] for operand in self.operands)

    @property
    def store_bytes(self) -> int:
        """Of one buffer: a chunk of every staged output."""
        return buffer_bytes(self.staged_bytes, self.chunk)

    @property
    def load_bytes(self) -> int:
        """Of one buffer: a chunk of every staged load."""
        return buffer_bytes(self.loaded_bytes, self.chunk)

    @property
    def stores_offset(self) -> int:
        return self.stage_bytes * self.stages

    @property
    def loads_offset(self) -> int:
        return self.stores_offset + self.consumers * STORE_BUFFERS * self.store_bytes

    @property
    def barriers_offset(self) -> int:
        return self.split_offset + self.split_bytes

    @property
    def raw_offset(self) -> int:
        """Of the ring of raw tiles."""
        return self.loads_offset + self.consumers * LOAD_BUFFERS * self.load_bytes

    @property
    def split_offset(self) -> int:
        """Of the buffer through which split sums are added; its barriers come last."""
        return self.raw_offset + self.producers * RAW_BUFFERS[self.producers] * self.raw_bytes

    @property
    def split_bytes(self) -> int:
        if self.splits == 1:
            return 0
        return len(self.products) * SplitSum.bytes(self.rows, self.columns)

    @property
    def split_barriers_offset(self) -> int:
        barriers = Pipeline.barrier_bytes(self.stages)
        if self.loads:
            barriers += self.consumers * Pipeline.barrier_bytes(LOAD_BUFFERS)
        return self.barriers_offset + barriers

    @property
    def raw_barriers_offset(self) -> int:
        return self.split_barriers_offset + SplitSum.barrier_bytes()

    @property
    def groups_offset(self) -> int:
        """Of the table of groups."""
        rings = self.producers * RAW_BUFFERS[self.producers]
        return self.raw_barriers_offset + Pipeline.barrier_bytes(rings)

    @property
    def smem_bytes(self) -> int:
        ring = TileRing.bytes() + TileRing.barrier_bytes()
        return self.ring_offset + (ring if self.is_dynamic else 0)

    @property
    def ring_offset(self) -> int:
        """Of the numbers of dynamic tiles, and of the barriers behind them."""
        barriers = self.consumers * RowExchange.barrier_bytes(self.exchanges)
        return self.exchange_barriers_offset + barriers

    @property
    def sums(self) -> int:
        """Registers of a thread's sums."""
        return len(self.products) * self.blocks_of_rows * self.columns // 2

    @property
    def exchange_bytes(self) -> int:
        """Of one warpgroup's exchanges."""
        return RowExchange.bytes(self.cluster[1], self.exchanges)

    @property
    def exchange_offset(self) -> int:
        return self.groups_offset + (GroupTable.bytes(self.groups) if self.groups else 0)

    @property
    def exchange_barriers_offset(self) -> int:
        return self.exchange_offset + self.consumers * self.exchange_bytes


def _listed(value: Any) -> Any:
    return [_listed(v) for v in value] if isinstance(value, tuple) else value


def exchanges(reductions: int, blocks_of_rows: int) -> int:
    """Of row values in a tile: each thread has an upper and a lower row in a block of 64."""
    return reductions * blocks_of_rows * 2


def row_reductions_that_flow(region: Region) -> int:
    """Reductions along rows, if one goes on into work of the product's dims; else 0."""
    call = next(op for op in region.operations if op.name == "func.call")
    dims = region.dims_of(call.results[0])
    along_rows = [
        op for op in region.generics() if is_reduction(op)
        and reduced_axes(op) == [len(dims) - 1] and region.dims_of(inputs_of(op)[0]) == dims
    ]  # fmt: skip
    flows = any(
        leads_to(op.results[0], value)
        for op in along_rows
        for value, tensor in region.outputs
        if tensor.shape == tuple(dims)
    )
    return len(along_rows) if flows else 0


def leads_to(source: Any, value: Any) -> bool:
    """Whether an SSA value is computed from another."""
    if value == source:
        return True
    if isinstance(value.owner, ir.Block) or value.owner.name == "func.call":
        return False
    return any(leads_to(source, operand) for operand in inputs_of(value.owner))


def buffer_bytes(element_bytes: Sequence[int], chunk: int) -> int:
    return sum(-(-wgmma.M * chunk * size // ALIGNMENT) * ALIGNMENT for size in element_bytes)


def raw_bytes(rows: int, k: int, element_bytes: int) -> int:
    """Of a raw tile, a whole number of its alignment."""
    return -(-rows * k * element_bytes // ALIGNMENT) * ALIGNMENT


def slices_of(columns: int, splits: int) -> int:
    """A slice has whole blocks of 8 columns."""
    return min(splits, columns // 8)


def chunk_columns(columns: int, element_bytes: Sequence[int]) -> int:
    """Columns whose rows fit the widest swizzle in every staged tensor."""
    return gcd(columns, LINE_BYTES // max(element_bytes, default=2))


def moves_by_tma(tensor: Tensor, *, swaps: bool) -> bool:
    """Whether tiles of a tensor can be loaded through the copy engine."""
    row, column = tensor.rank - 2, tensor.rank - 1
    if swaps:
        row, column = column, row
    return tma.refusal(tensor, (column, row)) is None


def stored_by_tma(output: Tensor, *, swaps: bool) -> bool:
    """Whether an output's tiles can leave through the copy engine.

    It writes whole 16 bytes: a row that ends inside them would be written past its end.
    """
    column = output.rank - 2 if swaps else output.rank - 1
    row_bits = output.shape[column].known_divisor() * output.type.bits
    return moves_by_tma(output, swaps=swaps) and row_bits % (8 * tma.ALIGNMENT) == 0


def operand_path(
    region: Region, value: Any, row: wgmma.Instruction, *, is_a: bool, is_rows: bool
) -> dict[str, Any]:
    """How an operand is loaded; see `StagedOperand.plan`."""
    model = layout_model(region, value)
    rank = len(region.dims_of(value))
    rows, depth = (rank - 2, rank - 1) if is_a else (rank - 1, rank - 2)
    contiguous = None
    if model is not None:
        contiguous = next((axis for axis in (depth, rows) if is_unit(model, axis)), None)
    path: dict[str, Any] = {"path": "registers", "is_a": is_a, "is_rows": is_rows, "raw": -1}
    path["is_aligned"] = (
        model is not None
        and contiguous is not None
        and (
            access_bytes(model, contiguous) >= min(16, model.type.bits)  # eight elements at once
        )
    )
    tensor = region.arguments.get(value)
    operand = row.a if is_rows else row.b
    if tensor is not None and not tensor.is_by_value and tensor.type == operand:
        if tma.refusal(tensor, (depth, rows)) is None:
            return {**path, "path": "tma", "k_contiguous": True, "loads_along_k": True}
        if row.takes_mn_major and tma.refusal(tensor, (rows, depth)) is None:
            return {**path, "path": "tma", "k_contiguous": False, "loads_along_k": False}
    k_contiguous = not (row.takes_mn_major and contiguous == rows)
    along_k = contiguous != rows
    raw = raw_argument(region, value, (depth, rows) if along_k else (rows, depth))
    if raw >= 0:
        path["is_aligned"] = True
    return {**path, "k_contiguous": k_contiguous, "loads_along_k": along_k, "raw": raw}


def raw_argument(region: Region, value: Any, axes: tuple[int, int]) -> int:
    """The place of the largest argument that g1 reads only at the operand's own coordinates, and
    whose tiles TMA can bring; -1 for none."""
    whole = identity_access(len(region.dims_of(value)))
    seen: dict[Any, set[Any]] = {}
    for leaf, access in region.accesses(value, whole):
        seen.setdefault(leaf, set()).add(access)
    fitting = [
        place
        for place, (argument, tensor) in enumerate(region.arguments.items())
        if seen.get(argument) == {whole}
        and tensor.shape == tuple(region.dims_of(value))
        and not tensor.is_by_value
        and tma.refusal(tensor, axes) is None
    ]
    arguments = list(region.arguments.values())
    return max(fitting, key=lambda place: arguments[place].type.bits, default=-1)


def staged_loads(region: Region, calls: Sequence[Any], *, swaps: bool) -> list[int]:
    """Places of the arguments that g2 reads once an element, at the product's own coordinates."""
    dims = region.dims_of(calls[0].results[0])
    whole = identity_access(len(dims))
    made = {call.results[0] for call in calls}
    seen: dict[Any, set[Any]] = {}
    for value, tensor in region.outputs:
        if tensor.shape != tuple(dims):
            return []
        for leaf, access in region.accesses(value, whole, stop=lambda v: v in made):
            seen.setdefault(leaf, set()).add(access)
    operands = {leaf for call in calls for operand in call.operands
                for leaf, _ in region.accesses(operand, whole)}  # fmt: skip
    return [
        place
        for place, (value, tensor) in enumerate(region.arguments.items())
        if seen.get(value) == {whole}
        and value not in operands
        and tensor.shape == tuple(dims)
        and not tensor.is_by_value
        and moves_by_tma(tensor, swaps=swaps)
    ]
