# pyright: basic
"""A tile of a tensor that comes in along one axis and is read along another one.

    memory: runs along m    threads take `vector` elements along m of `lines` neighbouring n each,
                            transpose these blocks in registers,
    shared memory           and write pieces of `lines` elements along n, one for each m
    fragments: along n      that any thread reads after a barrier

Row m of a `TransposedTile` holds the tile's elements of one m, along n.  A line of 128 bytes, all
banks, has 8 chunks of 16 bytes; chunk c of a row lies at place c ^ swizzle, where all rows of one
thread's block have one swizzle:

    read    8 threads, 8 chunks of a line: a swizzle only permutes them
    write   8 threads, chunk c of rows m, m + vector, ...: 8 swizzles, 8 places

A side may be short, as that of the elements of a vector is (NC/4HW4).  Where the short side is m,
and neighbours of n follow each other in memory, an access brings in several lines; where it is n,
a block has whole rows of a few bytes, several of which are written at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...expr import Expr
from ...mlir import ir, llvm, nvvm
from .. import ops
from ..kernel import Kernel
from ..walk.index import Coordinate, Group, Index, Part
from .smem import CHUNK_BYTES, byte_pointer
from .tensors import MAX_ACCESS_BYTES, GlobalTensor, register_type

_LINE_BYTES = 128  # all banks, once


@dataclass(frozen=True)
class TransposedTile:
    """The layout of a tile in shared memory; all sizes are powers of two.

    rows, columns: along m and n, at least 4, one of them at least 32.  element_bytes: 1 to 8.
    vector: elements along m that a thread brings in at once.  lines: along n, see the top.
    together: of these lines, those that one access brings in.

    Example, 64 x 64 elements of 2 bytes, vector = 8: a row is a line.  Rows 0 to 7 keep their
    chunks 0 1 2 3 4 5 6 7, rows 8 to 15 have 1 0 3 2 5 4 7 6, rows 16 to 23 have 2 3 0 1 6 7 4 5.
    """

    rows: int
    columns: int
    element_bytes: int
    vector: int
    lines: int
    together: int = 1

    @property
    def loads(self) -> int:
        """Accesses of a thread to a block."""
        return self.lines // self.together

    @property
    def rows_at_once(self) -> int:
        """Rows of a block that a thread writes by one access."""
        if self.lines < self.columns:
            return 1
        return min(self.vector, max(1, CHUNK_BYTES // self.row_bytes))

    @property
    def row_bytes(self) -> int:
        return self.columns * self.element_bytes

    @property
    def bytes(self) -> int:
        return self.rows * self.row_bytes

    @property
    def blocks(self) -> int:
        """Blocks of `vector` x `lines` elements."""
        return self.rows * self.columns // (self.vector * self.lines)

    def block(self, item: Any) -> tuple[Any, Any]:
        """(row, column) of a block's first element; items are a block's threads.

        Threads side by side read a line of memory along m, then those of the next n.
        """
        side = min(self.rows, _LINE_BYTES // self.element_bytes) // self.vector
        across = self.columns // self.lines
        place, rest = item % side, item // side
        row = rest // across * side + place
        return row * self.vector, rest % across * self.lines

    def swizzle(self, row: Any) -> Any:
        """The number that a row's chunk numbers are combined with.

        Rows that share a line have one swizzle. Where fewer than 8 blocks lie along m, those that
        write together have several chunks; their swizzles are that far apart.
        """
        together = max(self.vector, _LINE_BYTES // self.row_bytes)
        apart = max(1, 8 // (self.rows // together))
        return (row // together * apart) & 7

    def offset(self, row: Any, column: Any) -> Any:
        """Bytes from the tile's start to an element; a chunk's follow each other."""
        swizzle = self.swizzle(row) * CHUNK_BYTES
        start, place = row * self.row_bytes, column * self.element_bytes
        if self.row_bytes >= _LINE_BYTES:
            return start + (place ^ swizzle)
        return (start + place) ^ swizzle


@dataclass(eq=False)
class TileGroup(Group):
    """Axes of an iteration, with the fragment's place in the tile along them.

    axes: of the iteration.  inside: of the fragment's first element, from the tile's first.
    """

    axes: tuple[int, ...] = ()
    inside: Any = 0

    @staticmethod
    def parts(
        kernel: Kernel, dims: Sequence[Expr], axes: Sequence[int], linear: Index, inside: Any
    ) -> dict[int, Coordinate]:
        """Axis -> its coordinate."""
        extents = tuple(dims[axis] for axis in axes)
        width = linear.divisor if linear.is_consecutive else 1
        made = TileGroup(kernel, extents, linear, width, axes=tuple(axes), inside=inside)
        return {axis: Part(made, i) for i, axis in enumerate(axes)}


def _path(at: Sequence[Coordinate]) -> tuple[int, ...] | None:
    """The axis of the iteration that each coordinate follows, -1 for 0; None: there are others."""
    found = []
    for coordinate in at:
        if isinstance(coordinate, Part) and isinstance(coordinate.group, TileGroup):
            found.append(coordinate.group.axes[coordinate.position])
        elif coordinate.is_uniform and coordinate.key == Index.of(0).key:
            found.append(-1)
        else:
            return None
    return tuple(found)


@dataclass(frozen=True, eq=False)
class StagedTile:
    """A tile of a tensor on its way through shared memory.

    source: the tensor.  path: the axis of the iteration that each of its axes follows, or -1.
    slow, fast: axes of the iteration that m and n go along.  start: the tile's first byte in
    `memory`.
    """

    kernel: Kernel
    layout: TransposedTile
    source: GlobalTensor
    path: tuple[int, ...]
    slow: tuple[int, ...]
    fast: tuple[int, ...]
    memory: Any
    start: Any = 0

    def _pointer(self, row: Any, column: Any) -> Any:
        return byte_pointer(self.memory, self.start + self.layout.offset(row, column))

    def at(self, coordinates: Sequence[Coordinate]) -> list[Coordinate]:
        """The tensor's coordinates, of the iteration's."""
        return [Index.of(0) if axis < 0 else coordinates[axis] for axis in self.path]

    def bring(self, coordinates: Sequence[Coordinate]) -> list[Any]:
        """The lines of one access, whose first element is at some coordinates."""
        layout, at = self.layout, self.at(coordinates)
        if layout.together == 1:
            return [self.source.load(at, layout.vector)]
        return self.source.load_lines(at, layout.together, layout.vector)

    def put(self, row: Any, column: Any, lines: Sequence[Any]) -> None:
        """Writes a thread's block; lines: of n, n + 1, ..., each `vector` elements along m."""
        count = self.layout.rows_at_once
        size = count * self.layout.lines * self.layout.element_bytes
        pieces = transposed(lines)
        for first in range(0, len(pieces), count):
            pointer = self._pointer(row + first, column)
            ops.store(pointer, ops.joined(pieces[first : first + count]), size)

    def load(self, at: Sequence[Coordinate], width: int) -> Any:
        """A fragment along n, or of whole rows, one after the other."""
        groups = [part.group for part in at if isinstance(part, Part)]
        inside = {group.axes: group.inside for group in groups if isinstance(group, TileGroup)}
        row = inside.get((*self.slow, *self.fast))
        column: Any = 0
        if row is None:
            row, column = inside[self.slow], inside[self.fast]
        size, columns = self.layout.element_bytes, self.layout.columns
        piece = min(width, MAX_ACCESS_BYTES // size)
        type_ = ops.vector_type(register_type(self.source.tensor.type), piece)
        found = []
        for first in range(0, width, piece):
            pointer = self._pointer(row + first // columns, column + first % columns)
            found.append(ops.load(pointer, type_, piece * size))
        return ops.concat(found)


@dataclass(frozen=True, eq=False)
class TransposedLeaf:
    """A tensor that is read from tiles where it is transposed, and from memory where it is not."""

    source: GlobalTensor
    tiles: Mapping[tuple[int, ...], StagedTile]

    def load(self, at: Sequence[Coordinate], width: int) -> Any:
        tile = self.tiles.get(_path(at) or ())
        return self.source.load(at, width) if tile is None else tile.load(at, width)


# ---- blocks in registers


def transposed(lines: Sequence[Any]) -> list[Any]:
    """[n] fragments along m -> [m] fragments along n."""
    width = ops.width_of(lines[0])
    element = ops.element_of(lines[0].type)
    if element == ir.IntegerType.get_signless(8) and width % 4 == 0 and len(lines) % 4 == 0:
        return _transposed_bytes(lines, width)
    return [ops.from_elements([ops.extract(line, i) for line in lines]) for i in range(width)]


def _transposed_bytes(lines: Sequence[Any], width: int) -> list[Any]:
    """Four bytes of four lines at a time, by 8 permutations of bytes."""
    words = [_words(line) for line in lines]
    pieces: list[list[Any]] = [[] for _ in range(width)]
    for first in range(0, len(lines), 4):
        for place in range(width // 4):
            block = _transposed_block([words[first + i][place] for i in range(4)])
            for i, word in enumerate(block):
                pieces[4 * place + i].append(word)
    byte = ir.IntegerType.get_signless(8)
    whole = ir.VectorType.get([len(lines)], byte)
    return [llvm.BitcastOp(whole, ops.from_elements(piece)).result for piece in pieces]


def _words(line: Any) -> list[Any]:
    count = ops.width_of(line) // 4
    return ops.elements(llvm.BitcastOp(ops.vector_type(ops.i32_type(), count), line).result)


def _transposed_block(rows: Sequence[Any]) -> list[Any]:
    """4 x 4 bytes, a word a row: first the halves of pairs of rows, then their bytes."""
    a, b, c, d = rows
    low, high = (permuted(a, b, 0x5140), permuted(c, d, 0x5140))  # a0 b0 a1 b1, c0 d0 c1 d1
    rest_low, rest_high = (permuted(a, b, 0x7362), permuted(c, d, 0x7362))  # a2 b2 a3 b3, ...
    return [
        permuted(low, high, 0x5410),
        permuted(low, high, 0x7632),
        permuted(rest_low, rest_high, 0x5410),
        permuted(rest_low, rest_high, 0x7632),
    ]


def permuted(low: Any, high: Any, selector: int) -> Any:
    """Four bytes of {high, low}, chosen by the selector's hexadecimal digits."""
    kind = nvvm.PermuteMode.DEFAULT
    return nvvm.prmt(low, ops.const(selector), kind, hi=high)
