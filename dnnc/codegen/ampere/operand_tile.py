# pyright: basic
"""OperandTile: one operand of a block's matrix product in shared memory.

A tile of [rows, k], swizzled.  With k contiguous it is stored [row][k]; an operand with rows
contiguous is stored [k][row] and transposed by `ldmatrix`, of 8 bits with byte permutations after
it.  How its elements get there is said by what derives from it: `MatrixTile`, of the last two axes
of a tensor, and the tiles of convolutions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

from ...dialect.tensor import Tensor
from ...dtypes import DType
from ...target import WARP_THREADS
from .. import ops
from ..kernel import Kernel
from ..memory import smem
from ..memory.smem import CHUNK_BYTES, PanelTile, SwizzledTile
from ..region import Region
from ..walk.index import Coordinate
from . import mma


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


@dataclass(frozen=True)
class LoadPlan:
    """How an operand's elements get into shared memory.

    path: as the kind of operand names it.  k_contiguous: whether rows of the tile are of k.
    loads_along_k: whether fragments that go through registers lie along k; is_aligned: whether all
    of them begin where a wide access may.  access_bytes: of a copy.  is_kept: whether L2 keeps what
    copies bring.
    """

    path: str
    k_contiguous: bool = False
    loads_along_k: bool = False
    is_aligned: bool = False
    access_bytes: int = 0
    is_kept: bool = False


@dataclass(frozen=True)
class Side:
    """An operand's side of a block's tile.  dtype: of the operand.  rows, k: of the tile."""

    dtype: DType
    is_a: bool
    rows: int
    k: int


@dataclass
class OperandTile:
    """One operand of the product in a kernel: its tile in shared memory.

    value: the SSA tensor after g1.  plan: its path is "async" or "registers".
    threads: of the group that loads it, a power of two; 0: all of the block.  is_panelled: it lies
    in panels of 128-byte rows, as `wgmma` reads them.
    """

    kernel: Kernel
    region: Region
    value: Any
    plan: LoadPlan
    side: Side
    threads: int = 0
    is_panelled: bool = False

    def __post_init__(self) -> None:
        self.bytes = self.side.dtype.bits // 8
        self.k_contiguous = self.plan.k_contiguous
        self.is_group = self.threads > 0
        self.threads = self.threads or self.kernel.threads
        self.shape: SwizzledTile | PanelTile
        if self.k_contiguous:
            self.shape = SwizzledTile(self.side.rows, self.side.k * self.bytes)
        elif self.is_panelled:
            self.shape = PanelTile(self.side.k, self.side.rows * self.bytes)
        else:
            self.shape = SwizzledTile(self.side.k, self.side.rows * self.bytes)
        self.chunk = CHUNK_BYTES // self.bytes
        self.is_async = self.plan.path == "async"

    @property
    def is_paired(self) -> bool:
        """Whether rows 2i and 2i + 1 of each 16 are rows i and 8 + i of the instruction's tiles: of
        bytes, which `ldmatrix` transposes by pairs."""
        return not self.k_contiguous and self.bytes == 1

    def _thread(self) -> Any:
        thread = ops.thread_id()
        return thread & (self.threads - 1) if self.is_group else thread

    def _piece(self, i: Any, elems: int, along_k: bool) -> tuple[Any, Any]:
        """(row, k) within the tile of the first element of fragment i of this thread."""
        inner = (self.side.k if along_k else self.side.rows) // elems
        piece = self._thread() + i * self.threads
        if self._guard(elems, i) is not None:
            # A thread without a fragment of its own reads the last one, inside the tensor.
            piece = ops.minimum(piece, self.side.rows * self.side.k // elems - 1)
        outer, place = piece // inner, piece % inner * elems
        return (outer, place) if along_k else (place, outer)

    def _pieces(self, elems: int, along_k: bool) -> list[tuple[Any, Any]]:
        """(row, k) within the tile of the first element of each fragment of this thread."""
        return [self._piece(i, elems, along_k) for i in range(self._count(elems))]

    def _count(self, elems: int) -> int:
        """Fragments of a thread, the last of which some threads may not have."""
        return -(-self.side.rows * self.side.k // elems // self.threads)

    def _guard(self, elems: int, i: Any) -> Any:
        """The condition under which fragment i of a thread exists; None: always."""
        total = self.side.rows * self.side.k // elems
        if total % self.threads == 0 or (isinstance(i, int) and (i + 1) * self.threads <= total):
            return None
        return self._thread() + i * self.threads < total

    def _place(self, row: Any, k: Any) -> Any:
        """Byte offset of an element of the tile that starts a chunk or lies inside one."""
        outer, inner = (row, k) if self.k_contiguous else (self._line_of(k), row)
        start = self.shape.offset(outer, inner // self.chunk)
        return start + inner % self.chunk * self.bytes

    def _line_of(self, k: Any) -> Any:
        """The line of the tile that holds a number of k.

        Of bytes `ldmatrix` hands a lane two neighbouring lines, and two that are eight further on:
        these have four neighbours, so that words are as those of an operand with k contiguous.
        """
        if not self.is_paired:
            return k
        return (k & -16) + ((k & 2) << 2) + ((k & 12) >> 1) + (k & 1)

    def put(self, values: Sequence[Any], slot: Any) -> None:
        """Stores fetched fragments into the tile at `slot`."""
        for i, piece in enumerate(self._pieces(self.chunk, self.plan.loads_along_k)):
            with ops.if_(self._guard(self.chunk, i)):
                self._put(values[i], *piece, slot)

    def _put(self, value: Any, row: Any, k: Any, slot: Any) -> None:
        along_k = self.plan.loads_along_k
        if along_k == self.k_contiguous:
            ops.store(smem.byte_pointer(slot, self._place(row, k)), value, CHUNK_BYTES)
            return
        for lane, element in enumerate(ops.elements(value)):
            at = (row, k + lane) if along_k else (row + lane, k)
            ops.store(smem.byte_pointer(slot, self._place(*at)), element, self.bytes)

    # ---- fragments

    def fragments(self, slot: Any, first: Any, count: int, step: Any) -> list[list[Any]]:
        """Registers of `count` instruction tiles from row `first` of the tile, at a k step.

        For A four registers a tile of 16 rows, for B two a tile of 8; see `is_paired`.
        """
        lane = ops.thread_id() & (WARP_THREADS - 1)
        if self.is_paired:
            return self._paired_fragments(slot, first, count, step, lane)
        if not self.k_contiguous and self.bytes == mma.WORD_BYTES:
            return [
                self._words(slot, first + i * rows, step, lane)
                for rows in (mma.M if self.side.is_a else mma.N,)
                for i in range(count)
            ]
        places = {
            (True, True): mma.a_lane,
            (True, False): mma.a_lane_transposed,
            (False, True): mma.b_lane,
            (False, False): mma.b_lane_transposed,
        }
        outer, chunk = places[(self.side.is_a, self.k_contiguous)](lane)
        loads = count if self.side.is_a else count // 2
        found: list[list[Any]] = []
        for i in range(loads):
            if self.k_contiguous:
                row = first + i * 16 + outer
                place = chunk + step * mma.CHUNKS_PER_STEP
            else:
                row = outer + step * 16
                place = first // 8 + i * 2 + chunk
            offset = self.shape.offset(row, place)
            registers = mma.load_matrices(
                smem.byte_pointer(slot, offset), transposed=not self.k_contiguous
            )
            found += [registers] if self.side.is_a else [registers[:2], registers[2:]]
        return found

    def _paired_fragments(
        self, slot: Any, first: Any, count: int, step: Any, lane: Any
    ) -> list[list[Any]]:
        """Registers of bytes stored [k][row], see `_line_of`: matrices of 8 of k and 16 rows."""
        found: list[list[Any]] = []
        for i in range(count if self.side.is_a else count // 2):
            offset = self.shape.offset(lane + step * mma.K_BYTES, first // self.chunk + i)
            words = mma.load_matrices(smem.byte_pointer(slot, offset), transposed=True)
            low, low_next, high, high_next = mma.split_bytes(words)
            if self.side.is_a:
                found.append([low, low_next, high, high_next])
            else:
                found += [[low, high], [low_next, high_next]]
        return found

    def _words(self, slot: Any, first: Any, step: Any, lane: Any) -> list[Any]:
        """Registers of an instruction tile of 32-bit elements stored [k][row], which no `ldmatrix`
        transposes: each is loaded alone.

        A lane's two numbers of k are neighbours, of A as of B, so that the four lanes of a row meet
        different banks; in which order an instruction's k goes does not matter.
        """
        row, pair = lane >> 2, (lane & 3) << 1
        k = step * (mma.K_BYTES // mma.WORD_BYTES) + pair
        eights = range(0, mma.M if self.side.is_a else mma.N, mma.N)
        return [
            ops.load(
                smem.byte_pointer(slot, self._place(first + row + eight, at)),
                ops.i32_type(),
                mma.WORD_BYTES,
            )
            for at in (k, k + 1)
            for eight in eights
        ]


@dataclass
class RawTile:
    """A tile of a tensor in shared memory, as TMA brought it, as a leaf of a walk.

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
        place = row * self.k + k if self.along_k else k * self.rows + row
        self._current = smem.byte_pointer(self.base, place * self.element_bytes)

    def load(self, at: Sequence[Coordinate], width: int) -> Any:
        alignment = min(CHUNK_BYTES, width * self.element_bytes)
        return ops.load(self._current, ops.vector_type(self.element, width), alignment)
