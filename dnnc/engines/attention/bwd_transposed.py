# pyright: basic
"""Operands of fp8 with their rows contiguous, in the workspace of attention's gradient.

Tensor cores multiply bytes with k contiguous only.  Rows are k of dK, dV and dQ: the kernel before
the main one writes Q, dO and K once more, [elements][rows], in the order in which the main kernel
has the weights that it multiplies them by, with zeros past lengths and past the last row:

    queries  of 16: 0 1 8 9  2 3 10 11  4 5 12 13  6 7 14 15
             (two neighbours of a thread's accumulators, and two of the next 8 columns, are a word)
    keys     of 16: 0 8  1 9  2 10 ...  7 15
             (a key and that 8 rows below are the 16 bits that `stmatrix` transposes)
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from ...codegen import ops
from ...codegen.attention.gradient_region import GradientRegion
from ...codegen.attention.sources import Source
from ...codegen.hopper import tma
from ...codegen.kernel import Kernel
from ...codegen.memory.tensors import GlobalTensor
from ...codegen.memory.transposed_tile import transposed
from ...codegen.output import Output
from ...codegen.region import Region
from ...codegen.state import each
from ...codegen.walk.index import Index
from ...codegen.walk.loops import Loops
from ...dialect.tensor import Tensor, packed_strides
from ...expr import ceildiv, product
from ...mlir import arith
from .bwd_widened import free_uids, twin_of
from .entry import cut_length

RUN = 16  # rows that lie in an order of their own
QUERY_ORDER = tuple(8 * (p >> 1 & 1) + 2 * (p >> 2) + (p & 1) for p in range(RUN))
KEY_ORDER = tuple((p >> 1) + 8 * (p & 1) for p in range(RUN))
_ORDERS = {"q": QUERY_ORDER, "do": QUERY_ORDER, "k": KEY_ORDER}
_TILE = 64  # rows that the last tile is filled up to
_ELEMENTS = 4  # of each row that a thread has at a time


def narrow(region: Region, output: Output) -> GradientRegion:
    """The parts of a region, with Q, dO and K transposed in the workspace of an output, and a copy
    there of each operand that TMA can't take from where it lies."""
    parts, free = GradientRegion(region), free_uids(region)
    twins, found = dict[str, Tensor](), dict[str, Tensor]()
    for name in ("q", "k", "v", "do"):
        source = parts.source(name)
        axes = source.axes(is_transposed=name == "v")
        if tma.refusal(source.tensor, axes) is not None:
            twins[name] = twin_of(source.tensor, axes, next(free), source.tensor.type)
        if name in _ORDERS:
            found[name] = _transposed_tensor(source, axes, next(free))
    for tensor in (*twins.values(), *found.values()):
        output.tensor(tensor)
    return GradientRegion(region, twins, found)


def _transposed_tensor(source: Source, axes: tuple[int, int], uid: int) -> Tensor:
    """[heads, elements, rows]."""
    elements, rows = (source.tensor.shape[axis] for axis in axes)
    shape = (*source.batch, elements, ceildiv(rows, _TILE) * _TILE)
    return replace(
        source.tensor, uid=uid, dims=shape, strides=packed_strides(shape), offset=0, alignment=16
    )


def emit(kernel: Kernel, parts: GradientRegion, number: Any, blocks: Any, threads: int) -> None:
    """Writes a block's share of each; number: of the block, of so many."""
    first = number * threads + ops.thread_id()
    step = blocks * threads
    own = GradientRegion(parts.region)
    for name, tensor in parts.transposed.items():
        source = own.source(name)
        batch, depth = source.batch, tensor.shape[-2]
        tiles = tensor.shape[-1] // _TILE
        # Neighbours have runs that follow each other: together they write 64 bytes of a row.
        dims = (*batch, tiles, ceildiv(depth, _ELEMENTS), ceildiv(_TILE, RUN))
        loops = Loops(dims, tuple((axis,) for axis in range(len(dims))))
        one = partial(_transpose, kernel, parts, name, source, loops)
        each(first, kernel.size(product(dims)), step)(one)


def _transpose(
    kernel: Kernel, parts: GradientRegion, name: str, source: Source, loops: Loops, number: Any
) -> None:  # fmt: skip
    found = loops.coordinates(kernel, number)
    *batch, tile, quad, run = (found[axis].index().base for axis in range(len(found)))
    elements, rows = source.axes(is_transposed=name == "v")
    size = source.tensor.shape[rows]
    column = Index(quad * _ELEMENTS, 1, _ELEMENTS)
    first = tile * _TILE + run * RUN
    end = None
    if source.kind:
        end = ops.minimum(cut_length(kernel, parts.region, source, batch), kernel.size(size))
    elif size.known_divisor() % _TILE:
        end = kernel.size(size)
    lines: list[Any] = []
    for place in _ORDERS[name]:
        row = first + place
        at: list[Any] = [Index.of(i) for i in batch] + [None, None]
        at[elements] = column
        at[rows] = Index.of(row if end is None else ops.minimum(row, kernel.size(size) - 1))
        line = GlobalTensor(kernel, source.tensor).load(at, _ELEMENTS)
        if end is not None:
            line = arith.SelectOp(row < end, line, ops.zeros(line.type)).result
        lines.append(line)
    target = GlobalTensor(kernel, parts.transposed[name])
    place = Index(first, 1, RUN)
    for i, whole in enumerate(transposed(lines)):
        at = [*(Index.of(b) for b in batch), Index.of(quad * _ELEMENTS + i), place]
        target.store(at, whole)
