"""Whether machine code keeps its stack pointer, which spilled registers and local memory lie at.

NVIDIA's ABI has the stack pointer in R1.  A kernel that has a stack sets R1 in its first
instructions and changes it no more.  ptxas 13.0 has broken that: in a kernel whose warps give up
registers by setmaxnreg it kept a number in R1 and then spilled to where that number pointed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

_POINTER = 1
_SETS = 2  # R1 = the top of the stack; R1 = R1 - the bytes of the frame

# Opcodes whose bits 16 to 23 number the register of the result, in the forms that their operands
# have (register, constant, number, uniform register).  They are the commonest, not all: code that
# has R1 for a number uses some of them on it.  sm_80 to sm_120; found by comparing machine code
# with nvdisasm's listing of it.
_RESULTS = frozenset(
    form << 8 | low
    for low in (
        0x02, 0x07, 0x08, 0x09, 0x10, 0x11, 0x12, 0x16, 0x19, 0x20, 0x21, 0x23, 0x24, 0x25, 0x36,
        0x48,
    )
    for form in (0x2, 0x4, 0x6, 0x8, 0xA, 0xC, 0xE)
) | {0x308, 0x919, 0x981, 0x984, 0xB82, 0xF89}  # fmt: skip
_INSTRUCTION = 16  # bytes


def overwritten(cubin: bytes, kernels: Iterable[str]) -> list[str]:
    """The kernels whose code writes R1 after it was set.

    kernels: names of kernels of the cubin that have a stack; others may use R1 as they like.
    """
    codes = dict(_sections(cubin))
    return [name for name in kernels if _writes(codes.get(f".text.{name}", b"")) > _SETS]


def _writes(code: bytes) -> int:
    """How many instructions write R1."""
    count = 0
    for at in range(0, len(code) - _INSTRUCTION + 1, _INSTRUCTION):
        (low,) = struct.unpack_from("<I", code, at)
        count += low >> 16 & 0xFF == _POINTER and low & 0xFFF in _RESULTS
    return count


def _sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    """(name, contents) of each section of an ELF file of 64 bits."""
    (headers,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, of_names = struct.unpack_from("<HHH", elf, 0x3A)
    # name, type, flags, address, offset, bytes
    found = [struct.unpack_from("<IIQQQQ", elf, headers + n * size) for n in range(count)]
    names = found[of_names][4]
    for name, _, _, _, offset, length in found:
        start = names + name
        yield elf[start : elf.index(b"\0", start)].decode(), elf[offset : offset + length]
