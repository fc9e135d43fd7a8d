# pyright: basic
"""Warpgroup tensor-core products (`wgmma`): instructions as rows, descriptors, layouts, issue.

One instruction multiplies A [64, k] by B [k, n]; k elements are 32 bytes.  B lies in shared
memory, A there or in registers, the sums in the registers of four warps.  Operands in shared
memory are *panels* of rows of 128 bytes under the 128-byte swizzle, as `tma` lays them down, or,
K-major, of 64 or 32 bytes under the swizzle of as many:

    K-major   [rows][128 bytes of k], rows in groups of eight
    MN-major  panels of 64 rows: [k][64 rows of 16 bits], one panel after the other

Sources: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions": "Register Fragments",
"Shared Memory Matrix Layout", "Matrix Descriptor Format".
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ... import dtypes
from ...dtypes import DType
from ...mlir import arith, ir, llvm, nvvm
from .. import ops
from ..value import built

M = 64
K_BYTES = 32
ROW_BYTES = 128  # of a panel: the span of the swizzle
ATOM_ROWS = 8  # after which the swizzle repeats
PANEL_ROWS = 64  # of an MN-major panel, whose elements are of 16 bits
WARPGROUP_THREADS = 128

_SWIZZLES = {128: 1, 64: 2, 32: 3}  # span -> bits 62 and 63 of a descriptor


@dataclass(frozen=True)
class Instruction:
    """A `wgmma.mma_async.m64n*k*` instruction.

    a, b: data types of the operands.  accumulator: of the sums.  k: depth.
    a_ptx, b_ptx: the operands' PTX names.
    """

    a: DType
    b: DType
    accumulator: DType
    k: int
    a_ptx: str
    b_ptx: str

    def __post_init__(self) -> None:
        assert self.a.bits == self.b.bits, f"operands of {self} differ in size"
        assert self.k * self.a.bits == 8 * K_BYTES, f"{self} does not take 32 bytes of k"

    @property
    def element_bytes(self) -> int:
        return self.a.bits // 8

    @property
    def panel_k(self) -> int:
        """Elements of k in a panel's row."""
        return ROW_BYTES // self.element_bytes

    @property
    def steps(self) -> int:
        """Instructions along a panel."""
        return ROW_BYTES // K_BYTES

    @property
    def takes_mn_major(self) -> bool:
        """Whether an operand may lie with its rows, not k, contiguous."""
        return self.a.bits == 16

    def takes_columns(self, n: int) -> bool:
        """Whether there is an instruction of n columns."""
        if not 8 <= n <= 256 or n % 8:
            return False
        return not self.a.is_integer or n <= 32 or n % 16 == 0


_FLOATS = (
    (dtypes.f16, "f16", 16),
    (dtypes.bf16, "bf16", 16),
    (dtypes.f32, "tf32", 8),
    (dtypes.i8, "s8", 32),
)
_F8 = ((dtypes.f8e4m3, "e4m3"), (dtypes.f8e5m2, "e5m2"))

INSTRUCTIONS = {
    (row.a, row.b): row
    for row in (
        *(
            Instruction(t, t, dtypes.i32 if t.is_integer else dtypes.f32, k, name, name)
            for t, name, k in _FLOATS
        ),
        *(Instruction(a, b, dtypes.f32, 32, x, y) for a, x in _F8 for b, y in _F8),
    )
}


# ---- layouts in registers


@dataclass(frozen=True)
class AccumulatorLayout:
    """Where the elements of a [64, n] accumulator lie: n / 2 registers of each of 128 threads.

    Register r of thread t holds the element of

        row    16 * (t / 32) + t % 32 / 4 + 8 * (r / 2 % 2)
        column 8 * (r / 4) + 2 * (t % 4) + r % 2

    so registers 2i and 2i + 1 are neighbours in a row.  Example: register 6 of thread 37 is at
    row 16 + 1 + 8 = 25, column 8 + 2 = 10.
    """

    n: int

    def __post_init__(self) -> None:
        _verify_accumulators(self)

    @property
    def registers(self) -> int:
        return self.n // 2

    def place(self, thread: int, register: int) -> tuple[int, int]:
        """(row, column) of a register of a thread."""
        row, column = self.origin(thread)
        down, right = self.step(register)
        return row + down, column + right

    @staticmethod
    def origin(thread: Any) -> tuple[Any, Any]:
        """(row, column) of a thread's register 0; thread: a number or a value."""
        warp, lane = thread >> 5, thread & 31
        row = warp * 16 + (lane >> 2)
        return row, (lane & 3) << 1

    @staticmethod
    def step(register: int) -> tuple[int, int]:
        """(rows, columns) from a thread's register 0 to another."""
        return 8 * (register // 2 % 2), 8 * (register // 4) + register % 2


@functools.cache  # 24,576 places for 192 columns
def _verify_accumulators(layout: AccumulatorLayout) -> None:
    steps = [layout.step(register) for register in range(layout.registers)]
    places = {
        (row + down, column + right)
        for row, column in map(layout.origin, range(WARPGROUP_THREADS))
        for down, right in steps
    }
    assert len(places) == M * layout.n, f"{layout} is not one to one"
    assert max(places) == (M - 1, layout.n - 1), f"{layout} leaves the tile"


@dataclass(frozen=True)
class OperandLayout:
    """Where the elements of an A tile [64, k] lie in registers: 4 words of each of 128 threads.

    A word holds 4 / element_bytes neighbours along k; word w of thread t begins at

        row 16 * (t / 32) + t % 32 / 4 + 8 * (w % 2)
        k   (t % 4) * per_word + 4 * per_word * (w / 2)

    For 16-bit elements that is the accumulator's layout of two columns of 8: what a product left
    in registers, converted, is the next product's A.
    """

    element_bytes: int

    def __post_init__(self) -> None:
        places = {
            self.place(t, w, i)
            for t in range(WARPGROUP_THREADS)
            for w in range(4)
            for i in range(self.per_word)
        }
        assert len(places) == M * K_BYTES // self.element_bytes, f"{self} is not one to one"

    @property
    def per_word(self) -> int:
        return 4 // self.element_bytes

    def place(self, thread: int, word: int, element: int) -> tuple[int, int]:
        """(row, k) of an element of a word of a thread."""
        lane = thread % 32
        row = 16 * (thread // 32) + lane // 4 + 8 * (word % 2)
        return row, lane % 4 * self.per_word + 4 * self.per_word * (word // 2) + element


# ---- operands in shared memory


@dataclass(frozen=True)
class Panels:
    """A tile [rows, k] of an operand in shared memory.

    is_k_major: [rows][k], k being a panel's 128 bytes; otherwise panels of 64 rows, [k][64].
    depth: k of MN-major panels, if it is not that of 128 bytes.  row_bytes: of K-major rows, which
    are under the swizzle of as many bytes.
    """

    rows: int
    element_bytes: int
    is_k_major: bool = True
    depth: int = 0
    row_bytes: int = ROW_BYTES

    def __post_init__(self) -> None:
        assert self.rows % (ATOM_ROWS if self.is_k_major else PANEL_ROWS) == 0, f"rows of {self}"
        assert self.is_k_major or self.element_bytes == 2, f"{self} can't be transposed"
        assert not (self.is_k_major and self.depth), f"{self} has panels of 128 bytes of k"
        assert self.is_k_major or self.row_bytes == ROW_BYTES, f"rows of {self}"

    @property
    def k(self) -> int:
        return self.depth or self.row_bytes // self.element_bytes

    @property
    def k_bytes(self) -> int:
        """Bytes of k of a row."""
        return self.k * self.element_bytes

    @property
    def bytes(self) -> int:
        return self.rows * self.k_bytes

    @property
    def panel_bytes(self) -> int:
        """The bytes of an MN-major panel."""
        return self.k * ROW_BYTES

    @property
    def descriptor_bits(self) -> int:
        """The descriptor of this layout without its address.

        Offsets in 16 bytes: leading, from an MN-major panel to the next (unused in a K-major
        layout); stride, from eight rows to the next eight.
        """
        leading = 1 if self.is_k_major else self.panel_bytes >> 4
        stride = ATOM_ROWS * self.row_bytes >> 4
        return leading << 16 | stride << 32 | _SWIZZLES[self.row_bytes] << 62

    def offset(self, row: int, step: int) -> int:
        """Bytes from the tile's start to where an instruction reads from a row and a step of k."""
        if self.is_k_major:
            assert row % ATOM_ROWS == 0, "an instruction begins at a swizzle atom"
            assert (step + 1) * K_BYTES <= self.row_bytes, f"step {step} of {self}"
            return row * self.row_bytes + step * K_BYTES
        assert row % PANEL_ROWS == 0, "an instruction begins at a panel"
        k = K_BYTES // self.element_bytes
        return row // PANEL_ROWS * self.panel_bytes + step * k * ROW_BYTES


def descriptor(address: Any, panels: Panels) -> Any:
    """The 64-bit descriptor of a tile at a shared-memory address (i32); add `moved` to it."""
    return _descriptor(address, panels.descriptor_bits)


def descriptor_of(address: Any, leading: int, stride: int, row_bytes: int = ROW_BYTES) -> Any:
    """A descriptor of an MN-major tile of rows under the swizzle of as many bytes; of 16, under
    none.

    leading, stride: bytes from a panel of rows to the next, and from eight of k to the next eight;
    without a swizzle the other way round.
    """
    bits = leading >> 4 << 16 | stride >> 4 << 32
    return _descriptor(address, bits | (_SWIZZLES[row_bytes] << 62 if row_bytes > 16 else 0))


def _descriptor(address: Any, bits: int) -> Any:
    place = (address & 0x3FFFF) >> 4
    wide = arith.ExtUIOp(ops.i64_type(), place).result
    return wide | ops.const(bits, ops.i64_type())


@dataclass(frozen=True)
class Halves:
    """A descriptor whose upper half is a number of the instruction: no register is kept for it.

    low: i32.  Add numbers or i32 values of 16 bytes each.
    """

    low: Any
    high: int

    def __add__(self, sixteens: Any) -> Halves:
        return Halves(self.low + sixteens, self.high)


def descriptor_in_halves(address: Any, panels: Panels) -> Halves:
    """`descriptor`, in halves."""
    bits = panels.descriptor_bits
    return Halves((address & 0x3FFFF) >> 4 | bits & 0xFFFFFFFF, bits >> 32)


def moved(descriptor_: Any, bytes_: int) -> Any:
    """A descriptor of what lies some bytes further on."""
    assert bytes_ % 16 == 0, "descriptors count 16 bytes"
    return descriptor_ + (bytes_ >> 4)


# ---- instructions


def fence() -> None:
    """Orders what was written to registers of products before the products that follow."""
    nvvm.wgmma_fence_aligned()


def settled(words: Sequence[Any]) -> list[Any]:
    """The registers, all of i32 or of f32, as values that are not computed later than here.

    Without this tie the compiler may write a constant to its register after `fence`.
    """
    count, type_ = len(words), words[0].type
    kind = "f" if type_ == ops.f32_type() else "r"
    places = [f"={kind}"] * count + [str(i) for i in range(count)]
    type_ = ir.Type.parse(f"!llvm.struct<({', '.join([str(type_)] * count)})>")
    return unpacked(
        llvm.inline_asm(type_, list(words), "", ",".join(places), has_side_effects=True)
    )


def commit() -> None:
    """Closes a group of products."""
    nvvm.wgmma_commit_group_sync_aligned()


def wait(pending: int) -> None:
    """Waits until at most `pending` groups are under way; see `wait_for` to read results."""
    nvvm.wgmma_wait_group_sync_aligned(pending)


def wait_for(accumulators: Sequence[Any], pending: int = 0) -> list[Any]:
    """Waits, and gives the accumulators back as values that can't be read any earlier.

    Without this tie the compiler may move a read of a register before the wait.
    """
    found: list[Any] = []
    text = f"wgmma.wait_group.sync.aligned {pending};"
    for accumulator in accumulators:
        registers = unpacked(accumulator)
        letter = "f" if isinstance(registers[0].type, ir.FloatType) else "r"
        tied = [f"={letter}"] * len(registers) + [str(i) for i in range(len(registers))]
        found.append(
            llvm.inline_asm(
                accumulator.type, registers, text, ",".join(tied), has_side_effects=True
            )
        )
    return found


def accumulator_type(row: Instruction, n: int) -> Any:
    """The struct of a thread's n / 2 registers."""
    element = "f32" if row.accumulator.is_float else "i32"
    return ir.Type.parse(f"!llvm.struct<({', '.join([element] * (n // 2))})>")


def undefined(row: Instruction, n: int) -> Any:
    """Registers whose first product does not read them."""
    return llvm.UndefOp(accumulator_type(row, n)).result


def unpacked(accumulator: Any) -> list[Any]:
    """The registers of an accumulator, as scalars."""
    types = str(accumulator.type).partition("(")[2].split(",")
    return ops.members(accumulator, ir.Type.parse(types[0].strip(")>")), len(types))


def packed(type_: Any, registers: Sequence[Any]) -> Any:
    """An accumulator of some registers."""
    made = llvm.UndefOp(type_).result
    for i, register in enumerate(registers):
        place = {"position": ir.DenseI64ArrayAttr.get([i])}
        made = built("llvm.insertvalue", type_, [made, register], place)
    return made


def columns_of(row: Instruction, accumulator: Any, first: int, n: int) -> Any:
    """The accumulator of n of the columns of another, from `first` on, a multiple of 8."""
    registers = unpacked(accumulator)[first // 2 : (first + n) // 2]
    return packed(accumulator_type(row, n), registers)


def with_columns(accumulator: Any, first: int, part: Any) -> Any:
    """The accumulator with other registers for the columns of `part`, from `first` on."""
    registers, own = unpacked(accumulator), unpacked(part)
    registers[first // 2 : first // 2 + len(own)] = own
    return packed(accumulator.type, registers)


def multiply(
    row: Instruction,
    n: int,
    a: Any,
    b: Any,
    sums: Any,
    is_added: Any,
    *,
    a_k_major: bool = True,
    b_k_major: bool = True,
) -> Any:
    """Starts sums + A @ B, [64, n]; the sums may not be touched before a `wait_for`.

    a: a descriptor, or four i32 registers (see `OperandLayout`).  b: a descriptor.  Descriptors
    are both i64, or both `Halves`.
    is_added: an i32; where it is 0 the product replaces the sums.
    """
    in_registers = isinstance(a, Sequence)
    operands = [*(a if in_registers else [a]), b, ops.value_of(is_added)]
    halves = {i: x.high for i, x in enumerate(operands) if isinstance(x, Halves)}
    operands = [x.low if isinstance(x, Halves) else x for x in operands]
    registers = unpacked(sums)
    count = len(registers)
    letter = "f" if row.accumulator.is_float else "r"
    a_place = count * 2
    names = [f"${a_place + i}" for i in range(len(operands))]
    a_text = "{" + ", ".join(names[:4]) + "}" if in_registers else names[0]
    joined = ""
    for i, high in halves.items():
        joined += f".reg .b64 d{i}; mov.b64 d{i}, {{{names[i]}, {high:#x}}}; "
        names[i] = f"d{i}"
    a_text = a_text if in_registers else names[0]
    b_text, flag = names[-2], names[-1]
    d_type = "f32" if row.accumulator.is_float else "s32"
    tail = ""
    if row.accumulator.is_float:
        tail = ", 1, 1"
        if row.takes_mn_major:
            tail += "" if in_registers else f", {int(not a_k_major)}"
            tail += f", {int(not b_k_major)}"
    sums_text = ", ".join(f"${i}" for i in range(count))
    text = (
        "{ .reg .pred p; " + joined + "setp.ne.b32 p, " + flag + ", 0; "
        f"wgmma.mma_async.sync.aligned.m{M}n{n}k{row.k}.{d_type}.{row.a_ptx}.{row.b_ptx} "
        "{" + sums_text + "}, " + f"{a_text}, {b_text}, p{tail}; }}"
    )
    constraints = [f"={letter}"] * count + [str(i) for i in range(count)]
    letter = "r" if halves else "l"
    constraints += ["r"] * 4 if in_registers else [letter]
    constraints += [letter, "r"]
    return llvm.inline_asm(
        accumulator_type(row, n),
        [*registers, *operands],
        text,
        ",".join(constraints),
        has_side_effects=True,
    )


def set_registers(count: int, *, grows: bool) -> None:
    """Gives the warpgroup's threads so many registers each (a multiple of 8, 24 to 256)."""
    assert count % 8 == 0 and 24 <= count <= 256, f"{count} registers a thread"
    action = nvvm.SetMaxRegisterAction
    nvvm.setmaxregister(count, action.increase if grows else action.decrease)
