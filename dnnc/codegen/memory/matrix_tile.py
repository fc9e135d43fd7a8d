# pyright: basic
"""MatrixTile: a tile of a matrix, from global memory to shared memory.

It is copied asynchronously as it lies in memory, or goes through registers: through the walk of
what comes before it (g1), or because its alignment or layout is not what the copies take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ... import dtypes
from ...dialect.tensor import Tensor
from ...expr import Expr
from ...mlir import arith, llvm
from .. import ops
from ..ampere import mma
from ..ampere.operand_tile import OperandTile, RawTile
from ..state import each
from ..walk.index import Coordinate, Index
from ..walk.region_walk import Walk
from . import smem
from .tensors import GlobalTensor

# Where the tiles of a row of a matrix begin: its coordinates in the batch, and the row.
Place = tuple[Mapping[int, Coordinate], Any]

# Elements that `fill` has in registers at a time.
_HELD_WIDE = 64
_HELD_NARROW = 16


@dataclass
class MatrixTile(OperandTile):
    """A tile of the last two axes of a tensor; see the file's docstring.

    rows, depth: its axes along m (or n) and k.  size, k_size: their extents.  blocks: of a cluster
    side by side along the rows, of which the last may have none that exist.  starts_anywhere:
    whether tiles begin at rows that are no multiples of theirs.
    """

    blocks: int = 1
    starts_anywhere: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.dims = self.matrix_dims
        rank = len(self.dims)
        self.rows, self.depth = (rank - 2, rank - 1) if self.side.is_a else (rank - 1, rank - 2)
        self.size, self.k_size = self.dims[self.rows], self.dims[self.depth]

    @property
    def matrix_dims(self) -> tuple[Expr, ...]:
        """The dims of the matrices that tiles are of."""
        return self.region.dims_of(self.value)

    @property
    def row_end(self) -> Any:
        """The extent along the rows."""
        return self.kernel.size(self.size)

    @property
    def k_end(self) -> Any:
        """The extent along k."""
        return self.kernel.size(self.k_size)

    @property
    def k_divisor(self) -> int:
        """A number known to divide it."""
        return self.k_size.known_divisor()

    @property
    def matrix(self) -> Tensor:
        """The matrix that asynchronous copies read."""
        return self.region.arguments[self.value]

    def coordinates(
        self, batch: Mapping[int, Coordinate], row: Coordinate, k: Coordinate
    ) -> list[Coordinate]:
        at: list[Coordinate] = [
            Index.of(0) if extent.constant == 1 else batch.get(axis, Index.of(0))
            for axis, extent in enumerate(self.dims)
        ]
        at[self.rows], at[self.depth] = row, k
        return at

    def start(self, batch: Mapping[int, Coordinate], first_row: Any) -> Place:
        """The start that the tiles along k, from a row of a matrix on, have in common."""
        return batch, first_row

    # ---- asynchronous copies

    def issue(self, place: Place, first_k: Any, slot: Any) -> None:
        """Starts the copies of a tile into shared memory at `slot`."""
        batch, first_row = place
        source = GlobalTensor(self.kernel, self.matrix)
        elems = self.plan.access_bytes // self.bytes
        for i, (row, k) in enumerate(self._pieces(elems, self.k_contiguous)):
            with ops.if_(self._guard(elems, i)):
                self._copy(source, batch, first_row + row, first_k + k,
                           smem.byte_pointer(slot, self._place(row, k)), elems)  # fmt: skip

    def _copy(
        self,
        source: GlobalTensor,
        batch: Mapping[int, Coordinate],
        row: Any,
        k: Any,
        target: Any,
        elems: int,
    ) -> None:
        size, k_size = self.row_end, self.k_end
        whole_rows = self.size.known_divisor() % self.side.rows == 0
        whole_k = self.k_divisor % self.side.k == 0
        if self.k_contiguous:
            row = row if whole_rows else ops.minimum(row, size - 1)
            is_there = None
            valid = None if whole_k else k_size - k
            # A copy of nothing still wants an aligned address: the row's start.
            k = k if whole_k else ops.select(k < k_size, k, 0)
        else:
            valid = None if whole_rows else size - row
            row = row if whole_rows else ops.select(row < size, row, 0)
            is_there = None if whole_k else k < k_size
            k = k if whole_k else ops.minimum(k, k_size - 1)
        count = None
        if valid is not None:
            count = ops.minimum(ops.maximum(valid, 0), elems) * self.bytes
        if is_there is not None:
            count = ops.select(is_there, elems * self.bytes if count is None else count, 0)
        at = self.coordinates(batch, Index(row), Index(k))
        address = source.address(at)
        smem.copy_async(target, address, elems * self.bytes, count)

    # ---- through registers

    def fetch(self, walk: Walk, place: Place, first_k: Any) -> list[Any]:
        """The fragments of a tile that this thread stores, in registers; zeros past K."""
        batch, first_row = place
        pieces = self._pieces(self.chunk, self.plan.loads_along_k)
        return [self._fetched(walk, batch, first_row, first_k, piece) for piece in pieces]

    def _fetched(
        self,
        walk: Walk,
        batch: Mapping[int, Coordinate],
        first_row: Any,
        first_k: Any,
        piece: tuple[Any, Any],
    ) -> Any:
        along_k = self.plan.loads_along_k
        row, k = first_row + piece[0], first_k + piece[1]
        row_tile = 0 if self.starts_anywhere else self.side.rows * self.blocks
        divisor = self.size.known_divisor()
        row_index, _ = self._edge(row, lambda: self.row_end, divisor, row_tile, not along_k)
        k_index, inside = self._edge(k, lambda: self.k_end, self.k_divisor, self.side.k, along_k)
        walk.forget()
        value = walk.value(self.value, self.coordinates(batch, row_index, k_index), self.chunk)
        if inside is not None:
            mask = ops.splat(inside, self.chunk)
            value = arith.SelectOp(mask, value, ops.zeros(value.type)).result
        if self.is_panelled and self.side.dtype == dtypes.f32:
            # As TMA does; `wgmma` would cut.
            words = [llvm.BitcastOp(ops.i32_type(), x).result for x in ops.elements(value)]
            found = [llvm.BitcastOp(ops.f32_type(), mma.tf32(word)).result for word in words]
            value = ops.from_elements(found)
        return value

    def fill(
        self,
        walk: Walk,
        batch: Mapping[int, Coordinate],
        first_row: Any,
        first_k: Any,
        slot: Any,
        raw: RawTile | None = None,
    ) -> None:
        """Fetches a tile and stores it at `slot`, some fragments at a time.

        raw: a leaf of the walk that lies in shared memory.
        """
        along_k = self.plan.loads_along_k
        count = self._count(self.chunk)
        together = min(count, max(1, self._held // self.chunk))
        while count % together:
            together -= 1
        groups = count // together

        def group(number: Any) -> None:
            first = number * together
            places = [first + i for i in range(together)]
            pieces = [self._piece(i, self.chunk, along_k) for i in places]
            held = []
            for piece in pieces:
                if raw is not None:
                    raw.select(*piece)
                held.append(self._fetched(walk, batch, first_row, first_k, piece))
            for i, piece, value in zip(places, pieces, held, strict=True):
                with ops.if_(self._guard(self.chunk, i)):
                    self._put(value, *piece, slot)
            walk.forget()

        if groups == 1:
            group(0)
        else:
            # A loop, not written out: addresses of every fragment would not fit registers.
            each(0, groups)(group)

    @property
    def _held(self) -> int:
        """Elements in registers at a time: with narrow accesses each is one until it is packed."""
        return _HELD_WIDE if self.plan.is_aligned else _HELD_NARROW

    def _edge(
        self, base: Any, end: Callable[[], Any], divisor: int, tile: int, is_vector: bool
    ) -> tuple[Index, Any]:
        """(coordinates kept inside the tensor, whether they were inside: None if always).

        end, divisor: the extent, and a number known to divide it.  tile: what base is a multiple
        of, beside the place in the tile; 0: nothing is known.
        """
        width = self.chunk if is_vector else 1
        step = 1 if is_vector else 0
        if tile and divisor % tile == 0:
            return Index(base, step, width), None
        limit = end()
        if width == 1 or (tile and divisor % width == 0):
            inside = base < limit
            kept = ops.maximum(0, ops.minimum(base, limit - width))
            return Index(kept, step, width), inside
        lanes = [base + i for i in range(width)]
        inside = ops.from_elements([lane < limit for lane in lanes])
        last = limit - 1
        return Index(lanes=tuple(ops.minimum(lane, last) for lane in lanes)), inside
