# pyright: basic
"""Operands in the workspace: of fp8 as f16, which holds each of their numbers, and others for TMA.

The kernel before the main one of attention's gradient writes them, with the work of all its blocks:
the main one then takes operands of 16 bits, whose transposed tiles tensor cores can read, with
contiguous elements of a head, which TMA copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from ... import dtypes
from ...codegen import ops
from ...codegen.attention.gradient_region import GradientRegion
from ...codegen.hopper import tma
from ...codegen.kernel import Kernel
from ...codegen.memory.tensors import GlobalTensor
from ...codegen.memory.transposed_tile import transposed
from ...codegen.output import Output
from ...codegen.region import Region
from ...codegen.scalars.byte_math import from_f8
from ...codegen.scalars.scalar import element_type
from ...codegen.state import each
from ...codegen.walk.index import Index
from ...codegen.walk.loops import Loops
from ...dialect.tensor import Tensor, packed_strides
from ...dtypes import DType
from ...expr import Expr, ceildiv, product
from ...mlir import arith

_NAMES = ("q", "k", "v", "do")
_VECTOR = 8  # elements of a head that a thread has at a time
_ROW_UNIT = 16  # bytes that rows of a twin are a multiple of
_SIDE = 4  # threads that read along rows


def widened(region: Region, output: Output) -> GradientRegion:
    """The parts of a region, with operands of fp8 as f16 in the workspace of an output, and a copy
    there of each other operand that TMA can't take from where it lies."""
    parts, free = GradientRegion(region), free_uids(region)
    twins = dict[str, Tensor]()
    for name in _NAMES:
        source = parts.source(name)
        axes, dtype = source.axes(is_transposed=name == "v"), source.tensor.type
        if dtype.is_fp8 or tma.refusal(source.tensor, axes) is not None:
            wanted = dtypes.f16 if dtype.is_fp8 else dtype
            twins[name] = twin_of(source.tensor, axes, next(free), wanted)
            output.tensor(twins[name])
    return GradientRegion(region, twins)


def free_uids(region: Region) -> Iterator[int]:
    """Uids that no tensor of a region has."""
    taken = {tensor.uid for tensor in (*region.arguments.values(), *(t for _, t in region.outputs))}
    return (uid for uid in count(1) if uid not in taken)


def twin_of(tensor: Tensor, axes: tuple[int, int], uid: int, dtype: DType) -> Tensor:
    """A tensor in the workspace, of a type.  axes: of a head's elements, which are contiguous
    there, and of rows."""
    elements, rows = axes
    order = [axis for axis in range(tensor.rank) if axis not in axes] + [rows, elements]
    unit = _ROW_UNIT * 8 // dtype.bits
    sizes = [tensor.shape[axis] for axis in order]
    packed = packed_strides((*sizes[:-1], ceildiv(sizes[-1], unit) * unit))
    strides = dict(zip(order, packed, strict=True))
    in_order = tuple(strides[axis] for axis in range(tensor.rank))
    return replace(tensor, uid=uid, dtype=dtype, strides=in_order, offset=0, alignment=_ROW_UNIT)


def emit(kernel: Kernel, parts: GradientRegion, number: Any, blocks: Any, threads: int) -> None:
    """Writes a block's share of each operand; number: of the block, of so many."""
    own = GradientRegion(parts.region)
    first = number * threads + ops.thread_id()
    step = blocks * threads
    for name, twin in parts.twins.items():
        source = own.source(name)
        elements, rows = source.axes(is_transposed=name == "v")
        copied = _Copied(kernel, source.tensor, twin, elements, rows)
        each(first, kernel.size(product(copied.dims)), step)(copied.copy)


@dataclass(frozen=True)
class _Copied:
    """The copy of an operand to its twin.  elements, rows: their axes.

    A thread has 8 elements of a row; or, where rows lie along memory, of 8 rows, which it
    transposes: threads side by side read along rows, then write along elements.
    """

    kernel: Kernel
    source: Tensor
    twin: Tensor
    elements: int
    rows: int

    @property
    def together(self) -> int:
        """Neighbouring rows of a thread."""
        is_along = self.source.layout[self.rows].constant == 1
        return _VECTOR if is_along and self._divides(_VECTOR) else 1

    @property
    def side(self) -> int:
        """Threads side by side along rows."""
        if self.together == 1:
            return 1
        return next(n for n in (_SIDE, _SIDE // 2, 1) if self._divides(n * self.together))

    def _divides(self, number: int) -> bool:
        return not self.twin.shape[self.rows].known_divisor() % number

    @property
    def outer(self) -> list[int]:
        """The other axes."""
        return [axis for axis in range(self.twin.rank) if axis not in (self.elements, self.rows)]

    @property
    def dims(self) -> tuple[Expr, ...]:
        """Extents of the threads' work: [other axes, blocks of rows, runs of elements, threads of a
        block]."""
        shape = self.twin.shape
        blocks = ceildiv(shape[self.rows], self.together * self.side)
        runs = ceildiv(shape[self.elements], _VECTOR)
        return (*(shape[axis] for axis in self.outer), blocks, runs, Expr.of(self.side))

    def copy(self, number: Any) -> None:
        dims = self.dims
        loops = Loops(dims, tuple((axis,) for axis in range(len(dims))))
        found = loops.coordinates(self.kernel, number)
        *outer, block, run, inner = (found[axis].index().base for axis in range(len(dims)))
        at: list[Any] = [None] * self.twin.rank
        for axis, place in zip(self.outer, outer, strict=True):
            at[axis] = Index.of(place)
        row = (block * self.side + inner) * self.together
        at[self.rows] = Index.of(row)
        at[self.elements] = Index(run * _VECTOR, 1, _VECTOR)
        source, twin = (GlobalTensor(self.kernel, t) for t in (self.source, self.twin))
        if self.together == 1:
            twin.store(at, self._converted(source.load(at, _VECTOR)))
            return
        along, lines = list(at), list[Any]()
        along[self.rows] = Index(row, 1, self.together)
        for i in range(_VECTOR):
            along[self.elements] = Index.of(run * _VECTOR + i)
            lines.append(source.load(along, self.together))
        for i, line in enumerate(transposed(lines)):
            at[self.rows] = Index.of(row + i)
            twin.store(at, self._converted(line))

    def _converted(self, loaded: Any) -> Any:
        """Elements in the twin's type."""
        if self.twin.type == self.source.type:
            return loaded
        wide = from_f8(loaded, str(element_type(self.source.type)), _VECTOR)
        narrow = ops.vector_type(element_type(self.twin.type), _VECTOR)
        return arith.TruncFOp(narrow, wide).result
