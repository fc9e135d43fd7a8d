"""Instructions, layouts and descriptors of warpgroup products."""

import pytest

from dnnc import dtypes
from dnnc.codegen.hopper.wgmma import INSTRUCTIONS, AccumulatorLayout, OperandLayout, Panels


@pytest.mark.parametrize("n", [8, 24, 64, 256])
def test_accumulator_registers_cover_the_tile_once(n):
    layout = AccumulatorLayout(n)  # checks itself
    assert layout.place(37, 6) == (25, 10) or n == 8
    assert layout.place(0, 0) == (0, 0)
    assert layout.place(127, layout.registers - 1) == (63, n - 1)


def test_a_product_in_registers_is_the_next_ones_operand():
    """Sixteen columns of an accumulator, two registers a word, are an A tile of 16-bit elements."""
    sums, operand = AccumulatorLayout(16), OperandLayout(2)
    for thread in range(128):
        for word in range(4):
            for element in range(2):
                assert operand.place(thread, word, element) == sums.place(
                    thread, 2 * word + element
                )


@pytest.mark.parametrize("size", [1, 2, 4])
def test_operand_registers_cover_the_tile_once(size):
    assert OperandLayout(size).per_word == 4 // size


def test_every_operand_type_has_an_instruction_of_32_bytes_of_k():
    f8 = (dtypes.f8e4m3, dtypes.f8e5m2)
    wanted = {(t, t) for t in (dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.i8)}
    assert set(INSTRUCTIONS) == wanted | {(a, b) for a in f8 for b in f8}
    assert {row.steps for row in INSTRUCTIONS.values()} == {4}


def test_columns_that_an_instruction_takes():
    half, byte = (INSTRUCTIONS[t, t] for t in (dtypes.f16, dtypes.i8))
    assert [n for n in (4, 8, 12, 40, 256, 264) if half.takes_columns(n)] == [8, 40, 256]
    assert [n for n in (8, 24, 32, 40, 48, 256) if byte.takes_columns(n)] == [8, 24, 32, 48, 256]


def test_descriptors_count_sixteen_bytes():
    k_major = Panels(128, 2).descriptor_bits
    assert k_major == (1 << 16) | (64 << 32) | (1 << 62)
    mn_major = Panels(128, 2, is_k_major=False)
    assert mn_major.panel_bytes == 64 * 128
    assert mn_major.descriptor_bits == (512 << 16) | (64 << 32) | (1 << 62)


def test_where_instructions_read():
    k_major, mn_major = Panels(128, 2), Panels(128, 2, is_k_major=False)
    assert [k_major.offset(64, k) for k in range(4)] == [8192, 8224, 8256, 8288]
    assert [mn_major.offset(64, k) for k in range(4)] == [8192, 10240, 12288, 14336]
    assert k_major.bytes == mn_major.bytes == 16384


def test_layouts_that_cannot_be_are_refused():
    for make in (
        lambda: Panels(100, 2),
        lambda: Panels(96, 2, is_k_major=False),
        lambda: Panels(64, 1, is_k_major=False),
    ):
        with pytest.raises(AssertionError):
            make()
