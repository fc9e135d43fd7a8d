# pyright: basic
"""OperandTile: one operand of a block's matrix product, from global memory to fragments.

A tile of [rows, k] lies in shared memory, swizzled.  With k contiguous in memory it is stored
[row][k]; a 16-bit operand with rows contiguous is stored [k][row] and transposed by `ldmatrix`.
It is copied asynchronously as it lies in memory, or goes through registers: through the walk of
what comes before it (g1), or because its alignment or layout is not what the copies take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

from .. import dtypes
from ..dialect.tensor import Tensor
from ..dtypes import DType
from ..expr import Expr, typical
from ..mlir import arith, ir, llvm
from ..target import WARP_THREADS
from . import mma, ops, smem
from .index import Coordinate, Index
from .kernel import Kernel
from .memory import GlobalTensor
from .region import Region
from .smem import CHUNK_BYTES, PanelTile, SwizzledTile
from .walk import Walk

# Elements that `fill` has in registers at a time.
_HELD_WIDE = 64
_HELD_NARROW = 16


def operand_plan(region: Region, value: Any, operand: DType, *, is_a: bool) -> dict[str, Any]:
    """Orientation and path of an operand: see `OperandTile`."""
    rank = ir.RankedTensorType(value.type).rank
    rows, depth = (rank - 2, rank - 1) if is_a else (rank - 1, rank - 2)
    model = layout_model(region, value)
    contiguous = None
    if model is not None:
        contiguous = next((axis for axis in (depth, rows) if is_unit(model, axis)), None)
    transposes = operand.bits == 16 and contiguous == rows
    along = rows if transposes else depth
    access = 0
    if value in region.arguments and model is not None and contiguous == along:
        access = access_bytes(model, along)
    return {
        "k_contiguous": not transposes,
        "path": "async" if access >= 4 else "registers",
        "access_bytes": access,
        "loads_along_k": contiguous != rows,
    }


def layout_model(region: Region, value: Any) -> Tensor | None:
    """The tensor in memory whose layout decides how an operand is read: its largest leaf."""
    rank = ir.RankedTensorType(value.type).rank
    at = tuple(("loop", axis) for axis in range(rank))
    leaves = [
        region.arguments[leaf]
        for leaf, access in region.accesses(value, at)
        if leaf in region.arguments and access == at
    ]
    sized = [t for t in leaves if not t.is_by_value]
    return max(sized, key=lambda t: typical(t.elements()), default=None)


def is_unit(tensor: Tensor, axis: int) -> bool:
    return tensor.layout[axis].constant == 1 and tensor.shape[axis].constant != 1


def access_bytes(tensor: Tensor, along: int) -> int:
    """The widest access that every row's start is aligned to, up to 16 bytes."""
    size = tensor.type.bits // 8
    known = gcd(tensor.alignment, CHUNK_BYTES)
    for axis, stride in enumerate(tensor.layout):
        if axis != along and tensor.shape[axis].constant != 1:
            known = gcd(known, stride.known_divisor() * size)
    return known


@dataclass
class OperandTile:
    """One operand of the product in a kernel: its tile in shared memory, and how it gets there.

    value: the SSA tensor after g1.  rows, depth: its axes along m (or n) and k.
    size, k_size: their extents.  tile_rows, tile_k: of the block's tile.  threads: of the group
    that loads it, a power of two; 0: all of the block.  is_panelled: it lies in panels of
    128-byte rows, as `wgmma` reads them.  blocks: of a cluster side by side along the rows, of
    which the last may have none that exist.  starts_anywhere: whether tiles begin at rows that are
    no multiples of theirs.
    """

    kernel: Kernel
    region: Region
    value: Any
    plan: Mapping[str, Any]
    operand: DType
    is_a: bool
    tile_rows: int
    tile_k: int
    threads: int = 0
    is_panelled: bool = False
    blocks: int = 1
    starts_anywhere: bool = False

    def __post_init__(self) -> None:
        self.dims = self.region.dims_of(self.value)
        rank = len(self.dims)
        self.rows, self.depth = (rank - 2, rank - 1) if self.is_a else (rank - 1, rank - 2)
        self.size, self.k_size = self.dims[self.rows], self.dims[self.depth]
        self.bytes = self.operand.bits // 8
        self.k_contiguous = self.plan["k_contiguous"]
        self.is_group = self.threads > 0
        self.threads = self.threads or self.kernel.threads
        self.shape: SwizzledTile | PanelTile
        if self.k_contiguous:
            self.shape = SwizzledTile(self.tile_rows, self.tile_k * self.bytes)
        elif self.is_panelled:
            self.shape = PanelTile(self.tile_k, self.tile_rows * self.bytes)
        else:
            self.shape = SwizzledTile(self.tile_k, self.tile_rows * self.bytes)
        self.chunk = CHUNK_BYTES // self.bytes
        self.is_async = self.plan["path"] == "async"

    def coordinates(
        self, batch: Mapping[int, Coordinate], row: Coordinate, k: Coordinate
    ) -> list[Coordinate]:
        at: list[Coordinate] = [
            Index.of(0) if extent.constant == 1 else batch.get(axis, Index.of(0))
            for axis, extent in enumerate(self.dims)
        ]
        at[self.rows], at[self.depth] = row, k
        return at

    def _thread(self) -> Any:
        thread = ops.thread_id()
        return ops.and_(thread, self.threads - 1) if self.is_group else thread

    def _piece(self, i: Any, elems: int, along_k: bool) -> tuple[Any, Any]:
        """(row, k) within the tile of the first element of fragment i of this thread."""
        inner = (self.tile_k if along_k else self.tile_rows) // elems
        piece = ops.add(self._thread(), ops.mul(i, self.threads))
        if self._guard(elems, i) is not None:
            # A thread without a fragment of its own reads the last one, inside the tensor.
            piece = ops.minimum(piece, self.tile_rows * self.tile_k // elems - 1)
        outer, place = ops.div(piece, inner), ops.mul(ops.rem(piece, inner), elems)
        return (outer, place) if along_k else (place, outer)

    def _pieces(self, elems: int, along_k: bool) -> list[tuple[Any, Any]]:
        """(row, k) within the tile of the first element of each fragment of this thread."""
        return [self._piece(i, elems, along_k) for i in range(self._count(elems))]

    def _count(self, elems: int) -> int:
        """Fragments of a thread, the last of which some threads may not have."""
        return -(-self.tile_rows * self.tile_k // elems // self.threads)

    def _guard(self, elems: int, i: Any) -> Any:
        """The condition under which fragment i of a thread exists; None: always."""
        total = self.tile_rows * self.tile_k // elems
        if total % self.threads == 0 or (isinstance(i, int) and (i + 1) * self.threads <= total):
            return None
        return ops.less(ops.add(self._thread(), ops.mul(i, self.threads)), total)

    def _place(self, row: Any, k: Any) -> Any:
        """Byte offset of an element of the tile that starts a chunk or lies inside one."""
        outer, inner = (row, k) if self.k_contiguous else (k, row)
        start = self.shape.offset(outer, ops.div(inner, self.chunk))
        return ops.add(start, ops.mul(ops.rem(inner, self.chunk), self.bytes))

    # ---- asynchronous copies

    def issue(
        self, batch: Mapping[int, Coordinate], first_row: Any, first_k: Any, slot: Any
    ) -> None:
        """Starts the copies of a tile into shared memory at `slot`."""
        target = GlobalTensor(self.kernel, self.region.arguments[self.value])
        elems = self.plan["access_bytes"] // self.bytes
        for i, (row, k) in enumerate(self._pieces(elems, self.k_contiguous)):
            with ops.if_(self._guard(elems, i)):
                self._copy(target, batch, ops.add(first_row, row), ops.add(first_k, k),
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
        size, k_size = self.kernel.size(self.size), self.kernel.size(self.k_size)
        whole_rows = self.size.known_divisor() % self.tile_rows == 0
        whole_k = self.k_size.known_divisor() % self.tile_k == 0
        if self.k_contiguous:
            row = row if whole_rows else ops.minimum(row, ops.sub(size, 1))
            is_there = None
            valid = None if whole_k else ops.sub(k_size, k)
            # A copy of nothing still wants an aligned address: the row's start.
            k = k if whole_k else ops.select(ops.less(k, k_size), k, 0)
        else:
            valid = None if whole_rows else ops.sub(size, row)
            row = row if whole_rows else ops.select(ops.less(row, size), row, 0)
            is_there = None if whole_k else ops.less(k, k_size)
            k = k if whole_k else ops.minimum(k, ops.sub(k_size, 1))
        count = None
        if valid is not None:
            count = ops.mul(ops.minimum(ops.maximum(valid, 0), elems), self.bytes)
        if is_there is not None:
            count = ops.select(is_there, elems * self.bytes if count is None else count, 0)
        at = self.coordinates(batch, Index(row), Index(k))
        address = source.address(at)
        smem.copy_async(target, address, elems * self.bytes, count)

    # ---- through registers

    def fetch(
        self, walk: Walk, batch: Mapping[int, Coordinate], first_row: Any, first_k: Any
    ) -> list[Any]:
        """The fragments of a tile that this thread stores, in registers; zeros past K."""
        pieces = self._pieces(self.chunk, self.plan["loads_along_k"])
        return [self._fetched(walk, batch, first_row, first_k, piece) for piece in pieces]

    def _fetched(
        self,
        walk: Walk,
        batch: Mapping[int, Coordinate],
        first_row: Any,
        first_k: Any,
        piece: tuple[Any, Any],
    ) -> Any:
        along_k = self.plan["loads_along_k"]
        row, k = ops.add(first_row, piece[0]), ops.add(first_k, piece[1])
        row_tile = 0 if self.starts_anywhere else self.tile_rows * self.blocks
        row_index, _ = self._edge(row, self.size, row_tile, not along_k)
        k_index, inside = self._edge(k, self.k_size, self.tile_k, along_k)
        walk.forget()
        value = walk.value(self.value, self.coordinates(batch, row_index, k_index), self.chunk)
        if inside is not None:
            mask = ops.splat(inside, self.chunk)
            value = arith.SelectOp(mask, value, ops.zeros(value.type)).result
        if self.is_panelled and self.operand == dtypes.f32:
            # As the copy engine does; `wgmma` would cut.
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
        along_k = self.plan["loads_along_k"]
        count = self._count(self.chunk)
        together = min(count, max(1, self._held // self.chunk))
        while count % together:
            together -= 1
        groups = count // together

        def group(number: Any, carried: Sequence[Any]) -> Sequence[Any]:
            first = ops.mul(number, together)
            places = [ops.add(first, i) for i in range(together)]
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
            return carried

        if groups == 1:
            group(0, [])
        else:
            # A loop, not written out: addresses of every fragment would not fit registers.
            ops.for_(0, groups, 1, [], group)

    @property
    def _held(self) -> int:
        """Elements in registers at a time: with narrow accesses each is one until it is packed."""
        return _HELD_WIDE if self.plan["is_aligned"] else _HELD_NARROW

    def _edge(self, base: Any, size: Expr, tile: int, is_vector: bool) -> tuple[Index, Any]:
        """(coordinates kept inside the tensor, whether they were inside: None if always).

        tile: what base is a multiple of, beside the place in the tile; 0: nothing is known.
        """
        width = self.chunk if is_vector else 1
        step = 1 if is_vector else 0
        if tile and size.known_divisor() % tile == 0:
            return Index(base, step, width), None
        limit = self.kernel.size(size)
        if width == 1 or (tile and size.known_divisor() % width == 0):
            inside = ops.less(base, limit)
            kept = ops.maximum(0, ops.minimum(base, ops.sub(limit, width)))
            return Index(kept, step, width), inside
        lanes = [ops.add(base, i) for i in range(width)]
        inside = ops.from_elements([ops.less(lane, limit) for lane in lanes])
        last = ops.sub(limit, 1)
        return Index(lanes=tuple(ops.minimum(lane, last) for lane in lanes)), inside

    def put(self, values: Sequence[Any], slot: Any) -> None:
        """Stores fetched fragments into the tile at `slot`."""
        for i, piece in enumerate(self._pieces(self.chunk, self.plan["loads_along_k"])):
            with ops.if_(self._guard(self.chunk, i)):
                self._put(values[i], *piece, slot)

    def _put(self, value: Any, row: Any, k: Any, slot: Any) -> None:
        along_k = self.plan["loads_along_k"]
        if along_k == self.k_contiguous:
            ops.store(smem.byte_pointer(slot, self._place(row, k)), value, CHUNK_BYTES)
            return
        for lane, element in enumerate(ops.elements(value)):
            at = (row, ops.add(k, lane)) if along_k else (ops.add(row, lane), k)
            ops.store(smem.byte_pointer(slot, self._place(*at)), element, self.bytes)

    # ---- fragments

    def fragments(self, slot: Any, first: Any, count: int, step: int) -> list[list[Any]]:
        """Registers of `count` instruction tiles from row `first` of the tile, at a k step.

        For A four registers a tile of 16 rows, for B two a tile of 8.
        """
        lane = ops.and_(ops.thread_id(), WARP_THREADS - 1)
        places = {
            (True, True): mma.a_lane,
            (True, False): mma.a_lane_transposed,
            (False, True): mma.b_lane,
            (False, False): mma.b_lane_transposed,
        }
        outer, chunk = places[(self.is_a, self.k_contiguous)](lane)
        loads = count if self.is_a else count // 2
        found: list[list[Any]] = []
        for i in range(loads):
            if self.k_contiguous:
                row = ops.add(ops.add(first, i * 16), outer)
                place = ops.add(chunk, step * mma.CHUNKS_PER_STEP)
            else:
                row = ops.add(outer, step * 16)
                place = ops.add(ops.add(ops.div(first, 8), i * 2), chunk)
            offset = self.shape.offset(row, place)
            registers = mma.load_matrices(
                smem.byte_pointer(slot, offset), transposed=not self.k_contiguous
            )
            found += [registers] if self.is_a else [registers[:2], registers[2:]]
        return found


@dataclass
class RawTile:
    """A tile of a tensor in shared memory, as the copy engine brought it, as a leaf of a walk.

    element: its type in registers.  rows, k: of the tile.  along_k: whether k is contiguous.
    Only the fragment that is selected is read.
    """

    element: Any
    element_bytes: int
    rows: int
    k: int
    along_k: bool
    base: Any = None
    _current: Any = None

    @property
    def bytes(self) -> int:
        return self.rows * self.k * self.element_bytes

    def select(self, row: Any, k: Any) -> None:
        """Makes the fragment that begins at an element of the tile the one that is read."""
        place = (
            ops.add(ops.mul(row, self.k), k)
            if self.along_k
            else ops.add(ops.mul(k, self.rows), row)
        )
        self._current = smem.byte_pointer(self.base, ops.mul(place, self.element_bytes))

    def load(self, at: Sequence[Coordinate], width: int) -> Any:
        alignment = min(CHUNK_BYTES, width * self.element_bytes)
        return ops.load(self._current, ops.vector_type(self.element, width), alignment)
