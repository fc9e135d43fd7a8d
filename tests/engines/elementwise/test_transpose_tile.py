"""The tile of engine transpose in shared memory: places of elements, bank conflicts."""

import math

import numpy as np
import pytest

from dnnc.codegen.memory.transposed_tile import TransposedTile
from tests.engines.elementwise.test_transpose import SHORT_TILES, TILES


def conflicts(accesses, size):
    """The most words of one bank that threads of a phase access; accesses: offsets by thread.

    A warp's accesses of 16 bytes are four phases, those of 8 bytes two.
    """
    together = min(32, 128 // size)
    worst = 0
    for first in range(0, len(accesses), together):
        words = {
            (offset + byte) // 4
            for offset in accesses[first : first + together]
            for byte in range(size)
        }
        banks = [word % 32 for word in words]
        worst = max(worst, *(banks.count(bank) for bank in banks))
    return worst


def layouts(tile):
    """Blocks of a vector by lines: as the engine makes them, and more."""
    return [
        TransposedTile(*tile, size, vector, lines)
        for size in (1, 2, 4, 8)
        for vector in (1, 2, 4, 8, 16)
        for lines in (1, 2, 4, 8, 16)
        if size * vector <= 16 and 4 <= size * lines <= 16
        if vector <= tile[0] and lines <= tile[1] and math.prod(tile) * size <= 32 << 10
    ]


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("tile", [*TILES, *SHORT_TILES], ids=str)
def test_every_element_has_a_place(tile):
    for layout in layouts(tile):
        places = [layout.offset(*place) for place in np.ndindex(layout.rows, layout.columns)]
        assert sorted(places) == list(range(0, layout.bytes, layout.element_bytes))


def warps_of_writers(layout):
    threads = [layout.block(item) for item in range(layout.blocks)]
    return [threads[first : first + 32] for first in range(0, len(threads), 32)]


def wide_layouts(tile):
    """Conflicts of a short tile of aligned lines: wide blocks, or lines of 16 bytes together."""
    found = []
    for size in (1, 2, 4, 8):
        vector, lines = min(16 // size, tile[0]), min(16 // size, tile[1])
        if size * vector < 16:
            found.append(TransposedTile(*tile, size, vector, max(16 // size // vector, 4 // size)))
        found.append(TransposedTile(*tile, size, vector, lines))
    return found


@pytest.mark.rotating
@pytest.mark.parametrize("tile", SHORT_TILES, ids=str)
def test_short_tiles_are_written_with_few_conflicts(tile):
    """With none, but for tiles that are a few lines of banks."""
    for layout in wide_layouts(tile):
        size = layout.lines * layout.element_bytes * layout.rows_at_once
        worst = max(
            conflicts([layout.offset(row + i, column) for row, column in warp], size)
            for warp in warps_of_writers(layout)
            for i in range(0, layout.vector, layout.rows_at_once)
        )
        assert worst <= (2 if layout.bytes <= 512 else 1), layout


@pytest.mark.rotating
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_blocks_are_written_with_few_conflicts(tile):
    """With none where a thread's loads are 16 bytes."""
    for layout in layouts(tile):
        size = layout.lines * layout.element_bytes
        worst = 1
        for warp in warps_of_writers(layout):
            for i in {0, layout.vector // 2, layout.vector - 1}:
                accesses = [layout.offset(row + i, column) for row, column in warp]
                worst = max(worst, conflicts(accesses, size))
        is_wide = layout.vector * layout.element_bytes == 16
        assert worst <= (1 if is_wide else 2 if size > 4 else 4), layout


def test_rows_that_are_written_at_once_lie_in_one_chunk():
    for tile in SHORT_TILES:
        for layout in layouts(tile):
            count, size = layout.rows_at_once, layout.row_bytes
            for row in range(0, layout.rows, count):
                places = [layout.offset(row + i, 0) for i in range(count)]
                assert places == [places[0] + i * size for i in range(count)]
                assert count == 1 or places[0] % (count * size) == 0


@pytest.mark.rotating
@pytest.mark.parametrize("tile", [*TILES, *SHORT_TILES], ids=str)
@pytest.mark.parametrize("width", [4, 8, 16])
def test_fragments_are_read_with_few_conflicts(tile, width):
    """Accesses of up to 16 bytes have no conflicts, each half of 32 bytes at most two ways."""
    for layout in {TransposedTile(*tile, t.element_bytes, t.vector, 1) for t in layouts(tile)}:
        size = min(16, width * layout.element_bytes)
        count = layout.columns // width
        if not count:
            continue
        worst = 1
        for first in range(0, layout.rows * count, 32):
            items = range(first, min(first + 32, layout.rows * count))
            for piece in range(0, width * layout.element_bytes, size):
                column = piece // layout.element_bytes
                accesses = [layout.offset(i // count, i % count * width + column) for i in items]
                worst = max(worst, conflicts(accesses, size))
        assert worst <= max(1, width * layout.element_bytes // 16), layout


def test_the_example_of_the_layout():
    layout = TransposedTile(64, 64, 2, 8, 8)
    assert [layout.offset(0, 8 * c) // 16 for c in range(8)] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert [layout.offset(9, 8 * c) % 128 // 16 for c in range(8)] == [1, 0, 3, 2, 5, 4, 7, 6]
    assert [layout.offset(16, 8 * c) % 128 // 16 for c in range(8)] == [2, 3, 0, 1, 6, 7, 4, 5]
