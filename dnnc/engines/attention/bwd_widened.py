# pyright: basic
"""Operands of fp8 in the workspace: as f16, which holds each of their numbers, or for TMA.

The kernel before the main one of attention's gradient writes them, with the work of all its blocks:
the main ones then take operands of 16 bits, whose transposed tiles tensor cores can read, or bytes
that TMA copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

from ... import dtypes
from ...codegen import ops
from ...codegen.attention.gradient_region import GradientRegion
from ...codegen.kernel import Kernel
from ...codegen.memory.tensors import GlobalTensor
from ...codegen.output import Output
from ...codegen.region import Region
from ...codegen.scalars.byte_math import from_f8
from ...codegen.scalars.scalar import element_type
from ...codegen.state import each
from ...codegen.walk.index import Index
from ...codegen.walk.loops import Loops
from ...dialect.tensor import Tensor, packed_strides
from ...dtypes import DType
from ...expr import ceildiv, product
from ...mlir import arith

_NAMES = ("q", "k", "v", "do")
_VECTOR = 8  # elements of a head that a thread has at a time
_ROW_UNIT = 16  # bytes that rows of a twin are a multiple of


def widened(region: Region, output: Output) -> GradientRegion:
    """The parts of a region, with operands of fp8 as f16 in the workspace of an output."""
    parts, free = GradientRegion(region), free_uids(region)
    twins = dict[str, Tensor]()
    for name in _NAMES:
        source = parts.source(name)
        if source.tensor.type.is_fp8:
            axes = source.axes(is_turned=name == "v")
            twins[name] = twin_of(source.tensor, axes, next(free), dtypes.f16)
            output.tensor(twins[name])
    return GradientRegion(region, twins)


def free_uids(region: Region) -> Iterator[int]:
    """Uids that no tensor of a region has."""
    taken = {tensor.uid for tensor in (*region.arguments.values(), *(t for _, t in region.outputs))}
    return (uid for uid in count(1) if uid not in taken)


def twin_of(tensor: Tensor, axes: tuple[int, int], uid: int, dtype: DType) -> Tensor:
    """A tensor of another type.  axes: of a head's elements, which are contiguous then, and of
    rows."""
    elements, rows = axes
    order = [axis for axis in range(tensor.rank) if axis not in axes] + [rows, elements]
    unit = _ROW_UNIT * 8 // dtype.bits
    sizes = [tensor.shape[axis] for axis in order]
    packed = packed_strides((*sizes[:-1], ceildiv(sizes[-1], unit) * unit))
    strides = dict(zip(order, packed, strict=True))
    return replace(
        tensor, uid=uid, dtype=dtype, strides=tuple(strides[a] for a in range(tensor.rank))
    )


def emit(kernel: Kernel, parts: GradientRegion, number: Any, blocks: Any, threads: int) -> None:
    """Writes a block's share of each operand; number: of the block, of so many."""
    narrow = GradientRegion(parts.region)
    first = number * threads + ops.thread_id()
    step = blocks * threads
    for name, twin in parts.twins.items():
        source = narrow.source(name)
        elements, _ = source.axes(is_turned=name == "v")
        dims = [
            ceildiv(size, _VECTOR) if axis == elements else size
            for axis, size in enumerate(twin.shape)
        ]
        loops = Loops(tuple(dims), tuple((axis,) for axis in range(len(dims))))
        copy = partial(_copy, kernel, loops, source.tensor, twin, elements)
        each(first, kernel.size(product(dims)), step)(copy)


def _copy(
    kernel: Kernel, loops: Loops, source: Tensor, twin: Tensor, elements: int, number: Any
) -> None:  # fmt: skip
    found = loops.coordinates(kernel, number)
    at = [found[axis] for axis in range(len(found))]
    at[elements] = Index(at[elements].index().base * _VECTOR, 1, _VECTOR)
    loaded = GlobalTensor(kernel, source).load(at, _VECTOR)
    if twin.type != source.type:
        wide = from_f8(loaded, str(element_type(source.type)), _VECTOR)
        narrow = ops.vector_type(element_type(twin.type), _VECTOR)
        loaded = arith.TruncFOp(narrow, wide).result
    GlobalTensor(kernel, twin).store(at, loaded)
