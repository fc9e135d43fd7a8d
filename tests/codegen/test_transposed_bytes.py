"""Places of bytes that are transposed, by hand."""

import pytest

from dnnc.codegen.hopper.transposed_bytes import TransposedBytes, quads
from dnnc.codegen.hopper.wgmma import AccumulatorLayout, OperandLayout


def test_sizes():
    whole = TransposedBytes(128, 64)
    assert (whole.panels, whole.panel_bytes, whole.bytes) == (1, 8192, 8192)
    assert TransposedBytes(160, 16).bytes == 2 * 2048
    with pytest.raises(AssertionError, match="parts of steps"):
        TransposedBytes(48, 64)


def key_at(place):
    """The key at a place of 16."""
    lane, byte = divmod(place, 4)
    return 8 * (byte // 2) + 2 * lane + byte % 2


def test_places_of_keys():
    assert [key_at(place) for place in range(8)] == [0, 1, 8, 9, 2, 3, 10, 11]


@pytest.mark.parametrize("thread", [0, 1, 37, 127])
def test_accumulators_are_the_operand_of_transposed_keys(thread):
    """Weights packed by fours, of columns 8j and 8j + 8, are of the keys that the transposed tile
    has at the operand's places."""
    sums, operand = AccumulatorLayout(32), OperandLayout(1)
    for word in range(4):
        group, half = divmod(word, 2)
        registers = [8 * group + 2 * half + place for place in (0, 1, 4, 5)]
        for byte, register in enumerate(registers):
            row, column = sums.place(thread, register)
            wanted_row, place = operand.place(thread, word, byte)
            assert row == wanted_row
            assert column == 16 * (place // 16) + key_at(place % 16)


@pytest.mark.parametrize("thread", [0, 2, 67])
def test_quads_are_neighbours(thread):
    """Row 8b + i of 16 of the transposed tile is column 2i + b."""
    layout = AccumulatorLayout(32)
    places = [layout.place(thread, register) for register in range(16)]
    for number, quad in enumerate(quads(places)):
        block, half = divmod(number, 2)
        found = [16 * (n // 16) + 2 * (n % 8) + n % 16 // 8 for _, n in quad]
        first = 16 * block + 4 * (thread % 4)
        assert found == [first, first + 1, first + 2, first + 3]
        assert {row for row, _ in quad} == {layout.place(thread, 2 * half)[0]}
