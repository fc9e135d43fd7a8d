# pyright: basic
"""The kernel of engine transpose; see the engine for the whole.

    load blocks of the transposed inputs, along the slow axis      registers
    load fragments of the other inputs, along the fast axis    registers
    transpose the blocks, write them                                shared memory
    barrier
    compute along the fast axis, store

All loads stand ahead of the barrier where that is no more than a few accesses of a thread; else
they come in loops, a few at a time.  Loads past the edges of the outputs repeat the last elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...codegen import ops
from ...codegen.kernel import Kernel
from ...codegen.memory.transposed_tile import StagedTile, TileGroup, TransposedLeaf, TransposedTile
from ...codegen.region import Region
from ...codegen.state import each
from ...codegen.stretch import stretch
from ...codegen.walk.index import Coordinate, Index
from ...codegen.walk.loops import coordinates_of
from ...codegen.walk.region_walk import Walk
from ...expr import Expr, ceildiv, product
from .sweep import Sweep

UNKNOWN = -1
_LOADS_AHEAD = 16  # of a transposed input, in a thread
_FRAGMENTS_AHEAD = 8

_ALIGNMENT = 128  # of a tile: its lines are all banks


@dataclass(frozen=True)
class TransposedInput:
    """argument: its number among the region's.  path: see `StagedTile`.
    vector_elems, lines: of the blocks that a thread brings in; together: lines of an access."""

    argument: int
    path: tuple[int, ...]
    vector_elems: int
    lines: int
    together: int


@dataclass(frozen=True)
class TransposeTiling:
    """The tiling that `dnn.tile` says.

    loops: groups of axes, the fast one last.  slow: the number of the slow one.
    tile: its elements along the slow and the fast group.  threads: of a tile.  tiles: of a block,
    one after the other, each with threads of its own.
    min_blocks: of an SM, that registers leave room for; 0: any; `UNKNOWN` until operations are
    lowered.
    vector_elems: elements of a fragment of the outputs.  rows: of the tile, that these are whole
    rows of; 1: elements along the fast group.
    """

    loops: tuple[tuple[int, ...], ...]
    slow: int
    tile: tuple[int, int]
    threads: int
    tiles: int
    min_blocks: int
    vector_elems: int
    rows: int
    transposed: tuple[TransposedInput, ...]


@dataclass(frozen=True)
class _Fragment:
    """at: its coordinates.  is_inside: whether there is such a fragment, None: always."""

    at: Sequence[Coordinate]
    is_inside: Any


@dataclass
class TransposeEmitter:
    """The kernel of one fusion."""

    region: Region
    tiling: TransposeTiling
    kernel: Kernel

    def __post_init__(self) -> None:
        t = self.tiling
        self.dims = self.region.outputs[0][1].shape
        self.slow, self.fast = t.loops[t.slow], t.loops[-1]
        self.outer = [group for group in t.loops if group not in (self.slow, self.fast)]

    def _extent(self, group: Sequence[int]) -> Expr:
        return product(self.dims[axis] for axis in group)

    @cached_property
    def _tiles(self) -> list[Expr]:
        """Along the slow and the fast group."""
        pairs = zip((self.slow, self.fast), self.tiling.tile, strict=True)
        return [ceildiv(self._extent(group), size) for group, size in pairs]

    @property
    def _count(self) -> Expr:
        """The count of tiles."""
        return product([*map(self._extent, self.outer), *self._tiles])

    @property
    def blocks(self) -> Expr:
        return ceildiv(self._count, self.tiling.tiles)

    def emit(self) -> None:
        """The body."""
        self._begin()
        blocks = [self._loaded_at_once(tile) for tile in self.staged]
        count = self.tiling.tile[0] * self.tiling.tile[1]
        per_thread = count // (self.tiling.vector_elems * self.tiling.threads)
        fragments = []
        if per_thread <= _FRAGMENTS_AHEAD:
            fragments = [self._fragment(u) for u in range(per_thread)]
            for fragment in fragments:
                self._load_straight(fragment)
        for tile, loaded in zip(self.staged, blocks, strict=True):
            if loaded is None:
                self._bring_in_loop(tile)
            else:
                self._write(tile, loaded)
        ops.barrier()
        # What has been read already is computed and stored one by one, which takes less registers.
        together = 1 if fragments and self.reads_are_ahead else _FRAGMENTS_AHEAD
        for first in range(0, len(fragments), together):
            self._store(fragments[first : first + together])
        if not fragments:
            self._store_in_loop(per_thread)

    # ---- where the block works

    @stretch("set up")
    def _begin(self) -> None:
        t, kernel = self.tiling, self.kernel
        is_exclusive = len(self.region.generics()) > 1  # one operation may work in place
        leaves: dict[Any, Any] = self.region.leaves(kernel, is_exclusive=is_exclusive)
        self.targets = self.region.targets(kernel, is_exclusive=is_exclusive)
        self.thread, self.has_tile = ops.thread_id(), None
        number, place = ops.block_id(), 0
        if t.tiles > 1:
            place, self.thread = self.thread // t.threads, self.thread % t.threads
            number = number * t.tiles + place
            count = kernel.size(self._count)
            self.has_tile = number < count
            number = ops.minimum(number, count - 1)
        self._find_tile(number)
        arguments = list(self.region.arguments)
        self.staged: list[StagedTile] = []
        tiles: dict[Any, dict[tuple[int, ...], StagedTile]] = {}
        for at, transposed in enumerate(t.transposed):
            value = arguments[transposed.argument]
            source = leaves[value]
            size = source.tensor.type.bits // 8
            layout = TransposedTile(
                *t.tile, size, transposed.vector_elems, transposed.lines, transposed.together
            )
            memory = kernel.shared(f"tile_{at}", layout.bytes * t.tiles, _ALIGNMENT)
            start = place * layout.bytes
            made = StagedTile(
                kernel, layout, source, transposed.path, self.slow, self.fast, memory, start
            )
            self.staged.append(made)
            tiles.setdefault(value, {})[transposed.path] = made
        readers = {value: TransposedLeaf(leaves[value], ways) for value, ways in tiles.items()}
        self.walk = Walk(kernel, {**leaves, **readers}, self.region.symbols)
        straight = [
            read
            for read in Sweep.of_region(self.region).reads
            if not read.tensor.is_by_value
            and read.path(self.dims) not in tiles.get(read.source, {})
        ]
        self.straight = [
            read
            for read in straight
            if read.tensor.type.kind != "b" and all(place[0] != "other" for place in read.access)
        ]
        self.reads_are_ahead = len(self.straight) == len(straight)

    def _find_tile(self, tile: Any) -> None:
        """Tiles along the fast group follow each other, so that outputs are written in order."""
        kernel, (along_slow, along_fast) = self.kernel, self._tiles
        rest = kernel.divide(tile, along_fast)
        column = kernel.remainder(tile, along_fast, rest)
        number = kernel.divide(rest, along_slow)
        row = kernel.remainder(rest, along_slow, number)
        sizes = self.tiling.tile
        self.origin = row * sizes[0], column * sizes[1]
        self.outer_parts: dict[int, Coordinate] = {}
        for position, group in reversed(list(enumerate(self.outer))):
            extent = self._extent(group)
            quotient = kernel.divide(number, extent) if position else 0
            here = kernel.remainder(number, extent, quotient) if position else number
            linear, number = Index(here), quotient
            self.outer_parts.update(TileGroup.parts(kernel, self.dims, group, linear, 0))

    def _at(self, row: Any, column: Any, vector: int, lanes: int) -> list[Coordinate]:
        """Coordinates of a fragment of the tile, along the slow or the fast group.

        vector, lanes: its elements along each.  Those past an end become the last ones.
        """
        parts = dict(self.outer_parts)
        sides = ((self.slow, row, vector), (self.fast, column, lanes))
        for (group, inside, width), first, size in zip(
            sides, self.origin, self.tiling.tile, strict=True
        ):
            extent = self._extent(group)
            start = first + inside
            if extent.known_divisor() % size:
                start = ops.minimum(start, self.kernel.size(extent) - width)
            linear = Index(start, 1 if width > 1 else 0, width)
            parts.update(TileGroup.parts(self.kernel, self.dims, group, linear, inside))
        return coordinates_of(len(self.dims), parts)

    def _at_rows(self, row: Any) -> list[Coordinate]:
        """Coordinates of a fragment of whole rows: both groups are one."""
        rows, both = self.tiling.rows, (*self.slow, *self.fast)
        extent, width = self._extent(self.slow), self.tiling.vector_elems
        start = self.origin[0] + row
        if extent.known_divisor() % self.tiling.tile[0]:
            start = ops.minimum(start, self.kernel.size(extent) - rows)
        linear = Index(start * (width // rows), 1, width)
        parts = TileGroup.parts(self.kernel, self.dims, both, linear, row)
        return coordinates_of(len(self.dims), {**self.outer_parts, **parts})

    def _split(self, u: Any, side: int) -> tuple[Any, Any]:
        """(item // side, item % side) of a thread's item u; those of a block lie side by side."""
        threads = self.tiling.threads
        if threads % side == 0:
            row = self.thread // side + u * (threads // side)
            return row, self.thread % side
        item = self.thread + u * threads
        return item // side, item % side

    # ---- transposed inputs

    def _blocks_of(self, tile: StagedTile) -> int:
        """Blocks of a tile that each thread brings in."""
        return tile.layout.blocks // self.tiling.threads

    def _loaded_at_once(self, tile: StagedTile) -> list[Any] | None:
        """A thread's blocks; None: they are too many loads."""
        count = self._blocks_of(tile)
        if count * tile.layout.loads > _LOADS_AHEAD:
            return None
        return [self._block(tile, u) for u in range(count)]

    @stretch("load")
    def _block(self, tile: StagedTile, u: Any) -> tuple[Any, Any, list[Any]]:
        """(row, column, lines)."""
        layout = tile.layout
        row, column = layout.block(self.thread + u * self.tiling.threads)
        loaded = []
        for first in range(0, layout.lines, layout.together):
            at = self._at(row, column + first, layout.vector, layout.together)
            loaded += tile.bring(at)
        return row, column, loaded

    @stretch("transform operand")
    def _write(self, tile: StagedTile, blocks: Sequence[tuple[Any, Any, list[Any]]]) -> None:
        for row, column, lines in blocks:
            tile.put(row, column, lines)

    def _bring_in_loop(self, tile: StagedTile) -> None:
        together = max(1, _LOADS_AHEAD // tile.layout.loads)

        def some(units: Sequence[Any]) -> None:
            self._write(tile, [self._block(tile, u) for u in units])

        self._in_loop(self._blocks_of(tile), together, some)

    def _in_loop(self, count: int, together: int, body: Callable[..., None]) -> None:
        """body(numbers of `together` items) until `count` are done."""

        @each(0, count // together)
        def _(i: Any) -> None:
            first = i * together
            body([first + k for k in range(together)])

    # ---- fragments

    def _fragment(self, u: Any) -> _Fragment:
        width, rows = self.tiling.vector_elems // self.tiling.rows, self.tiling.rows
        row, column = self._split(u, self.tiling.tile[1] // width)
        row, column = row * rows, column * width
        is_inside = self.has_tile
        places = zip((self.slow, self.fast), self.origin, (row, column), strict=True)
        for (group, first, inside), size in zip(places, self.tiling.tile, strict=True):
            extent = self._extent(group)
            if extent.known_divisor() % size:
                here = first + inside < self.kernel.size(extent)
                is_inside = ops.both(is_inside, here)
        at = self._at(row, column, 1, width) if rows == 1 else self._at_rows(row)
        return _Fragment(at, is_inside)

    @stretch("load")
    def _load_straight(self, fragment: _Fragment) -> None:
        """The walk finds these values when it comes to them."""
        for read in self.straight:
            path = read.path(self.dims)
            at = [Index.of(0) if axis < 0 else fragment.at[axis] for axis in path]
            self.walk.value(read.source, at, self.tiling.vector_elems)

    @stretch("epilogue")
    def _store(self, fragments: Sequence[_Fragment]) -> None:
        """Computes all of them, whose loads thereby stand ahead of the first store."""
        width = self.tiling.vector_elems
        found = [
            [self.walk.value(value, fragment.at, width) for value, _ in self.targets]
            for fragment in fragments
        ]
        for fragment, values in zip(fragments, found, strict=True):
            with ops.if_(fragment.is_inside):
                for (_, target), value in zip(self.targets, values, strict=True):
                    target.store(fragment.at, value)

    def _store_in_loop(self, count: int) -> None:
        def some(units: Sequence[Any]) -> None:
            self._store([self._fragment(u) for u in units])
            self.walk.forget()

        self._in_loop(count, _FRAGMENTS_AHEAD, some)
