# pyright: basic
"""Warp-level tensor-core products (`mma.sync`): instructions as rows, fragments, loads.

One instruction multiplies A [16, k] by B [k, 8]; k elements are 32 bytes for every operand type,
so that an operand's fragments are loaded the same way for all: `ldmatrix` moves 8 rows of 16
bytes, four such matrices at a time.  Sources: PTX ISA, "Matrix Fragments for mma.m16n8k16" and
its neighbours; "Warp-level matrix load instruction: ldmatrix".

Accumulator of m16n8, lane l: element i is row l / 4 + 8 * (i / 2), column 2 * (l % 4) + i % 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ... import dtypes
from ...dtypes import DType
from ...mlir import arith, ir, llvm, nvvm
from .. import ops
from ..scalars.scalar import constant

M, N = 16, 8
K_BYTES = 32
CHUNK_BYTES = 16
WORD_BYTES = 4  # of a register
CHUNKS_PER_STEP = K_BYTES // CHUNK_BYTES


@dataclass(frozen=True)
class Instruction:
    """An `mma.sync.m16n8` instruction.

    a, b: data types of the operands.  accumulator: of C.  k: depth.  a_ptx, b_ptx: the operands'
    PTX names.
    """

    a: DType
    b: DType
    accumulator: DType
    k: int
    a_ptx: str
    b_ptx: str

    def __post_init__(self) -> None:
        assert self.k * self.a.bits == 8 * K_BYTES, f"{self} does not take 32 bytes of k"


_ALIKE = (
    (dtypes.f16, dtypes.f32, 16, "f16"),
    (dtypes.bf16, dtypes.f32, 16, "bf16"),
    (dtypes.f32, dtypes.f32, 8, "tf32"),
    (dtypes.i8, dtypes.i32, 32, "s8"),
)
_F8 = ((dtypes.f8e4m3, "e4m3"), (dtypes.f8e5m2, "e5m2"))
F8_PTX_VERSION = 84  # of the PTX ISA, ten times, from which there are products of fp8

INSTRUCTIONS = {
    (row.a, row.b): row
    for row in (
        *(Instruction(t, t, sums, k, name, name) for t, sums, k, name in _ALIKE),
        *(Instruction(a, b, dtypes.f32, 32, x, y) for a, x in _F8 for b, y in _F8),
    )
}


def chunk_elems(operand: DType) -> int:
    """Elements of 16 bytes."""
    return CHUNK_BYTES * 8 // operand.bits


def multiply(row: Instruction, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> list[Any]:
    """c + a @ b of one instruction: a 4 registers, b 2, c 4 scalars."""
    element = c[0].type
    result = ir.Type.parse(f"!llvm.struct<({', '.join([str(element)] * 4)})>")
    if row.a.is_fp8:  # MLIR has no such `nvvm.mma.sync`
        return ops.members(_multiply_fp8(row, result, [*a, *b, *c]), element, 4)
    kind = ir.Attribute.parse(f"#nvvm.mma_type<{row.a_ptx}>")
    options: dict[str, Any] = {"multiplicand_a_ptx_type": kind, "multiplicand_b_ptx_type": kind}
    if row.a == dtypes.f16:  # the one type whose registers MLIR wants as pairs
        pair = ir.VectorType.get([2], ir.F16Type.get())
        a, b = ([llvm.BitcastOp(pair, r).result for r in registers] for registers in (a, b))
    if row.a.is_integer:
        overflow = ir.Attribute.parse("#nvvm.mma_int_overflow<wrapped>")
        options["int_overflow_behavior"] = overflow
    made = nvvm.mma_sync(
        result,
        ir.Attribute.parse(f"#nvvm.shape<m = {M}, n = {N}, k = {row.k}>"),
        ir.Attribute.parse("#nvvm.mma_layout<row>"),
        ir.Attribute.parse("#nvvm.mma_layout<col>"),
        list(a), list(b), list(c), **options,
    )  # fmt: skip
    return ops.members(made, element, 4)


def add_columns(
    row: Instruction, a: Sequence[Any], b: Sequence[Any], sums: Sequence[Any], place: int
) -> list[Any]:
    """The sums with a product added from a place on: four of 8 columns, for two registers of B."""
    sums = list(sums)
    for pair in range(len(b) // 2):
        at = place + 4 * pair
        sums[at : at + 4] = multiply(row, a, b[2 * pair : 2 * pair + 2], sums[at : at + 4])
    return sums


def _multiply_fp8(row: Instruction, result: Any, registers: Sequence[Any]) -> Any:
    """The instruction of fp8 operands; registers: of A, B and C."""
    places = iter(f"${i}" for i in range(4 + len(registers)))
    d, a, b, c = (", ".join(next(places) for _ in range(count)) for count in (4, 4, 2, 4))
    text = (
        f"mma.sync.aligned.m{M}n{N}k{row.k}.row.col.f32.{row.a_ptx}.{row.b_ptx}.f32 "
        f"{{{d}}}, {{{a}}}, {{{b}}}, {{{c}}};"
    )
    constraints = ",".join(["=f"] * 4 + ["r"] * 6 + ["f"] * 4)
    # All lanes take part: it may not be moved to where some of them are.
    return llvm.inline_asm(result, list(registers), text, constraints, has_side_effects=True)


def load_matrices(pointer: Any, *, transposed: bool) -> list[Any]:
    """Four 8x8 matrices of 16-bit elements from shared memory, a register each.

    pointer: of the row that the lane names: row lane % 8 of matrix lane / 8.
    transposed: each matrix is handed out by columns.
    """
    layout = "col" if transposed else "row"
    word = ops.i32_type()
    result = ir.Type.parse("!llvm.struct<(i32, i32, i32, i32)>")
    made = nvvm.ldmatrix(
        pointer, 4,
        ir.Attribute.parse(f"#nvvm.mma_layout<{layout}>"),
        ir.Attribute.parse("#nvvm.ld_st_matrix_shape<m = 8, n = 8>"),
        ir.Attribute.parse("#nvvm.ld_st_matrix_elt_type<b16>"),
        results=[result],
    )  # fmt: skip
    return ops.members(made, word, 4)


TRANSPOSED_PTX = 78  # the PTX ISA, ten times, that `transposed` needs


def transposed(word: Any) -> Any:
    """The lane's word of an 8x8 matrix of 16-bit elements, spread over a warp, that is
    transposed."""
    text = "movmatrix.sync.aligned.m8n8.trans.b16 $0, $1;"
    # All lanes take part: it may not be moved to where some of them are.
    return llvm.inline_asm(ops.i32_type(), [word], text, "=r,r", has_side_effects=True)


# ---- which row and chunk a lane names, as functions of its number


def a_lane(lane: Any) -> tuple[Any, Any]:
    """(row of 16, chunk of 2) for A stored [m][k]: rows 0-7, 8-15, then the second chunk."""
    return lane & 15, lane >> 4


def b_lane(lane: Any) -> tuple[Any, Any]:
    """(row of 16, chunk of 2) for B stored [n][k]: both chunks of 8 columns, then 8 more."""
    row = (lane & 7) + ((lane >> 4) << 3)
    return row, (lane >> 3) & 1


def a_lane_transposed(lane: Any) -> tuple[Any, Any]:
    """(k of 16, chunk of 2) for A stored [k][m]: m 0-7, 8-15, then the next 8 of k."""
    k = (lane & 7) + ((lane >> 4) << 3)
    return k, (lane >> 3) & 1


def b_lane_transposed(lane: Any) -> tuple[Any, Any]:
    """(k of 16, chunk of 2) for B stored [k][n]: k 0-7, 8-15, then the next 8 of n."""
    return lane & 15, lane >> 4


EVEN, ODD = 0x6420, 0x7531  # bytes of an even or odd row of two words, for `prmt`


def split_bytes(words: Sequence[Any], selectors: Sequence[Any] = (EVEN, ODD)) -> list[Any]:
    """Words of bytes along k, of four matrices [8 of k][16 rows] that `load_matrices` transposed.

    Lane 4i + q has k = 2q, 2q + 1 of rows 2i, 2i + 1 of each.  Of the first two matrices come rows
    2i and 2i + 1, four of k each, then those of the next two; selectors: of these two rows.
    """
    kind = nvvm.PermuteMode.DEFAULT
    return [
        nvvm.prmt(words[pair], ops.value_of(selector), kind, hi=words[pair + 1])
        for pair in (0, 2)
        for selector in selectors
    ]


def accumulator_place(lane: Any, i: int) -> tuple[Any, Any]:
    """(row, column) of element i of an accumulator; elements 2j and 2j + 1 are neighbours."""
    return (lane >> 2) + 8 * (i // 2), ((lane & 3) << 1) + i % 2


# ---- f32 operands on tf32 hardware

# The largest number of 10 mantissa bits.
_TF32_MAX = 3.4011621342146535e38


def tf32(value: Any) -> Any:
    """An f32 register (as i32) rounded to tf32, to nearest, ties away."""
    text = "cvt.rna.tf32.f32 $0, $1;"
    return llvm.inline_asm(ops.i32_type(), [value], text, "=r,r")


def tf32_pair(value: Any) -> tuple[Any, Any]:
    """(high, low) with high + low == value to about 22 bits; both tf32, as i32.

    An infinity becomes (largest, infinity), so that products with it stay infinite; high is
    kept finite for the same reason where rounding would reach infinity.
    """
    f32 = ir.F32Type.get()
    number = llvm.BitcastOp(f32, value).result
    rounded = llvm.BitcastOp(f32, tf32(value)).result
    high = arith.MinNumFOp(rounded, constant(_TF32_MAX, f32)).result
    high = arith.MaxNumFOp(high, constant(-_TF32_MAX, f32)).result
    low = arith.SubFOp(number, high).result
    as_words = [llvm.BitcastOp(ops.i32_type(), part).result for part in (high, low)]
    return as_words[0], tf32(as_words[1])
