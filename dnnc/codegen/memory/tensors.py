# pyright: basic
"""Tensors in global memory: loads and stores of fragments, as wide as is known to be aligned.

In registers a fragment has the tensor's element type; fp8 is carried as i8 (the back end has no
such type) and booleans as i1, packed eight a byte in memory, the lowest index in the lowest bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ... import dtypes
from ...dialect.tensor import Tensor
from ...mlir import arith, ir, llvm
from .. import ops
from ..kernel import Kernel
from ..scalars.scalar import element_type
from ..walk.index import Coordinate, Index, offset
from . import atomic

MAX_ACCESS_BYTES = 16
_ADDS_VECTORS = (9, 0)  # capability of devices that add several numbers at once


def register_type(dtype: dtypes.DType) -> Any:
    """The type of one element in registers."""
    if dtype.is_float and dtype.bits == 8:
        return ir.IntegerType.get_signless(8)
    return element_type(dtype)


def offset_bits(tensor: Tensor) -> int:
    """32 where every element's offset fits a signed 32-bit number, else 64."""
    return 32 if tensor.span().bounds()[1] < 1 << 31 else 64


@dataclass(eq=False)
class GlobalTensor:
    """A tensor of global memory, as a leaf of a walk and as its target.

    is_exclusive: nothing else that the kernel is given overlaps it.  pointer_: in place of the
    kernel's argument.  is_streamed: L2 had better keep other things than what is
    stored.  policy: what it does with what is loaded (`memory.l2`).  is_added_to: what is stored is
    added to what is there, f32 or i32, by blocks in any order.
    """

    kernel: Kernel
    tensor: Tensor
    is_exclusive: bool = True
    pointer_: Any = None
    is_streamed: bool = False
    policy: Any = None
    is_added_to: bool = False

    @property
    def pointer(self) -> Any:
        if self.pointer_ is not None:
            return self.pointer_
        return self.kernel.pointer(self.tensor, is_exclusive=self.is_exclusive)

    def _offset(self, at: Sequence[Coordinate]) -> Index:
        t = self.tensor
        return offset(self.kernel, at, t.shape, t.layout, bits=offset_bits(t))

    def _chunk(self, where: Index, width: int) -> int:
        """How many elements one access may take."""
        size = self.tensor.type.bits // 8
        known = math.gcd(where.divisor * size, self.tensor.alignment, MAX_ACCESS_BYTES)
        return max(1, math.gcd(known // size if known >= size else 1, width))

    def load(self, at: Sequence[Coordinate], width: int) -> Any:
        """The elements at some coordinates: a scalar (width 1) or a vector."""
        where = self._offset(at)
        if self.tensor.type.kind == "b":
            return self._load_bits(where, width)
        element = register_type(self.tensor.type)
        if where.is_uniform:
            return ops.splat(self._load_at(where.base, element, 1), width)
        if not where.is_consecutive:
            return ops.from_elements(
                [self._load_at(where.element(i), element, 1) for i in range(width)]
            )
        chunk = self._chunk(where, width)
        return ops.concat(
            [self._load_at(ops.add(where.base, i), element, chunk) for i in range(0, width, chunk)]
        )

    def load_lines(self, at: Sequence[Coordinate], count: int, width: int) -> list[Any]:
        """Lines of `width` elements that follow each other in memory, by one access of whole words.

        at: of the first element, aligned to all of them together.
        """
        size = self.tensor.type.bits // 8
        assert count * width * size <= MAX_ACCESS_BYTES and width * size % 4 == 0, "an access"
        element, words = register_type(self.tensor.type), width * size // 4
        address = ops.gep(self.pointer, self._offset(at).element(0), element)
        type_ = ops.vector_type(ops.i32_type(), count * words)
        loaded = ops.load(address, type_, count * width * size)
        line = ops.vector_type(element, width)
        parts = (ops.part(loaded, i * words, words) for i in range(count))
        return [llvm.BitcastOp(line, part).result for part in parts]

    def _load_at(self, base: Any, element: Any, chunk: int) -> Any:
        size = self.tensor.type.bits // 8
        address, type_ = ops.gep(self.pointer, base, element), ops.vector_type(element, chunk)
        if self.policy is not None:
            return ops.load_hinted(address, type_, size * chunk, self.policy)
        return ops.load(address, type_, size * chunk)

    def address(self, at: Sequence[Coordinate]) -> Any:
        """A pointer to one element."""
        return ops.gep(self.pointer, self._offset(at).base, register_type(self.tensor.type))

    def store(self, at: Sequence[Coordinate], value: Any, condition: Any = None) -> None:
        """Writes a fragment where the condition (i1, None: always) holds."""
        width = ops.width_of(value)
        where = self._offset(at)
        if self.tensor.type.kind == "b":
            self._store_bits(where, value, width, condition=condition)
            return
        with ops.if_(condition):
            element = register_type(self.tensor.type)
            size = self.tensor.type.bits // 8
            chunk = self._chunk(where, width) if where.is_consecutive else 1
            put = ops.store_streamed if self.is_streamed else ops.store
            for i in range(0, width, chunk):
                address = ops.gep(self.pointer, where.element(i), element)
                if self.is_added_to:
                    is_together = self.kernel.target.capability >= _ADDS_VECTORS
                    atomic.add(address, ops.part(value, i, chunk), is_together=is_together)
                else:
                    put(address, ops.part(value, i, chunk), size * chunk)

    # ---- packed booleans

    def _load_bits(self, where: Index, width: int) -> Any:
        byte = ir.IntegerType.get_signless(8)
        whole_bytes = where.is_consecutive and where.divisor % 8 == 0 and width % 8 == 0
        if whole_bytes:
            first = ops.shr(where.base, 3)
            loaded = [
                ops.load(ops.gep(self.pointer, ops.add(first, i), byte), byte, 1)
                for i in range(width // 8)
            ]
            eight = ir.VectorType.get([8], ir.IntegerType.get_signless(1))
            return ops.concat([llvm.BitcastOp(eight, value).result for value in loaded])
        return ops.from_elements([self._load_bit(where.element(i)) for i in range(width)])

    def _load_bit(self, position: Any) -> Any:
        byte = ir.IntegerType.get_signless(8)
        value = ops.load(ops.gep(self.pointer, ops.shr(position, 3), byte), byte, 1)
        place = ops.to_i32(ops.and_(position, 7))
        shifted = ops.shr(arith.ExtUIOp(ops.i32_type(), value).result, place)
        return arith.TruncIOp(ir.IntegerType.get_signless(1), shifted).result

    def _store_bits(
        self, where: Index, value: Any, width: int, last: Any = None, condition: Any = None
    ) -> None:
        """Whole bytes; last: the place of the last element, past which no byte is written."""
        only_one = self.tensor.elements().constant == 1
        is_whole = where.is_consecutive and where.divisor % 8 == 0 and width % 8 == 0
        assert only_one or is_whole, "a byte has one writer"
        byte = ir.IntegerType.get_signless(8)
        first = ops.shr(where.base, 3)
        # Ahead of any branch, and as bytes: the back end keeps room in local memory for vectors of
        # i1 that are taken apart.
        wide = arith.ExtUIOp(ops.vector_type(byte, width), value).result
        bits = ops.elements(wide)
        packed = [self._pack(bits[i : i + 8]) for i in range(0, width, 8)]
        for i, whole in enumerate(packed):
            inside = None if last is None else ops.compare("sle", ops.add(where.base, 8 * i), last)
            with ops.if_(ops.both(condition, inside)):
                ops.store(ops.gep(self.pointer, ops.add(first, i), byte), whole, 1)

    def store_bytes(self, at: Sequence[Coordinate], value: Any, last: Any) -> None:
        """Writes packed booleans, byte by byte, up to the one that holds the place `last`."""
        self._store_bits(self._offset(at), value, ops.width_of(value), last)

    def store_byte(self, at: Sequence[Coordinate], byte: Any, condition: Any) -> None:
        """Writes a byte, the eight booleans at some coordinates, where the condition holds."""
        where = self._offset(at)
        assert where.is_consecutive and where.divisor % 8 == 0, "a byte has one writer"
        with ops.if_(condition):
            ops.store(ops.gep(self.pointer, ops.shr(where.base, 3), byte.type), byte, 1)

    def _pack(self, bits: Sequence[Any]) -> Any:
        """Eight bytes of 0 or 1 as one."""
        total: Any = 0
        for place, bit in enumerate(bits):
            wide = ops.shl(bit, place)
            total = wide if place == 0 else ops.or_(total, wide)
        return total


@dataclass(eq=False)
class ScalarTensor:
    """A by-value tensor: one number, a kernel argument."""

    kernel: Kernel
    tensor: Tensor

    def load(self, at: Sequence[Coordinate], width: int) -> Any:
        value = self.kernel.scalar(self.tensor)
        if self.tensor.type.kind == "b":
            value = arith.TruncIOp(ir.IntegerType.get_signless(1), value).result
        return ops.splat(value, width)
