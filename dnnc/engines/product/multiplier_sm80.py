# pyright: basic
"""How warps multiply fragments with `mma.sync`: which instructions make one product of the graph.

    f16, bf16, i8   one, added to the sums in the tensor core
    f32             one of tf32, or three, which are summed apart
    fp8             one, summed apart unless the compute type allows for fewer bits; where the
                    assembler would make it of f16's, two of f16, added in the tensor core

The tensor cores cut what they add down to f32, which over a long k is far from what f32 rounding
gives, and sums of fp8 have fewer bits yet.  What is summed apart starts from zero, and an addition
that rounds adds it to the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ... import dtypes
from ...codegen import ops
from ...codegen.ampere import mma
from ...codegen.scalars.byte_math import f16_words
from ...dtypes import DType
from ...mlir import arith, ir
from ...target import Target
from .pattern import promotes_sums

# Registers of each instruction tile of an operand.
Fragments = Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Multiplier:
    """See the file's docstring.

    types: of A and B.  compute: of the product.  tf32: products of tf32 for one of f32.
    """

    types: tuple[DType, DType]
    compute: DType
    tf32: int
    target: Target

    @property
    def step_k(self) -> int:
        """Elements along k of a step: of 32 bytes."""
        return mma.INSTRUCTIONS[self.types].k

    @property
    def ptx_version(self) -> int:
        """The PTX ISA version that the instructions need, ten times; 0: that of the target."""
        return mma.F8_PTX_VERSION if self._row.a.is_fp8 else 0

    @property
    def sums_type(self) -> Any:
        return ir.F32Type.get() if self._row.accumulator.is_float else ops.i32_type()

    @property
    def sums_apart(self) -> bool:
        """Whether the products of a step are summed from zero."""
        if self._is_widened:
            return False
        return self.tf32 > 1 or promotes_sums(self.types[0], self.compute)

    def is_light(self, tile_k: int) -> bool:
        """Whether a stage of so many elements along k takes no more registers than one of f16."""
        return not self.sums_apart and not (self._is_widened and tile_k > 2 * self.step_k)

    @property
    def _is_widened(self) -> bool:
        return is_widened(self.types[0], self.target)

    @property
    def _row(self) -> mma.Instruction:
        types = (dtypes.f16, dtypes.f16) if self._is_widened else self.types
        return mma.INSTRUCTIONS[types]

    def add(
        self, a: Fragments, b: Fragments, sums: list[Any], place: Callable[[int, int], int]
    ) -> None:
        """Adds the products of a step's fragments to accumulators.

        place: where the four sums of a tile of A and a tile of B are.
        """
        if not self.sums_apart:
            for a_part, b_part in self._parts(a, b):
                for i, j, own in _tiles(a, b, place):
                    sums[own] = mma.multiply(self._row, a_part[i], b_part[j], sums[own])
            return
        parts = list(self._parts(a, b))
        for i, j, own in _tiles(a, b, place):
            apart = [ops.zeros(ir.F32Type.get())] * 4
            for a_part, b_part in parts:
                apart = mma.multiply(self._row, a_part[i], b_part[j], apart)
            pairs = zip(sums[own], apart, strict=True)
            sums[own] = [arith.AddFOp(s, p).result for s, p in pairs]

    def _parts(self, a: Fragments, b: Fragments) -> Iterator[tuple[Fragments, Fragments]]:
        """The operands of the instructions, small terms of f32 first."""
        if self._is_widened:
            yield from self._widened(a, b)
        elif self.types[0] != dtypes.f32:
            yield a, b
        elif self.tf32 == 1:
            rounded = [[[mma.tf32(r) for r in tile] for tile in operand] for operand in (a, b)]
            yield rounded[0], rounded[1]
        else:
            halves = []
            for operand in (a, b):
                pairs = [[mma.tf32_pair(r) for r in tile] for tile in operand]
                halves.append([[[p[h] for p in tile] for tile in pairs] for h in (0, 1)])
            (a_high, a_low), (b_high, b_low) = halves
            yield from ((a_low, b_high), (a_high, b_low), (a_high, b_high))

    def _widened(self, a: Fragments, b: Fragments) -> Iterator[tuple[Fragments, Fragments]]:
        """Bytes of fp8 as f16: those of a chunk of 16 bytes along k are a step of f16, in another
        order, which is the same for A and B."""
        for chunk in (0, 1):
            yield (
                [_rows_first(tile[2 * chunk : 2 * chunk + 2], self.types[0]) for tile in a],
                [list(f16_words(tile[chunk], self.types[1].name)) for tile in b],
            )


def is_widened(operand: DType, target: Target) -> bool:
    """Whether bytes of fp8 become f16 before they are multiplied."""
    return operand.is_fp8 and not target.multiplies_fp8


def _rows_first(words: Sequence[Any], type_: DType) -> list[Any]:
    """Registers of A of a step of f16, from the words of its upper and its lower rows."""
    (up, up_more), (down, down_more) = (f16_words(word, type_.name) for word in words)
    return [up, down, up_more, down_more]


def _tiles(
    a: Fragments, b: Fragments, place: Callable[[int, int], int]
) -> Iterator[tuple[int, int, slice]]:
    for i in range(len(a)):
        for j in range(len(b)):
            yield i, j, slice(place(i, j), place(i, j) + 4)
