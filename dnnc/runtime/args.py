# pyright: basic
"""The argument block of a launch: where each argument lies, and the memory that holds them."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

from ..errors import DnncError, Status
from ..plan.arguments import pack_number
from ..plan.plan import Arg

# cuda.h aligns tensor maps to 128 bytes, to 64 before CUDA 13; other arguments lie at multiples of
# their size.
_MAP_BYTES, _MAP_ALIGNMENT, _ALIGNMENT = 128, 128, 16
_SCALARS = {"i32": "i", "i64": "q"}


class Layout:
    """Where the arguments of a launch lie, in one block with the driver's array of pointers ahead.

    All is filled by one call: a `struct` format has the whole block.
    bytes: of each argument.  offsets: of each in the block.
    """

    def __init__(self, args: Sequence[Arg]):
        self.bytes: list[int] = []
        self.offsets: list[int] = []
        codes = [f"<{len(args)}Q"]
        end = 8 * len(args)
        for arg in args:
            code = _code(arg)
            alignment = _MAP_ALIGNMENT if arg.kind == "tensor_map" else _ALIGNMENT
            gap = -end % alignment
            codes.append(f"{gap}x{code}")
            self.offsets.append(end + gap)
            self.bytes.append(struct.calcsize(f"<{code}"))
            end += gap + self.bytes[-1]
        self._struct = struct.Struct("".join(codes))
        self._memory = ctypes.c_char * (max(end, 8) + _MAP_ALIGNMENT)

    def filled(self, values: Sequence[Any]) -> Block:
        """A block of its own with these values: integers that fit their arguments, or bytes."""
        memory = self._memory()
        base = ctypes.addressof(memory)
        start = -base % _MAP_ALIGNMENT
        address = base + start
        pointers = [address + offset for offset in self.offsets]
        self._struct.pack_into(memory, start, *pointers, *values)
        return Block(memory, start, address, self.offsets)


class Block:
    """Arguments in memory; address: of the array of pointers to them, as the driver takes it."""

    def __init__(self, memory: Any, start: int, address: int, offsets: Sequence[int]):
        self._memory, self._start, self._offsets = memory, start, offsets
        self.address = address

    def memory_of(self, place: int) -> int:
        """The host address of the argument at a place."""
        return self.address + self._offsets[place]

    def place_at(self, place: int, address: int) -> None:
        """Has the kernel's argument at a place read from elsewhere in the host's memory."""
        struct.pack_into("=Q", self._memory, self._start + 8 * place, address)


def _code(arg: Arg) -> str:
    """The `struct` code of an argument's value."""
    if arg.kind in ("pointer", "workspace", "peer"):
        return "Q"
    if arg.kind == "scalar":
        return _SCALARS[arg.type]
    if arg.kind == "by_value":
        return f"{len(pack_number(0, arg.type))}s"
    if arg.kind == "bytes":
        return f"{len(bytes.fromhex(arg.data))}s"
    if arg.kind == "tensor_map" and arg.tensor_map is not None:
        return f"{_MAP_BYTES}s"
    raise DnncError(
        Status.SERIALIZATION_VERSION_MISMATCH, f"argument kind {arg.kind!r}", "a newer dnnc"
    )
